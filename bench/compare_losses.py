#!/usr/bin/env python3
"""Does vitrine learn as PyTorch (transformers) does? The same model from fresh weights, with several seeds each: the loss on
validation text after a fixed number of tokens, and whether the means agree within the spread of the seeds.

usage: compare_losses.py VITRINE CONFIG_JSON DATA [--batch 16] [--length 256] [--steps 100] [--seeds 3] [--lr 2e-3] [--venv DIR]

CONFIG_JSON is a config.json; DATA a folder made by `vitrine data` with train/ and valid/. Both draw windows from the same ids,
each in its own random order, and take AdamW (0.9, 0.95), decay 0.1 on matrices, clipping at 1, a tenth of the steps as warm-up
and a cosine to a tenth of the rate. PyTorch judges both: vitrine's checkpoints are opened by transformers, and the same function
takes the loss over the first --eval windows of the validation ids.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile

from peer import last_json, python_with

PEER = r'''
import sys, os, json, math, numpy, torch
from transformers import AutoConfig, AutoModelForCausalLM
what, source, data, batch, length, steps, windows, seed, threads, lr = sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:10]), float(sys.argv[10])
torch.set_num_threads(threads)
torch.manual_seed(seed)
def ids_of(folder):
    parts = []
    for name in json.load(open(os.path.join(folder, "index.json")))["shards"]:
        raw = open(os.path.join(folder, name), "rb").read()
        width, n = int.from_bytes(raw[8:12], "little"), int.from_bytes(raw[16:24], "little")
        parts.append(numpy.frombuffer(raw, numpy.dtype(f"<u{width}"), n, 64).astype(numpy.int64))
    return torch.from_numpy(numpy.concatenate(parts))
train, valid = ids_of(os.path.join(data, "train")), ids_of(os.path.join(data, "valid"))
if what == "train":
    config = AutoConfig.from_pretrained(source)
    capped = getattr(config, "attn_logit_softcapping", None) is not None  # only the eager form has the cap
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager" if capped else "sdpa").float()
else:
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
def loss_of(x, y):
    logits = model(input_ids=x, use_cache=False).logits.float()
    return torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), y.reshape(-1))
if what == "train":
    model.train()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=lr, betas=(0.9, 0.95))
    warmup = steps // 10
    for step in range(steps):
        rate = (step + 1) / (warmup + 1) if step < warmup else 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
        for group in optimizer.param_groups:
            group["lr"] = lr * rate
        at = torch.randint(0, len(train) - length - 1, (batch,)).tolist()
        loss = loss_of(torch.stack([train[i:i + length] for i in at]), torch.stack([train[i + 1:i + length + 1] for i in at]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
model.eval()
total, count = 0.0, min(windows, (len(valid) - 1) // length)
with torch.no_grad():
    for i in range(count):
        total += loss_of(valid[None, i * length:(i + 1) * length], valid[None, i * length + 1:(i + 1) * length + 1]).item()
print(json.dumps({"loss": total / count, "windows": count, "torch": torch.__version__}))
'''


def recipe(a, seed, out):
    return {
        "model": {"config": os.path.abspath(a.config)},
        "data": {"train": os.path.join(os.path.abspath(a.data), "train"), "documents": False},
        "sequence_length": a.length, "batch": a.batch, "steps": a.steps, "seed": seed, "clip": 1, "dropout": 0,
        "optimizer": {"name": "adamw", "lr": a.lr, "betas": [0.9, 0.95], "weight_decay": 0.1},
        "schedule": {"warmup": a.steps // 10, "decay": "cosine", "minimum": a.lr / 10},
        "out": out,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vitrine")
    parser.add_argument("config")
    parser.add_argument("data")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--eval", type=int, default=100, help="windows of the validation ids that are judged")
    parser.add_argument("--venv", default="build/pytorch")
    a = parser.parse_args()
    python, threads = python_with(a.venv, "torch", "transformers", "numpy"), len(os.sched_getaffinity(0))

    def judged(what, source, seed):
        sizes = [a.batch, a.length, a.steps, a.eval, seed, threads, a.lr]
        return last_json([python, "-c", PEER, what, source, a.data, *map(str, sizes)])

    losses = {"vitrine": [], "torch": []}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(1, a.seeds + 1):
            out, config = os.path.join(scratch, f"run{seed}"), os.path.join(scratch, f"run{seed}.yaml")
            with open(config, "w") as f:
                json.dump(recipe(a, seed, out), f)  # JSON is YAML
            subprocess.run([a.vitrine, "train", config, "--json"], check=True, stdout=subprocess.DEVNULL)
            losses["vitrine"].append(judged("judge", os.path.join(out, "last"), seed)["loss"])
            mine = judged("train", os.path.dirname(os.path.abspath(a.config)), seed)
            losses["torch"].append(mine["loss"])
            print(f"seed {seed}: vitrine {losses['vitrine'][-1]:.4f}, torch {losses['torch'][-1]:.4f}", flush=True)
    means = {who: statistics.mean(of) for who, of in losses.items()}
    spread = max(max(of) - min(of) for of in losses.values())
    print(f"{a.steps * a.batch * a.length} tokens, {a.seeds} seeds, judged on {mine['windows']} windows by torch {mine['torch']}")
    for who, of in losses.items():
        print(f"  {who:8} mean {means[who]:.4f} ({min(of):.4f} to {max(of):.4f})")
    apart = abs(means["vitrine"] - means["torch"])
    print(f"  means differ by {apart:.4f}; the seeds spread by {spread:.4f}: {'within' if apart <= spread else 'BEYOND'}")
    if apart > spread:
        sys.exit(1)


if __name__ == "__main__":
    main()
