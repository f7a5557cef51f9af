#!/usr/bin/env python3
"""What a second process brings: `mpirun -n 2 vitrine train` beside one process, every process on one core of its own.

usage: parallel_training.py VITRINE MODEL_DIRECTORY [--tokens 4096] [--length 256] [--steps 8] [--rounds 3] [--text FILE]

Each process has --tokens tokens a step, so two processes do twice the work; 2.0 times the tokens a second would be perfect.
The text is cut with the model's own tokenizer by `vitrine data`. Each round measures both in turn. The processor time of a process
is told as well: on a machine with other work it says what the clock cannot, how much more each of two has to do.
"""
import argparse, json, os, resource, statistics, subprocess, sys, tempfile

CONFIG = """model: {model}
data: {{train: {data}}}
sequence_length: {length}
batch: {batch}
dropout: 0
steps: {steps}
optimizer: {{lr: 1e-5}}
threads: 1
out: {out}
"""


def run(command):
    """Runs a program; root and containers are allowed to start Open MPI's processes."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stderr}")
    return ran.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vitrine")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=4096, help="of a process in a step")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--text", default=os.path.join(os.path.dirname(__file__), "..", "examples", "fables.txt"))
    a = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("this machine lends one core; two processes on it say nothing")
    vitrine, model = os.path.abspath(a.vitrine), os.path.abspath(a.model)
    launch = {1: ["taskset", "-c", str(min(os.sched_getaffinity(0)))], 2: ["mpirun", "-n", "2", "--bind-to", "core"]}
    rates, seconds, shares = {1: [], 2: []}, {1: [], 2: []}, []
    with tempfile.TemporaryDirectory() as scratch:
        run([vitrine, "data", a.text, "--tokenizer", model, "--out", f"{scratch}/data"])
        for r in range(a.rounds):
            for ranks in (1, 2) if r % 2 == 0 else (2, 1):
                out = f"{scratch}/run-{r}-{ranks}"
                with open(f"{out}.yaml", "w") as file:
                    file.write(CONFIG.format(model=model, data=f"{scratch}/data/train", length=a.length, steps=a.steps,
                                             batch=ranks * a.tokens // a.length, out=out))
                before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
                done = json.loads(run([*launch[ranks], vitrine, "train", f"{out}.yaml", "--json"]))
                seconds[ranks].append((resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before) / ranks)
                with open(f"{out}/metrics.jsonl") as file:
                    rates[ranks].append(json.loads(file.readlines()[-1])["tokens_per_s"])
                if ranks == 2:
                    shares.append(done["comm_share"])
    one, two = statistics.median(rates[1]), statistics.median(rates[2])
    print(f"{a.model}: {a.tokens} tokens a process, {a.steps} steps, {a.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for ranks, name in ((1, "1 process"), (2, "2 processes")):
        all_ = ", ".join(f"{rate:.0f}" for rate in rates[ranks])
        print(f"  {name:12} {statistics.median(rates[ranks]):8.0f} tokens/s ({all_}), {statistics.median(seconds[ranks]):.1f} s of processor time each")
    print(f"  {two / one:.2f} times as many, {2 * statistics.median(seconds[1]) / statistics.median(seconds[2]):.2f} by processor time; {statistics.median(shares):.1%} of the steps' time in communication")


if __name__ == "__main__":
    main()
