#pragma once
// Panels of weights widened to f32 (panel.h has the loops).
#include "kernels/simd/dot_columns.h"
#include "kernels/simd/panel.h"

namespace vitrine {
namespace {

struct F32Panel {
  using Unit = float;
  template <class W>
  static void rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, float* panel) {
    for (size_t j = 0; j < n; ++j) widen<W>(w + j * stride + bytes_before<W>(k0), depth, panel + j * kPanelStride);
  }
  template <class W>
  static void columns(const char* w, size_t stride, size_t n, size_t k0, size_t depth, float* panel) {
    for (size_t i = 0; i < depth; ++i) {
      const char* row = w + (k0 + i) * stride;
      float* out = panel + i * kInputStride;
      for (size_t j = 0; j < n; j += kLanes) store_up_to(weight_load_up_to<W>(row + j * W::kBytes, n - j), out + j, n - j);
    }
  }
};

}  // namespace
}  // namespace vitrine
