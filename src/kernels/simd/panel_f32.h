#pragma once
// Panels of weights widened to f32 (panel.h has the loops).
#include "kernels/simd/dot_rows.h"
#include "kernels/simd/panel.h"

namespace vitrine {
namespace {

template <class W>
void expand_rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, float* panel) {
  for (size_t j = 0; j < n; ++j) {
    const char* row = w + j * stride;
    if constexpr (W::kIsBlock) {
      widen<W>(row + k0 / kBlock * W::kBytes, depth, panel + j * kPanelStride);
    } else {
      widen<W>(row + k0 * W::kBytes, depth, panel + j * kPanelStride);
    }
  }
}
template <class W>
void expand_columns(const char* w, size_t stride, size_t n, size_t k0, size_t depth, float* panel) {
  for (size_t i = 0; i < depth; ++i) {
    const char* row = w + (k0 + i) * stride;
    float* out = panel + i * kInputStride;
    for (size_t j = 0; j < n; j += kLanes) store_up_to(weight_load_up_to<W>(row + j * W::kBytes, n - j), out + j, n - j);
  }
}
void panel_expand(DType type, const void* weights, size_t stride, bool by_columns, size_t n, size_t k0, size_t depth,
                  void* buffer) {
  const char* w = static_cast<const char*>(weights);
  float* panel = static_cast<float*>(buffer);
  switch (type) {
    case DType::f32:
      return by_columns ? expand_columns<WeightF32>(w, stride, n, k0, depth, panel)
                        : expand_rows<WeightF32>(w, stride, n, k0, depth, panel);
    case DType::f16:
      return by_columns ? expand_columns<WeightF16>(w, stride, n, k0, depth, panel)
                        : expand_rows<WeightF16>(w, stride, n, k0, depth, panel);
    case DType::bf16:
      return by_columns ? expand_columns<WeightBf16>(w, stride, n, k0, depth, panel)
                        : expand_rows<WeightBf16>(w, stride, n, k0, depth, panel);
    case DType::q8_0: return expand_rows<WeightQ8>(w, stride, n, k0, depth, panel);
    case DType::q4_0: return expand_rows<WeightQ4>(w, stride, n, k0, depth, panel);
    default: return;
  }
}

}  // namespace
}  // namespace vitrine
