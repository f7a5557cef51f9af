#!/usr/bin/env python3
"""Matrix products of many rows beside oneDNN, on one machine in one run, all its cores.

usage: compare_onednn.py [--rows 512,128] [--types f32,bf16] [--models gemma-2b,...] [--rounds 3] [--seconds 0.2]
                         [--program build/release/bench/bench_products] [--folder build/onednn]

The shapes are those of each model's layers, and 32,768 outputs of its head. Our products get x in f32 and round it to bf16 themselves
where the weights are bf16; oneDNN's get it as bf16. Both write f32. oneDNN runs twice: with weights where they lie, as ours do, and with
weights that were re-ordered once before. Programs take turns; printed are medians of the rounds in GFLOP/s, and ours as a part of each of
oneDNN's. oneDNN is fetched from PyPI (with the SYCL runtime that it is built for: 2 GB) into --folder.
"""
import argparse, os, pathlib, statistics, subprocess, sys

from peer import python_with
from peers.quiet import Quiet

HERE = pathlib.Path(__file__).parent
# inputs x outputs of queries, keys and values, attention's output, MLP in and out, head
SHAPES = {
    "gemma-2b": ["2048x2048", "2048x256", "2048x16384", "16384x2048", "2048x32768"],
    "gemma2-2b": ["2304x2048", "2304x1024", "2048x2304", "2304x9216", "9216x2304", "2304x32768"],
    "gpt2": ["768x2304", "768x768", "768x3072", "3072x768", "768x32768"],
    "llama-15m": ["288x288", "288x768", "768x288", "288x32000"],
}


def onednn_program(folder):
    """oneDNN's side, built if it is not there, and the environment that it runs in."""
    python_with(str(folder / "venv"), "onednn", "onednn-devel")
    libraries, program = folder / "venv" / "lib", folder / "onednn_products"
    source = HERE / "onednn" / "products.cpp"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["g++", "-O2", "-std=c++20", "-I", folder / "venv" / "include", source, "-o", program, "-L", libraries, "-ldnnl",
                        f"-Wl,-rpath-link,{libraries}"], check=True)
    # The CPU is a device of Intel's OpenCL runtime, which a virtual environment does not announce.
    return program, dict(os.environ, LD_LIBRARY_PATH=str(libraries), OCL_ICD_FILENAMES=str(libraries / "libintelocl.so"))


def output_of(command, environment=None):
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment)
    if ran.returncode != 0:
        sys.exit(f"{command[0]} ended with {ran.returncode}: {ran.stderr.strip()[-500:]}")
    return [[float(word) for word in line.split()] for line in ran.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="512,128")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--models", default=",".join(SHAPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", default="0.2", help="for each shape")
    parser.add_argument("--program", default="build/release/bench/bench_products")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/onednn"))
    o = parser.parse_args()
    o.folder = o.folder.resolve()
    theirs, environment = onednn_program(o.folder)
    print(f"{'rows x inputs x outputs':34}{'vitrine':>9}{'oneDNN where W lies':>22}{'re-ordered':>18}")
    for model in o.models.split(","):
        for dtype in o.types.split(","):
            shapes = [f"{rows}x{shape}" for rows in o.rows.split(",") for shape in SHAPES[model]]
            watch, ours, lying, ordered = Quiet(), [], [], []
            for _ in range(o.rounds):
                ours.append([row[0] for row in output_of([o.program, o.seconds, dtype, *shapes])])
                both = output_of([theirs, o.seconds, dtype, *shapes], environment)
                lying.append([row[0] for row in both])
                ordered.append([row[1] for row in both])
            note = "" if watch.share_of_others() < 0.03 else "  disturbed"
            for i, shape in enumerate(shapes):
                a, b, c = (statistics.median(run[i] for run in runs) for runs in (ours, lying, ordered))
                print(f"{model:11}{dtype:5}{shape:18}{a:9.1f}{b:14.1f} ({a / b:5.2f}){c:10.1f} ({a / c:5.2f}){note}", flush=True)


if __name__ == "__main__":
    main()
