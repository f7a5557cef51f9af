// AVX2, FMA, F16C (targets.cmake sets the flags).
#define VITRINE_TABLE kAvx2Table
#define VITRINE_TABLE_NAME "avx2"
#include "kernels/simd/table.h"
