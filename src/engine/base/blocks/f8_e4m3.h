#pragma once
// FP8 as Hugging Face directories hold it, with its scale beside it: 32 values in e4m3 (arXiv:2209.05433, table 1) and the f32
// scale of their tensor, row or square. A type of ours: GGUF has none. f32 scale; 32 codes of a sign bit, four bits of the
// exponent, three of the mantissa. The codes of NaN are none of a weight's.
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vitrine {
namespace {

struct BlockF8E4M3 {
  static constexpr size_t kElements = 32, kBytes = 36;
  static void values(const uint8_t* block, float* y) {
    float scale;
    memcpy(&scale, block, 4);
    const uint8_t* const codes = block + 4;
    // The fields of a code at the place of f32's: its exponent counts from 7, that of f32 from 127.
    constexpr float kExponents = 0x1p120f;
    for (size_t i = 0; i < kElements; ++i) {
      const uint32_t code = codes[i], bits = (code & 128u) << 24 | (code & 127u) << 20;
      float value;
      memcpy(&value, &bits, 4);
      y[i] = value * kExponents * scale;
    }
  }
};

}  // namespace
}  // namespace vitrine
