#pragma once
// 256 weights of any block type as bytes in registers, for panels.
#include "kernels/simd/dot_registers.h"

namespace vitrine {
namespace {

constexpr size_t kPanelRowsAhead = 6;  // asked for: few rows of x leave `next` too little time to ask for all

/// read(row, n, w, scale, minimum): n <= 256 weights, whole blocks, in w, and what their groups have besides; what is behind them
/// in w is no weights. kOffset is still to be taken from each byte; with kSigned and without an offset they may be below 0.
template <DType kType, class Form = typename RegisterForm<kType>::Type>
struct Unpacked256 {  // out of a block of 256 into registers
  static constexpr int kGroup = Form::kGroup, kOffset = Form::kOffset;
  static constexpr bool kHasMinimum = Form::kHasMinimum, kSigned = Form::kSigned;
  static HWY_INLINE void read(const char* row, size_t, Bytes (&w)[kChunks], float* scale, float* minimum) {
    const auto* block = reinterpret_cast<const uint8_t*>(row);
    const GroupScales groups = Form::scales(block);
    store_scales<kGroup>(groups.scale, groups.d, scale);
    if constexpr (kHasMinimum) store_scales<kGroup>(groups.minimum, groups.dmin, minimum);
    weights(block, w);
  }

 private:
  template <int C = 0>
  static HWY_INLINE void weights(const uint8_t* block, Bytes (&w)[kChunks]) {
    w[C] = Form::template weights<C>(block);
    if constexpr (C + 1 < kChunks) weights<C + 1>(block, w);
  }
};
template <DType kType>
  requires(pack_form<kType>().bytes != 0)
struct Unpacked256<kType, void> {  // out of eight blocks of 32 into registers
  using Of = Pack<kType>;
  static constexpr int kGroup = 32, kOffset = Of::kOffset;
  static constexpr bool kHasMinimum = Of::kForm.minimum, kSigned = Of::kSigned;
  static HWY_INLINE void read(const char* row, size_t n, Bytes (&w)[kChunks], float* scale, float* minimum) {
    constexpr size_t kAtOnce = kPartsAtOnce;
    if (n == kLargestBlock) {
      for (size_t c = 0; c < kChunks; ++c) chunk(row + c * kAtOnce * Of::kBytes, Of::kBytes, c, w[c], scale, minimum);
      return;
    }
    for (size_t c = 0; c < kChunks; ++c) {
      const size_t first = c * kAtOnce;
      w[c] = all_bytes(0);
      if (first * kBlock < n) chunk(row + first * Of::kBytes, (first + 1) * kBlock < n ? Of::kBytes : 0, c, w[c], scale, minimum);
    }
  }

 private:
  static HWY_INLINE void chunk(const char* first, size_t to_second, size_t c, Bytes& w, float* scale, float* minimum) {
    const Of pack(first, first + to_second);
    w = pack.q;
    for (size_t part = 0; part < kPartsAtOnce; ++part) {
      scale[c * kPartsAtOnce + part] = Of::of_output(pack.scale, part);
      if constexpr (kHasMinimum) minimum[c * kPartsAtOnce + part] = -Of::of_output(pack.minimum, part);
    }
  }
};
template <DType kType>
  requires(pack_form<kType>().bytes == 0)
struct Unpacked256<kType, void> {  // through memory
  using Block = DecodedBlock<kType>;
  static constexpr int kGroup = Block::kGroup, kOffset = 0;
  static constexpr bool kHasMinimum = Block::kHasMinimum, kSigned = true;
  static HWY_INLINE void read(const char* row, size_t n, Bytes (&w)[kChunks], float* scale, float* minimum) {
    Unpacked of;
    unpack<Block>(row, n, of);
    constexpr size_t kBytes = kLargestBlock / size_t(kGroup) * sizeof(float);
    memcpy(scale, of.scale, kBytes);
    if constexpr (kHasMinimum) memcpy(minimum, of.minimum, kBytes);
    memcpy(w, of.q, kLargestBlock);
  }
};

}  // namespace
}  // namespace vitrine
