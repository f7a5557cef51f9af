#!/usr/bin/env python3
"""Merges of two fine-tuned children of the model that ships, by every method; a LITI sweep; a WARP front (docs/merge-experiments.md).

usage: merge_experiments.py BUILD_DIR FOLDER [STEP...]

FOLDER is made and takes 1.5 GB. Steps, in this order, all of them if none is named:
  data      two parts of the corpus that differ (fairy tales; stories without kings and fairies), and the held-out text
  children  one child of models/tales9m from each part, by `vitrine train`
  methods   a merge by each method, scored on the held-out text: table.md
  sweep     LITI from the model over the SLERP of its children: liti.svg
  warp      three rounds: warp/front.svg. Interrupted or not, it goes on where it was
Needs zstd. Every step goes on where it was interrupted.
"""
import json, math, pathlib, random, re, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASE = ROOT / "models/tales9m"
BETWEEN = "<|endoftext|>"
OF_TALES = re.compile(r"\b(king|queen|princess|prince|witch|fairy|giant|dragon|castle|palace|wolf|fox)s?\b")
TRAIN = """
  sequence_length: 256
  batch: {batch}
  steps: {steps}
  optimiser: {{lr: {lr}, betas: [0.9, 0.97], weight_decay: 0.1}}
  schedule: {{warmup: 20, decay: linear, minimum: 0}}
  compute: bf16
"""
STEPS, WARP_STEPS, RATE, HELD_OUT = 400, 60, "3e-4", 60_000  # HELD_OUT: characters of each kind

vitrine = None  # the program
folder = None


def run(*words, **options):
    return subprocess.run([str(vitrine), *map(str, words)], cwd=folder, check=True, text=True, **options)


def as_json(*words):
    return json.loads(run(*words, "--json", stdout=subprocess.PIPE).stdout)


def sections(name):
    text = subprocess.run(["zstd", "-dc", ROOT / "models/corpus" / name], check=True, stdout=subprocess.PIPE).stdout.decode()
    return [section.strip() for section in text.split(BETWEEN) if section.strip()]


def share_of_tales(section):
    """Words of fairy tales in a thousand."""
    return 1000 * len(OF_TALES.findall(section.lower())) / len(section.split())


def step_data():
    parts = {"tales": [], "stories": []}
    for section in sections("tales_train.txt.zst"):
        share = share_of_tales(section)
        if share >= 6:
            parts["tales"].append(section)
        elif share == 0:
            parts["stories"].append(section)
    for name, kept in parts.items():
        (folder / f"{name}.txt").write_text(f"\n{BETWEEN}\n".join(kept))
        run("data", f"{name}.txt", "--document", BETWEEN, "--tokenizer", BASE, "--out", f"tokens-{name}")
        print(name, len(kept), "sections,", sum(map(len, kept)), "characters")
    held = sections("tales_valid.txt.zst")
    random.Random(1).shuffle(held)
    samples = {"tales": [x for x in held if share_of_tales(x) >= 6], "stories": [x for x in held if share_of_tales(x) == 0]}
    for name, kept in samples.items():
        (folder / f"held-out-{name}.txt").write_text("\n\n".join(kept)[:HELD_OUT])
    (folder / "held-out.txt").write_text("\n\n".join((folder / f"held-out-{name}.txt").read_text() for name in samples))


def step_children():
    for seed, name in enumerate(("tales", "stories"), 1):
        keys = re.sub(r"^  ", "", TRAIN.format(steps=STEPS, batch=8, lr=RATE), flags=re.M)
        (folder / f"{name}.yaml").write_text(
            f"model: {BASE}\ndata: {{train: tokens-{name}/train}}\nseed: {seed}\nout: child-{name}{keys}")
        run("train", f"{name}.yaml", "--resume")


KINDS = ("tales", "stories")


def losses(file, sweep):
    """Loss and tokens of what a recipe makes, for each kind of text."""
    found = []
    for kind in KINDS:
        swept = as_json("merge", file, "--sweep", sweep, "--text", f"held-out-{kind}.txt")
        found.append((swept["points"][0]["loss"], swept["tokens"]))
    return found


def of_model(model):
    """Of a model as it is: a merge of itself alone."""
    (folder / "alone.yml").write_text(f"merge_method: passthrough\nmodels: [{{model: {model}}}]\n")
    return losses("alone.yml", "scale=1")


