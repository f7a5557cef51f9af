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

}  // namespace vitrine
