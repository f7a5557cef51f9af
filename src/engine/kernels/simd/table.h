#pragma once
// The table of one instruction set: each <set>/table.cpp includes this once, compiled with that set's flags.
// VITRINE_TABLE is the table's name in targets.h, VITRINE_TABLE_NAME the target's.
#include "kernels/simd/attention.h"
#include "kernels/simd/backward.h"
#include "kernels/simd/dot_columns.h"
#include "kernels/simd/dot_rows.h"
#include "kernels/simd/elementwise.h"
#include "kernels/simd/optimizer.h"
#include "kernels/simd/packed.h"
#include "kernels/simd/panel_f32.h"
#include "kernels/simd/quantize.h"
#include "kernels/simd/scan.h"
#include "kernels/targets.h"
#if HWY_ARCH_WASM  // has no products of bytes: block types are widened to f32
#include "kernels/simd/decoded.h"
#define VITRINE_BYTE_PRODUCTS \
  {                           \
  }
#define VITRINE_BYTE_PANEL \
  {                        \
  }
#else
#include "kernels/simd/dot_registers.h"
#if HWY_ARCH_ARM
#include "kernels/neon/panel_int8.h"
#else
#include "kernels/simd/panel_int8.h"
#include "kernels/simd/panel_int8_pairs.h"
#endif
#define VITRINE_BYTE_PRODUCTS \
  {nullptr, nullptr, nullptr, int8_product<DType::q8_0>(), int8_product<DType::q4_0>(), VITRINE_DECODED_TYPES(VITRINE_DOT_INT8)}
#define VITRINE_DOT_INT8(name, elements, bytes, number) int8_product<DType::name>(),
#define VITRINE_BYTE_PANEL kPanelInt8
#endif

namespace vitrine {

// The entries of the types that are decoded, one after the other.
#define VITRINE_DOT_ROWS(name, elements, bytes, number) dot_decoded<DType::name>,
#define VITRINE_WIDEN(name, elements, bytes, number) widen<WeightDecoded<DType::name>>,

constinit const KernelTable VITRINE_TABLE = {
    .name = VITRINE_TABLE_NAME,
    .dot_rows = {dot_rows<WeightF32>, dot_rows<WeightF16>, dot_rows<WeightBf16>, dot_rows<WeightQ8>, dot_rows<WeightQ4>,
                 VITRINE_DECODED_TYPES(VITRINE_DOT_ROWS) dot_decoded<DType::f8_e4m3>},
    .dot_rows_int8 = VITRINE_BYTE_PRODUCTS,
    .dot_columns = {dot_columns<WeightF32>, dot_columns<WeightF16>, dot_columns<WeightBf16>},
    .panel_f32 = panel_in<F32Words, F32Panel>(),
    .panel_bf16 = {},  // widened to f32 they are as fast; targets with products of bf16 have their own (dispatch.cpp)
    .panel_int8 = VITRINE_BYTE_PANEL,
    .packed_f32 = packed_in<F32Words>(),
    .packed_bf16 = {},
    .widen = {widen<WeightF32>, widen<WeightF16>, widen<WeightBf16>, widen<WeightQ8>, widen<WeightQ4>,
              VITRINE_DECODED_TYPES(VITRINE_WIDEN) widen<WeightDecoded<DType::f8_e4m3>>},
    .narrow = narrow_f32,
    .quantize_int8 = quantize_int8,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .rope = rope,
    .activate = activate,
    .gate = gate,
    .softmax = softmax,
    .pattern = pattern,
    .softcap = softcap,
    .add = add,
    .scale = scale,
    .log_sum_exp = log_sum_exp,
    .attention = attention,
    .set_products = set_products,
    .add_products = add_products,
    .scan = scan,
    .rms_norm_gradient = rms_norm_gradient,
    .layer_norm_gradient = layer_norm_gradient,
    .rope_gradient = rope_gradient,
    .activate_gradient = activate_gradient,
    .gate_gradient = gate_gradient,
    .softcap_gradient = softcap_gradient,
    .add_scaled = add_scaled,
    .dot = dot,
    .loss_gradient = loss_gradient,
    .pattern_gradient = pattern_gradient,
    .adamw = adamw,
    .adamw_bf16 = adamw_bf16,
    .sgd = sgd,
    .sum_of_squares = sum_of_squares,
};

}  // namespace vitrine
