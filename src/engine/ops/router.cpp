#include "ops/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct Routed {
  Tensor logits, weights;
  const int32_t* expert;
  ExpertSpec spec;
  RouterBalance* balance;
};

template <class T>
void softmax_of(const T* x, int64_t n, T* p) {
  const T largest = *std::max_element(x, x + n);
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += p[i] = std::exp(x[i] - largest);
  for (int64_t i = 0; i < n; ++i) p[i] /= sum;
}

// dx += p (dp - p · dp), the gradient of a softmax.
template <class T>
void add_softmax_gradient(const T* p, const T* dp, int64_t n, T* dx) {
  T inner = 0;
  for (int64_t i = 0; i < n; ++i) inner += p[i] * dp[i];
  for (int64_t i = 0; i < n; ++i) dx[i] += p[i] * (dp[i] - inner);
}

// What a row's largest is searched with: NaN counts as less than every number.
template <class T>
bool exceeds(T a, T b) {
  return a > b || (std::isnan(b) && !std::isnan(a));
}

// The scores of one row's experts, from which weights are made.
template <class T>
void scores_of(const T* logits, const ExpertSpec& spec, T* scores) {
  if (!spec.sigmoid) return softmax_of(logits, spec.count, scores);
  for (int64_t e = 0; e < spec.count; ++e) scores[e] = 1 / (1 + std::exp(-logits[e]));
}

// SparseMixer's shares [count] of one row where choice k is made: of the experts that were not chosen before and are near the
// best.
template <class T>
void mixer_shares(const T* logits, const int32_t* expert, int64_t k, const ExpertSpec& spec, T* p) {
  constexpr T kOut = -std::numeric_limits<T>::infinity();
  std::copy_n(logits, spec.count, p);
  for (int64_t i = 0; i < k; ++i) p[expert[i]] = kOut;
  const T best = *std::max_element(p, p + spec.count), near = static_cast<T>(*spec.near);
  for (int64_t e = 0; e < spec.count; ++e)
    if ((best - logits[e]) / std::max(std::abs(logits[e]), best) > near) p[e] = kOut;
  softmax_of(p, spec.count, p);
}

// The weights of one row's chosen experts. p: its scores [count], work of softmax_over_all.
template <class T>
void weights_of(const T* logits, const int32_t* expert, const ExpertSpec& spec, T* p, T* weights) {
  if (spec.near) {
    for (int64_t k = 0; k < spec.per_row; ++k) {
      mixer_shares(logits, expert, k, spec, p);
      weights[k] = p[expert[k]];
    }
    return;
  }
  if (!spec.softmax_over_all) {
    for (int64_t k = 0; k < spec.per_row; ++k) weights[k] = logits[expert[k]];
    return softmax_of(weights, spec.per_row, weights);
  }
  scores_of(logits, spec, p);
  T sum = 0;
  for (int64_t k = 0; k < spec.per_row; ++k) sum += weights[k] = p[expert[k]];
  sum = std::max(sum + static_cast<T>(spec.sum_eps), static_cast<T>(spec.least_sum));
  for (int64_t k = 0; k < spec.per_row && spec.renormalize; ++k) weights[k] /= sum;
  for (int64_t k = 0; k < spec.per_row && spec.scale != 1; ++k) weights[k] *= static_cast<T>(spec.scale);
}

// The same, then each multiplied by its expert's scale.
struct ScaledNode {
  Tensor weights, scaled;
  const int32_t* expert;
  const Vector* scales;
};

void scaled_backward(Context&, Tape& tape, const ScaledNode& node) {
  const Tensor dy = tape.gradient(node.scaled);
  if (!dy) return;
  const Tensor dx = tape.accumulate(node.weights);
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    auto* const dscales = static_cast<T*>(node.scales->grad.data);
    for (int64_t i = 0; i < dy.count(); ++i) {
      const T g = dy.data<T>()[i];
      if (dx) dx.data<T>()[i] += g * node.scales->at<T>(node.expert[i]);
      if (dscales != nullptr) dscales[node.expert[i]] += g * node.weights.data<T>()[i];
    }
  });
}

Tensor scaled_weights(Context& ctx, const Tensor& weights, const int32_t* expert, const Vector& scales) {
  const Tensor scaled = ctx.empty(weights.shape());
  visit_scalar(weights, [&](auto zero) {
    using T = decltype(zero);
    ctx.run(weights.count(), false,
            [&](int64_t i, int) { scaled.data<T>()[i] = weights.data<T>()[i] * scales.at<T>(expert[i]); });
  });
  if (Tape* tape = ctx.tape()) tape->record(&scaled_backward, ScaledNode{weights, scaled, expert, &scales});
  return scaled;
}

