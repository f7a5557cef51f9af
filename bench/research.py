#!/usr/bin/env python3
"""What research takes beside TransformerLens, SAELens and PyTorch, on one machine in one run: a table for docs/performance.md.

usage: research.py [--only patching,collecting,cache,sae,training] [--model gpt2] [--rounds 3] [--small] [--folder build/research]

  patching    get_act_patch_resid_pre, every layer and position of a prompt         TransformerLens
  collecting  the residual stream after the middle layer, of a batch of prompts     TransformerLens
  cache       run_with_cache, all that TransformerLens keeps                        compare_transformer_lens.py
  sae         a step of training an autoencoder, by architecture                    compare_sae_training.py
  training    a step of training with AdamW, in bf16                                compare_training.py

MODEL is a configuration in bench/configs, whose weights are random. The first two are the same lines of Python in both libraries, on the
same f32 weights; their results are compared before they are timed. --small: sizes that only show that everything runs. Our side needs the
package, with --python its interpreter. The others run in virtual environments that this script makes (from PyPI) if they are not there.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))
from peer import last_json, python_with
from peers.models import directory_of
from peers.quiet import Quiet

CALLS = r'''
import json, os, sys, time
who, path, work, tokens, prompts, out = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
threads = len(os.sched_getaffinity(0))
if who == "vitrine":
    import contextlib
    import numpy as np
    import vitrine
    from vitrine import patching
    model, array, no_gradients = vitrine.load(path, compute="f32", threads=threads), np.array, contextlib.nullcontext()
else:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformer_lens import patching
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(threads)
    hf = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    model, array, no_gradients = TransformerBridge.boot_transformers(path, hf_model=hf, dtype=torch.float32), torch.tensor, torch.inference_mode()
    model.enable_compatibility_mode(no_processing=True)
vocab, layer = model.cfg.d_vocab, model.cfg.n_layers // 2
ids = array([[(i * 7919 + row * 104729 + 13) % vocab for i in range(tokens)] for row in range(prompts)])


def sweep():
    corrupted = array(ids[:1].tolist())
    corrupted[0, 1] = (int(ids[0, 1]) + 31) % vocab
    _, cache = model.run_with_cache(ids[:1])
    metric = lambda logits: logits[0, -1, 7] - logits[0, -1, 11]
    return patching.get_act_patch_resid_pre(model, corrupted, cache, metric)


def collect():
    name = f"blocks.{layer}.hook_resid_post"
    _, cache = model.run_with_cache(ids, names_filter=name, stop_at_layer=layer + 1)
    return cache[name]


run = sweep if work == "patching" else collect
with no_gradients:
    result, took = run(), []
    for _ in range(3):
        begin = time.perf_counter()
        run()
        took.append(time.perf_counter() - begin)
values = result.reshape(-1)
with open(out, "w") as file:
    json.dump([float(x) for x in values[:: max(1, len(values) // 1000)]], file)
print(json.dumps({"seconds": sorted(took)[1]}))
'''


def calls(work, model, o, tokens, prompts):
    """Both libraries in turn: (vitrine's, the peer's) median of seconds. The results agree, or the program ends."""
    lens = python_with(o.folder / "transformer_lens", "transformer-lens", "safetensors")
    seconds, results = {"vitrine": [], "transformer_lens": []}, {}
    for r in range(o.rounds):
        for who in list(seconds)[:: 1 if r % 2 == 0 else -1]:
            out = o.folder / f"{work}-{who}.json"
            python = o.python if who == "vitrine" else lens
            seconds[who].append(last_json([python, "-c", CALLS, who, model, work, str(tokens), str(prompts), out])["seconds"])
            results[who] = json.loads(out.read_text())
    ours, theirs = results.values()
    worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    if worst > 1e-4 * max(1, *map(abs, theirs)):
        sys.exit(f"{work}: the results differ by {worst}")
    return tuple(statistics.median(values) for values in seconds.values())


def script(name, python, *arguments):
    """The JSON of another comparison, whose text is passed on."""
    ran = subprocess.run([str(python), here / name, *map(str, arguments), "--json"], capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{name} ended with {ran.returncode}:\n{ran.stderr}")
    *text, last = ran.stdout.strip().splitlines()
    print("\n".join(text), file=sys.stderr, flush=True)
    return json.loads(last)


def patching(o):
    tokens = 6 if o.small else 24
    ours, theirs = calls("patching", o.weights("f32"), o, tokens, 1)
    yield f"patching sweep of the residual stream, {tokens} positions", "TransformerLens", f"{ours:.2f} s", f"{theirs:.2f} s", theirs / ours


def collecting(o):
    tokens, prompts = (32, 2) if o.small else (128, 16)
    ours, theirs = calls("collecting", o.weights("f32"), o, tokens, prompts)
    rates = [tokens * prompts / seconds for seconds in (ours, theirs)]
    yield f"residual stream of a layer, {prompts} prompts of {tokens} tokens", "TransformerLens", *(f"{r:,.0f} tokens/s" for r in rates), theirs / ours


def cache(o):
    tokens = 32 if o.small else 128
    found = script("compare_transformer_lens.py", sys.executable, o.bench / "bench_capture", o.vitrine, o.weights("f32"), "--tokens", tokens, "--rounds",
                   o.rounds, "--venv", o.folder / "transformer_lens")
    yield (f"run_with_cache, {tokens} tokens, all hooks", "TransformerLens", f"{found['vitrine']:.0f} ms", f"{found['peer']:.0f} ms",
           found["peer"] / found["vitrine"])


def sae(o):
    python = python_with(o.folder / "saelens", "sae-lens")
    activations = o.folder / "activations"
    if not (activations / "manifest.json").exists():
        subprocess.run([o.vitrine, "collect", here.parent / "examples" / "fables.txt", "--document", r"\n\n\n", "--hooks",
                        "blocks.3.hook_resid_post", "--out", activations], check=True, stdout=subprocess.DEVNULL)
    sizes = ("--features", 256, "--batch", 256, "--steps", 3) if o.small else ()
    found = script("compare_sae_training.py", python, o.vitrine, activations, "--threads", len(os.sched_getaffinity(0)), *sizes)
    for architecture, rates in found.items():
        yield (f"training an autoencoder, {architecture}", "SAELens", *(f"{rates[who]:,.0f} activations/s" for who in ("vitrine", "peer")),
               rates["vitrine"] / rates["peer"])


def training(o):
    batch, length, steps = (1, 32, 2) if o.small else (4, 256, 10)
    found = script("compare_training.py", sys.executable, o.bench / "bench_training", o.weights("bf16"), "--batch", batch, "--length", length, "--steps",
                   steps, "--rounds", o.rounds, "--bf16", "--venv", o.folder / "pytorch", *["--eager-only"] * o.small)
    yield (f"training step of {o.model}, bf16, {batch} x {length} tokens", f"PyTorch ({found['form'].removeprefix('torch ')})",
           f"{found['vitrine']:.0f} ms", f"{found['peer']:.0f} ms", found["peer"] / found["vitrine"])


WORK = {one.__name__: one for one in (patching, collecting, cache, sae, training)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(WORK))
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/research"))
    parser.add_argument("--vitrine", type=pathlib.Path, default=pathlib.Path("build/release/vitrine"))
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has the package vitrine, if it is not this one")
    o = parser.parse_args()
    unknown = set(o.only.split(",")) - set(WORK)
    if unknown:
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; expected some of {', '.join(WORK)}")
    o.folder, o.vitrine = o.folder.resolve(), o.vitrine.resolve()
    o.bench = o.vitrine.parent / "bench"
    o.folder.mkdir(parents=True, exist_ok=True)
    o.weights = lambda dtype: str(directory_of(o.model, dtype, o.folder, o.bench / "bench_make_model"))
    print(f"{len(os.sched_getaffinity(0))} threads, {o.rounds} rounds{', small sizes' if o.small else ''}\n")
    print("| work | beside | vitrine | theirs | times as fast |\n| --- | --- | --- | --- | --- |", flush=True)
    for name in o.only.split(","):
        watch = Quiet()
        for work, peer, ours, theirs, ratio in WORK[name](o):
            disturbed = watch.share_of_others() >= 0.03
            print(f"| {work} | {peer} | {ours} | {theirs} | {ratio:.2f}{' (disturbed)' if disturbed else ''} |", flush=True)


if __name__ == "__main__":
    main()
