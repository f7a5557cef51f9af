#pragma once
// The tables of this build, one per instruction set. Only dispatch.cpp reads them: a table may hold instructions that
// this CPU lacks.
#include "kernels/table.h"

namespace vitrine {

extern const KernelTable kReferenceTable;
#ifdef VITRINE_X86
extern const KernelTable kAvx2Table;
extern const KernelTable kAvx512Table;
extern const PanelKernels kAmxPanelTable;  // the amx target is avx512 with these for products in bf16
extern const PackedKernels kAmxPackedTable;
#endif

}  // namespace vitrine
