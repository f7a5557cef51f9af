#include "ops/divergence.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "kernels/reference/backward.h"
#include "kernels/table.h"
#include "ops/head_chunks.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

using Kind = DivergenceSpec::Kind;

// What one event with the probabilities p and q adds to the divergence D, and q dD/dq up to a multiple of q, which falls out of
//   dD/du_j = q_j dD/dq_j - q_j (sum over i of q_i dD/dq_i),   u the logits / temperature.
template <class T>
struct Terms {
  T value, slope;
};
template <class T>
Terms<T> terms(Kind kind, T beta, T p, T q, T log_p, T log_q) {
  if (kind == Kind::forward_kl) return {p > 0 ? p * (log_p - log_q) : T{0}, -p};
  if (kind == Kind::reverse_kl) {
    const T both = q > 0 ? q * (log_q - log_p) : T{0};
    return {both, both};
  }
  const T m = beta * p + (1 - beta) * q;
  if (!(m > 0)) return {m, m};  // nothing, or NaN
  const T log_m = std::log(m), of_p = p > 0 ? beta * p * (log_p - log_m) : T{0},
          of_q = q > 0 ? (1 - beta) * q * (log_q - log_m) : T{0};
  return {of_p + of_q, of_q};
}

// z becomes unit exp(z - lse) times the slope of the cap; see the kernel.
template <class T>
void exponentials(T* z, int64_t n, T lse, T unit = 1, T cap = 0) {
  if constexpr (std::is_same_v<T, float>)
    kernels().loss_gradient(z, static_cast<size_t>(n), lse, unit, cap);
  else
    loss_gradient_reference(z, static_cast<size_t>(n), lse, unit, cap);
}

// Calls f(j, p, q, log p, log q) for n events given by u and t, logits / temperature of learner and target.
template <class T, class F>
void each_event(const T* u, const T* t, int64_t n, T lse, T target_lse, T inverse_temperature, F&& f) {
  constexpr int64_t kBlock = 256;
  T p[kBlock], q[kBlock], log_p[kBlock], log_q[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    for (int64_t i = 0; i < count; ++i) {
      log_q[i] = q[i] = u[begin + i] * inverse_temperature - lse;
      log_p[i] = p[i] = t[begin + i] * inverse_temperature - target_lse;
    }
    exponentials(q, count, T{0});
    exponentials(p, count, T{0});
    for (int64_t i = 0; i < count; ++i) f(begin + i, p[i], q[i], log_p[i], log_q[i]);
  }
}

void check_rows(const Tensor& x, const Head& head, std::span<const int32_t> labels, int64_t target_rows, int64_t target_vocab) {
  if (static_cast<int64_t>(labels.size()) != x.rows() || target_rows != x.rows())
    throw ShapeError("divergence: " + std::to_string(labels.size()) + " labels and " + std::to_string(target_rows) +
                     " rows of the target for " + std::to_string(x.rows()) + " rows");
  if (target_vocab != head.weight->out)
    throw ShapeError("divergence: the target's vocabulary has " + std::to_string(target_vocab) + " tokens, the learner's " +
                     std::to_string(head.weight->out));
}

// The mean of the scored rows' elements, summed in order.
template <class T>
T mean_of(const double* of_rows, std::span<const int32_t> labels, int64_t scored) {
  double sum = 0;
  for (size_t r = 0; r < labels.size(); ++r)
    if (labels[r] != kNotScored) sum += of_rows[r];
  return scored > 0 ? static_cast<T>(sum / static_cast<double>(scored)) : T{0};
}

// Against a model ---------------------------------------------------------------------------------------------------------

struct DenseNode {
  Tensor x, loss, target_x;
  Tensor row_lse, target_lse, along;  // [rows]; along: the sum of the slopes
  Head head, target;
  const int32_t* labels;
  int64_t scored;
  DivergenceSpec spec;
};

