// AVX-512 F, BW, CD, DQ, VL and VNNI (targets.cmake sets the flags).
#define VITRINE_TABLE kAvx512Table
#define VITRINE_TABLE_NAME "avx512"
#include "kernels/simd/table.h"
