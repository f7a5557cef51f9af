// Weighted sums: linear, passthrough, moving averages, LITI.
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "merge/methods.h"
#include "merge/numbers.h"

namespace vitrine {
namespace {

std::vector<size_t> all_inputs(const TensorInputs& in) {
  std::vector<size_t> all(in.count);
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

}  // namespace

void merge_linear(TensorInputs& in, const MethodParameters& p) {
  std::vector<double> factors = p.each("weight");
  if (p.flag("normalize")) {
    const double total = std::accumulate(factors.begin(), factors.end(), 0.0);
    if (total == 0)
      throw UsageError(in.name +
                       ": the weights of its models sum to 0 and cannot be normalized; change them, or set normalize: false");
    for (double& factor : factors) factor /= total;
  }
  write_combination(in, all_inputs(in), factors, -1);
}

void merge_passthrough(TensorInputs& in, const MethodParameters& p) { write_combination(in, {0}, p.each("scale"), -1); }

void merge_ema(TensorInputs& in, const MethodParameters& p) {
  const double mu = p.number("mu");
  if (!(mu >= 0 && mu <= 1)) throw UsageError(in.name + ": mu is " + std::to_string(mu) + "; expected 0 to 1");
  std::vector<double> factors(in.count);
  double kept = 1;
  for (size_t i = in.count; i-- > 1;) {
    factors[i] = mu * kept;
    kept *= 1 - mu;
  }
  factors[0] = kept;
  write_combination(in, all_inputs(in), factors, -1);
}

void merge_liti(TensorInputs& in, const MethodParameters& p) {
  const double eta = p.number("eta");
  const auto base = static_cast<size_t>(in.base);
  write_combination(in, {base, in.others().front()}, {1 - eta, eta}, -1);
}

}  // namespace vitrine
