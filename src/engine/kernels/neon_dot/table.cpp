// Armv8.2-A with dot products of bytes, FEAT_DotProd (targets.cmake sets the flags).
#define VITRINE_TABLE kNeonDotTable
#define VITRINE_TABLE_NAME "neon_dot"
#include "kernels/simd/table.h"
