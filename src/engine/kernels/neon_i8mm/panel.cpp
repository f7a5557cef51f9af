// The int8 panel of the neon_i8mm target (targets.cmake sets the flags: those of neon_dot, and matrix products of bytes,
// FEAT_I8MM).
#include "kernels/neon/panel_int8.h"
#include "kernels/targets.h"

namespace vitrine {

constinit const PanelKernels kNeonI8mmPanelTable = kPanelInt8;

}  // namespace vitrine
