// The bf16 panel of the avx512_bf16 target (targets.cmake sets the flags: those of avx512, and products of bf16 pairs).
#include "kernels/simd/panel_bf16.h"
#include "kernels/targets.h"

namespace vitrine {

constinit const PanelKernels kAvx512Bf16PanelTable = panel_in<Bf16Words, Bf16Panel>();

}  // namespace vitrine
