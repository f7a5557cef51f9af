#!/usr/bin/env python3
"""Merges of two fine-tuned children of the shipped model, by every method; a LITI sweep; a WARP front (docs/merge-experiments.md).

usage: merge_experiments.py BUILD_DIR FOLDER [STEP...]

FOLDER is made and takes 2 GB. Steps, in this order, all of them if none is named:
  data      two parts of the corpus that differ (fairy tales; stories without kings and fairies), and the held-out documents
  children  one child of models/tales9m from each part, by `vitrine train`
  methods   a merge of the two children by each method
  sweep     LITI from the model over the SLERP of its children: liti.svg, liti.md
  warp      three rounds: warp/front.svg, warp.md
  table     every model scored on every held-out document: scores.json, table.md
Needs zstd. Every step goes on where it was interrupted, and keeps what is there: use another FOLDER after changing this file.
"""
import json, math, os, pathlib, random, re, subprocess, sys, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASE = ROOT / "models/tales9m"
BETWEEN = "<|endoftext|>"
OF_TALES = re.compile(r"\b(king|queen|princess|prince|witch|fairy|giant|dragon|castle|palace|wolf|fox)s?\b")
KINDS = ("tales", "stories")
STEPS, ROUNDS, RATE = 300, 3, "1e-4"
HELD_OUT = 3600  # characters of each document, about 1,000 tokens: the context
TRAIN = f"""
  sequence_length: 512
  batch: 4
  steps: {{steps}}
  optimizer: {{{{lr: {RATE}, betas: [0.9, 0.97], weight_decay: 0.1}}}}
  schedule: {{{{warmup: 20, decay: linear, minimum: 0}}}}
  checkpoint: {{{{every: 50, keep: 1}}}}
  compute: bf16
"""

vitrine = None  # the program
folder = None


def run(*words, **options):
    return subprocess.run([str(vitrine), *map(str, words)], cwd=folder, check=True, text=True, **options)


