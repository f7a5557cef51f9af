// The packed products of the amx target (targets.cmake sets the flags: those of avx512, and the tiles').
#include "kernels/amx/packed.h"

#include "kernels/targets.h"

namespace vitrine {

constinit const PackedKernels kAmxPackedTable = amx_packed<AsmTiles>();

}  // namespace vitrine
