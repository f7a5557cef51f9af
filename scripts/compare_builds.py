#!/usr/bin/env python3
"""Compares two builds of vitrine bit for bit: predictions, traces, gradients, training steps, generated tokens.

usage: compare_builds.py OLD_PROGRAM NEW_PROGRAM [--targets reference,avx2,...] [--only TEXT] [--jobs N] [--all]

Both programs run the same commands on the golden models, their GGUF files, adapters and forms, and on the shipped model,
once for each kernel target that this machine has. What they write is compared:

  predict    every logit, printed exactly, for two sequences; --compute f32 and auto
  trace      every hook, the gradient at every hook and of every parameter; --compute f32 and auto
  generate   24 greedy tokens of three sequences and their log-probabilities; --compute f32 and auto
  train      ten steps of AdamW: losses and norms of every step, weights and moments of the checkpoint
  bf16       ten such steps with compute: bf16, from the model
  fresh      three steps from fresh weights by the model's configuration, with dropout
  lora       ten steps of an adapter on every matrix
  convert    GGUF files: the Hugging Face directory made of them, weights and configuration

Times and rates are left out. The exit status is 1 if anything differs or fails in one build alone, 2 if no
command succeeds. Needs Python 3.10 or later, nothing else.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
TARGETS = ["reference", "avx2", "avx512", "avx512_bf16", "amx", "neon", "neon_dot", "neon_i8mm", "neon_bf16"]
RATES = ("tokens_per_s", "peak_share", "comm_share")
# 24 positions: longer than every window of the golden models. The smallest vocabulary has 61 entries.
LONG = ",".join(str(4 + (37 * i * i + 11 * i) % 56) for i in range(24))
SHORT = "5,17,50,44,8"
ALL_SCORES = "100000"  # more than any vocabulary has

TRAIN = """model: {model}
data: {{train: {data}}}
sequence_length: 24
batch: 4
steps: {steps}
optimizer: {{name: adamw, lr: 0.001}}
schedule: {{warmup: 2}}
checkpoint: {{every: {steps}}}
layers_every: 1
threads: 2
out: run
{more}
"""


class Model:
    def __init__(self, name, path, adapter=None, trains=True):
        self.name, self.path, self.adapter, self.trains = name, str(path), adapter, trains

    def options(self):
        return ["--model", self.path] + (["--adapter", str(self.adapter)] if self.adapter else [])


class Case:
    """One command in a folder of its own, and the files of that folder whose content counts."""

    def __init__(self, name, arguments, files=(), stdout=False, config=None):
        self.name, self.arguments, self.files, self.stdout, self.config = name, arguments, files, stdout, config


def with_keys(folder, target, keys):
    """A copy of a model's folder whose config.json has these keys as well."""
    target.mkdir(parents=True)
    for file in folder.iterdir():
        if file.name != "config.json":
            os.link(file, target / file.name) if same_device(file, target) else shutil.copy(file, target / file.name)
    config = json.loads((folder / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **keys}))
    return target


def same_device(a, b):
    return a.stat().st_dev == b.stat().st_dev


def models(work):
    golden = sorted((GOLDEN / "models").glob("*/model"))
    found = [Model(f"models/{folder.parent.name}", folder) for folder in golden]
    found += [Model(f"variants/{config.parent.name}", config.parent) for config in sorted((GOLDEN / "variants").glob("*/config.json"))]
    found += [Model(f"gguf/{file.name}", file) for file in sorted((GOLDEN / "gguf").glob("*.gguf"))]
    for adapter in sorted((GOLDEN / "lora").glob("*/adapter")):
        name = adapter.parent.name
        found.append(Model(f"lora/{name}", GOLDEN / "models" / name / "model", adapter, trains=False))
    forms = {"off": {"vitrine_norms": "off"}, "post": {"vitrine_norms": "post"}, "pre": {"vitrine_norms": "pre"},
             "off_replace": {"vitrine_norms": "off", "vitrine_residual": False}, "own_replace": {"vitrine_residual": False}}
    for name in (folder.parent.name for folder in golden if not folder.parent.name.startswith("classic")):
        for form, keys in forms.items():
            found.append(Model(f"forms/{name}_{form}", with_keys(GOLDEN / "models" / name / "model", work / "forms" / name / form, keys)))
    found += [Model(f"shipped/{config.parent.name}", config.parent) for config in sorted((ROOT / "models").glob("*/config.json"))]
    return found


