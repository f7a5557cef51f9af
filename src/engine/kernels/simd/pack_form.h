#pragma once
// The block types of 32 weights: where the parts of a block lie.
#include "base/blocks/all.h"

namespace vitrine {
namespace {

/// What a block of 32 weights holds: where its 16 bytes of nibbles begin, and the bits or the table that go with them.
struct PackForm {
  size_t bytes, nibbles = 0;
  int offset = 0;        // added to each weight to make it unsigned
  size_t fifth = 0;      // where the fifth bits are; 0: there are none
  bool minimum = false;  // an f16 behind the scale is added to each value
  const int8_t* table = nullptr;
};
template <DType kType>
constexpr PackForm pack_form() {
  switch (kType) {
    case DType::q8_0: return {.bytes = 34, .offset = 128};
    case DType::q4_0: return {.bytes = 18, .nibbles = 2, .offset = 8};
    case DType::q4_1: return {.bytes = 20, .nibbles = 4, .minimum = true};
    case DType::q5_0: return {.bytes = 22, .nibbles = 6, .offset = 16, .fifth = 2};
    case DType::q5_1: return {.bytes = 24, .nibbles = 8, .fifth = 4, .minimum = true};
    case DType::iq4_nl: return {.bytes = 18, .nibbles = 2, .offset = 128, .table = kNonLinear};
    case DType::mxfp4: return {.bytes = 17, .nibbles = 1, .offset = 128, .table = BlockMXFP4::kDoubled};
    default: return {.bytes = 0};
  }
}

}  // namespace
}  // namespace vitrine
