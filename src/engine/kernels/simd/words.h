#pragma once
// What the lanes of a packed operand hold: words of 32 bits, each one or more neighboring steps of a sum. The loops of
// packed.h and panel.h are written over words; this is the plain kind, bf16_words.h the other one.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

struct F32Words {
  static constexpr size_t kSteps = 1;           // of a sum in a word
  static constexpr DType kStored = DType::f32;  // weights whose rows are words as they lie
  /// kLanes words of a line whose elements lie one after the other at p; n elements are left of it.
  static HWY_INLINE Vec along(const float* p, size_t n) { return load_up_to(p, n); }
  /// One word of each of `lines` lines that lie side by side, `stride` from step to step; at least one step is left.
  static HWY_INLINE Vec across(const float* p, size_t /*stride*/, size_t lines, size_t /*steps*/) { return load_up_to(p, lines); }
  /// sum + a * b, lane by lane.
  static HWY_INLINE Vec multiply_add(Vec a, Vec b, Vec sum) { return hn::MulAdd(a, b, sum); }
};

/// Words of n steps.
template <class Words>
constexpr size_t words_of(size_t n) {
  return (n + Words::kSteps - 1) / Words::kSteps;
}

}  // namespace
}  // namespace vitrine