def cases(model, data):
    made = []
    for compute in ("f32", "auto"):
        options = [*model.options(), "--compute", compute, "--threads", "2", "--json"]
        tokens = ["--tokens", f"{LONG};{SHORT}"]
        made.append(Case(f"predict {compute}", ["predict", *tokens, *options, "--all-positions", "--top", ALL_SCORES], stdout=True))
        made.append(Case(f"trace {compute}", ["trace", *tokens, *options, "--hooks", "*", "--gradients", "--gradients-at", "*", "--out", "trace.safetensors"],
                         files=["trace.safetensors"]))
        made.append(Case(f"generate {compute}", ["generate", "--tokens", f"{LONG};{SHORT};7", *options, "--ignore-eos", "--max-tokens", "24"], stdout=True))
    if not model.trains:
        return made

    def train(name, start, steps, more=""):
        made.append(Case(name, ["train", "run.yaml"],
                         files=["run/metrics.jsonl", f"run/step-{steps}/*.safetensors", f"run/step-{steps}/training/*.safetensors"],
                         config=TRAIN.format(model=start, data=data, steps=steps, more=more)))

    train("train", model.path, 10)
    train("bf16", model.path, 10, "compute: bf16")
    if not model.name.startswith("forms/"):
        train("lora", model.path, 10, "lora: {rank: 4, targets: all-linear}")
    if model.path.endswith(".gguf"):
        made.append(Case("convert", ["convert", model.path, "written", "--dtype", "f32"], files=["written/*.safetensors", "written/config.json"]))
    else:
        train("fresh", f"{{config: {model.path}/config.json}}", 3, "dropout: 0.1")
    return made


def safetensors(content):
    """{tensor: (type, shape, bytes)}; the metadata are left out."""
    size = struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], tuple(t["shape"]), content[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]) for name, t in header.items()}


def without(value, keys):
    if isinstance(value, dict):
        return {k: without(v, keys) for k, v in value.items() if k not in keys}
    return [without(v, keys) for v in value] if isinstance(value, list) else value


def parsed(name, content):
    if name.endswith(".safetensors"):
        return safetensors(content)
    # Numbers stay text, so that 1.0 and 1 or two digits more are a difference.
    read = lambda text: json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    if name.endswith(".jsonl"):
        return [without(read(line), RATES) for line in content.decode().splitlines()]
    return without(read(content.decode()), ("timings",))


