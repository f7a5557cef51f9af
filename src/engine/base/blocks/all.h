#pragma once
// Every block type that is decoded to f32 before its products: DecodedBlock<type> is its struct.
#include "base/blocks/f8_e4m3.h"
#include "base/blocks/iq1_m.h"
#include "base/blocks/iq1_s.h"
#include "base/blocks/iq2_s.h"
#include "base/blocks/iq2_xs.h"
#include "base/blocks/iq2_xxs.h"
#include "base/blocks/iq3_s.h"
#include "base/blocks/iq3_xxs.h"
#include "base/blocks/iq4_nl.h"
#include "base/blocks/iq4_xs.h"
#include "base/blocks/mxfp4.h"
#include "base/blocks/q2_k.h"
#include "base/blocks/q3_k.h"
#include "base/blocks/q4_1.h"
#include "base/blocks/q4_k.h"
#include "base/blocks/q5_0.h"
#include "base/blocks/q5_1.h"
#include "base/blocks/q5_k.h"
#include "base/blocks/q6_k.h"
#include "base/blocks/tq1_0.h"
#include "base/blocks/tq2_0.h"
#include "base/dtype.h"

namespace vitrine {
namespace {

template <DType kType>
struct DecodedBlock;
template <>
struct DecodedBlock<DType::q4_1> : BlockQ4_1 {};
template <>
struct DecodedBlock<DType::q5_0> : BlockQ5_0 {};
template <>
struct DecodedBlock<DType::q5_1> : BlockQ5_1 {};
template <>
struct DecodedBlock<DType::q2_k> : BlockQ2_K {};
template <>
struct DecodedBlock<DType::q3_k> : BlockQ3_K {};
template <>
struct DecodedBlock<DType::q4_k> : BlockQ4_K {};
template <>
struct DecodedBlock<DType::q5_k> : BlockQ5_K {};
template <>
struct DecodedBlock<DType::q6_k> : BlockQ6_K {};
template <>
struct DecodedBlock<DType::iq2_xxs> : BlockIQ2_XXS {};
template <>
struct DecodedBlock<DType::iq2_xs> : BlockIQ2_XS {};
template <>
struct DecodedBlock<DType::iq2_s> : BlockIQ2_S {};
template <>
struct DecodedBlock<DType::iq3_xxs> : BlockIQ3_XXS {};
template <>
struct DecodedBlock<DType::iq3_s> : BlockIQ3_S {};
template <>
struct DecodedBlock<DType::iq1_s> : BlockIQ1_S {};
template <>
struct DecodedBlock<DType::iq1_m> : BlockIQ1_M {};
template <>
struct DecodedBlock<DType::iq4_nl> : BlockIQ4_NL {};
template <>
struct DecodedBlock<DType::iq4_xs> : BlockIQ4_XS {};
template <>
struct DecodedBlock<DType::tq1_0> : BlockTQ1_0 {};
template <>
struct DecodedBlock<DType::tq2_0> : BlockTQ2_0 {};
template <>
struct DecodedBlock<DType::mxfp4> : BlockMXFP4 {};

template <>
struct DecodedBlock<DType::f8_e4m3> : BlockF8E4M3 {};

#define VITRINE_CHECK_SIZE(name, elements, bytes, number)                                                            \
  static_assert(DecodedBlock<DType::name>::kElements == (elements) && DecodedBlock<DType::name>::kBytes == (bytes)); \
  static_assert((elements) <= kLargestBlock);
VITRINE_DECODED_TYPES(VITRINE_CHECK_SIZE)
VITRINE_CHECK_SIZE(f8_e4m3, block_elements(DType::f8_e4m3), block_bytes(DType::f8_e4m3), )
#undef VITRINE_CHECK_SIZE

}  // namespace
}  // namespace vitrine
