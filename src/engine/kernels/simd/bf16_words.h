#pragma once
// Words of two elements rounded to bf16, which one instruction multiplies and adds in f32.
#include "kernels/simd/bf16.h"
#include "kernels/simd/words.h"

namespace vitrine {
namespace {

struct Bf16Words {
  static constexpr size_t kSteps = 2;
  static constexpr DType kStored = DType::bf16;
  static HWY_INLINE Vec along(const float* p, size_t n) {
    const Vec low = load_up_to(p, n), high = n > kLanes ? load_up_to(p + kLanes, n - kLanes) : hn::Zero(Tag());
    return hn::BitCast(Tag(), narrow_in_row(low, high));
  }
  static HWY_INLINE Vec across(const float* p, size_t stride, size_t lines, size_t steps) {
    const Vec even = load_up_to(p, lines), odd = steps > 1 ? load_up_to(p + stride, lines) : hn::Zero(Tag());
    return hn::BitCast(Tag(), narrow_in_pairs(even, odd));
  }
  static HWY_INLINE Vec multiply_add(Vec a, Vec b, Vec sum) {
#if HWY_ARCH_X86
    return Vec{_mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(a.raw), reinterpret_cast<__m512bh>(b.raw))};
#else
    return Vec{vbfdotq_f32(sum.raw, vreinterpretq_bf16_f32(a.raw), vreinterpretq_bf16_f32(b.raw))};
#endif
  }
};

}  // namespace
}  // namespace vitrine