def first_difference(a, b, at=""):
    """Where two parsed outputs differ first, in words; None if nowhere."""
    if type(a) is not type(b):
        return f"{at}: {str(a)[:40]} | {str(b)[:40]}"
    if isinstance(a, dict):
        for key in sorted(a.keys() | b.keys()):
            if key not in a or key not in b:
                return f"{at}/{key}: only in the {'old' if key in a else 'new'} build"
            if found := first_difference(a[key], b[key], f"{at}/{key}"):
                return found
        return None
    if isinstance(a, tuple) and len(a) == 3 and isinstance(a[2], bytes):
        if a[:2] != b[:2]:
            return f"{at}: {a[:2]} | {b[:2]}"
        if a[2] == b[2]:
            return None
        index = next(i for i, (x, y) in enumerate(zip(a[2], b[2])) if x != y)
        if a[0] == "F32":
            x, y = (struct.unpack_from("<f", t[2], index // 4 * 4)[0] for t in (a, b))
            return f"{at}[{index // 4} of {math.prod(a[1])}]: {x!r} | {y!r}"
        return f"{at}: byte {index} of {len(a[2])}"
    if isinstance(a, list):
        for i, (x, y) in enumerate(zip(a, b)):
            if found := first_difference(x, y, f"{at}[{i}]"):
                return found
        return f"{at}: {len(a)} entries | {len(b)} entries" if len(a) != len(b) else None
    return f"{at}: {str(a)[:60]} | {str(b)[:60]}" if a != b else None


def token_data(program, model, work):
    """Token data in the model's own vocabulary, or in letters where it has none. Both builds learn from the same folder; whether
    they tokenize alike is for the tests to say."""
    def made(tokenizer, folder):
        return folder.exists() or subprocess.run(
            [program, "data", ROOT / "examples" / "fables.txt", "--document", r"\n\n\n", "--tokenizer", tokenizer, "--no-special", "--out", folder],
            capture_output=True).returncode == 0

    own = work / "tokens" / model.name
    own.parent.mkdir(parents=True, exist_ok=True)
    if made(model.path, own):
        return own / "train"
    if not made("characters", work / "tokens" / "characters"):
        sys.exit("the old build makes no token data")
    return work / "tokens" / "characters" / "train"


def outputs(program, target, case, work):
    """({name: parsed output}, None), or (None, what the program said when it failed)."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        folder = pathlib.Path(folder)
        if case.config:
            (folder / "run.yaml").write_text(case.config)
        ran = subprocess.run([program, *case.arguments], cwd=folder, env={**os.environ, "VITRINE_TARGET": target}, capture_output=True)
        if ran.returncode != 0:
            return None, ran.stderr.decode(errors="replace").strip().replace(str(ROOT) + "/", "").splitlines()[-1:] or [f"status {ran.returncode}"]
        result = {"standard output": parsed("", ran.stdout)} if case.stdout else {}
        for pattern in case.files:
            files = sorted(folder.glob(pattern))
            if not files:
                return None, [f"no {pattern} was written"]
            result.update({str(file.relative_to(folder)): parsed(file.name, file.read_bytes()) for file in files})
        return result, None


def compare(programs, target, case, work):
    """("equal", "DIFFERENT", "FAILED" or "refused", details)"""
    (old, old_error), (new, new_error) = (outputs(program, target, case, work) for program in programs)
    if old_error and new_error:
        return "refused", old_error[0]
    if old_error or new_error:
        return "FAILED", f"the {'old' if old_error else 'new'} build alone: {(old_error or new_error)[0]}"
    found = first_difference(old, new)
    return ("DIFFERENT", found) if found else ("equal", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--targets", default=",".join(TARGETS), help="kernel targets, separated by commas (default: all that this machine has)")
    parser.add_argument("--only", default="", help="only models whose name holds this text, such as models/ or gemma2")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="commands at a time (default: the cores)")
    parser.add_argument("--all", action="store_true", help="a line for each command instead of one for each model")
    options = parser.parse_args()
    programs = [program.resolve() for program in (options.old, options.new)]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        work = pathlib.Path(work)
        present = []
        for target in options.targets.split(","):
            tried = [subprocess.run([program, "--version"], env={**os.environ, "VITRINE_TARGET": target}, capture_output=True).returncode for program in programs]
            if tried == [0, 0]:
                present.append(target)
            elif tried[0] == tried[1]:
                print(f"{target}: skipped; this machine or these builds lack it")
            else:
                sys.exit(f"{target}: only the {'old' if tried[0] == 0 else 'new'} build has it")
        if not present:
            sys.exit("no target to compare")
        chosen = [model for model in models(work) if options.only in model.name]
        if not chosen:
            sys.exit(f"no model's name holds {options.only!r}")
        rows = [(model, target, case) for model in chosen for target in present for case in cases(model, token_data(programs[0], model, work))]
        results = pool.map(lambda row: compare(programs, row[1], row[2], work), rows)
        width = max(len(model.name) for model in chosen)
        total, line = {}, None

        def finish():  # one model on one target
            if line and line["equal"]:
                print(f"{line['name']:{width}}  {line['target']:12} equal: {', '.join(line['equal'])}")

        for (model, target, case), (state, detail) in zip(rows, results):
            total[state] = total.get(state, 0) + 1
            if options.all or state != "equal":
                print(f"{model.name:{width}}  {target:12} {case.name}: {state}{' ' if detail else ''}{detail}", flush=True)
            if options.all:
                continue
            if not line or (line["name"], line["target"]) != (model.name, target):
                finish()
                line = {"name": model.name, "target": target, "equal": []}
            if state == "equal":
                line["equal"].append(case.name)
        finish()
    print(f"{len(rows)} comparisons on {', '.join(present)} in {time.monotonic() - started:.0f} s: " + ", ".join(f"{n} {state}" for state, n in sorted(total.items())))
    sys.exit(1 if total.get("DIFFERENT") or total.get("FAILED") else 0 if total.get("equal") else 2)


if __name__ == "__main__":
    main()
