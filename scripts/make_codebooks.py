"""Write src/engine/base/blocks/codebooks.h: the vectors that the block types IQ1_*, IQ2_* and IQ3_* choose from.

usage: make_codebooks.py > src/engine/base/blocks/codebooks.h      needs the package gguf (PyPI); CI does not run it
"""
import numpy as np
from gguf import quants

HEAD = """#pragma once
// The vectors that the types IQ1_*, IQ2_* and IQ3_* choose from, as their format defines them; written by
// scripts/make_codebooks.py from the package gguf (MIT). An entry is a vector's indices of magnitudes, first value lowest.
#include <cstdint>

namespace vitrine {
namespace {

// clang-format off"""

BOOKS = [("kIq2xxs", "IQ2_XXS", 2), ("kIq2xs", "IQ2_XS", 2), ("kIq2s", "IQ2_S", 2), ("kIq3xxs", "IQ3_XXS", 3), ("kIq3s", "IQ3_S", 3), ("kIq1", "IQ1_S", 2)]

print(HEAD)
for name, source, bits in BOOKS:
    kind = getattr(quants, source)
    kind.init_grid()
    vectors = kind.grid.reshape(kind.grid_shape)
    index = np.array([[kind.grid_map.index(int(v)) for v in vector] for vector in vectors])
    packed = [sum(int(i) << (bits * place) for place, i in enumerate(vector)) for vector in index]
    print(f"constexpr uint16_t {name}[{len(packed)}] = {{  // {vectors.shape[1]} values of {bits} bits")
    for at in range(0, len(packed), 16):
        print("    " + " ".join(f"0x{p:x}," for p in packed[at:at + 16]))
    print("};")
print("""// clang-format on

}  // namespace
}  // namespace vitrine""")
