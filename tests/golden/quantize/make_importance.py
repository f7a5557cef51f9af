"""A part of what llama-imatrix gives for the shipped model on examples/fables.txt, in llama_imatrix.gguf, and all it gives for a model
with experts, in llama_imatrix_experts.gguf.

usage: make_importance.py LLAMA_IMATRIX MODEL.gguf EXPERTS.gguf      CI does not run it
MODEL: models/tales9m in f32, by llama.cpp's converter. EXPERTS: tests/golden/models/mixtral with "sliding_window": null, the same way.
"""
import pathlib
import subprocess
import sys
import tempfile

import gguf

HERE = pathlib.Path(__file__).parent
KEPT = ("blk.0.attn_q.weight", "blk.0.attn_output.weight", "blk.3.attn_v.weight", "blk.7.ffn_up.weight", "blk.7.ffn_down.weight")
TEXT = HERE.parents[2] / "examples/fables.txt"


def imatrix(model, text, out, context):
    subprocess.run([sys.argv[1], "-m", model, "-f", str(text), "-o", str(out), "-c", context, "-b", context, "-ub", context, "--chunks", "2", "--no-ppl", "-t", "1"], check=True)
    return gguf.GGUFReader(out)


def write(reader, name, kept, chunk_size):
    writer = gguf.GGUFWriter(HERE / name, "")
    writer.kv_data[0].pop("general.architecture", None)
    writer.add_type("imatrix"), writer.add_array("imatrix.datasets", ["fables.txt"])
    writer.add_uint32("imatrix.chunk_count", 2), writer.add_uint32("imatrix.chunk_size", chunk_size)
    for tensor in reader.tensors:
        if kept(tensor.name.rpartition(".")[0]):
            writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()


with tempfile.TemporaryDirectory() as scratch:
    write(imatrix(sys.argv[2], TEXT, pathlib.Path(scratch) / "all.gguf", "256"), "llama_imatrix.gguf", KEPT.__contains__, 256)
    short = pathlib.Path(scratch) / "short.txt"
    short.write_text(TEXT.read_text()[:3000])
    write(imatrix(sys.argv[3], short, pathlib.Path(scratch) / "experts.gguf", "64"), "llama_imatrix_experts.gguf", lambda name: True, 64)
