#pragma once
// From the type that weights are stored in to the elements of a panel.
#include "kernels/simd/decoded.h"

namespace vitrine {
namespace {

/// PanelKernels::expand for one layout: Layout::rows<W> takes weights that lie [out, in], Layout::columns<W> those that lie
/// [in, out] (no blocks); both write a panel of Layout::Unit.
template <class Layout>
void expand_weights(DType type, const void* weights, size_t stride, bool by_columns, size_t n, size_t k0, size_t depth,
                    void* buffer) {
  const char* w = static_cast<const char*>(weights);
  auto* panel = static_cast<typename Layout::Unit*>(buffer);
  if (by_columns) {
    switch (type) {
      case DType::f32: return Layout::template columns<WeightF32>(w, stride, n, k0, depth, panel);
      case DType::f16: return Layout::template columns<WeightF16>(w, stride, n, k0, depth, panel);
      case DType::bf16: return Layout::template columns<WeightBf16>(w, stride, n, k0, depth, panel);
      default: return;
    }
  }
  switch (type) {
    case DType::f32: return Layout::template rows<WeightF32>(w, stride, n, k0, depth, panel);
    case DType::f16: return Layout::template rows<WeightF16>(w, stride, n, k0, depth, panel);
    case DType::bf16: return Layout::template rows<WeightBf16>(w, stride, n, k0, depth, panel);
    case DType::q8_0: return Layout::template rows<WeightQ8>(w, stride, n, k0, depth, panel);
    case DType::q4_0: return Layout::template rows<WeightQ4>(w, stride, n, k0, depth, panel);
#define VITRINE_ROWS(name, elements, bytes, number) \
  case DType::name: return Layout::template rows<WeightDecoded<DType::name>>(w, stride, n, k0, depth, panel);
      VITRINE_DECODED_TYPES(VITRINE_ROWS)
      VITRINE_ROWS(f8_e4m3, 0, 0, 0)
#undef VITRINE_ROWS
    default: return;
  }
}

/// Where element k0 of a stored row begins; k0 is a multiple of a block's elements.
template <class W>
HWY_INLINE size_t bytes_before(size_t k0) {
  if constexpr (kIsDecoded<W>) return k0 / W::kElements * W::kBytes;
  return W::kIsBlock ? k0 / kBlock * W::kBytes : k0 * W::kBytes;
}

}  // namespace
}  // namespace vitrine