// dlogits += what comes through the weights. work: 2 count numbers.
template <class T>
void through_weights(const T* logits, const T* weights, const T* dweights, const int32_t* expert, const ExpertSpec& spec, T* work,
                     T* dlogits) {
  if (spec.near) {
    T *const p = work, *const dp = work + spec.count;
    for (int64_t k = 0; k < spec.per_row; ++k) {
      mixer_shares(logits, expert, k, spec, p);
      std::fill_n(dp, spec.count, T{0});
      dp[expert[k]] = dweights[k];
      add_softmax_gradient(p, dp, spec.count, dlogits);
    }
    return;
  }
  T inner = 0;
  for (int64_t k = 0; k < spec.per_row; ++k) inner += weights[k] * dweights[k];
  if (!spec.softmax_over_all) {
    for (int64_t k = 0; k < spec.per_row; ++k) dlogits[expert[k]] += weights[k] * (dweights[k] - inner);
    return;
  }
  T *const p = work, *const dp = work + spec.count;
  scores_of(logits, spec, p);
  std::fill_n(dp, spec.count, T{0});
  const T scale = static_cast<T>(spec.scale);
  T sum = static_cast<T>(spec.sum_eps);
  for (int64_t k = 0; k < spec.per_row; ++k) sum += p[expert[k]];
  if (sum < static_cast<T>(spec.least_sum)) sum = static_cast<T>(spec.least_sum), inner = 0;  // a divisor that nothing changes
  for (int64_t k = 0; k < spec.per_row; ++k)
    dp[expert[k]] += spec.renormalize ? (scale * dweights[k] - inner) / sum : scale * dweights[k];
  if (!spec.sigmoid) return add_softmax_gradient(p, dp, spec.count, dlogits);
  for (int64_t e = 0; e < spec.count; ++e) dlogits[e] += dp[e] * p[e] * (1 - p[e]);
}

// dlogits += the gradient of the load-balancing loss, whose probabilities are those of all experts.
template <class T>
void through_balance(const T* logits, const RouterBalance& balance, int64_t count, T* work, T* dlogits) {
  T *const p = work, *const dp = work + count;
  softmax_of(logits, count, p);
  const double rows = static_cast<double>(balance.rows), factor = balance.weight * static_cast<double>(count) / (rows * rows);
  for (int64_t e = 0; e < count; ++e) dp[e] = static_cast<T>(factor * balance.chosen[static_cast<size_t>(e)]);
  add_softmax_gradient(p, dp, count, dlogits);
}

void routed_backward(Context& ctx, Tape& tape, const Routed& node) {
  const Tensor dweights = tape.gradient(node.weights);
  const bool balances = node.balance != nullptr && node.balance->rows > 0 && node.balance->weight != 0;
  if (!dweights && !balances) return;
  const Tensor dlogits = tape.accumulate(node.logits);
  if (!dlogits) return;
  const ExpertSpec& spec = node.spec;
  visit_scalar(node.logits, [&](auto zero) {
    using T = decltype(zero);
    T* const work = ctx.scratch<T>(static_cast<size_t>(2 * spec.count));
    for (int64_t r = 0; r < node.logits.rows(); ++r) {
      const T* const logits = node.logits.row<T>(r);
      if (dweights)
        through_weights(logits, node.weights.row<T>(r), dweights.row<T>(r), node.expert + r * spec.per_row, spec, work,
                        dlogits.row<T>(r));
      if (balances) through_balance(logits, *node.balance, spec.count, work, dlogits.row<T>(r));
    }
  });
  tape.release(node.weights);
}

// Adds one layer's rows to what the loss is made of.
void count_choices(Context& ctx, const Tensor& logits, const int32_t* expert, const ExpertSpec& spec, RouterBalance& balance) {
  const auto scratch = ctx.frame();
  const auto count = static_cast<size_t>(spec.count);
  balance.chosen.resize(count);
  balance.probability.resize(count);
  balance.rows += logits.rows();
  for (int64_t i = 0; i < logits.rows() * spec.per_row; ++i) balance.chosen[static_cast<size_t>(expert[i])] += 1;
  visit_scalar(logits, [&](auto zero) {
    using T = decltype(zero);
    T* const p = ctx.scratch<T>(count);
    for (int64_t r = 0; r < logits.rows(); ++r) {
      softmax_of(logits.row<T>(r), spec.count, p);
      for (size_t e = 0; e < count; ++e) balance.probability[e] += static_cast<double>(p[e]);
    }
  });
}

