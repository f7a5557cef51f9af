// The bf16 panel of the neon_bf16 target (targets.cmake sets the flags: those of neon_i8mm, and products of bf16 pairs,
// FEAT_BF16).
#include "kernels/simd/panel_bf16.h"
#include "kernels/targets.h"

namespace vitrine {

constinit const PanelKernels kNeonBf16PanelTable = panel_in<Bf16Words, Bf16Panel>();

}  // namespace vitrine
