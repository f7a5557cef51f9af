#!/usr/bin/env python3
"""vitrine beside PyTorch (transformers), on one machine in one run: tokens per second in prefill and decode.

usage: compare_pytorch.py BENCH_SPEED MODEL_DIRECTORY [--prompt 512] [--decode 32] [--rounds 3] [--venv DIR]

Each round measures one, then the other, then the other way round; medians and their ratio are printed. PyTorch runs in a
virtual environment that this script makes (from PyPI) if the one named is not there: --venv, else build/pytorch.
The directory's weights decide the type: f32 is compared with torch.float32, bf16 with torch.bfloat16.
"""
import argparse, os, statistics

from peer import last_json, python_with

PEER = r'''
import sys, time, json, torch, statistics
from transformers import AutoModelForCausalLM, AutoConfig
path, prompt, decode, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(threads)
from safetensors import safe_open
with safe_open(path + "/model.safetensors", "pt") as f:
    dtype = f.get_tensor(next(iter(f.keys()))).dtype
model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
ids = torch.tensor([[(i * 7919 + 13) % model.config.vocab_size for i in range(prompt)]])
out = {"prefill": [], "decode": []}
with torch.inference_mode():
    model(ids[:, :5], logits_to_keep=1)
    for _ in range(int(sys.argv[5])):
        t = time.perf_counter()
        o = model(ids, use_cache=True, logits_to_keep=1)
        out["prefill"].append(prompt / (time.perf_counter() - t))
        past, token = o.past_key_values, o.logits[:, -1:].argmax(-1)
        t = time.perf_counter()
        for _ in range(decode):
            o = model(token, past_key_values=past, use_cache=True)
            token = o.logits[:, -1:].argmax(-1)
        out["decode"].append(decode / (time.perf_counter() - t))
print(json.dumps({k: statistics.median(v) for k, v in out.items()} | {"torch": torch.__version__, "dtype": str(dtype)}))
'''


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench_speed")
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--decode", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=2, help="measurements within a round")
    parser.add_argument("--venv", default="build/pytorch")
    a = parser.parse_args()
    python = python_with(a.venv, "torch", "transformers", "safetensors", "numpy")
    threads = len(os.sched_getaffinity(0))
    shape = [str(a.prompt), str(a.decode)]
    run = {
        "vitrine": lambda: last_json([a.bench_speed, a.model, "--prompt", shape[0], "--decode", shape[1], "--repeat", str(a.repeat), "--json"]),
        "pytorch": lambda: last_json([python, "-c", PEER, a.model, *shape, str(threads), str(a.repeat)]),
    }
    seen = {"vitrine": [], "pytorch": []}
    for r in range(a.rounds):
        for who in (("vitrine", "pytorch") if r % 2 == 0 else ("pytorch", "vitrine")):
            seen[who].append(run[who]())
    ours, peer = seen["vitrine"], seen["pytorch"]
    print(f"{a.model}: {peer[0]['dtype']}, torch {peer[0]['torch']}, kernels {ours[0]['kernels']}, {threads} threads, {a.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for what in ("prefill", "decode"):
        x, y = ([run_[what] for run_ in who] for who in (ours, peer))
        mx, my = statistics.median(x), statistics.median(y)
        print(f"  {what:8} vitrine {mx:9.2f} ({min(x):.2f} to {max(x):.2f})  pytorch {my:9.2f} ({min(y):.2f} to {max(y):.2f})  ratio {mx / my:.2f}")
    share, band = (statistics.median(r[k] for r in ours) for k in ("decode_share", "bandwidth"))
    print(f"  decode reaches {share:.0%} of the {band:.1f} GB/s that reading the mapping gives; peak memory {ours[0]['peak_gb'] / ours[0]['weights_gb']:.3f} of the weights")


if __name__ == "__main__":
    main()
