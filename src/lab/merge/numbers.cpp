#include "merge/numbers.h"

#include <cstring>

#include "kernels/table.h"

namespace vitrine {

size_t first_not_finite(const float* x, size_t n) {
  constexpr uint32_t kExponent = 0x7f800000u;
  constexpr size_t kBlockSize = 1024;
  for (size_t begin = 0; begin < n; begin += kBlockSize) {
    const size_t end = std::min(n, begin + kBlockSize);
    uint32_t bad = 0;
    for (size_t i = begin; i < end; ++i) {
      uint32_t bits;
      std::memcpy(&bits, x + i, sizeof bits);
      bad |= static_cast<uint32_t>((bits & kExponent) == kExponent);
    }
    if (bad != 0)
      for (size_t i = begin; i < end; ++i)
        if (!std::isfinite(x[i])) return i;
  }
  return n;
}

void narrow_to(DType dtype, const float* from, size_t n, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, from, n * sizeof(float));
    return;
  }
  auto* const halves = reinterpret_cast<uint16_t*>(to);
  if (dtype == DType::bf16) return kernels().narrow(from, n, halves);
  for (size_t i = 0; i < n; ++i) halves[i] = f32_to_f16(from[i]);
}

Gram gram(TensorInputs& in, const std::vector<size_t>& of, int base, bool by_layer) {
  const size_t n = of.size(), pairs = n * (n + 1) / 2;
  // Of many elements the rounding of f32 averages out. Of few it does not, and angles between close vectors magnify it.
  const bool small = !by_layer && in.elements() <= 1 << 16;
  const auto add = [&](const Piece& piece) {
    const float* const b = base < 0 ? nullptr : piece.x[static_cast<size_t>(base)];
    constexpr size_t kBlockSize = 1024;  // summed in f32; blocks are added up in double
    float* const differences = b == nullptr ? nullptr : piece.scratch(n * kBlockSize);
    std::vector<const float*> from(n);
    for (size_t e = 0; e < piece.size; e += kBlockSize) {
      const size_t here = std::min(kBlockSize, piece.size - e);
      for (size_t i = 0; i < n; ++i) {
        const float* const x = piece.x[of[i]] + e;
        from[i] = b == nullptr ? x : differences + i * kBlockSize;
        if (b == nullptr) continue;
        for (size_t d = 0; d < here; ++d) differences[i * kBlockSize + d] = x[d] - b[e + d];
      }
      size_t at = 0;
      for (size_t i = 0; i < n; ++i)
        for (size_t j = i; j < n; ++j, ++at) {
          if (small) {
            for (size_t d = 0; d < here; ++d) piece.sums[at] += static_cast<double>(from[i][d]) * static_cast<double>(from[j][d]);
          } else {
            piece.sums[at] += static_cast<double>(kernels().dot(from[i], from[j], here));
          }
        }
    }
  };
  const std::vector<double> sums = by_layer ? in.sum_of_layer(pairs, add) : in.sum(pairs, add);
  Gram made;
  made.n = n;
  made.products.resize(n * n);
  size_t at = 0;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i; j < n; ++j, ++at) made.products[i * n + j] = made.products[j * n + i] = sums[at];
  return made;
}

void write_combination(TensorInputs& in, const std::vector<size_t>& of, const std::vector<double>& factors, int base) {
  std::vector<float> f(factors.begin(), factors.end());
  in.write([&](const Piece& piece) {
    float* const out = piece.out;
    const float* const b = base < 0 ? nullptr : piece.x[static_cast<size_t>(base)];
    if (b == nullptr && of.size() == 2) {  // one pass: what most merges are
      const float *const x = piece.x[of[0]], *const y = piece.x[of[1]];
      for (size_t e = 0; e < piece.size; ++e) out[e] = f[0] * x[e] + f[1] * y[e];
      return;
    }
    if (b == nullptr) {
      for (size_t e = 0; e < piece.size; ++e) out[e] = 0;
    } else {
      for (size_t e = 0; e < piece.size; ++e) out[e] = b[e];
    }
    for (size_t k = 0; k < of.size(); ++k) {
      const float* const x = piece.x[of[k]];
      const float factor = f[k];
      if (b == nullptr) {
        for (size_t e = 0; e < piece.size; ++e) out[e] += factor * x[e];
      } else {
        for (size_t e = 0; e < piece.size; ++e) out[e] += factor * (x[e] - b[e]);
      }
    }
  });
}

}  // namespace vitrine
