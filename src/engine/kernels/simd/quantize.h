#pragma once
// Activations as blocks of int8; the formula is that of kernels/reference/linear.h.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

/// 32 of a block, from its value `at` on.
HWY_INLINE void quantize_part(const float* x, ActivationBlock* y, size_t at) {
  Vec v[kVectors], m = hn::Zero(Tag());
  auto finite = hn::FirstN(Tag(), kLanes);
  for (int i = 0; i < kVectors; ++i) {
    v[i] = load(x + size_t(i) * kLanes);
    m = hn::Max(hn::Abs(v[i]), m);
    finite = hn::And(finite, hn::IsFinite(v[i]));
  }
  const float largest = max_of(m);
  const bool all_finite = hn::AllTrue(Tag(), finite), usable = all_finite && largest >= 1e-30f;
  const float scale = !all_finite ? __builtin_nanf("") : usable ? largest / 127.0f : 0.0f;
  const Vec inverse = broadcast(usable ? 127.0f / largest : 0.0f);
  const hn::Rebind<int8_t, Tag> bytes;
  auto sum = hn::Zero(IntTag());  // of 16 at a time
  for (int i = 0; i < kVectors; ++i) {
    const Vec value = usable ? hn::Mul(v[i], inverse) : hn::Zero(Tag());
    const auto q = hn::NearestInt(value);
    sum = hn::Add(sum, q);
    hn::StoreU(hn::DemoteTo(bytes, q), bytes, y->q + at + size_t(i) * kLanes);
    if (size_t(i + 1) * kLanes % 16 == 0) {
      y->sum[at / 16 + (size_t(i + 1) * kLanes - 1) / 16] = scale * float(hn::GetLane(hn::SumOfLanes(IntTag(), sum)));
      sum = hn::Zero(IntTag());
    }
  }
  y->scale[at / kBlock] = scale;
}

void quantize_int8(const float* x, size_t n, ActivationBlock* y) {
  for (; n > 0; ++y) {
    const size_t here = min_of(n, ActivationBlock::kElements);
    if (here < ActivationBlock::kElements) memset(y, 0, sizeof *y);
    for (size_t at = 0; at < here; at += kBlock) quantize_part(x + at, y, at);
    x += here, n -= here;
  }
}

}  // namespace
}  // namespace vitrine
