#include "hooks/objective.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/tape.h"

namespace vitrine {
namespace {

struct ObjectiveNode {
  Tensor logits, sum;
  const LogprobTerm* terms;
  size_t count;
};

// log Σ exp of a row.
template <class T>
double log_sum(const T* row, int64_t n) {
  const T top = *std::max_element(row, row + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(row[i] - top));
  return static_cast<double>(top) + std::log(sum);
}

// d/dz of factor · (z[token] - log Σ exp z) is factor · (one at the token - softmax z).
void objective_backward(Context&, Tape& tape, const ObjectiveNode& node) {
  const Tensor dsum = tape.gradient(node.sum), dz = tape.accumulate(node.logits);
  if (!dsum || !dz) return;
  visit_scalar(dz, [&](auto zero) {
    using T = decltype(zero);
    const int64_t n = node.logits.row_size();
    for (const LogprobTerm& term : std::span(node.terms, node.count)) {
      const T* z = node.logits.row<T>(term.row);
      T* d = dz.row<T>(term.row);
      const double factor = term.factor * static_cast<double>(*dsum.data<T>()), lse = log_sum(z, n);
      for (int64_t i = 0; i < n; ++i) d[i] -= static_cast<T>(factor * std::exp(static_cast<double>(z[i]) - lse));
      d[term.token] += static_cast<T>(factor);
    }
  });
}

}  // namespace

Tensor sum_of_logprobs(Context& ctx, const Tensor& logits, std::span<const LogprobTerm> terms) {
  const Tensor sum = ctx.empty({1});
  visit_scalar(logits, [&](auto zero) {
    using T = decltype(zero);
    double total = 0;
    for (const LogprobTerm& term : terms) {
      VITRINE_CHECK(term.row >= 0 && term.row < logits.rows() && term.token >= 0 && term.token < logits.row_size(),
                    "a log-probability is taken of a token of the table");
      const T* z = logits.row<T>(term.row);
      total += term.factor * (static_cast<double>(z[term.token]) - log_sum(z, logits.row_size()));
    }
    *sum.data<T>() = static_cast<T>(total);
  });
  if (Tape* tape = ctx.tape()) {
    tape->record(&objective_backward, ObjectiveNode{logits, sum, tape->keep(terms), terms.size()});
  }
  return sum;
}

}  // namespace vitrine
