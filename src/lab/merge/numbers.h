#pragma once
// Sums over the inputs of one tensor that several methods need, and what is done to runs of numbers.
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/dtype.h"
#include "merge/tensor_inputs.h"

namespace vitrine {

/// The first element that is NaN or infinite, or n.
size_t first_not_finite(const float* x, size_t n);
/// As f32, bf16 or f16, to nearest with ties to even.
void narrow_to(DType dtype, const float* from, size_t n, std::byte* to);

/// Products of all pairs of vectors: of the inputs as they are, or of what they add to the base (then the base has none).
/// Symmetric, [n, n] over the `of` inputs.
struct Gram {
  size_t n = 0;
  std::vector<double> products;
  double operator()(size_t i, size_t j) const { return products[i * n + j]; }
  double norm(size_t i) const { return std::sqrt((*this)(i, i)); }
};

/// base -1: of the inputs themselves. by_layer: of all tensors of the layer together.
Gram gram(TensorInputs& in, const std::vector<size_t>& of, int base, bool by_layer = false);

/// Writes base + sum of factors[k] times (input of[k] - base); base -1: the factors of the inputs themselves.
void write_combination(TensorInputs& in, const std::vector<size_t>& of, const std::vector<double>& factors, int base);

}  // namespace vitrine