// Calls f(rows, row, first, n, z, t, pass) for each chunk of rows and of the vocabulary, `passes` times over the vocabulary.
template <class T, class F>
void each_pair(Context& ctx, const DenseNode& node, int passes, F&& f) {
  const int64_t all = node.x.rows(), vocab = node.head.weight->out;
  const auto scratch = ctx.frame();
  T* z = ctx.scratch<T>(chunk_size(all, vocab));
  T* t = ctx.scratch<T>(chunk_size(all, vocab));
  const T *bias = values_of<T>(ctx, node.head.weight->bias), *target_bias = values_of<T>(ctx, node.target.weight->bias);
  for (int64_t row = 0; row < all; row += kRowChunk) {
    const int64_t n_rows = std::min(kRowChunk, all - row);
    const Tensor rows = node.x.rows_view(row, n_rows), target_rows = node.target_x.rows_view(row, n_rows);
    for (int pass = 0; pass < passes; ++pass)
      for (int64_t first = 0; first < vocab; first += kVocabularyChunk) {
        const int64_t n = std::min(kVocabularyChunk, vocab - first);
        if (pass == 0 || vocab > kVocabularyChunk) {  // else they are there still
          head_chunk(ctx, rows, row, node.head, bias, first, n, z);
          head_chunk(ctx, target_rows, row, node.target, target_bias, first, n, t);
        }
        f(rows, row, first, n, z, t, pass);
      }
  }
}

template <class T>
void dense_forward(Context& ctx, const DenseNode& node, std::span<const int32_t> labels) {
  const T inverse = static_cast<T>(1 / node.spec.temperature), beta = static_cast<T>(node.spec.beta);
  const int64_t all = node.x.rows();
  const auto scratch = ctx.frame();
  auto *values = ctx.scratch<double>(static_cast<size_t>(all)), *slopes = ctx.scratch<double>(static_cast<size_t>(all));
  T *lse = node.row_lse.data<T>(), *target_lse = node.target_lse.data<T>();
  for (int64_t r = 0; r < all; ++r) {
    lse[r] = target_lse[r] = -std::numeric_limits<T>::infinity();
    values[r] = slopes[r] = 0;
  }
  each_pair<T>(ctx, node, 2, [&](const Tensor& rows, int64_t row, int64_t, int64_t n, const T* z, const T* t, int pass) {
    parallel_for(ctx, rows.rows(), 2 * n, [&](int64_t begin, int64_t count) {
      std::vector<T> room(inverse == 1 || pass == 1 ? 0 : static_cast<size_t>(n));
      for (int64_t i = begin; i < begin + count; ++i) {
        const int64_t r = row + i;
        if (labels[static_cast<size_t>(r)] == kNotScored) continue;
        const T *u = z + i * n, *v = t + i * n;
        if (pass == 0) {
          lse[r] = join(lse[r], scaled_lse(u, n, inverse, room.data()));
          target_lse[r] = join(target_lse[r], scaled_lse(v, n, inverse, room.data()));
          continue;
        }
        double value = 0, slope = 0;
        each_event(u, v, n, lse[r], target_lse[r], inverse, [&](int64_t, T p, T q, T log_p, T log_q) {
          const Terms<T> e = terms(node.spec.kind, beta, p, q, log_p, log_q);
          value += static_cast<double>(e.value);
          slope += static_cast<double>(e.slope);
        });
        values[r] += value;
        slopes[r] += slope;
      }
    });
  });
  for (int64_t r = 0; r < all; ++r) node.along.data<T>()[r] = static_cast<T>(slopes[r]);
  *node.loss.data<T>() = mean_of<T>(values, labels, node.scored);
}

