// What every 64-bit Arm CPU has: Armv8.0-A.
#define VITRINE_TABLE kNeonTable
#define VITRINE_TABLE_NAME "neon"
#include "kernels/simd/table.h"
