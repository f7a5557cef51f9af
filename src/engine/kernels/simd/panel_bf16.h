#pragma once
// Panels of weights rounded to bf16, in pairs of neighboring inputs (simd/panel.h has the loops).
#include "kernels/simd/bf16_words.h"
#include "kernels/simd/panel.h"

namespace vitrine {
namespace {

struct Bf16Panel {
  using Unit = float;  // a word
  template <class W>
  static void rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, float* panel) {
    for (size_t j = 0; j < n; ++j) {
      auto* out = reinterpret_cast<uint16_t*>(panel + j * kPanelStride);
      narrow<W>(w + j * stride + bytes_before<W>(k0), depth, out);
      if (depth % 2 != 0) out[depth] = 0;
    }
  }
  template <class W>
  static void columns(const char* w, size_t stride, size_t n, size_t k0, size_t depth, float* panel) {
    for (size_t i = 0; i < depth; i += 2) {
      const char* row = w + (k0 + i) * stride;
      float* out = panel + i / 2 * kInputStride;
      for (size_t j = 0; j < n; j += kLanes) {
        const Vec even = weight_load_up_to<W>(row + j * W::kBytes, n - j);
        const Vec odd = i + 1 < depth ? weight_load_up_to<W>(row + stride + j * W::kBytes, n - j) : hn::Zero(Tag());
        store_up_to(hn::BitCast(Tag(), narrow_in_pairs(even, odd)), out + j, n - j);
      }
    }
  }
};

}  // namespace
}  // namespace vitrine