void dense_backward(Context& ctx, Tape& tape, const DenseNode& node) {
  const Tensor dloss = tape.gradient(node.loss);
  if (!dloss || node.scored == 0) return;
  const Tensor dx = tape.accumulate(node.x);
  const Weight& w = *node.head.weight;
  const bool first_to_w = takes_first(w.grad);
  visit_scalar(dloss, [&](auto zero) {
    using T = decltype(zero);
    const T inverse = static_cast<T>(1 / node.spec.temperature), beta = static_cast<T>(node.spec.beta),
            cap = static_cast<T>(node.head.softcap), unit = *dloss.data<T>() / static_cast<T>(node.scored) * inverse;
    each_pair<T>(ctx, node, 1, [&](const Tensor& rows, int64_t row, int64_t first, int64_t n, T* z, const T* t, int) {
      parallel_for(ctx, rows.rows(), 2 * n, [&](int64_t begin, int64_t count) {
        for (int64_t i = begin; i < begin + count; ++i) {
          const int64_t r = row + i;
          T* dz = z + i * n;
          if (node.labels[r] == kNotScored) {
            std::fill(dz, dz + n, T{0});
            continue;
          }
          const T along = node.along.data<T>()[r];
          each_event(dz, t + i * n, n, node.row_lse.data<T>()[r], node.target_lse.data<T>()[r], inverse,
                     [&](int64_t j, T p, T q, T log_p, T log_q) {
                       const T c = cap != 0 ? dz[j] / cap : T{0};
                       dz[j] = unit * (terms(node.spec.kind, beta, p, q, log_p, log_q).slope - q * along) * (1 - c) * (1 + c);
                     });
        }
      });
      head_chunk_backward(ctx, rows, w, first, n, z, dx ? dx.rows_view(row, rows.rows()) : Tensor(), first_to_w && row == 0);
    });
  });
}

// Against stored tokens ---------------------------------------------------------------------------------------------------

struct TopNode {
  Tensor x, loss, rest_lse;  // rest_lse [rows]: of the learner's logits / temperature of all other tokens
  Tensor du;                 // [rows, k + 1]: dD/du of each event
  Head head;
  const int32_t *labels, *tokens;
  int64_t scored, k;
  double temperature;
};

void top_backward(Context& ctx, Tape& tape, const TopNode& node) {
  const Tensor dloss = tape.gradient(node.loss);
  if (!dloss || node.scored == 0) return;
  const Tensor dx = tape.accumulate(node.x);
  const Weight& w = *node.head.weight;
  const bool first_to_w = takes_first(w.grad);
  visit_scalar(dloss, [&](auto zero) {
    using T = decltype(zero);
    const T inverse = static_cast<T>(1 / node.temperature), cap = static_cast<T>(node.head.softcap) * inverse,
            unit = *dloss.data<T>() / static_cast<T>(node.scored) * inverse;
    each_chunk<T>(ctx, node.x, node.head, {}, [&](const Tensor& rows, int64_t row, int64_t first, int64_t n, T* z) {
      parallel_for(ctx, rows.rows(), n, [&](int64_t begin, int64_t count) {
        std::vector<std::pair<int64_t, T>> of_top;
        for (int64_t i = begin; i < begin + count; ++i) {
          const int64_t r = row + i;
          T* dz = z + i * n;
          if (node.labels[r] == kNotScored) {
            std::fill(dz, dz + n, T{0});
            continue;
          }
          scale_row(dz, n, inverse);
          const T* du = node.du.row<T>(r);
          of_top.clear();
          for (int64_t e = 0; e < node.k; ++e) {
            const int64_t j = node.tokens[r * node.k + e] - first;
            if (j < 0 || j >= n) continue;
            const T c = cap != 0 ? dz[j] / cap : T{0};
            of_top.emplace_back(j, unit * du[e] * (1 - c) * (1 + c));
          }
          // The other tokens share their event's gradient as they share its probability.
          const T rest = node.rest_lse.data<T>()[r];
          if (static_cast<int64_t>(of_top.size()) < n) exponentials(dz, n, rest, unit * du[node.k], cap);
          for (const auto& [j, d] : of_top) dz[j] = d;
        }
      });
      head_chunk_backward(ctx, rows, w, first, n, z, dx ? dx.rows_view(row, rows.rows()) : Tensor(), first_to_w && row == 0);
    });
  });
}

