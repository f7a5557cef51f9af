"""A part of what llama-imatrix gives for the shipped model on examples/fables.txt, in llama_imatrix.gguf.

usage: make_importance.py LLAMA_IMATRIX MODEL.gguf      MODEL: models/tales9m in f32, by llama.cpp's converter. CI does not run it
"""
import pathlib
import subprocess
import sys
import tempfile

import gguf

HERE = pathlib.Path(__file__).parent
KEPT = ("blk.0.attn_q.weight", "blk.0.attn_output.weight", "blk.3.attn_v.weight", "blk.7.ffn_up.weight", "blk.7.ffn_down.weight")

with tempfile.TemporaryDirectory() as scratch:
    out = pathlib.Path(scratch) / "all.gguf"
    subprocess.run([sys.argv[1], "-m", sys.argv[2], "-f", str(HERE.parents[2] / "examples/fables.txt"), "-o", str(out), "-c", "256", "--chunks", "2", "--no-ppl", "-t", "1"], check=True)
    reader = gguf.GGUFReader(out)
    writer = gguf.GGUFWriter(HERE / "llama_imatrix.gguf", "")
    writer.kv_data[0].pop("general.architecture", None)
    writer.add_type("imatrix"), writer.add_array("imatrix.datasets", ["fables.txt"])
    writer.add_uint32("imatrix.chunk_count", 2), writer.add_uint32("imatrix.chunk_size", 256)
    for tensor in reader.tensors:
        if tensor.name.rpartition(".")[0] in KEPT:
            writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
