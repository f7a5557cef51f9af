// The packed products of the avx512_bf16 target (targets.cmake sets the flags: those of avx512, and products of bf16 pairs).
#include "kernels/simd/packed.h"

#include "kernels/simd/bf16_words.h"
#include "kernels/targets.h"

namespace vitrine {

constinit const PackedKernels kAvx512Bf16PackedTable = packed_in<Bf16Words>();

}  // namespace vitrine
