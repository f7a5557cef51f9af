#!/usr/bin/env python3
"""Speed beside llama.cpp, ik_llama.cpp, OpenVINO GenAI and PyTorch: every model and weight type, program after program, in turns;
and beside other tokenizers.

usage: peers.py [--work prefill,decode,together] [--models llama-15m,gpt2,...] [--types q8_0,q4_0,...] [--rounds 2]
                [--prompt 512] [--peers llama.cpp,ik_llama.cpp,openvino,pytorch] [--tokenizers FOLDER,... --text FILE]
                [--target avx2] [--folder DIR] [--vitrine build/release/vitrine]
       peers.py --work long --depth 8000 --cache-types f16,q8_0 --models llama-1b-2l --types q8_0 --peers llama.cpp

Fetches the peers from PyPI, as source packages that are built for this machine or into virtual environments, writes models of published
shapes with random weights (once; all of it takes about 40 GB), and then runs each program in turn, --rounds times. Prints one line for
each cell: the median of vitrine in tokens per second, its range, and its ratio to each peer's median, above 1 where vitrine is faster, or
why a peer has none. With --target avx2 all of them do without AVX-512: peers built without it, vitrine told by VITRINE_TARGET. A line ends
with "disturbed" if other work took more than 3 % of the processors meanwhile: such a figure is not to be kept. With --tokenizers and
--text, compare_tokenizers.py follows for each folder.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from peers.builds import TARGETS, programs_of
from peers.models import MODELS, file_of
from peers.openvino import OpenVINO
from peers.pytorch import PyTorch
from peers.quiet import Quiet
from peers.speed import Llama, Vitrine

TYPES = ("q8_0", "q4_0", "q4_k_m", "q6_k", "bf16", "f32")
WORK = {"prefill": ("tokens/s", 512), "decode": ("tokens/s", 1), "together": ("tokens/s", 16)}
# Sets of options of llama-bench and llama-batched-bench, beside the common ones.
WAYS = {
    "llama.cpp": [(["-fa", 1], ["-fa", 1])],
    # Weights re-ordered on loading, with and without attention in blocks: which is faster depends on the model.
    "ik_llama.cpp": [(["-fa", 1], ["-fa", 1]), (["-rtr", 1, "-fa", 1], ["-rtr", "-fa", 1]), (["-rtr", 1, "-fa", 0], ["-rtr", "-fa", 0])],
}
LARGE = ("gemma-2b", "gemma2-2b", "gemma3-1b", "llama-1b-2l", "llama-3.2-1b", "qwen2.5-1.5b")  # fewer tokens there


def cell(programs, file, work, large, options, cache=None):
    """{program: tokens per second of all rounds}; a program that cannot run this file has the reason instead."""
    runs = {name: [] for name in programs}
    for _ in range(options.rounds):
        for name, program in programs.items():
            if isinstance(runs[name], str):
                continue
            try:
                if work == "long":  # decode behind many positions, with the cache in the same type in every program
                    runs[name] += program.alone(file, 1, 16, options.threads, 2, options.depth, cache)[0]["decode"]
                elif work == "together":
                    runs[name] += program.together(file, 16, options.threads, 1 if large else 3)
                else:
                    prompt, decode = (options.prompt, 1) if work == "prefill" else (8, 24 if large else 128)
                    runs[name] += program.alone(file, prompt, decode, options.threads, 3)[0][work]
            except RuntimeError as error:
                runs[name] = str(error)
    return runs


def show(model, dtype, work, runs, quiet):
    ours = runs["vitrine"]
    if isinstance(ours, str):
        print(f"{model:16} {dtype:7} {work:10} vitrine: {ours}", flush=True)
        return
    median = statistics.median(ours)
    text = f"{model:16} {dtype:7} {work:10} {median:10.1f} ({min(ours):.1f} to {max(ours):.1f})".ljust(68)
    for name, theirs in runs.items():
        if name == "vitrine":
            continue
        if isinstance(theirs, str):
            text += f"  {name} none ({' '.join(theirs.split())[-120:]})"
        else:
            text += f"  {name} {statistics.median(theirs):.1f}: {median / statistics.median(theirs):.2f}"
    print(text + ("" if quiet else "  disturbed"), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", default="prefill,decode,together")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--prompt", type=int, default=512, help="tokens, for --work prefill")
    parser.add_argument("--depth", type=int, default=8000, help="positions in the cache, for --work long")
    parser.add_argument("--cache-types", default="f16,q8_0", help="types of cached keys and values, for --work long")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peers", default="llama.cpp,ik_llama.cpp,openvino,pytorch")
    parser.add_argument("--target", choices=[t for t in TARGETS if t], help="instructions that all programs keep to")
    parser.add_argument("--tokenizers", default="", help="folders of tokenizers, each as compare_tokenizers.py takes it")
    parser.add_argument("--text", type=pathlib.Path, help="what they read")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/peers"))
    parser.add_argument("--vitrine", type=pathlib.Path, default=pathlib.Path("build/release/vitrine"))
    o = parser.parse_args()
    if o.tokenizers and not o.text:
        parser.error("--tokenizers needs --text")
    o.folder, o.vitrine = o.folder.resolve(), o.vitrine.resolve()
    o.folder.mkdir(parents=True, exist_ok=True)
    programs = {"vitrine": Vitrine(o.vitrine)}
    if o.target:
        os.environ["VITRINE_TARGET"] = o.target
    make_model = o.vitrine.parent / "bench" / "bench_make_model"
    for name in filter(None, o.peers.split(",")):
        if name in ("openvino", "pytorch"):
            programs[name] = (OpenVINO if name == "openvino" else PyTorch)(o.folder, make_model)
        else:
            programs[name] = Llama(programs_of(name, o.folder, o.target), WAYS[name])
    for model in filter(None, o.models.split(",")):
        for dtype in o.types.split(","):
            file = file_of(model, dtype, o.folder / "models", o.vitrine, make_model)
            for work in o.work.split(","):
                for cache in o.cache_types.split(",") if work == "long" else [None]:
                    watch = Quiet()
                    runs = cell(programs, file, work, model in LARGE, o, cache)
                    title = f"{o.depth} {cache}" if work == "long" else work
                    show(model, dtype, title, runs, watch.share_of_others() < 0.03)
    for tokenizer in filter(None, o.tokenizers.split(",")):
        print(f"tokenizer {tokenizer}", flush=True)
        watch = Quiet()
        subprocess.run([sys.executable, pathlib.Path(__file__).with_name("compare_tokenizers.py"), o.vitrine.parent / "bench" / "bench_tokenizer",
                        tokenizer, o.text, "--venv", o.folder / "tokenizers", "--rounds", str(o.rounds)], check=False)
        print("" if watch.share_of_others() < 0.03 else "disturbed", flush=True)


if __name__ == "__main__":
    main()
