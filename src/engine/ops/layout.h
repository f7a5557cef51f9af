#pragma once
// Cutting work and memory into pieces.
#include <cstddef>

namespace vitrine {

/// Pieces of `size` that cover `count`.
template <class T>
constexpr T ceil_div(T count, T size) {
  return (count + size - 1) / size;
}

/// Bytes up to the next border of 64.
constexpr size_t align_up(size_t bytes) { return ceil_div(bytes, size_t{64}) * 64; }

/// What a piece of memory holds, laid out before it is taken.
class Layout {
 public:
  /// The offset of so many bytes, on a border of 64.
  size_t reserve(size_t bytes) {
    const size_t at = bytes_;
    bytes_ += align_up(bytes);
    return at;
  }
  size_t reserve_floats(size_t count) { return reserve(count * sizeof(float)); }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

}  // namespace vitrine