template <class T>
void top_forward(Context& ctx, const TopNode& node, const TopTokens& target, std::span<const int32_t> labels,
                 const DivergenceSpec& spec) {
  const T inverse = static_cast<T>(1 / spec.temperature), beta = static_cast<T>(spec.beta);
  constexpr T kNothing = -std::numeric_limits<T>::infinity();
  const int64_t all = node.x.rows(), k = target.k;
  const auto scratch = ctx.frame();
  T *u = ctx.scratch<T>(static_cast<size_t>(all * k)), *rest = node.rest_lse.data<T>();
  std::fill(rest, rest + all, kNothing);
  each_chunk<T>(ctx, node.x, node.head, {}, [&](const Tensor& rows, int64_t row, int64_t first, int64_t n, T* z) {
    parallel_for(ctx, rows.rows(), n, [&](int64_t begin, int64_t count) {
      for (int64_t i = begin; i < begin + count; ++i) {
        const int64_t r = row + i;
        T* line = z + i * n;
        scale_row(line, n, inverse);
        for (int64_t e = 0; e < k; ++e) {
          const int64_t j = target.tokens[static_cast<size_t>(r * k + e)] - first;
          if (j < 0 || j >= n) continue;
          u[r * k + e] = line[j];
          line[j] = kNothing;  // no part of the rest
        }
        rest[r] = join(rest[r], log_sum_exp(line, n));
      }
    });
  });
  auto* values = ctx.scratch<double>(static_cast<size_t>(all));
  parallel_for(ctx, all, 4 * (k + 1), [&](int64_t begin, int64_t count) {
    for (int64_t r = begin; r < begin + count; ++r) {
      const T lse = join(log_sum_exp(u + r * k, k), rest[r]);
      T* du = node.du.row<T>(r);
      double value = 0, along = 0;
      for (const bool last : {false, true})  // first the sum of the slopes, then what each event is without it
        for (int64_t e = 0; e <= k; ++e) {
          const T log_q = (e < k ? u[r * k + e] : rest[r]) - lse, q = std::exp(log_q);
          const T log_p = static_cast<T>(target.logprobs[static_cast<size_t>(r * (k + 1) + e)]), p = std::exp(log_p);
          const Terms<T> event = terms(spec.kind, beta, p, q, log_p, log_q);
          if (last) {
            du[e] = event.slope - q * static_cast<T>(along);
          } else {
            value += static_cast<double>(event.value);
            along += static_cast<double>(event.slope);
          }
        }
      values[r] = value;
    }
  });
  *node.loss.data<T>() = mean_of<T>(values, labels, node.scored);
}

}  // namespace

Tensor divergence(Context& ctx, const Tensor& stream, const Head& head, const Tensor& target_stream, const Head& target,
                  std::span<const int32_t> labels, const DivergenceSpec& spec) {
  const Tensor x = read_by(ctx, stream, head), target_x = read_by(ctx, target_stream, target);
  check_rows(x, head, labels, target_x.rows(), target.weight->out);
  const int64_t rows = x.rows();
  DenseNode node{x,
                 ctx.empty({1}),
                 target_x,
                 ctx.empty({rows}),
                 ctx.empty({rows}),
                 ctx.empty({rows}),
                 head,
                 target,
                 labels.data(),
                 scored_in(labels),
                 spec};
  visit_scalar(x, [&](auto zero) { dense_forward<decltype(zero)>(ctx, node, labels); });
  if (Tape* tape = ctx.tape()) {
    node.labels = tape->keep(labels);
    tape->record(&dense_backward, node);
  }
  return node.loss;
}