# Of each method: the parameters of each model (the other one's are the same) and of the merge.
METHODS = {
    "linear": ({"weight": 0.5}, {}),
    "slerp": ({}, {"t": 0.5}),
    "nuslerp": ({"weight": 0.5}, {}),
    "multislerp": ({"weight": 0.5}, {}),
    "karcher": ({}, {}),
    "task_arithmetic": ({"weight": 0.5}, {}),
    "ties": ({"weight": 1, "density": 0.5}, {}),
    "dare_linear": ({"weight": 0.5, "density": 0.5}, {}),
    "dare_ties": ({"weight": 0.5, "density": 0.5}, {}),
    "della": ({"weight": 1, "density": 0.5}, {}),
    "della_linear": ({"weight": 0.5, "density": 0.5}, {}),
    "breadcrumbs": ({"weight": 0.5, "density": 0.9}, {}),
    "breadcrumbs_ties": ({"weight": 0.5, "density": 0.9}, {}),
    "sce": ({}, {"select_topk": 0.5}),
    "model_stock": ({}, {}),
    "nearswap": ({}, {"t": 0.001}),
    "arcee_fusion": ({}, {}),
    "passthrough": ({}, {}),
    "ram": ({}, {}),
    "ramplus_tl": ({}, {}),
    "ema": ({}, {"mu": 0.5}),
    "slerp_task_vectors": ({}, {"t": 0.5}),
    "liti": ({}, {"eta": 0.5}),
}
A, B = "child-tales/last", "child-stories/last"


def recipe(method):
    own, shared = METHODS[method]
    base, models = BASE, [A, B]
    if method in ("linear", "karcher", "ema", "passthrough"):
        base = None
    if method in ("slerp", "nearswap", "arcee_fusion"):  # of two: one child is the base
        base, models = A, [A, B]
    if method == "passthrough":
        models = [A]
    if method == "liti":  # from the model to its children's SLERP
        models = ["slerp"]
    words = lambda values: "{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}"
    lines = [f"merge_method: {method}"] + ([f"base_model: {base}"] if base else []) + ["models:"]
    for model in models:
        lines.append(f"  - model: {model}")
        if own:
            lines.append(f"    parameters: {words(own)}")
    if shared:
        lines.append(f"parameters: {words(shared)}")
    return "\n".join(lines + ["dtype: float32", ""]), words({**own, **shared}) if own or shared else ""


# A parameter with its default or the recipe's value, so that a sweep of one value scores the merge without writing it.
HARMLESS = {"karcher": "max_iter=10", "model_stock": "filter_wise=0", "ram": "epsilon=1e-5", "ramplus_tl": "r=0.1", "passthrough": "scale=1"}


def merged(method, out):
    if not (folder / out / "config.json").exists():
        (folder / f"{method}.yml").write_text(recipe(method)[0])
        run("merge", f"{method}.yml", out, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return out


def of_method(method):
    own, shared = METHODS[method]
    if method == "arcee_fusion":  # has no parameter
        return of_model(merged(method, "fusion"))
    (folder / f"{method}.yml").write_text(recipe(method)[0])
    return losses(f"{method}.yml", HARMLESS.get(method) or "{}={}".format(*next(iter({**shared, **own}.items()))))


def step_methods():
    merged("slerp_task_vectors", "slerp")
    file = folder / "methods.json"
    done = json.loads(file.read_text()) if file.exists() else {}
    parents = {"the model that ships": BASE, "child of the tales": A, "child of the stories": B}
    for name in [*parents, *METHODS]:
        if name not in done:
            done[name] = of_model(parents[name]) if name in parents else of_method(name)
            file.write_text(json.dumps(done))
            print(name, done[name], flush=True)
    both = lambda scores: sum(loss * tokens for loss, tokens in scores) / sum(tokens for _, tokens in scores)
    rows = ["| model or method | parameters | both | tales | stories |", "| --- | --- | --- | --- | --- |"]
    for name in [*parents, *sorted(METHODS, key=lambda method: both(done[method]))]:
        what = f"**{name}**" if name in parents else f"`{name}`"
        values = [both(done[name])] + [loss for loss, _ in done[name]]
        rows.append(f"| {what} | {'' if name in parents else recipe(name)[1].strip('{}')} | " +
                    " | ".join(f"{math.exp(loss):.3f}" for loss in values) + " |")
    (folder / "table.md").write_text("\n".join(rows) + "\n")
    print("\n".join(rows))


def step_sweep():
    merged("slerp_task_vectors", "slerp")
    (folder / "liti.yml").write_text(recipe("liti")[0])
    etas = ",".join(str(i / 8) for i in range(13))
    run("merge", "liti.yml", "--sweep", f"eta={etas}", "--text", "held-out.txt", "--svg", "liti.svg")


def step_warp():
    (folder / "warp.yaml").write_text(f"""model: {BASE}
rounds: 3
train:{TRAIN.format(steps=WARP_STEPS, batch=4, lr=RATE)}  ema: 0.99
  kl_to: ema
  kl_weight: 0.1
children:
  - {{data: {{train: tokens-tales/train}}}}
  - {{data: {{train: tokens-stories/train}}}}
liti:
  etas: [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1]
  next: 0.5
evaluate: {{text: held-out.txt, window: 1024}}
out: warp
""")
    run("warp", "warp.yaml", "--resume")


def main():
    global vitrine, folder
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    vitrine = pathlib.Path(sys.argv[1]).resolve() / "vitrine"
    folder = pathlib.Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    steps = {"data": step_data, "children": step_children, "methods": step_methods, "sweep": step_sweep, "warp": step_warp}
    for name in sys.argv[3:] or steps:
        if name not in steps:
            sys.exit(f"{name}: no such step; there are {', '.join(steps)}")
        steps[name]()


if __name__ == "__main__":
    main()
