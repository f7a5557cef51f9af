"""Packs the metrics of the ladder's runs, and sums them up for the pages.

usage: python3 models/book/ladder/summary.py RUNS LOGS SUMMARY.json      from the folders of the runs: writes LOGS/*.jsonl.gz too
       python3 models/book/ladder/summary.py LOGS SUMMARY.json           from such logs alone

A log holds the lines of metrics.jsonl without what another machine would write otherwise (rates, times of saving) and without the
activations around norms. Its last line also says what the run was: its parts, its sample, how it ended; that of `attention` also
the loss that the frequencies of the pieces alone give. `vitrine curves` draws such
logs. The summary has every number that a picture draws, to four digits.
"""
import array
import collections
import gzip
import json
import math
import pathlib
import re
import sys

RUNS = ["attention", "residual", "norm", "mlp", "no-affine", "no-positions", "no-mask", "vanishing", "exploding", "healthy"]
PROMPT = "Once upon a time there was a"
PARTS = ["norms", "residual", "mlp", "affine", "positions", "mask"]


def rounded(value):
    """Four digits; None for what is not finite, as the program writes it."""
    return None if value is None else float(f"{value:.4g}")


def ids_of(folder):
    """The ids of token data with 16-bit ids in one file (docs/token-data.md): behind the header, as many as it says."""
    data = next(folder.glob("*.tokens")).read_bytes()
    count = json.loads((folder / "index.json").read_text())["tokens"]
    ids = array.array("H", data[64:64 + 2 * count])
    if sys.byteorder == "big":
        ids.byteswap()
    return ids


def loss_of_frequencies(tokens, vocabulary=1024):
    """Loss on the held-out tokens of a model that knows how often each piece occurs, and nothing else; one is added to each count."""
    seen, held_out = collections.Counter(ids_of(tokens / "train")), ids_of(tokens / "valid")
    total = sum(seen.values()) + vocabulary
    return -sum(math.log((seen[piece] + 1) / total) for piece in held_out) / len(held_out)


def log_of(folder):
    """The lines of a run's metrics, and what it was."""
    lines = []
    for text in (folder / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        for own in ("tokens_per_s", "peak_share", "saved", "tokens"):
            line.pop(own, None)
        line.pop("layer_activation", None)
        lines.append(line)
    recipe = folder.with_suffix(".yaml").read_text()
    said = folder.with_suffix(".txt").read_text()
    off = set(re.findall(r"^  (\w+): off$", recipe, re.M))
    sample = re.findall(rf"^step \d+: ({PROMPT}.*?)\n(?=step \d|saved|done)", said, re.M | re.S)
    error = re.findall(r"^(?:vitrine: )?(?:error: )?(.*(?:not finite|NaN or infinity).*)$", said, re.M)
    lines[-1]["run"] = {"name": folder.name, "parts": {part: part not in off for part in PARTS},
                        "sample": " ".join(sample[-1].split()) if sample else None, "error": error[-1] if error else None}
    return lines


def summary_of(lines):
    """What the pictures draw of one run."""
    run, steps = lines[-1]["run"], [line for line in lines if "loss" in line]
    layered = [line for line in steps if "layer_grad_norm" in line]
    blocks = sorted((name for name in layered[0]["layer_stream_grad_norm"] if name != "end"), key=lambda name: int(name[7:]))
    thin = max(1, len(steps) // 100)
    drawn = [line for line in steps if (line["step"] - 1) % thin == 0 or line is steps[-1]]
    measured = [line for line in lines if "val_loss" in line]
    return run | {
        "layers": len(blocks),
        "steps": steps[-1]["step"],
        "loss": {"step": [line["step"] for line in drawn], "value": [rounded(line["loss"]) for line in drawn]},
        "validation": {"step": [line["step"] for line in measured], "value": [rounded(line["val_loss"]) for line in measured]},
        "gradients": {
            "step": [line["step"] for line in layered],
            "stream": [[rounded(line["layer_stream_grad_norm"][name]) for name in [*blocks, "end"]] for line in layered],
        },
    }


def main():
    runs = pathlib.Path(sys.argv[1])
    if len(sys.argv) == 4:
        logs = pathlib.Path(sys.argv[2])
        logs.mkdir(exist_ok=True)
        for name in RUNS:
            lines = log_of(runs / name)
            if name == "attention":
                lines[-1]["run"]["frequencies"] = rounded(loss_of_frequencies(runs / "tokens"))
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            (logs / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    else:
        logs = runs
    found = []
    for name in RUNS:
        with gzip.open(logs / f"{name}.jsonl.gz", "rt") as lines:
            found.append(summary_of([json.loads(line) for line in lines]))
    pathlib.Path(sys.argv[-1]).write_text('{"runs":[\n' + ",\n".join(json.dumps(run, separators=(",", ":")) for run in found) + "\n]}\n")


main()
