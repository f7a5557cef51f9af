#!/usr/bin/env python3
"""Quantized files beside llama.cpp's: KL to the original on one text, for each type, with and without importance matrix.

usage: compare_quantize.py --llama DIR MODEL [--vitrine build/release/vitrine] [--types q4_k_m,iq2_xs] [--file TEXT] [--calibration TEXT]

DIR has llama-quantize of llama.cpp (built from the sdist of llama-cpp-python). MODEL is a Hugging Face directory. Both programs quantize
the same f32 GGUF file with the same importance matrix; both files are run by vitrine in f32, so that the encoders alone differ.
Prints one line for each type: KL in nats (mean over the text's tokens) of llama-quantize and vitrine, and their ratio: below 1 vitrine
loses less. Types that llama-quantize refuses without an importance matrix have "-" there.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile
import time

TYPES = ("q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s iq4_nl iq4_xs q4_1 q4_0 q3_k_l q3_k_m q3_k_s iq3_m iq3_s iq3_xs iq3_xxs q2_k q2_k_s iq2_m iq2_s "
         "iq2_xs iq2_xxs iq1_m iq1_s tq2_0 tq1_0").split()


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    return done if done.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama", required=True, type=pathlib.Path)
    parser.add_argument("model")
    parser.add_argument("--vitrine", default="build/release/vitrine")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--file", default="examples/fables.txt")
    parser.add_argument("--calibration", default="examples/fables.txt")
    parser.add_argument("--context", default="256")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        original, matrix = scratch / "f32.gguf", scratch / "imatrix.gguf"
        assert run([o.vitrine, "convert", o.model, original, "--dtype", "f32"])
        assert run([o.vitrine, "imatrix", "--model", o.model, "--file", o.calibration, "--context", o.context, "--out", matrix])

        def kl(file):
            done = run([o.vitrine, "eval", "compare", "--model", original, file, "--file", o.file, "--compute", "f32", "--json"])
            return json.loads(done.stdout)["kl"]["mean"] if done else float("nan")

        print(f"{'type':8} {'importance':10} {'llama.cpp':>10} {'vitrine':>10} {'ratio':>6}  seconds of both")
        for kind in o.types.split(","):
            for importance in ([], ["--imatrix", matrix]):
                theirs, ours = scratch / "theirs.gguf", scratch / "ours.gguf"
                for file in (theirs, ours):
                    file.unlink(missing_ok=True)
                begin = time.time()
                by_llama = run([o.llama / "llama-quantize", *importance, original, theirs, kind.upper()])
                between = time.time()
                by_vitrine = run([o.vitrine, "convert", original, ours, "--dtype", kind, *importance])
                end = time.time()
                a, b = kl(theirs) if by_llama else None, kl(ours) if by_vitrine else None
                text = [f"{v:10.3g}" if v is not None else f"{'-':>10}" for v in (a, b)]
                print(f"{kind:8} {'with' if importance else 'without':10} {text[0]} {text[1]} {b / a if a and b else float('nan'):6.2f}  {between - begin:.1f} {end - between:.1f}", flush=True)


if __name__ == "__main__":
    main()
