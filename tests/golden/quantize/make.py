"""Errors of ggml's own encoders on the weights of weights.safetensors, in ggml.json.

usage: make.py LIBGGML_BASE.so      needs numpy, gguf >= 0.19, safetensors and ggml's shared library; CI does not run it

The weights are three matrices [8, 512]: "normal"; "tails" with a few large values in a row; "sparse" of which half are zero. For each type
and matrix: the sum of squared errors without importance, and, with one for each column, the sum of squared errors times it.
"""
import ctypes
import json
import pathlib
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
TYPES = ("Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ3_XXS IQ3_S IQ2_XXS IQ2_XS IQ2_S IQ1_S IQ1_M TQ1_0 TQ2_0 MXFP4").split()
NEEDS_IMPORTANCE = {"IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"}  # without one ggml refuses

lib = ctypes.CDLL(sys.argv[1])
lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
lib.ggml_quantize_init.argtypes = [ctypes.c_int]
lib.ggml_row_size.restype = ctypes.c_size_t
lib.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]

random = np.random.default_rng(28)
normal = random.normal(0, 0.02, (8, 512)).astype(np.float32)
tails = (random.standard_t(4, (8, 512)) * 0.02).astype(np.float32)
sparse = (normal[::-1] * (random.random((8, 512)) < 0.5)).astype(np.float32)
importance = (random.random(512) ** 3 + 0.01).astype(np.float32)
weights = dict(normal=normal, tails=tails, sparse=np.ascontiguousarray(sparse))
save_file(weights | dict(importance=importance), HERE / "weights.safetensors")


def error(x, kind, weights):
    out = np.zeros(lib.ggml_row_size(Type[kind], x.size), np.uint8)
    lib.ggml_quantize_init(Type[kind])
    lib.ggml_quantize_chunk(Type[kind], x.ctypes.data, out.ctypes.data, 0, x.shape[0], x.shape[1], None if weights is None else weights.ctypes.data)
    y = dequantize(out, Type[kind]).reshape(x.shape).astype(np.float64)
    factor = np.ones(512) if weights is None else weights
    return float((factor * (y - x) ** 2).sum())


result = {}
for kind in TYPES:
    result[kind.lower()] = {name: [None if kind in NEEDS_IMPORTANCE else error(x, kind, None), error(x, kind, importance)] for name, x in weights.items()}
(HERE / "ggml.json").write_text(json.dumps(result, indent=1) + "\n")
