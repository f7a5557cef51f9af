// The packed products of the neon_bf16 target (targets.cmake sets the flags: those of neon_i8mm, and products of bf16 pairs,
// FEAT_BF16).
#include "kernels/simd/packed.h"

#include "kernels/simd/bf16_words.h"
#include "kernels/targets.h"

namespace vitrine {

constinit const PackedKernels kNeonBf16PackedTable = packed_in<Bf16Words>();

}  // namespace vitrine
