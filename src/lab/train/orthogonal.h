#pragma once
// The nearest matrix with orthogonal rows or columns, roughly: what Muon steps along.
#include <cstddef>
#include <cstdint>

#include "train/parameters.h"

namespace vitrine {

/// Newton-Schulz iteration as Muon has it (Keller Jordan, https://kellerjordan.github.io/posts/muon): X = u / |u|, then
/// `iterations` times X = a X + b (X Xᵀ) X + c (X Xᵀ)² X with (a, b, c) = (3.4445, -4.7750, 2.0315), which brings all singular
/// values near 1. All of it in f32.
///
/// What is iterated here is the Gram matrix R = X Xᵀ of the shorter side. With P = a + b R + c R², the next one is P R P, and X
/// ends as the product of all P with the first X. These are small symmetric matrices that commute, of whose products half is
/// computed; the same result to rounding, for half the work where one side is four times the other.
class Orthogonalizer {
 public:
  /// For matrices up to so many rows and columns. One at a time; threads need one each.
  Orthogonalizer(size_t rows, size_t columns);

  /// out [rows, columns] += factor * (u made orthogonal), for u [rows, columns]; both lie row by row without gaps, and are not
  /// the same. A u of zeros adds zeros.
  void add(const float* u, size_t rows, size_t columns, int iterations, double factor, float* out);

  /// Bytes of one for matrices of that size.
  static double bytes(size_t rows, size_t columns);

 private:
  FloatBuffer gram_, square_, product_, next_, whole_;  // R, R², P, P R, the product of all P: [side, side]
  Buffer<std::byte> a_, b_;                             // packed operands
};

}  // namespace vitrine
