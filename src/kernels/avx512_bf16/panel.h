#pragma once
// Panels of weights rounded to bf16, in pairs of neighbouring inputs (simd/panel.h has the loops).
#include "kernels/avx512_bf16/words.h"
#include "kernels/simd/panel.h"

namespace vitrine {
namespace {

template <class W>
void expand_bf16_rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, float* panel) {
  const size_t begin = W::kIsBlock ? k0 / kBlock * W::kBytes : k0 * W::kBytes;
  for (size_t j = 0; j < n; ++j) {
    auto* out = reinterpret_cast<uint16_t*>(panel + j * kPanelStride);
    if constexpr (std::is_same_v<W, WeightBf16>) {
      memcpy(out, w + j * stride + begin, depth * sizeof(uint16_t));
    } else {
      narrow<W>(w + j * stride + begin, depth, out);
    }
    if (depth % 2 != 0) out[depth] = 0;
  }
}
template <class W>
void expand_bf16_columns(const char* w, size_t stride, size_t n, size_t k0, size_t depth, float* panel) {
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
void expand_bf16(DType type, const void* weights, size_t stride, bool by_columns, size_t n, size_t k0, size_t depth,
                 void* buffer) {
  const char* w = static_cast<const char*>(weights);
  float* panel = static_cast<float*>(buffer);
  switch (type) {
    case DType::f32:
      return by_columns ? expand_bf16_columns<WeightF32>(w, stride, n, k0, depth, panel)
                        : expand_bf16_rows<WeightF32>(w, stride, n, k0, depth, panel);
    case DType::f16:
      return by_columns ? expand_bf16_columns<WeightF16>(w, stride, n, k0, depth, panel)
                        : expand_bf16_rows<WeightF16>(w, stride, n, k0, depth, panel);
    case DType::bf16:
      return by_columns ? expand_bf16_columns<WeightBf16>(w, stride, n, k0, depth, panel)
                        : expand_bf16_rows<WeightBf16>(w, stride, n, k0, depth, panel);
    case DType::q8_0: return expand_bf16_rows<WeightQ8>(w, stride, n, k0, depth, panel);
    case DType::q4_0: return expand_bf16_rows<WeightQ4>(w, stride, n, k0, depth, panel);
    default: return;
  }
}

}  // namespace
}  // namespace vitrine