def as_json(*words):
    return json.loads(run(*words, "--json", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def write(name, text):
    """Whole or not at all."""
    (folder / f"{name}.part").write_text(text)
    (folder / f"{name}.part").rename(folder / name)


def stored(name):
    """What an earlier run has measured."""
    file = folder / name
    return json.loads(file.read_text()) if file.exists() else {}


def table(name, head, rows):
    lines = [head, ["---"] * len(head), *rows]
    write(name, "".join("| " + " | ".join(line) + " |\n" for line in lines))
    print((folder / name).read_text())


def sections(name):
    text = subprocess.run(["zstd", "-dc", ROOT / "models/corpus" / name], check=True, stdout=subprocess.PIPE).stdout.decode()
    return [section.strip() for section in text.split(BETWEEN) if section.strip()]


def parts(of):
    """Sections that are full of the words of fairy tales, and those that have none."""
    shares = [(1000 * len(OF_TALES.findall(section.lower())) / len(section.split()), section) for section in of]
    return {"tales": [x for share, x in shares if share >= 6], "stories": [x for share, x in shares if share == 0]}


def documents():
    """Names of the held-out documents of each kind."""
    return {kind: sorted(file.name for file in folder.glob(f"held-out-{kind}-*.txt")) for kind in KINDS}


def step_data():
    held = parts(sections("tales_valid.txt.zst"))
    count = min(map(len, held.values()))
    samples = {}
    for kind in KINDS:
        random.Random(1).shuffle(held[kind])
        samples[kind] = [x if len(x) <= HELD_OUT else x[:HELD_OUT].rsplit(None, 1)[0] for x in held[kind][:count]]
        for i, text in enumerate(samples[kind]):
            write(f"held-out-{kind}-{i:02}.txt", text)
        write(f"held-out-{kind}.txt", "\n\n".join(samples[kind]))
        print("held out:", kind, count, "of", len(held[kind]), "sections,", sum(map(len, samples[kind])), "characters")
    write("held-out-both.txt", "\n\n".join(text for kind in KINDS for text in samples[kind]))
    if all((folder / f"tokens-{kind}").exists() for kind in KINDS):
        return
    for kind, kept in parts(sections("tales_train.txt.zst")).items():
        write(f"{kind}.txt", f"\n{BETWEEN}\n".join(kept))
        print("training:", kind, len(kept), "sections,", sum(map(len, kept)), "characters")
        run("data", f"{kind}.txt", "--document", BETWEEN, "--tokenizer", BASE, "--out", f"tokens-{kind}")


def step_children():
    keys = re.sub(r"^  ", "", TRAIN.format(steps=STEPS), flags=re.M)
    for seed, kind in enumerate(KINDS, 1):
        write(f"{kind}.yaml", f"model: {BASE}\ndata: {{train: tokens-{kind}/train}}\nseed: {seed}\nout: child-{kind}{keys}")
        run("train", f"{kind}.yaml", "--resume")


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
    """The recipe and its parameters in words."""
    own, shared = METHODS[method]
    base, models = BASE, [A, B]
    if method in ("linear", "karcher", "ema", "passthrough"):
        base = None
    if method in ("slerp", "nearswap", "arcee_fusion"):  # of two: one child is the base
        base, models = A, [A, B]
    if method == "passthrough":
        models = [A]
    if method == "liti":  # from the model to its children's SLERP
        models = ["merged-slerp_task_vectors"]
    words = lambda values: ", ".join(f"{key}: {value}" for key, value in values.items())
    lines = [f"merge_method: {method}"] + ([f"base_model: {base}"] if base else []) + ["models:"]
    for model in models:
        lines.append(f"  - model: {model}")
        if own:
            lines.append(f"    parameters: {{{words(own)}}}")
    if shared:
        lines.append(f"parameters: {{{words(shared)}}}")
    return "\n".join(lines + ["dtype: float32", ""]), words({**own, **shared})


def step_methods():
    for method in METHODS:
        if not (folder / f"merged-{method}/config.json").exists():
            write(f"{method}.yml", recipe(method)[0])
            run("merge", f"{method}.yml", f"merged-{method}", stdout=subprocess.DEVNULL)


def step_sweep():
    etas = [i / 4 for i in range(7)]
    values = "eta=" + ",".join(map(str, etas))
    swept = stored("sweep.json")
    for kind in ("both", *KINDS):
        if kind not in swept:
            picture = ("--svg", "liti.svg") if kind == "both" else ()
            swept[kind] = as_json("merge", "liti.yml", "--sweep", values, "--text", f"held-out-{kind}.txt", *picture)
            write("sweep.json", json.dumps(swept))
        print(kind, swept[kind]["tokens"], "tokens", flush=True)
    points = {kind: sweep["points"] for kind, sweep in swept.items()}
    rows = [[f"{eta:g}", *(f"{points[kind][i]['perplexity']:.3f}" for kind in points), f"{points['both'][i]['distance']:.2f}"]
            for i, eta in enumerate(etas)]
    table("liti.md", ["eta", *points, "distance"], rows)


def step_warp():
    write("warp.yaml", f"""model: {BASE}
rounds: {ROUNDS}
train:{TRAIN.format(steps=STEPS // ROUNDS)}  ema: 0.99
  kl_to: ema
  kl_weight: 0.1
children:
  - {{data: {{train: tokens-tales/train}}}}
  - {{data: {{train: tokens-stories/train}}}}
liti:
  etas: [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1]
  next: 0.5
write: [1]
evaluate: {{text: held-out-both.txt, window: 1024}}
out: warp
""")
    run("warp", "warp.yaml", "--resume")
    rounds = json.loads((folder / "warp/warp.json").read_text())["rounds"]
    cell = lambda point: f"{point['perplexity']:.3f} ({point['distance']:.2f})"
    rows = [[f"child of the {kind}", *(cell(r["children"][i]) for r in rounds)] for i, kind in enumerate(KINDS)]
    rows += [[f"eta {point['eta']:g}", *(cell(r["etas"][i]) for r in rounds)] for i, point in enumerate(rounds[0]["etas"])]
    table("warp.md", ["model", *(f"round {i + 1}" for i in range(ROUNDS))], rows)


def scored(models):
    """Loss and tokens of each model on each document."""
    scores = stored("scores.json")
    for name, model in models.items():
        if name in scores:
            continue
        write("alone.yml", f"merge_method: passthrough\nmodels: [{{model: {model}}}]\n")  # a merge of itself alone
        scores[name] = {}
        for kind, files in documents().items():
            swept = [as_json("merge", "alone.yml", "--sweep", "scale=1", "--text", file) for file in files]
            scores[name][kind] = [(one["points"][0]["loss"], one["tokens"]) for one in swept]
        write("scores.json", json.dumps(scores))
        print(name, f"{loss(scores[name]):.4f}", flush=True)
    return {name: scores[name] for name in models}


def distance(model):
    """From the shipped model, over all weights: a by-product of a sweep."""
    if model == BASE:
        return 0
    write("distance.yml", f"merge_method: liti\nbase_model: {BASE}\nmodels: [{{model: {model}}}]\n")
    return as_json("merge", "distance.yml", "--sweep", "eta=1", "--text", documents()["tales"][0])["points"][0]["distance"]


def loss(score, kinds=KINDS):
    """Nats a token."""
    every = [document for kind in kinds for document in score[kind]]
    return sum(one * tokens for one, tokens in every) / sum(tokens for _, tokens in every)


def difference(score, other, kinds=KINDS):
    """In nats a token, and its standard error from the differences on each document, of each kind by itself."""
    every = sum(tokens for kind in kinds for _, tokens in score[kind])
    variance = 0
    for kind in kinds:
        pairs = [(a - b, tokens) for (a, tokens), (b, _) in zip(score[kind], other[kind])]
        mean = sum(d * tokens for d, tokens in pairs) / sum(tokens for _, tokens in pairs)
        variance += sum((tokens * (d - mean)) ** 2 for d, tokens in pairs) * len(pairs) / (len(pairs) - 1)
    return loss(score, kinds) - loss(other, kinds), math.sqrt(variance) / every


def step_table():
    shipped, *children = parents = {"the shipped model": BASE, "child of the tales": A, "child of the stories": B}
    beside = {f"WARP, round {ROUNDS}, eta {eta}": f"warp/round-{ROUNDS}/liti-{eta}" for eta in ("0.5", "1")}
    models = {**parents, **{method: f"merged-{method}" for method in METHODS}, **beside}
    scores = scored(models)

    def against(name, other, kinds=KINDS):
        return "0" if name == other else "{:+.4f} ± {:.4f}".format(*difference(scores[name], scores[other], kinds))

    best = lambda names, kinds=KINDS: min(names, key=lambda name: loss(scores[name], kinds))
    rows = []
    for name in [*parents, *sorted(METHODS, key=lambda method: loss(scores[method])), *beside]:
        cells = [f"`{name}`", recipe(name)[1]] if name in METHODS else [f"**{name}**", ""]
        cells += [f"{math.exp(loss(scores[name], kinds)):.3f}" for kinds in (KINDS, ["tales"], ["stories"])]
        rows.append([*cells, against(name, shipped), against(name, best(children)), f"{distance(models[name]):.2f}"])
    head = ["model or method", "parameters", "both", *KINDS, f"against {shipped}", f"against the {best(children)}", "distance"]
    table("table.md", head, rows)
    for kind in KINDS:
        print(kind, len(scores[shipped][kind]), "documents,", sum(tokens for _, tokens in scores[shipped][kind]), "tokens")
    for kinds in (KINDS, ["tales"], ["stories"]):
        merge = best(METHODS, kinds)
        for other in parents:
            print(f"{' and '.join(kinds)}: {merge} against {other}: {against(merge, other, kinds)} nats a token")


def main():
    global vitrine, folder
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    vitrine = pathlib.Path(sys.argv[1]).resolve() / "vitrine"
    folder = pathlib.Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    steps = {"data": step_data, "children": step_children, "methods": step_methods,
             "sweep": step_sweep, "warp": step_warp, "table": step_table}
    for name in sys.argv[3:] or steps:
        if name not in steps:
            sys.exit(f"{name}: no such step; there are {', '.join(steps)}")
        begin, cpu = time.monotonic(), os.times()
        steps[name]()
        spent = sum(os.times()[:4]) - sum(cpu[:4])
        print(f"{name}: {time.monotonic() - begin:.0f} s, {spent:.0f} s of processor time", flush=True)


if __name__ == "__main__":
    main()
