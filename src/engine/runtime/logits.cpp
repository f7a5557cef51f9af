#include "runtime/logits.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/error.h"
#include "runtime/kl_from.h"
#include "runtime/row_math.h"

namespace vitrine {

void check_logits(std::span<const float> logits) {
  if (all_finite(logits)) return;
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  throw RunError(std::string("the logits hold ") + (std::isnan(*bad) ? "NaN" : "an infinity") + " at token " +
                 std::to_string(bad - logits.begin()) + " of " + std::to_string(logits.size()) +
                 "; the model's weights may be damaged, or the computation overflowed");
}

double log_sum_exp(std::span<const float> logits) {
  const float top = largest(logits);
  return top == -INFINITY ? top : top + std::log(sum_of_exponentials(logits, top));
}

namespace {

// What one token adds: nothing where p has none of it, though its logarithms be infinite.
double kl_term(double p, double log_p, float q, double q_lse) {
  return p == 0 ? 0 : p * (log_p - (static_cast<double>(q) - q_lse));
}

double not_negative(double kl) { return kl < 0 ? 0 : kl; }

}  // namespace

double kl_divergence(std::span<const float> p, std::span<const float> q) {
  const double p_lse = log_sum_exp(p), q_lse = log_sum_exp(q);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = static_cast<double>(p[i]) - p_lse;
    kl += kl_term(std::exp(log_p), log_p, q[i], q_lse);
  }
  return not_negative(kl);
}

KlFrom::KlFrom(std::span<const float> p) : log_p_(p.size()), p_(p.size()) {
  const double p_lse = log_sum_exp(p);
  for (size_t i = 0; i < p.size(); ++i) {
    log_p_[i] = static_cast<double>(p[i]) - p_lse;
    p_[i] = std::exp(log_p_[i]);
  }
}

double KlFrom::to(std::span<const float> q, double q_log_sum_exp) const {
  double kl = 0;
  for (size_t i = 0; i < q.size(); ++i) kl += kl_term(p_[i], log_p_[i], q[i], q_log_sum_exp);
  return not_negative(kl);
}

void log_softmax(std::span<float> row) {
  const float top = largest(row);
  const float log_sum = static_cast<float>(std::log(sum_of_exponentials(row, top)));
  for (float& x : row) x = x - top - log_sum;
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, size_t n) {
  check_logits(logits);
  n = std::min(n, logits.size());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(n);
  std::partial_sort(order.begin(), end, order.end(), better);
  const double total = log_sum_exp(logits);
  std::vector<TokenLogprob> top;
  for (auto it = order.begin(); it != end; ++it)
    top.push_back({*it, static_cast<float>(logits[static_cast<size_t>(*it)] - total)});
  return top;
}

}  // namespace vitrine