Tensor divergence(Context& ctx, const Tensor& stream, const Head& head, const TopTokens& target, std::span<const int32_t> labels,
                  const DivergenceSpec& spec) {
  const Tensor x = read_by(ctx, stream, head);
  const int64_t rows = x.rows(), k = target.k, vocab = head.weight->out;
  check_rows(x, head, labels, k > 0 ? static_cast<int64_t>(target.tokens.size()) / k : 0, vocab);
  if (static_cast<int64_t>(target.logprobs.size()) != rows * (k + 1))
    throw ShapeError("divergence: " + std::to_string(target.logprobs.size()) + " log-probabilities for " + std::to_string(rows) +
                     " rows of " + std::to_string(k) + " tokens and the rest");
  for (const int32_t token : target.tokens)
    if (token < 0 || token >= vocab)
      throw InputError("token " + std::to_string(token) + " of the target is outside the vocabulary of " + std::to_string(vocab));
  TopNode node{x,    ctx.empty({1}),  ctx.empty({rows}),    ctx.empty({rows, k + 1}),
               head, labels.data(),   target.tokens.data(), scored_in(labels),
               k,    spec.temperature};
  visit_scalar(x, [&](auto zero) { top_forward<decltype(zero)>(ctx, node, target, labels, spec); });
  if (Tape* tape = ctx.tape()) {
    node.labels = tape->keep(labels);
    node.tokens = tape->keep<int32_t>(target.tokens);
    tape->record(&top_backward, node);
  }
  return node.loss;
}

TopTokens top_tokens(Context& ctx, const Tensor& stream, const Head& head, int64_t k, double temperature) {
  VITRINE_CHECK(k >= 1 && k <= head.weight->out, "as many most likely tokens as the vocabulary has, at most");
  const auto frame = ctx.frame();
  const Tensor x = read_by(ctx, stream, head);
  const auto rows = static_cast<size_t>(x.rows()), most = static_cast<size_t>(k);
  TopTokens result{k, std::vector<int32_t>(rows * most), std::vector<float>(rows * (most + 1))};
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    using Candidate = std::pair<T, int32_t>;
    const T inverse = static_cast<T>(1 / temperature);
    const auto likelier = [](const Candidate& a, const Candidate& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    };
    std::vector<std::vector<Candidate>> best(rows);
    std::vector<T> rest(rows, -std::numeric_limits<T>::infinity());
    std::atomic<bool> finite = true;
    each_chunk<T>(ctx, x, head, {}, [&](const Tensor& chunk, int64_t row, int64_t first, int64_t n, const T* z) {
      parallel_for(ctx, chunk.rows(), 4 * n, [&](int64_t begin, int64_t count) {
        std::vector<Candidate> all;
        std::vector<T> dropped;
        for (int64_t i = begin; i < begin + count; ++i) {
          std::vector<Candidate>& kept = best[static_cast<size_t>(row + i)];
          all = kept;
          for (int64_t j = 0; j < n; ++j) {
            const T logit = z[i * n + j];
            const bool bad = std::isnan(logit) || logit == std::numeric_limits<T>::infinity();
            if (bad) finite = false;
            all.emplace_back(bad ? T{0} : logit * inverse, static_cast<int32_t>(first + j));
          }
          const auto border = all.begin() + static_cast<std::ptrdiff_t>(std::min(most, all.size()));
          std::nth_element(all.begin(), border, all.end(), likelier);
          kept.assign(all.begin(), border);
          dropped.clear();
          for (auto other = border; other != all.end(); ++other) dropped.push_back(other->first);
          T& sum = rest[static_cast<size_t>(row + i)];
          sum = join(sum, log_sum_exp(dropped.data(), static_cast<int64_t>(dropped.size())));
        }
      });
    });
    if (!finite) throw RunError("logits are NaN or infinite, so there are no most likely tokens");
    std::vector<T> top(most);
    for (size_t r = 0; r < rows; ++r) {
      std::sort(best[r].begin(), best[r].end(), likelier);
      for (size_t e = 0; e < most; ++e) top[e] = best[r][e].first;
      const T lse = join(log_sum_exp(top.data(), k), rest[r]);
      for (size_t e = 0; e < most; ++e) {
        result.tokens[r * most + e] = best[r][e].second;
        result.logprobs[r * (most + 1) + e] = static_cast<float>(top[e] - lse);
      }
      result.logprobs[r * (most + 1) + most] = static_cast<float>(rest[r] - lse);
    }
  });
  return result;
}

}  // namespace vitrine
