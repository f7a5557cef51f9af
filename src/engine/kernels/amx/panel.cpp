// The bf16 panel of the amx target (targets.cmake sets the flags: those of avx512, and the tiles').
#include "kernels/amx/panel.h"

#include "kernels/targets.h"

namespace vitrine {

constinit const PanelKernels kAmxPanelTable = amx_panel<AsmTiles>();

}  // namespace vitrine
