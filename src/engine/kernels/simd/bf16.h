#pragma once
// f32 elements rounded to bf16: to nearest, ties to even, NaN stays NaN.
#include <type_traits>

#include "kernels/simd/decoded.h"

namespace vitrine {
namespace {

/// bf16 bits in the low half of each lane, as f32_to_bf16 gives them.
HWY_INLINE hn::Vec<IntTag> bf16_bits(Vec v) {
  const hn::RebindToUnsigned<Tag> u;
  const auto bits = hn::BitCast(u, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fff))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(u, 0x40));
  return hn::BitCast(IntTag(), hn::IfThenElse(hn::RebindMask(u, hn::IsNaN(v)), quiet, rounded));
}

/// 2 kLanes elements in bf16, those of `low` first.
HWY_INLINE hn::Vec<IntTag> narrow_in_row(Vec low, Vec high) {
#ifdef __AVX512BF16__  // takes elements below f32's smallest normal one for zero, as the products of bf16 do
  return hn::Vec<IntTag>{reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high.raw, low.raw))};
#else
  const hn::Rebind<uint16_t, Tag> half;
  uint16_t both[2 * kLanes];
  hn::StoreU(hn::DemoteTo(half, bf16_bits(low)), half, both);
  hn::StoreU(hn::DemoteTo(half, bf16_bits(high)), half, both + kLanes);
  return hn::LoadU(IntTag(), reinterpret_cast<const int32_t*>(both));
#endif
}

/// kLanes pairs in bf16: one number of `even` and one of `odd` in each lane.
HWY_INLINE hn::Vec<IntTag> narrow_in_pairs(Vec even, Vec odd) {
#ifdef __AVX512BF16__
  alignas(64) static constexpr uint16_t kInTurn[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return hn::Vec<IntTag>{_mm512_permutexvar_epi16(_mm512_load_si512(kInTurn), narrow_in_row(even, odd).raw)};
#else
  return hn::Or(bf16_bits(even), hn::ShiftLeft<16>(bf16_bits(odd)));
#endif
}

/// The low halves of the first n lanes.
inline void store_halves(hn::Vec<IntTag> bits, uint16_t* y, size_t n) {
  const hn::Rebind<uint16_t, Tag> half;
  uint16_t buffer[kLanes];
  hn::StoreU(hn::DemoteTo(half, bits), half, n < kLanes ? buffer : y);
  if (n < kLanes) memcpy(y, buffer, n * sizeof(uint16_t));
}
inline void store_bf16(Vec v, uint16_t* y, size_t n) { store_halves(bf16_bits(v), y, n); }

template <class W, int V = 0>
HWY_INLINE void narrow_unit(const char* row, size_t i, uint16_t* y) {
#ifdef __AVX512BF16__
  static_assert(kVectors == 2);
  hn::StoreU(narrow_in_row(weight_part<W, 0>(row, i), weight_part<W, 1>(row, i)), IntTag(), reinterpret_cast<int32_t*>(y + i));
#else
  store_bf16(weight_part<W, V>(row, i), y + i + V * kLanes, kLanes);
  if constexpr (V + 1 < kVectors) narrow_unit<W, V + 1>(row, i, y);
#endif
}
/// n elements of a stored row as bf16.
template <class W>
void narrow(const char* row, size_t n, uint16_t* y) {
  if constexpr (std::is_same_v<W, WeightBf16>) {
    memcpy(y, row, n * sizeof(uint16_t));
  } else if constexpr (kIsDecoded<W>) {
    alignas(64) float wide[kLargestBlock];
    for (size_t i = 0; i < n; i += kLargestBlock) {
      const size_t here = min_of(kLargestBlock, n - i);
      decode_row(W(), row + i / W::kElements * W::kBytes, here, wide);
      narrow<WeightF32>(reinterpret_cast<const char*>(wide), here, y + i);
    }
  } else {
    size_t i = 0;
    for (; i + kBlock <= n; i += kBlock) narrow_unit<W>(row, i, y);
    if constexpr (!W::kIsBlock) {
      for (; i < n; i += kLanes) store_bf16(weight_load_up_to<W>(row + i * W::kBytes, n - i), y + i, min_of(kLanes, n - i));
    }
  }
}

inline void narrow_f32(const float* x, size_t n, uint16_t* y) { narrow<WeightF32>(reinterpret_cast<const char*>(x), n, y); }

}  // namespace
}  // namespace vitrine
