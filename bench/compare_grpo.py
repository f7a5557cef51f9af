#!/usr/bin/env python3
"""vitrine beside TRL, on one machine in one run: tokens of answers per second of GRPO steps, with their rewards and what is learned.

usage: compare_grpo.py VITRINE MODEL_DIRECTORY PROMPTS.jsonl [--batch 64] [--group 8] [--max-tokens 128] [--steps 6] [--rounds 2] [--venv DIR]

Both learn in f32, without a divergence, from the prompts of lines {"prompt": …}; the reward counts a letter. Steps after the first two are
counted, by the time between their ends. TRL runs its own loop on PyTorch's CPU (GRPOTrainer, transformers' generation), in a virtual
environment that this script makes (from PyPI) if the one named is not there: --venv, else build/trl.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

from peer import last_json, python_with

PEER = r'''
import sys, json, time, tempfile, torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
path, prompts, batch, group, most, steps, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:8])
torch.set_num_threads(threads)
tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
ends, tokens = [], []
class Times(TrainerCallback):
    def on_step_end(self, *arguments, **more):
        ends.append(time.perf_counter())
def reward(completions, completion_ids, **more):
    tokens.append(sum(map(len, completion_ids)))
    return [float(text.count("e")) for text in completions]
with tempfile.TemporaryDirectory() as out:
    config = GRPOConfig(out, per_device_train_batch_size=batch, num_generations=group, max_steps=steps, max_completion_length=most,
                        beta=0.0, temperature=1.0, learning_rate=1e-6, logging_steps=1, report_to="none", save_strategy="no", use_cpu=True,
                        bf16=False, gradient_checkpointing=False, seed=1)
    GRPOTrainer(model=model, reward_funcs=reward, args=config, processing_class=tokenizer, callbacks=[Times()],
                train_dataset=Dataset.from_list([{"prompt": json.loads(line)["prompt"]} for line in open(prompts)])).train()
print(json.dumps({"tokens": sum(tokens[2:]), "seconds": ends[-1] - ends[1]}))
'''


def ours(vitrine, model, data, a):
    """The ends of steps are read off the lines of metrics.jsonl as they are written."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        config = {"model": os.path.abspath(model), "data": {"train": data}, "sequence_length": a.max_tokens + 64, "batch": a.batch,
                  "steps": a.steps, "optimizer": {"lr": 1e-6, "weight_decay": 0}, "seed": 1, "out": out,
                  "grpo": {"reward": "awk '{ sub(/.*\"completion\":/, \"\"); print gsub(/e/, \"\") }'", "group": a.group, "max_tokens": a.max_tokens}}
        file = os.path.join(folder, "c.yaml")
        with open(file, "w") as written:
            json.dump(config, written)
        running = subprocess.Popen([vitrine, "train", file], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        lines, ends = [], []
        while running.poll() is None or len(lines) < a.steps:
            try:
                with open(os.path.join(out, "metrics.jsonl")) as metrics:
                    found = metrics.read().split("\n")[:-1]
            except FileNotFoundError:
                found = []
            ends += [time.perf_counter()] * (len(found) - len(ends))
            lines = found
            if running.poll() not in (None, 0):
                sys.exit(running.stderr.read())
            time.sleep(0.01)
    tokens = [json.loads(line)["completion_length"] * a.batch for line in lines]
    return {"tokens": sum(tokens[2:]), "seconds": ends[-1] - ends[1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vitrine")
    parser.add_argument("model")
    parser.add_argument("prompts")
    for name, default in (("--batch", 64), ("--group", 8), ("--max-tokens", 128), ("--steps", 6), ("--rounds", 2)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--venv", default="build/trl")
    a = parser.parse_args()
    python, threads = python_with(a.venv, "torch", "transformers", "trl", "datasets"), len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "prompts")
        subprocess.run([a.vitrine, "data", a.prompts, "--prompts", "--tokenizer", a.model, "--out", data], check=True, stdout=subprocess.DEVNULL)
        sizes = [str(n) for n in (a.batch, a.group, a.max_tokens, a.steps, threads)]
        run = {"vitrine": lambda: ours(a.vitrine, a.model, data + "/train", a),
               "TRL": lambda: last_json([python, "-c", PEER, a.model, a.prompts, *sizes])}
        rates = {who: [] for who in run}
        for r in range(a.rounds):
            for who in list(run)[:: 1 if r % 2 == 0 else -1]:
                seen = run[who]()
                rates[who].append(seen["tokens"] / seen["seconds"])
    print(f"{a.model}: {a.batch} answers of at most {a.max_tokens} tokens in groups of {a.group}, {threads} threads, load {os.getloadavg()[0]:.1f}")
    for who, all_ in rates.items():
        print(f"  {who:8} {statistics.median(all_):8.0f} tokens/s ({min(all_):.0f} to {max(all_):.0f})")
    print(f"  vitrine is {statistics.median(rates['vitrine']) / statistics.median(rates['TRL']):.2f} times as fast")


if __name__ == "__main__":
    main()
