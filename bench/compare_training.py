#!/usr/bin/env python3
"""vitrine beside PyTorch (transformers), on one machine in one run: one step of training with clipping and AdamW.

usage: compare_training.py BENCH_TRAINING MODEL_DIRECTORY --batch 4 --length 64 [--steps 10] [--rounds 2] [--bf16]
                           [--bf16-moments] [--venv DIR]

MODEL_DIRECTORY comes from bench_make_model; its weights are random, as speed does not depend on them. PyTorch runs eager and
compiled, in float32 and under bfloat16 autocast, with the fused AdamW; the best of the four is what vitrine is compared with.
Each round measures everybody in turn. PyTorch runs in a virtual environment that this script makes (from PyPI) if the one
named is not there: --venv, else build/pytorch.
"""
import argparse, json, os, statistics

from peer import last_json, python_with

PEER = r'''
import sys, time, json, resource, statistics, torch
from transformers import AutoConfig, AutoModelForCausalLM
path, batch, length, steps, threads, form, dtype = sys.argv[1], *map(int, sys.argv[2:6]), sys.argv[6], sys.argv[7]
torch.set_num_threads(threads)
config = AutoConfig.from_pretrained(path)
capped = getattr(config, "attn_logit_softcapping", None) is not None  # only the eager form has the cap
model = AutoModelForCausalLM.from_config(config, attn_implementation="eager" if capped else "sdpa").float().train()
vocab = config.vocab_size
ids = torch.tensor([(i * 7919 + 13) % vocab for i in range(batch * length)]).view(batch, length)
labels = torch.tensor([(i * 104729 + 7) % vocab for i in range(batch * length)]).view(-1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
def loss_of():
    return torch.nn.functional.cross_entropy(model(input_ids=ids, use_cache=False).logits.float().view(-1, vocab), labels)
run = torch.compile(loss_of) if form == "compile" else loss_of
times = []
for step in range(steps + 2):
    begin = time.perf_counter()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
        loss = run()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    times.append(time.perf_counter() - begin)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
print(json.dumps({"ms": statistics.median(times[2:]) * 1e3, "peak_mb": peak, "torch": torch.__version__}))
'''


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench_training")
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="vitrine's products in bf16 where this machine has products of bf16")
    parser.add_argument("--bf16-moments", action="store_true", help="vitrine's moments in bf16; PyTorch's stay f32")
    parser.add_argument("--eager-only", action="store_true", help="leave torch.compile out")
    parser.add_argument("--venv", default="build/pytorch")
    parser.add_argument("--json", action="store_true", help="print one JSON object last: medians in ms")
    a = parser.parse_args()
    python, threads = python_with(a.venv, "torch", "transformers", "numpy"), len(os.sched_getaffinity(0))
    sizes = [str(a.batch), str(a.length), str(a.steps)]
    ours = [a.bench_training, a.model, "--batch", sizes[0], "--length", sizes[1], "--steps", sizes[2], "--json"] + ["--bf16"] * a.bf16 + ["--bf16-moments"] * a.bf16_moments
    run = {"vitrine": lambda: last_json(ours)}
    for form in ("eager",) if a.eager_only else ("eager", "compile"):
        for dtype in ("f32", "bf16"):
            run[f"torch {form} {dtype}"] = lambda form=form, dtype=dtype: last_json([python, "-c", PEER, a.model, *sizes, str(threads), form, dtype])
    seen = {who: [] for who in run}
    for r in range(a.rounds):
        for who in list(run) if r % 2 == 0 else list(run)[::-1]:
            seen[who].append(run[who]())
    median = {who: statistics.median(m["ms"] for m in all_) for who, all_ in seen.items()}
    best = min((who for who in run if who != "vitrine"), key=median.get)
    mine = seen["vitrine"]
    print(f"{a.model}: {a.batch} x {a.length} tokens, torch {seen[best][0]['torch']}, kernels {mine[0]['kernels']}, {threads} threads, {a.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for who, all_ in seen.items():
        times = [m["ms"] for m in all_]
        print(f"  {who:20} {median[who]:9.1f} ms ({min(times):.1f} to {max(times):.1f})  peak {max(m['peak_mb'] for m in all_):6.0f} MB")
    share = statistics.median(m["share"] for m in mine)
    print(f"  vitrine is {median[best] / median['vitrine']:.2f} times as fast as {best}, with {max(m['peak_mb'] for m in mine) / max(m['peak_mb'] for m in seen[best]):.2f} of its memory; {share:.0%} of this machine's {mine[0]['peak_gflops']:.0f} GFLOP/s")
    if a.json:
        print(json.dumps({"vitrine": median["vitrine"], "peer": median[best], "form": best}))


if __name__ == "__main__":
    main()
