"""Blocks of every block type, and the values they stand for by the package gguf (PyPI), in blocks.safetensors.

usage: make.py            needs numpy, gguf >= 0.17 and safetensors; CI does not run it

For each type "<name>.blocks" is u8 [blocks, bytes] and "<name>.values" f32 [blocks, elements]. The first block is all zeros, the
second all ones; then random bytes, a quarter of them with scales as models have them, so that few are infinite or NaN.
"""
import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize
from safetensors.numpy import save_file

# Where f16 scales lie in a block.
SCALES = dict(Q8_0=(0,), Q4_0=(0,), Q4_1=(0, 2), Q5_0=(0,), Q5_1=(0, 2), Q2_K=(80, 82), Q3_K=(108,), Q4_K=(0, 2), Q5_K=(0, 2), Q6_K=(208,), IQ4_NL=(0,),
              IQ4_XS=(0,), IQ2_XXS=(0,), IQ2_XS=(0,), IQ2_S=(0,), IQ3_XXS=(0,), IQ3_S=(0,), IQ1_S=(0,), IQ1_M=(), TQ1_0=(52,), TQ2_0=(64,), MXFP4=())

tensors = {}
random = np.random.default_rng(28)
for name, places in SCALES.items():
    elements, size = GGML_QUANT_SIZES[Type[name]]
    count = 48 if elements == 32 else 16
    blocks = random.integers(0, 256, (count, size), np.uint8)
    blocks[0], blocks[1] = 0, 255
    for i in range(2, count):
        for place in places if i % 4 else ():
            blocks[i, place:place + 2] = np.frombuffer(np.float16(random.uniform(-0.1, 0.1)).tobytes(), np.uint8)
        if name == "IQ1_M" and i % 4:  # four bits of the scale in each of four places
            bits = int(np.float16(random.uniform(-0.1, 0.1)).view(np.uint16))
            for n in range(4):
                blocks[i, 49 + 2 * n] = blocks[i, 49 + 2 * n] & 15 | (bits >> (4 * n) & 15) << 4
    with np.errstate(all="ignore"):
        values = dequantize(blocks, Type[name]).reshape(count, elements).astype(np.float32)
    tensors[name.lower() + ".blocks"], tensors[name.lower() + ".values"] = blocks, values
save_file(tensors, pathlib.Path(__file__).parent / "blocks.safetensors")
