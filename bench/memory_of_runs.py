#!/usr/bin/env python3
"""The memory that `vitrine info` announces for a run, beside the peak that the run takes.

usage: memory_of_runs.py [--program build/release/vitrine] [--contexts 64,512,2048] [--tolerance 0.05] MODEL …

For each model and context, `vitrine info --context N --json` gives the estimate, and `vitrine predict` of N random tokens is run. Its
peak is that of its resident memory, with the pages of mapped files that it read (ru_maxrss). Prints a table, and exits with 1 if an
estimate is off by more than the tolerance. The parts of the estimate stand behind it, in MiB.

A mixture of experts with random weights sends all tokens of a short prompt to the same few experts: the estimate, which takes even
routing, is then too high.

bench_make_model and `vitrine convert` make models of any shape: speed and memory do not depend on the values of weights.
"""
import argparse, json, os, pathlib, random, subprocess, sys

MIB = 1 << 20


def peak(command):
    """Bytes that the process had in memory at most."""
    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))[:200]}: {error.decode().strip()}")
    return usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/vitrine")
    parser.add_argument("--contexts", default="64,512,2048")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("models", nargs="+")
    o = parser.parse_args()
    threads = ["--threads", str(o.threads)] if o.threads else []
    wrong = False
    print(f"{'model':28}{'context':>8}{'estimate':>10}{'peak':>10}{'off':>8}   weights, cache, working")
    for model in o.models:
        info = json.loads(subprocess.run([o.program, "info", "--model", model, "--json"], capture_output=True, check=True).stdout)
        longest, vocabulary = info["shape"]["context_length"] or 1 << 30, info["shape"]["vocab_size"]
        for context in sorted({min(int(c), longest) for c in o.contexts.split(",")}):
            text = subprocess.run([o.program, "info", "--model", model, "--context", str(context), *threads, "--json"], capture_output=True, check=True).stdout
            run = json.loads(text)["run"]
            r = random.Random(context)
            tokens = ",".join(str(r.randrange(vocabulary)) for _ in range(context))
            took = peak([o.program, "predict", "--tokens", tokens, "--model", model, *threads, "--json"])
            off = run["bytes"] / took - 1
            wrong = wrong or abs(off) > o.tolerance
            parts = ", ".join(f"{run[part] / MIB:.1f}" for part in ("weights", "cache", "working"))
            print(f"{pathlib.Path(model).name[:27]:28}{context:8}{run['bytes'] / MIB:10.1f}{took / MIB:10.1f}{100 * off:+7.1f}%   {parts}", flush=True)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
