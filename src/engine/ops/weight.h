#pragma once
// Weights, used where they lie: mapped file memory or a trainer's buffer. Only linear, embed and the head open a Weight.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/dtype.h"

namespace vitrine {

/// Where a parameter's gradient is added, in the layout of the parameter in its file; null data: not wanted.
/// The type is the activations' (f32, or f64 when gradients are checked).
struct GradTarget {
  void* data = nullptr;
  size_t stride = 0;  // elements from one stored row to the next
  /// A trainer's f32 matrix, true: what lies at data counts as zeros, whatever it is. Who contributes first sets all of it and
  /// says so (takes_first), or makes it zeros (zero_if_unset).
  bool* unset = nullptr;
};

/// Whether the caller, who reaches all of the matrix, shall set what lies there; later contributions are added.
inline bool takes_first(const GradTarget& g) { return g.unset != nullptr && std::exchange(*g.unset, false); }

/// A vector of elements (norm weight, bias), f32 or f64.
struct Vector {
  std::string name;  // as in the model's own file
  const void* data = nullptr;
  DType dtype = DType::f32;
  int64_t size = 0;
  GradTarget grad;

  explicit operator bool() const { return data != nullptr; }
  template <class T>
  T at(int64_t i) const {
    return dtype == DType::f64 ? static_cast<T>(static_cast<const double*>(data)[i])
                               : static_cast<T>(static_cast<const float*>(data)[i]);
  }
};

struct LowRank;

/// A matrix from `in` inputs to `out` outputs, and its bias.
/// Stored [out, in] (each stored row makes one output), or [in, out] if by_columns (GPT-2's own files).
struct Weight {
  std::string name;  // as in the model's own file
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  int64_t out = 0, in = 0;
  size_t stride = 0;  // bytes from one stored row to the next
  bool by_columns = false;
  bool absent = false;  // of a head that the files do not hold: what lies at data is not its own
  Vector bias;          // [out], or empty
  GradTarget grad;
  const LowRank* adapter = nullptr;  // what linear adds to its product (ops/low_rank.h); null: nothing

  explicit operator bool() const { return data != nullptr; }
  const std::byte* stored_row(int64_t i) const { return data + static_cast<size_t>(i) * stride; }
  /// The weight from input i to output j, as stored.
  template <class T>
  T at(int64_t j, int64_t i) const {
    const std::byte* row = stored_row(by_columns ? i : j);
    const auto column = static_cast<size_t>(by_columns ? j : i);
    if (dtype == DType::f64) return static_cast<T>(reinterpret_cast<const double*>(row)[column]);
    return static_cast<T>(element_at(dtype, row, column));
  }
  size_t bytes() const { return row_bytes(dtype, static_cast<size_t>(in)) * static_cast<size_t>(out); }
};

/// For those who add to a part of the matrix.
inline void zero_if_unset(const Weight& w) {
  if (!takes_first(w.grad)) return;
  const auto rows = static_cast<size_t>(w.by_columns ? w.in : w.out), row = static_cast<size_t>(w.by_columns ? w.out : w.in);
  for (size_t i = 0; i < rows; ++i) std::fill_n(static_cast<float*>(w.grad.data) + i * w.grad.stride, row, 0.0f);
}

}  // namespace vitrine
