// WebAssembly with vectors of 128 bits: the engine of a live page.
#define VITRINE_TABLE kWasmTable
#define VITRINE_TABLE_NAME "wasm"
#include "kernels/simd/table.h"
