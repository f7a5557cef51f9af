#!/usr/bin/env python3
"""Tells the story of a run that make.sh made: python3 story.py VITRINE FOLDER OUT

Reads the checkpoints and metrics of FOLDER and asks the program VITRINE for the rest: a sampled continuation, one head's attention
and the embeddings of some words at each checkpoint. OUT is JSON, what the picture training-film shows.
"""

import array
import json
import math
import os
import re
import subprocess
import sys
import tempfile

BEGINNING = "Once upon a time"
SAMPLED = 40  # tokens of each sample
WATCHED = "Once upon a time there was a king who had a daughter, and the king"
GROUPS = {
    "people": "king queen prince princess man woman boy girl father mother brother sister",
    "pronouns": "he she they his her him",
    "verbs": "said came went saw took made",
    "adjectives": "little great old young good poor",
    "places": "house forest castle sea world garden",
    "numbers": "one two three many",
    "small words": "and the of to in with",
}
MERGES, LOSSES = 120, 240


def read_tensors(path):
    """name: (shape, numbers) of a safetensors file of f32."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start, tensors = file.tell(), {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] != "F32":
                sys.exit(f'{path}: {name} is {entry["dtype"]}; expected F32')
            begin, end = entry["data_offsets"]
            file.seek(start + begin)
            numbers = array.array("f", file.read(end - begin))
            if sys.byteorder == "big":
                numbers.byteswap()
            tensors[name] = (entry["shape"], numbers)
    return tensors


class Program:
    def __init__(self, path, scratch):
        self.path, self.out = path, os.path.join(scratch, "trace.safetensors")

    def __call__(self, *arguments):
        return json.loads(subprocess.run([self.path, *arguments, "--json"], check=True, stdout=subprocess.PIPE).stdout)

    def trace(self, model, hook, *prompt):
        if os.path.exists(self.out):
            os.remove(self.out)
        self("trace", *prompt, "--model", model, "--hooks", hook, "--out", self.out)
        (tensor,) = read_tensors(self.out).values()
        return tensor


def patterns(program, model):
    """[layer][head][query][key] of the watched text."""
    layers = []
    for layer in range(json.load(open(os.path.join(model, "config.json")))["n_layer"]):
        shape, numbers = program.trace(model, f"blocks.{layer}.attn.hook_pattern", WATCHED)
        heads, queries, keys = shape[-3:]
        layers.append([[[numbers[(h * queries + q) * keys + k] for k in range(q + 1)] for q in range(queries)] for h in range(heads)])
    return layers


def most_previous(layers):
    """The head that looks most at the token before, and how much: the mean over all tokens but the first."""
    def share(head):
        return sum(row[q - 1] for q, row in enumerate(head) if q > 0) / (len(head) - 1)

    return max((share(head), -l, -h) for l, heads in enumerate(layers) for h, head in enumerate(heads))


def plane(rows):
    """Mean and two directions of the most variance, by power iteration on the Gram matrix of the centered rows."""
    n, width = len(rows), len(rows[0])
    mean = [sum(row[i] for row in rows) / n for i in range(width)]
    centered = [[x - m for x, m in zip(row, mean)] for row in rows]
    gram = [[sum(a * b for a, b in zip(u, v)) for v in centered] for u in centered]
    axes = []
    for k in range(2):
        v = [math.sin(1 + i + k) for i in range(n)]
        for _ in range(2000):
            v = [sum(g * x for g, x in zip(row, v)) for row in gram]
            length = math.sqrt(sum(x * x for x in v))
            v = [x / length for x in v]
        value = sum(sum(g * x for g, x in zip(row, v)) * y for row, y in zip(gram, v))
        gram = [[g - value * v[i] * v[j] for j, g in enumerate(row)] for i, row in enumerate(gram)]
        axes.append([sum(x * row[i] for x, row in zip(v, centered)) / math.sqrt(value) for i in range(width)])
    share = [sum(sum(a * x for a, x in zip(axis, row)) ** 2 for row in centered) for axis in axes]
    return mean, axes, [s / sum(x * x for row in centered for x in row) for s in share]


def project(rows, mean, axes):
    return [[round(sum((x - m) * a for x, m, a in zip(row, mean, axis)), 4) for axis in axes] for row in rows]


def parts(path):
    """Root mean square and mean of each kind of parameter, over all layers together."""
    sums = {}

    def add(kind, numbers):
        count, total, squares = sums.get(kind, (0, 0.0, 0.0))
        sums[kind] = (count + len(numbers), total + sum(numbers), squares + sum(x * x for x in numbers))

    names = {
        "wte.weight": "W_E", "wpe.weight": "W_pos",
        "ln_1.weight": "ln1.w", "ln_1.bias": "ln1.b", "ln_2.weight": "ln2.w", "ln_2.bias": "ln2.b",
        "ln_f.weight": "ln_final.w", "ln_f.bias": "ln_final.b",
        "attn.c_proj.weight": "W_O", "attn.c_proj.bias": "b_O",
        "mlp.c_fc.weight": "W_in", "mlp.c_fc.bias": "b_in", "mlp.c_proj.weight": "W_out", "mlp.c_proj.bias": "b_out",
    }  # fmt: skip
    for name, (shape, numbers) in read_tensors(path).items():
        name = re.sub(r"^(transformer\.)?(h\.\d+\.)?", "", name)
        if name.startswith("attn.c_attn"):  # queries, keys and values side by side
            third = shape[-1] // 3
            for i, letter in enumerate("QKV"):
                own = array.array("f")
                for row in range(0, len(numbers), shape[-1]):
                    own.extend(numbers[row + i * third : row + (i + 1) * third])
                add(("W_" if name.endswith("weight") else "b_") + letter, own)
        elif name in names:
            add(names[name], numbers)
        elif name != "lm_head.weight":
            sys.exit(f"{path}: a GPT-2 has no parameter {name}")
    order = "W_E W_pos ln1.w ln1.b W_Q b_Q W_K b_K W_V b_V W_O b_O ln2.w ln2.b W_in b_in W_out b_out ln_final.w ln_final.b".split()
    return {kind: [round(math.sqrt(sums[kind][2] / sums[kind][0]), 5), round(sums[kind][1] / sums[kind][0], 5)] for kind in order}


def main(vitrine, folder, out):
    metrics = [json.loads(line) for line in open(os.path.join(folder, "run/metrics.jsonl"))]
    numbers = sorted(int(name[5:]) for name in os.listdir(os.path.join(folder, "run")) if re.fullmatch(r"step-\d+", name))
    models = {0: os.path.join(folder, "run-0/last")} | {n: os.path.join(folder, f"run/step-{n}") for n in numbers}
    with tempfile.TemporaryDirectory() as scratch:
        program = Program(vitrine, scratch)
        last = models[numbers[-1]]
        with open(os.path.join(folder, "merges.json"), encoding="utf-8") as file:
            merges = json.load(file)["merge_list"]
        words = []
        for group, listed in GROUPS.items():
            for word in listed.split():
                ids = program("tokenize", "--model", last, "--no-special", " " + word)["tokens"]
                if len(ids) == 1:
                    words.append({"id": ids[0], "word": word, "group": group})
        tokens = ",".join(str(word["id"]) for word in words)

        def embeddings(model):
            shape, values = program.trace(model, "hook_embed", "--tokens", tokens)
            return [list(values[i * shape[-1] : (i + 1) * shape[-1]]) for i in range(len(words))]

        share, layer, head = most_previous(patterns(program, last))
        layer, head = -layer, -head
        mean, axes, shares = plane(embeddings(last))
        watched = program("tokenize", "--model", last, "--no-special", WATCHED)
        checkpoints = []
        for step, model in models.items():
            line = next(line for line in metrics if line["step"] == step)
            seen = patterns(program, model)
            made = program("generate", BEGINNING, "--model", model, "--max-tokens", str(SAMPLED), "--temperature", "0.8",
                           "--seed", "1", "--ignore-eos")  # fmt: skip
            checkpoints.append({
                "step": step,
                "tokens": line["tokens"],
                "valLoss": round(line["val_loss"], 4),
                "sample": made["text"],
                "attention": [[round(x, 3) for x in row] for row in seen[layer][head]],
                "previous": round(sum(row[q - 1] for q, row in enumerate(seen[layer][head]) if q) / (len(seen[0][0]) - 1), 4),
                "embeddings": project(embeddings(model), mean, axes),
                "parts": parts(os.path.join(model, "model.safetensors")),
            })  # fmt: skip
            print(f"step {step}: validation loss {line['val_loss']:.4f}: {made['text'][:60]!r}", file=sys.stderr)
    trained = [line for line in metrics if "loss" in line]
    losses, begin = [], 0  # means over parts of the run that grow with it, so that both ends can be seen on a log axis
    while begin < len(trained):
        end = min(len(trained), max(begin + 1, math.ceil(begin * (1 + 9 / LOSSES))))
        part = trained[begin:end]
        losses.append([part[-1]["step"], round(sum(line["loss"] for line in part) / len(part), 4)])
        begin = end
    story = {
        "model": "gpt2-tales",
        "recipe": "models/book/gpt2-tales/recipe.yaml",
        "vocabSize": json.load(open(os.path.join(last, "config.json")))["vocab_size"],
        "beginning": BEGINNING,
        "watched": {"layer": layer, "head": head, "ids": watched["tokens"], "pieces": watched["pieces"]},
        "words": words,
        "planeShares": [round(s, 4) for s in shares],
        "merges": [{key: merge[key] for key in ("left", "right", "piece", "count")} for merge in merges[:MERGES]],
        "losses": losses,
        "checkpoints": checkpoints,
    }
    with open(out, "w", encoding="utf-8") as file:
        lines = json.dumps(story, ensure_ascii=False, separators=(",", ":"))
        file.write(lines.replace('{"step":', '\n{"step":') + "\n")


main(*sys.argv[1:])
