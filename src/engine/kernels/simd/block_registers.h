#pragma once
// The block types of 256 whose weights come out of a block in a few vector operations.
#include "kernels/simd/dot_integers.h"
#include "kernels/simd/place.h"
#if HWY_ARCH_ARM
#include "kernels/neon/registers.h"
#elif HWY_TARGET <= HWY_AVX3
#include "kernels/avx512/registers.h"
#else
#include "kernels/avx2/registers.h"
#endif

namespace vitrine {
namespace {

constexpr int kChunks = 8 / kPartsAtOnce;  // of a block

/// A block's scales and minima as integers, 16 or 8 of them, and their factors.
struct GroupScales {
  float d;
  Sixteen scale;
  float dmin = 0;
  Sixteen minimum = no_bytes();
};
template <class T>
HWY_INLINE T word_at(const uint8_t* p) {
  T word;
  memcpy(&word, p, sizeof word);
  return word;
}
constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0f;  // the low ones of eight bytes

HWY_INLINE GroupScales scales_of_pairs(const uint8_t* block) {
  const Sixteen all = six_bit_pairs(block);
  return {half_at(block), all, half_at(block + 2), second_half(all)};
}

// Each type: scales(block); weights<C>(block) are those of chunk C with kOffset added, none below 0; or as they are where
// kSigned is set.

struct NibblesOf64 {  // 32 bytes hold two parts
  template <int kFrom>
  struct At {
    static constexpr Place of(int part) { return {kFrom + part / 2 * 32, part % 2 * 4}; }
  };
};
struct PairsOf128 {  // two bits: 32 bytes hold four parts
  template <int kFrom>
  struct At {
    static constexpr Place of(int part) { return {kFrom + part / 4 * 32, part % 4 * 2}; }
  };
};

struct RegistersQ2_K : BlockQ2_K {
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = false;
  static HWY_INLINE GroupScales scales(const uint8_t* block) {
    const Sixteen both = sixteen_at(block);
    return {half_at(block + 80), low_nibbles(both), half_at(block + 82), high_nibbles(both)};
  }
  template <int C>
  static HWY_INLINE Bytes weights(const uint8_t* block) {
    return field<PairsOf128::At<16>, C>(block, 3);
  }
};
struct RegistersQ3_K : BlockQ3_K {
  static constexpr int kOffset = 4;
  static constexpr bool kSigned = false;
  static HWY_INLINE GroupScales scales(const uint8_t* block) {
    const auto nibbles = word_at<uint64_t>(block + 96);
    const uint64_t upper = word_at<uint32_t>(block + 104), pairs = 0x0303030303030303;  // four scales' in one place of four bytes
    const Sixteen all = two_words((nibbles & kNibbles) | ((upper | upper << 30) & pairs) << 4,
                                  (nibbles >> 4 & kNibbles) | ((upper >> 4 | upper << 26) & pairs) << 4);
    return {half_at(block + 108), less(all, 32)};
  }
  template <int C>
  static HWY_INLINE Bytes weights(const uint8_t* block) {
    return add_bit<C, 4>(field<PairsOf128::At<32>, C>(block, 3), block);
  }
};
struct RegistersQ4_K : BlockQ4_K {
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = false;
  static HWY_INLINE GroupScales scales(const uint8_t* block) { return scales_of_pairs(block); }
  template <int C>
  static HWY_INLINE Bytes weights(const uint8_t* block) {
    return field<NibblesOf64::At<16>, C>(block, 15);
  }
};
struct RegistersQ5_K : BlockQ5_K {
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = false;
  static HWY_INLINE GroupScales scales(const uint8_t* block) { return scales_of_pairs(block); }
  template <int C>
  static HWY_INLINE Bytes weights(const uint8_t* block) {
    return add_bit<C, 16>(field<NibblesOf64::At<48>, C>(block, 15), block + 16);
  }
};
struct RegistersQ6_K : BlockQ6_K {
  static constexpr int kOffset = 32;
  static constexpr bool kSigned = false;
  struct Low {
    static constexpr Place of(int part) { return {part / 4 * 64 + part % 2 * 32, part % 4 / 2 * 4}; }
  };
  struct High {
    static constexpr Place of(int part) { return {128 + part / 4 * 32, part % 4 * 2 - 4}; }
  };
  static HWY_INLINE GroupScales scales(const uint8_t* block) { return {half_at(block + 208), sixteen_at(block + 192)}; }
  template <int C>
  static HWY_INLINE Bytes weights(const uint8_t* block) {
    return either(field<Low, C>(block, 15), field<High, C>(block, 48));
  }
};
struct RegistersIQ4_XS : BlockIQ4_XS {
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = true;
  static HWY_INLINE GroupScales scales(const uint8_t* block) {
    return {half_at(block), less(six_bits(word_at<uint32_t>(block + 4), word_at<uint16_t>(block + 2)), 32)};
  }
  template <int C>
  static HWY_INLINE Bytes weights(const uint8_t* block) {
    return look_up(kNonLinear, nibbles_by_16<C>(block + 8));
  }
};

}  // namespace
}  // namespace vitrine
