#pragma once
// The tables of this build, one per instruction set. Only dispatch.cpp reads them: a table may hold instructions that
// this CPU lacks.
#include "kernels/table.h"

namespace vitrine {

extern const KernelTable kReferenceTable;
#ifdef VITRINE_X86
extern const KernelTable kAvx2Table;
extern const KernelTable kAvx512Table;
// The targets avx512_bf16 and amx are avx512 with these for products in bf16.
extern const PanelKernels kAvx512Bf16PanelTable, kAmxPanelTable;
extern const PackedKernels kAvx512Bf16PackedTable, kAmxPackedTable;
#endif
#ifdef VITRINE_ARM
extern const KernelTable kNeonTable;
extern const KernelTable kNeonDotTable;
// The target neon_i8mm is neon_dot with this for products of int8, neon_bf16 is neon_i8mm with these for products in bf16.
extern const PanelKernels kNeonI8mmPanelTable, kNeonBf16PanelTable;
extern const PackedKernels kNeonBf16PackedTable;
#endif
#ifdef VITRINE_WASM
extern const KernelTable kWasmTable;
#endif

}  // namespace vitrine
