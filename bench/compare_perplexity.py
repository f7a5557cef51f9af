#!/usr/bin/env python3
"""Perplexity beside PyTorch (transformers), on one machine in one run: scored tokens per second, loading not counted.

usage: compare_perplexity.py VITRINE MODEL_DIRECTORY TEXT [--context 1024] [--rounds 2] [--venv DIR]

Both read the ids that vitrine makes of TEXT, in windows of --context tokens that do not overlap; PyTorch leaves out the last window
if it is shorter. They take turns. The directory's weights decide the type: f32 is compared with torch.float32, bf16 with
torch.bfloat16. PyTorch runs in a virtual environment that this script makes (from PyPI) if the one named is not there.
"""
import argparse, json, os, statistics, subprocess, tempfile

from peer import last_json, python_with

PEER = r'''
import json, sys, time, torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM
path, ids, context, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(threads)
with safe_open(path + "/model.safetensors", "pt") as f:
    dtype = f.get_tensor(next(iter(f.keys()))).dtype
model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
with open(ids) as f:
    tokens = torch.tensor(json.load(f))
windows = tokens[: len(tokens) // context * context].view(-1, context)
with torch.inference_mode():
    model(windows[:1])
    at, loss = time.perf_counter(), 0.0
    for row in windows:
        logits = model(row[None]).logits[0, :-1].float()
        loss += torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum").item()
    seconds = time.perf_counter() - at
print(json.dumps({"tokens_per_s": windows.numel() / seconds, "nll": loss / (len(windows) * (context - 1)), "torch": torch.__version__,
                  "dtype": str(dtype)}))
'''


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vitrine")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--venv", default="build/pytorch")
    a = parser.parse_args()
    python = python_with(a.venv, "torch", "transformers", "safetensors", "numpy")
    threads, context = str(len(os.sched_getaffinity(0))), str(a.context)
    made = subprocess.run([a.vitrine, "tokenize", "--model", a.model, "--file", a.text, "--json"], check=True, stdout=subprocess.PIPE)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as ids:
        json.dump(json.loads(made.stdout)["tokens"], ids)
        ids.flush()
        ours, theirs = [], []
        for _ in range(a.rounds):
            ours.append(last_json([a.vitrine, "eval", "perplexity", "--model", a.model, "--file", a.text, "--context", context, "--stride",
                                   context, "--threads", threads, "--json"]))
            theirs.append(last_json([python, "-c", PEER, a.model, ids.name, context, threads]))
    speed = statistics.median(run["timings"]["tokens_per_s"] for run in ours)
    peer = statistics.median(run["tokens_per_s"] for run in theirs)
    print(f"{a.model}: {theirs[0]['dtype']}, torch {theirs[0]['torch']}, {threads} threads, {a.rounds} rounds")
    print(f"  vitrine {speed:.0f} tokens/s (nll {ours[0]['nll']:.4f})  pytorch {peer:.0f} (nll {theirs[0]['nll']:.4f})  ratio {speed / peer:.2f}")


if __name__ == "__main__":
    main()
