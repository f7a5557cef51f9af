"""Writes the files of this folder with the packages safetensors, torch and gguf; expected.json holds what they mean.

Run: python make.py      (safetensors 0.8, gguf 0.17 or newer, torch, numpy)
"""
import json
import struct
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q
from safetensors import safe_open
from safetensors.torch import save_file

here = Path(__file__).parent
expected = {}


def ramp(*shape):
    """-1.25, -1.0, -0.75, ...: exact in every float type here."""
    n = int(np.prod(shape))
    return torch.arange(n, dtype=torch.float64).reshape(shape) * 0.25 - 1.25


def types():
    tensors = {
        "f64": ramp(2, 3), "f32": ramp(3, 2).float(), "f16": ramp(4).half(), "bf16": ramp(2, 1, 3).bfloat16(),
        "i64": torch.tensor([[-(2**40), 7]]), "i32": torch.tensor([-5, 2**30], dtype=torch.int32),
        "u8": torch.tensor([0, 255, 17], dtype=torch.uint8), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3),
        'a "quoted" näme\\': torch.ones(1),
        "bool": torch.tensor([True, False]), "i8": torch.tensor([-1, 1], dtype=torch.int8),
        "f8": torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
    }
    save_file(tensors, here / "types.safetensors", metadata={"format": "pt", "note": "ünïcode"})
    expected["types"] = {k: {"shape": list(v.shape), "values": v.double().flatten().tolist()}
                         for k, v in tensors.items() if k not in ("bool", "i8", "f8")}


def shards():
    folder = here / "sharded"
    folder.mkdir(exist_ok=True)
    parts = [{"a": ramp(2, 2).float(), "b": ramp(3).float()}, {"c": ramp(1, 5).bfloat16()}]
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for name, tensors in zip(names, parts):
        save_file(tensors, folder / name, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 38}, "weight_map": {t: n for n, p in zip(names, parts) for t in p}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def unaligned():
    """Files written before the header was padded begin their data at any byte."""
    header = json.dumps({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}})
    header += " " * ((3 - len(header)) % 8)
    path = here / "unaligned.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + np.array([1, -2, 0.5], "<f4").tobytes())
    with safe_open(path, "np") as f:
        assert f.get_tensor("x").tolist() == [1, -2, 0.5] and (8 + len(header)) % 4 != 0


def write_gguf(name, fill):
    writer = gguf.GGUFWriter(here / name, "llama")
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def every_type(w):
    w.add_uint8("t.u8", 200)
    w.add_int8("t.i8", -100)
    w.add_uint16("t.u16", 60000)
    w.add_int16("t.i16", -30000)
    w.add_uint32("t.u32", 4000000000)
    w.add_int32("t.i32", -2000000000)
    w.add_uint64("t.u64", 2**63 + 1)
    w.add_int64("t.i64", -(2**62))
    w.add_float32("t.f32", 0.1)
    w.add_float64("t.f64", 0.1)
    w.add_bool("t.yes", True)
    w.add_bool("t.no", False)
    w.add_string("t.string", "héllo\nworld")
    w.add_array("t.strings", ["a", "", "ü", "<s>"])
    w.add_array("t.ints", [3, -1, 2])
    w.add_array("t.floats", [0.5, -1.5])
    w.add_array("t.nested", [[1, 2], [3]])
    w.add_custom_alignment(64)
    rng = np.random.default_rng(7)
    weights = rng.standard_normal((3, 64)).astype(np.float32)
    w.add_tensor("f32", weights)
    w.add_tensor("f16", weights.astype(np.float16))
    w.add_tensor("i32", np.array([[1, -2, 3]], dtype=np.int32))
    kept = {"f32": weights, "f16": weights.astype(np.float16).astype(np.float32), "i32": np.array([[1, -2, 3]])}
    for name, kind in (("bf16", Q.BF16), ("q8_0", Q.Q8_0), ("q4_0", Q.Q4_0), ("q4_1", Q.Q4_1)):
        stored = gguf.quants.quantize(weights, kind)
        w.add_tensor(name, stored, raw_dtype=kind)
        kept[name] = gguf.quants.dequantize(stored, kind)
    expected["gguf"] = {k: {"shape": list(v.shape), "values": v.astype(float).flatten().tolist()}
                        for k, v in kept.items()}


def split():
    for part in range(2):
        def fill(w, part=part):
            w.add_uint16("split.no", part)
            w.add_uint16("split.count", 2)
            w.add_int32("split.tensors.count", 2)
            w.add_tensor("ab"[part], np.full((2, 4), part + 1, dtype=np.float32))
        write_gguf(f"split-0000{part + 1}-of-00002.gguf", fill)


types()
shards()
unaligned()
write_gguf("types.gguf", every_type)
split()
(here / "expected.json").write_text(json.dumps(expected) + "\n")