// What experts are chosen by, where that is not their logits: [rows, count], -inf in groups that are not used.
Tensor choice_scores(Context& ctx, const Tensor& logits, const ExpertSpec& spec) {
  const Tensor scores = ctx.empty(logits.shape());
  const int64_t each = spec.count / spec.groups;
  visit_scalar(logits, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, logits.rows(), 8 * spec.count, [&](int64_t first, int64_t n) {
      const bool by_groups = spec.groups_used < spec.groups;
      std::vector<T> of_group(by_groups ? static_cast<size_t>(spec.groups) : 0), best(by_groups ? static_cast<size_t>(each) : 0);
      for (int64_t r = first; r < first + n; ++r) {
        T* const row = scores.row<T>(r);
        scores_of(logits.row<T>(r), spec, row);
        for (int64_t e = 0; e < spec.count && spec.correction != nullptr; ++e) row[e] += spec.correction->at<T>(e);
        if (!by_groups) continue;
        for (int64_t g = 0; g < spec.groups; ++g) {
          std::copy_n(row + g * each, each, best.begin());
          std::partial_sort(best.begin(), best.begin() + spec.group_best, best.end(), exceeds<T>);
          of_group[static_cast<size_t>(g)] = std::accumulate(best.begin(), best.begin() + spec.group_best, T{0});
        }
        for (int64_t used = 0; used < spec.groups_used; ++used) {
          const auto good = std::max_element(of_group.begin(), of_group.end(), [](T a, T b) { return exceeds(b, a); });
          *good = std::numeric_limits<T>::quiet_NaN();  // taken: less than every number
        }
        for (int64_t e = 0; e < spec.count; ++e)
          if (!std::isnan(of_group[static_cast<size_t>(e / each)])) row[e] = -std::numeric_limits<T>::infinity();
      }
    });
  });
  return scores;
}

}  // namespace

double RouterBalance::loss() const {
  double sum = 0;
  for (size_t e = 0; e < chosen.size(); ++e) sum += chosen[e] * probability[e];
  const double n = static_cast<double>(rows);
  return rows == 0 ? 0 : static_cast<double>(chosen.size()) * sum / (n * n);
}

void choose_experts(Context& ctx, const Tensor& logits, const ExpertSpec& spec, int32_t* expert) {
  const auto scratch = ctx.frame();
  const bool by_logits = spec.correction == nullptr && spec.groups_used == spec.groups;  // scores are in the same order
  const Tensor scores = by_logits ? logits : choice_scores(ctx, logits, spec);
  const int64_t per_row = spec.per_row;
  visit_scalar(logits, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, logits.rows(), logits.row_size() * per_row, [&](int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r) {
        const T* const row = scores.row<T>(r);
        int32_t* const chosen = expert + r * per_row;
        for (int64_t k = 0; k < per_row; ++k) {
          int32_t best = -1;
          for (int32_t e = 0; e < logits.row_size(); ++e)
            if (std::find(chosen, chosen + k, e) == chosen + k && (best < 0 || exceeds(row[e], row[best]))) best = e;
          chosen[k] = best;
        }
      }
    });
  });
}

Tensor expert_weights(Context& ctx, const Tensor& logits, const int32_t* expert, const ExpertSpec& spec) {
  const Tensor weights = ctx.empty({logits.rows(), spec.per_row});
  visit_scalar(logits, [&](auto zero) {
    using T = decltype(zero);
    const auto scratch = ctx.frame();
    T* const p = ctx.scratch<T>(static_cast<size_t>(spec.count));
    ctx.run(logits.rows(), false,
            [&](int64_t r, int) { weights_of(logits.row<T>(r), expert + r * spec.per_row, spec, p, weights.row<T>(r)); });
  });
  if (ctx.step_of_training.balance != nullptr && !ctx.step_of_training.balance->complete)
    count_choices(ctx, logits, expert, spec, *ctx.step_of_training.balance);
  if (Tape* tape = ctx.tape())
    tape->record(&routed_backward, Routed{logits, weights, expert, spec, ctx.step_of_training.balance});
  return spec.scales != nullptr ? scaled_weights(ctx, weights, expert, *spec.scales) : weights;
}

}  // namespace vitrine
