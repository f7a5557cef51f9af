"""The types that llama-quantize gives each tensor, for models of several forms and every mixture, in mixtures.json.

usage: make_mixtures.py LLAMA_QUANTIZE      needs llama-quantize (llama.cpp, October 2026), numpy and gguf >= 0.19; CI does not run it

The models have no weights that matter: llama-quantize --dry-run only looks at names and shapes.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
MIXTURES = ("F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q2_K_S Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M "
            "IQ3_XXS IQ3_XS IQ3_S IQ3_M IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4_MOE").split()
CASES = dict(
    plain=dict(layers=18, heads=4, kv=4),
    shared_keys=dict(layers=17, heads=8, kv=1, tied=True),
    narrow=dict(layers=9, heads=4, kv=2, width=96, ff=160),
    experts=dict(layers=10, heads=4, kv=2, experts=8),
    many_experts=dict(layers=10, heads=4, kv=2, experts=16, tied=True),
    eighty_layers=dict(layers=80, heads=8, kv=2, width=64, ff=256),
    joined=dict(layers=12, heads=4, kv=4, arch="gpt2"),
    convolutions=dict(layers=16, heads=8, kv=2, tied=True, arch="lfm2", attends=(2, 5, 8, 10, 12, 14)),
)


def shapes(layers, heads, kv, width=256, ff=256, experts=0, tied=False, arch="llama", attends=None):
    head, result = width // heads, {"token_embd.weight": (512, width)}
    for i in range(layers):
        block = {"attn_norm.weight": (width,), "ffn_norm.weight": (width,), "attn_output.weight": (width, width)}
        if attends is not None and i not in attends:
            del block["attn_output.weight"]
            block |= {"shortconv.conv.weight": (width, 3), "shortconv.in_proj.weight": (3 * width, width), "shortconv.out_proj.weight": (width, width)}
        if arch == "gpt2":
            block |= {"attn_qkv.weight": (3 * width, width), "attn_qkv.bias": (3 * width,), "attn_output.bias": (width,), "attn_norm.bias": (width,), "ffn_norm.bias": (width,),
                      "ffn_up.weight": (ff, width), "ffn_up.bias": (ff,), "ffn_down.weight": (width, ff), "ffn_down.bias": (width,)}
        else:
            if attends is None or i in attends:
                block |= {"attn_q.weight": (width, width), "attn_k.weight": (kv * head, width), "attn_v.weight": (kv * head, width)}
            many = (experts,) if experts else ()
            s = "_exps" if experts else ""
            block |= {f"ffn_gate{s}.weight": many + (ff, width), f"ffn_up{s}.weight": many + (ff, width), f"ffn_down{s}.weight": many + (width, ff)}
            if experts:
                block["ffn_gate_inp.weight"] = (experts, width)
        result |= {f"blk.{i}.{k}": v for k, v in block.items()}
    result["token_embd_norm.weight" if arch == "lfm2" else "output_norm.weight"] = (width,)
    if arch == "gpt2":
        result |= {"output_norm.bias": (width,), "position_embd.weight": (512, width)}
    if not tied:
        result["output.weight"] = (512, width)
    return result


def heads_of_layers(case):
    attends = case.get("attends")
    return case["kv"] if attends is None else [case["kv"] if i in attends else 0 for i in range(case["layers"])]


def write_model(path, case):
    arch = case.get("arch", "llama")
    w = gguf.GGUFWriter(path, arch)
    width = case.get("width", 256)
    w.add_context_length(512), w.add_embedding_length(width), w.add_block_count(case["layers"]), w.add_feed_forward_length(case.get("ff", 256))
    w.add_head_count(case["heads"]), w.add_head_count_kv(heads_of_layers(case)), w.add_layer_norm_rms_eps(1e-5), w.add_layer_norm_eps(1e-5), w.add_vocab_size(512)
    w.add_rope_dimension_count(width // case["heads"])
    if case.get("experts"):
        w.add_expert_count(case["experts"]), w.add_expert_used_count(2)
    if arch == "lfm2":
        w.add_shortconv_l_cache(3)
    w.add_tokenizer_model("no_vocab")
    for name, shape in shapes(**case).items():
        w.add_tensor(name, np.full(shape, 0.01, np.float32))
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def write_importance(path, case):
    w = gguf.GGUFWriter(path, "")
    w.kv_data[0].pop("general.architecture", None)
    w.add_type("imatrix"), w.add_array("imatrix.datasets", ["x"]), w.add_uint32("imatrix.chunk_count", 1), w.add_uint32("imatrix.chunk_size", 512)
    for name, shape in shapes(**case).items():
        if len(shape) > 1 and name != "token_embd.weight":
            many = shape[0] if len(shape) == 3 else 1
            w.add_tensor(name + ".in_sum2", np.ones((many, shape[-1]), np.float32)), w.add_tensor(name + ".counts", np.ones((many, 1), np.float32))
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


LINE = re.compile(r"^\[ *\d+/ *\d+\] +(\S+) +- \[.*\], type = +(\S+), size = +\S+ MiB(?: -> +\S+ MiB \((\S+)\))?", re.M)
LETTERS = {}


def types_of(model, mixture, importance, names):
    """A letter for each tensor; nothing where llama-quantize demands an importance matrix."""
    done = subprocess.run([sys.argv[1], "--dry-run"] + (["--imatrix", str(importance)] if importance else []) + [str(model), mixture], capture_output=True, text=True)
    found = {name: (after or before).lower() for name, before, after in LINE.findall(done.stdout + done.stderr)}
    assert done.returncode == 0 and set(found) == set(names), (mixture, done.stdout[-2000:], done.stderr[-2000:])
    if "requires" in done.stdout + done.stderr and importance is None:
        return None
    return "".join(LETTERS.setdefault(found[name], "abcdefghijklmnopqrstuvwxyz0123456789"[len(LETTERS)]) for name in names)


cases = []
with tempfile.TemporaryDirectory() as scratch:
    for name, case in CASES.items():
        model, importance = pathlib.Path(scratch) / "model.gguf", pathlib.Path(scratch) / "imatrix.gguf"
        write_model(model, case), write_importance(importance, case)
        tensors = shapes(**case)
        types = {m: [types_of(model, m, which, list(tensors)) for which in (None, importance)] for m in MIXTURES}
        cases.append(dict(name=name, n_layers=case["layers"], n_heads=case["heads"], n_kv_heads=case["kv"] if case.get("attends") is None else 0, n_experts=case.get("experts", 0),
                          tensors=list(tensors), shapes=list(tensors.values()), types=types))
letters = {v: k for k, v in LETTERS.items()}
(HERE / "mixtures.json").write_text(json.dumps(dict(letters=letters, cases=cases)) + "\n")
print(letters, sum(v[0] is None for c in cases for v in c["types"].values()))
