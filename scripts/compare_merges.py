#!/usr/bin/env python3
"""Compares `vitrine merge` with mergekit on random recipes over every method and form of configuration.

usage: compare_merges.py --program build/release/vitrine [--count 200] [--seed 1] [--only METHOD] [--seeds 200] [--keep DIR]

mergekit (0.1.5, from PyPI, in a virtual environment made at --venv) runs inside this process, vitrine as a program, both from
inside a folder of tiny models (tests/golden/merging, and one with larger matrices made for the run). Compared are: whether both
accept the recipe, files, index, tensor names, shapes, types, values, and the keys of config.json that the inputs have.

  values     f32: within 1e-6 of the tensor's largest magnitude. 16 bits: within one step of the type at the element.
  in f32     Where a recipe's `dtype` or the inputs have 16 bits, mergekit computes in 16 bits. A result that differs from that by
             more than a step, but not from mergekit's own code run in f32 and rounded once, is counted here.
  unrounded  The same, and the inputs are not rounded to the recipe's `dtype` first either: nearer to the exact result.
  in f64     f32 values farther than 1e-6 from mergekit's, but not from those of mergekit's own code run in f64: its rounding,
             where small differences of large numbers are scaled up.
  ties       where a method takes the k largest, elements as large as the last one taken may be taken or not. Such an element must
             have a value that mergekit gives with one of the choices; the same for arcee_fusion's threshold and for sign sums
             that are 0 but for rounding.
  not finite mergekit writes NaN or infinities (weights whose sum is 0) and vitrine refuses.
  wide       arcee_fusion and ramplus_tl give f32, which mergekit writes although the recipe's `dtype` has 16 bits, unless there is an
             `out_dtype`; vitrine writes the type that is asked for. Types and files are not compared then, and values are rounded.

Random methods (dare_linear, dare_ties, della, della_linear at densities below 1) run with --seeds seeds on both sides; keep rate,
mean and L1 norm must agree within three standard errors. One that does not is tried again with as many other seeds.
Every disagreement is printed with its recipe, which is kept in --keep. Exits with 1 if there is any.
"""
import argparse, itertools, json, math, os, pathlib, random, re, shutil, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "merging"
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "scripts"))
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, help="without it mergekit runs alone, which shows what the recipes cover")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=200, help="of each random method; 0 leaves them out")
    parser.add_argument("--only", help="one method")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path("build/merge_disagreements"))
    parser.add_argument("--venv", default="build/mergekit")
    return parser.parse_args()


options = parse()
try:
    import mergekit  # noqa: F401
except ImportError:
    from peer import python_with
    python = python_with(options.venv, "mergekit==0.1.5")
    os.execv(python, [python, *sys.argv])

import logging, warnings
import torch, yaml
from safetensors import safe_open
from safetensors.torch import save_file
import mergekit.io.tasks
import mergekit.merge_methods.generalized_task_arithmetic as task_arithmetic
import mergekit.sparsify
from mergekit.config import MergeConfiguration
from mergekit.merge import run_merge
from mergekit.options import MergeOptions
from random_merges import METHODS, Family, RandomRecipes

sce = sys.modules["mergekit.merge_methods.sce"]
fusion = sys.modules["mergekit.merge_methods.arcee_fusion"]
logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore")
torch.set_num_threads(2)
HALF = (torch.bfloat16, torch.float16)
WRITE_F32 = ("arcee_fusion", "ramplus_tl")  # whatever `dtype` says
TIE = 1e-6  # relative distance from the last one taken within which elements are as large


class Merged:
    """What a run left behind: files, tensors, index and configuration."""

    def __init__(self, folder):
        self.files = sorted(f.name for f in folder.glob("*.safetensors*"))
        self.tensors = {}
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, "pt") as f:
                for name in f.keys():
                    self.tensors[name] = f.get_tensor(name)
        index = folder / "model.safetensors.index.json"
        self.index = json.loads(index.read_text()) if index.exists() else {}
        self.config = json.loads((folder / "config.json").read_text()) if (folder / "config.json").exists() else {}


def by_mergekit(folder, recipe, out, **more):
    """(Merged, None) or (None, why not)"""
    mergekit.io.tasks.LoaderCache.loaders.clear()
    before = os.getcwd()
    os.chdir(folder)
    try:
        run_merge(MergeConfiguration.model_validate(recipe), str(out), MergeOptions(
            **{"random_seed": 1, "quiet": True, "write_model_card": False, "copy_tokenizer": False, **more}))
        return Merged(out), None
    except Exception as error:
        return None, " ".join(str(error).split())[:160]
    finally:
        os.chdir(before)
        shutil.rmtree(out, ignore_errors=True)


def by_vitrine(folder, recipe_file, out, **more):
    """(Merged, 0, "") or (None, exit status, what it said)"""
    arguments = list(itertools.chain.from_iterable((f"--{k.replace('_', '-')}", str(v)) for k, v in {"random_seed": 1, **more}.items()))
    ran = subprocess.run([options.program, "merge", recipe_file, out, *arguments], cwd=folder, capture_output=True, text=True)
    try:
        if ran.returncode == 0:
            return Merged(out), 0, ""
        left = f" It left {out.name} behind." if out.exists() else ""
        return None, ran.returncode, " ".join(ran.stderr.split())[:300] + left
    finally:
        shutil.rmtree(out, ignore_errors=True)


class Patched:
    """Replaces attributes while it lasts."""

    def __init__(self, *changes):
        self.changes = changes

    def __enter__(self):
        self.before = [(where, name, where.__dict__[name]) for where, name, _ in self.changes]
        for where, name, value in self.changes:
            setattr(where, name, value)

    def __exit__(self, *_):
        for where, name, value in self.before:
            setattr(where, name, value)


def widened(rounded, dtype=torch.float32):
    """Inputs, once read and perhaps rounded to the recipe's dtype, are widened, and everything after is computed in that type. What
    is written has the type of the recipe, or this one."""
    load = mergekit.io.tasks.LoadTensor.execute

    def wide(self):
        x = load(self if rounded else self.model_copy(update={"dtype": None}))
        return x.to(dtype) if x is not None and (x.dtype in HALF or dtype == torch.float64) else x
    changes = [(mergekit.io.tasks.LoadTensor, "execute", wide)]
    if dtype == torch.float64:  # out_dtype would round
        save = mergekit.io.tasks.SaveTensor.execute
        changes.append((mergekit.io.tasks.SaveTensor, "execute", lambda self, **k: save(self.model_copy(update={"dtype": None}), **k)))
    return Patched(*changes)


def near(w, last):
    return (w - last).abs() <= TIE * last.abs()


def with_choice(choice):
    """mergekit with ties decided: choice[i] says whether source i takes elements as large as the last one, choice[-1] how sign
    sums of rounding size count."""
    calls = itertools.count()
    merge_group, sparsify, mask = (task_arithmetic.GeneralizedTaskArithmeticMerge.merge_group, task_arithmetic.sparsify, task_arithmetic.get_mask)

    def group(self, *a, **k):
        nonlocal calls
        calls = itertools.count()
        return merge_group(self, *a, **k)

    def decided(delta, **how):
        take = choice[next(calls) % (len(choice) - 1)]
        out = sparsify(delta, **how)
        method = how["method"].value
        if not method.startswith("magnitude") or not 0 < how["density"] < 1:
            return out
        # The share of the norm that pruning removed is that of the run itself: a tie changes it by nothing.
        kept = sparsify(delta, **{**how, "rescale_norm": None}) != 0
        scale = (out[kept] / delta[kept]).median() if kept.any() else 1
        w = delta.abs().float()
        for edge in ([w[kept].min()] + ([w[kept].max()] if method.endswith("outliers") else [])) if kept.any() else []:
            out = torch.where(near(w, edge), delta * scale if take else torch.zeros_like(delta), out)
        return out

    def signs(delta, *a, **k):
        total, size = delta.sum(dim=0), delta.abs().sum(dim=0)
        nudge = torch.where(total.abs() <= 1e-6 * size, size * (1e-3 if choice[-1] else -1e-3), torch.zeros_like(size))
        # get_mask reads signs and the sign of the sum: one more row moves the sum alone.
        return mask(torch.cat([delta, nudge[None]]), *a, **k)[:-1]

    return Patched((task_arithmetic.GeneralizedTaskArithmeticMerge, "merge_group", group), (task_arithmetic, "sparsify", decided),
                   (task_arithmetic, "get_mask", signs), (sce, "sign_consensus_mask", signs), (sce, "sce_mask", sce_choice(choice[0])))


def sce_choice(take):
    select = sce.sce_mask

    def mask(tvs, density, mask_dtype=None):
        out = select(tvs, density, mask_dtype)
        variance = torch.var(tvs, dim=0, unbiased=False)
        if out.bool().any() and not out.bool().all():
            out[near(variance, variance[out.bool()].min())] = take
        return out
    return mask


def fusion_choice(take):
    def mask(self, scores):
        threshold = self.calculate_dynamic_threshold(scores)
        # A divergence is a sum of terms that cancel, so that scores carry a larger error than their inputs.
        close = (scores - threshold).abs() <= 1e-3 * threshold.abs() + 1e-9
        return torch.where(close, torch.full_like(scores, float(take)), (scores >= threshold).float()), threshold
    return Patched((fusion.DynamicThresholdFusion, "compute_fusion_mask", mask))


def choices(method, sources):
    if method == "arcee_fusion":
        return [fusion_choice(False), fusion_choice(True)]
    return [with_choice(c) for c in itertools.product([False, True], repeat=sources + 1)]


def step(x, dtype):
    """The distance between neighbors of the type at |x|."""
    info = torch.finfo(dtype)
    exponent = torch.frexp(x.abs().clamp(min=info.tiny)).exponent - 1
    return torch.ldexp(torch.ones_like(x), exponent) * info.eps


def agree(ours, theirs, scale):
    """Which elements are equal within the rule; `theirs` is in f32 or wider, `ours` has the type of the file."""
    a, b = ours.double(), theirs.to(ours.dtype).double()  # rounded once
    same = ((a - b).abs() <= 1e-6 * scale) | (a == b) | (a.isnan() & b.isnan())
    if ours.dtype in HALF:
        same |= (a - b).abs() <= 1.001 * torch.maximum(step(a, ours.dtype), step(b, ours.dtype))
    return same


class Row:
    def __init__(self):
        self.count = self.equal = self.f32 = self.unrounded = self.f64 = self.ties = self.tied_elements = self.refused = self.not_finite = self.differ = 0
        self.worst = 0.0


class Comparison:
    def __init__(self, work):
        self.work, self.rows, self.disagreements = work, {}, []

    def wrong(self, row, recipe_file, what):
        row.differ += 1
        options.keep.mkdir(parents=True, exist_ok=True)
        kept = options.keep / recipe_file.name
        kept.write_text(f"# {what[0]}\n" + recipe_file.read_text())
        self.disagreements.append((kept, what))
        print(f"DIFFERENT {kept}", *what, sep="\n    ", flush=True)

    def run(self, number, method, family, recipe, arguments):
        row = self.rows.setdefault(method, Row())
        row.count += 1
        name = f"{options.seed}-{number:03d}-{method}.yml"
        recipe_file = self.work / name
        recipe_file.write_text(f"# in {family.folder.name}, {' '.join(f'--{k}={v}' for k, v in arguments.items())}\n"
                               + yaml.safe_dump(recipe, sort_keys=False, default_flow_style=None, width=120))
        out = self.work / "out"
        again = lambda patch: self.rerun(patch, family, recipe, out)
        theirs, refused = by_mergekit(family.folder, yaml.safe_load(recipe_file.read_text()), out, **arguments)
        finite = theirs is not None and all(t.isfinite().all() for t in theirs.tensors.values())
        if options.program is None:
            row.refused += theirs is None
            row.not_finite += theirs is not None and not finite
            row.equal += finite
            if theirs is None:
                print(f"{method}: {refused}")
            return
        ours, status, said = by_vitrine(family.folder, recipe_file, out, **arguments)
        if theirs is None or ours is None:
            if theirs is None and status == 2:
                row.refused += 1
            elif ours is None and status in (1, 2) and not finite and theirs is not None:
                row.not_finite += 1
            else:
                self.wrong(row, recipe_file, [f"mergekit {'refuses: ' + refused if theirs is None else 'merges'}; vitrine "
                                              + (f"ends with {status}: {said}" if ours is None else "merges")])
            return
        found = self.outside(method, ours, theirs, family, recipe)
        if not found:
            found = self.values(row, method, recipe, ours, theirs, again)
        if found:
            self.wrong(row, recipe_file, found)

    def rerun(self, patch, family, recipe, out):
        with patch:
            return by_mergekit(family.folder, json.loads(json.dumps(recipe)), out)[0]

    def outside(self, method, ours, theirs, family, recipe):
        """Differences of everything but values."""
        found = []
        wide = {n for n, t in theirs.tensors.items() if method in WRITE_F32 and "out_dtype" not in recipe
                and t.dtype == torch.float32 and n in ours.tensors and ours.tensors[n].dtype in HALF}
        shape = lambda m: {n: (tuple(t.shape), "wide" if n in wide else str(t.dtype)) for n, t in m.tensors.items()}
        a, b = shape(ours), shape(theirs)
        found += [f"tensor {n}: {a.get(n, 'missing')}, mergekit {b.get(n, 'missing')}" for n in sorted(a.keys() | b.keys()) if a.get(n) != b.get(n)][:5]
        if not wide and ours.files != theirs.files:  # larger tensors fill more files
            found.append(f"files: {ours.files}, mergekit {theirs.files}")
        mine, other = ours.index.get("weight_map"), theirs.index.get("weight_map")
        if not wide and mine and other and in_order(mine, recipe) != in_order(other, recipe):
            found += [f"index: {n} in {mine.get(n)}, mergekit {other.get(n)}" for n in sorted(other) if mine.get(n) != other[n]][:3]
        if not wide and ours.index.get("metadata", {}).get("total_size") != theirs.index.get("metadata", {}).get("total_size"):
            found.append(f"index: total_size {ours.index.get('metadata')}, mergekit {theirs.index.get('metadata')}")
        for config in (ours.config, theirs.config):
            config["dtype"] = config.get("dtype", config.pop("torch_dtype", None))
        # Layer types: mergekit keeps the base model's list, whatever layers the slices take. Without a base model it takes the
        # configuration of any model, by the hash of its name.
        models = [recipe["base_model"]] if "base_model" in recipe else sorted(set(itertools.chain(*source_lists(recipe))))
        configs = [json.loads((family.folder / m / "config.json").read_text()) for m in models]
        keys = {k for k in configs[0] if all(c.get(k) == configs[0][k] for c in configs)} | {"dtype"}
        keys -= {"transformers_version", "torch_dtype", "layer_types"}
        found += [f"config.json: {k} {ours.config.get(k)!r}, mergekit {theirs.config.get(k)!r}" for k in sorted(keys) if ours.config.get(k) != theirs.config.get(k)]
        return found

    def values(self, row, method, recipe, ours, theirs, again):
        bad, worst = {}, 0.0
        for name, t in theirs.tensors.items():
            scale = t.double().abs().nan_to_num(0, 0, 0).max()
            same = agree(ours.tensors[name], t.float(), scale)
            if t.dtype not in HALF and scale > 0 and t.isfinite().all():
                d = (ours.tensors[name].double() - t.double()).abs()
                worst = max(worst, (d.max() / scale).item())
            if not same.all():
                bad[name] = ~same
        if not bad:
            row.equal += 1
            row.worst = max(row.worst, worst)
            return []
        references = [theirs]
        for column, patch in (("f32", widened(True)), ("unrounded", widened(False)), ("f64", widened(False, torch.float64))):
            if merged := again(patch):
                references.append(merged)
                if not self.left(set(theirs.tensors), ours, [merged]):
                    setattr(row, column, getattr(row, column) + 1)
                    return []
        tied = 0
        if method in ("ties", "breadcrumbs", "breadcrumbs_ties", "sce", "arcee_fusion", "dare_ties", "della"):
            sources = max(len(s) for s in source_lists(recipe))
            for patch in choices(method, sources):
                if merged := again(patch):
                    references.append(merged)
            for rounded, patch in itertools.product((True, False), choices(method, sources)):
                with widened(rounded):
                    if merged := again(patch):
                        references.append(merged)
            left = self.left(bad, ours, references)
            tied = sum(int(b.sum()) for b in bad.values()) - sum(int(b.sum()) for b in left.values())
            if not left:
                row.ties += 1
                row.tied_elements += tied
                return []
            bad = left
        found = [f"{len(bad)} of {len(theirs.tensors)} tensors differ" + (f" (beside {tied} elements that are ties)" if tied else "")]
        for name, elements in sorted(bad.items(), key=lambda item: -int(item[1].sum()))[:4]:
            a, b = ours.tensors[name].double(), theirs.tensors[name].double()
            d = torch.where(elements, (a - b).abs(), torch.zeros_like(a))
            at = int(d.nan_to_num(math.inf).argmax())
            found.append(f"{name} {list(a.shape)} {ours.tensors[name].dtype}: {int(elements.sum())} elements; the farthest [{at}] {a.flatten()[at].item():.9g}, "
                         f"mergekit {b.flatten()[at].item():.9g}; of the largest magnitude {(d.flatten()[at] / b.abs().max()).item():.3g}")
        return found

    def left(self, bad, ours, references):
        """The elements of `bad` (of whole tensors where it only names them) that no reference has."""
        out = {}
        for name in bad:
            elements = bad[name] if isinstance(bad, dict) else torch.ones_like(ours.tensors[name], dtype=torch.bool)
            scale = references[0].tensors[name].double().abs().nan_to_num(0, 0, 0).max()
            for reference in references:
                elements = elements & ~agree(ours.tensors[name], reference.tensors[name], scale)
            if elements.any():
                out[name] = elements
        return out

    def table(self):
        print(f"\n{'method':18}{'recipes':>8}{'equal':>7}{'in f32':>8}{'unrounded':>11}{'in f64':>8}{'ties':>6}{'(elements)':>11}{'both refuse':>13}{'not finite':>12}{'DIFFER':>8}   farthest, f32")
        total = Row()
        for method, row in [*sorted(self.rows.items()), ("all", total)]:
            print(f"{method:18}{row.count:8}{row.equal:7}{row.f32:8}{row.unrounded:11}{row.f64:8}{row.ties:6}{row.tied_elements:11}{row.refused:13}{row.not_finite:12}{row.differ:8}   {row.worst:.1e}")
            for key, value in vars(row).items():
                setattr(total, key, max(total.worst, value) if key == "worst" else getattr(total, key) + value)


def in_order(weight_map, recipe):
    """The files of tensors, by the name that mergekit sorts by: the last of those it is made of. Where several layers are made of
    one, their order in mergekit follows from how Python's sets hash, and is not compared."""
    layers = [[s["layer_range"][0] + i for s in part["sources"]] for module in recipe.get("modules", {"": recipe}).values()
              for part in module.get("slices", []) for i in range(part["sources"][0]["layer_range"][1] - part["sources"][0]["layer_range"][0])]
    files = {}
    for name, file in weight_map.items():
        layer = re.search(r"(?<=\.)\d+(?=\.)", name)
        if layer and layers:
            name = max(name[:layer.start()] + str(of) + name[layer.end():] for of in layers[int(layer.group())])
        files.setdefault(name, []).append(file)
    return {name: sorted(of) for name, of in files.items()}


def source_lists(recipe):
    """The models of every slice, with the base that is added where it is missing."""
    for module in recipe.get("modules", {"": recipe}).values():
        yield [m["model"] for m in module["models"]] if "models" in module else [s["model"] for s in max(module["slices"], key=lambda s: len(s["sources"]))["sources"]]


# --- random methods ---

def statistics(merged, base, source):
    """Of one run: the share of elements kept, among the smaller and the larger half, mean and L1 norm of what was added."""
    out = []
    for name in base:
        delta, added = (source[name] - base[name]).flatten(), (merged.tensors[name] - base[name]).flatten()
        moved = delta.abs() > 1e-6 * base[name].abs().max()  # the rest of the base's rounding is no change
        if base[name].dim() == 2:
            out.append((delta, added, moved))
    delta, added, moved = (torch.cat(x) for x in zip(*out))
    kept = (added.abs() > 1e-6) & moved
    larger = moved & (delta.abs() > delta[moved].abs().median())
    share = lambda of: (kept & of).sum().item() / of.sum().item()
    return {"keep rate": share(moved), "keep rate of the smaller half": share(moved & ~larger), "keep rate of the larger half": share(larger),
            "mean": added.double().mean().item(), "L1 norm": added.double().abs().sum().item()}


def random_methods(work):
    family = GOLDEN / "llama"
    base, source = (Merged(family / m).tensors for m in ("base", "ft1"))
    wrong, compared, worst = [], 0, {}
    cases = [(m, d, r) for m in ("dare_linear", "dare_ties", "della", "della_linear") for d in (0.2, 0.5, 0.8) for r in (True, False)]
    for method, density, rescale in cases:
        recipe = {"models": [{"model": "./ft1", "parameters": {"weight": 1, "density": density}}], "merge_method": method, "base_model": "./base",
                  "parameters": {"rescale": rescale}, "dtype": "float32"}
        recipe_file = work / f"{method}-{density}-{'rescaled' if rescale else 'plain'}.yml"
        recipe_file.write_text(yaml.safe_dump(recipe, sort_keys=False, default_flow_style=None))

        def sample(seeds):
            both = ([], [])
            for seed in seeds:
                merged, status, said = by_vitrine(family, recipe_file, work / "out", random_seed=seed)
                if merged is None:
                    sys.exit(f"{recipe_file.name}, which mergekit merges: vitrine ends with {status}: {said}")
                both[0].append(statistics(merged, base, source))
                both[1].append(statistics(by_mergekit(family, yaml.safe_load(recipe_file.read_text()), work / "out", random_seed=seed)[0], base, source))
            result = {}
            for key in both[0][0]:
                (m1, v1), (m2, v2) = ((x.mean().item(), x.var().item() / len(x)) for x in (torch.tensor([r[key] for r in side], dtype=torch.float64) for side in both))
                # Where a statistic does not vary (the L1 norm after rescaling to it), rounding is what differs.
                error = max(math.sqrt(v1 + v2), 1e-6 * abs(m2), 1e-12)
                result[key] = (m1, m2, (m1 - m2) / error)
            return result

        seen = sample(range(1, options.seeds + 1))
        if any(abs(z) > 3 for _, _, z in seen.values()):
            once_more = sample(range(1001, 1001 + options.seeds))
        for key, (m1, m2, z) in seen.items():
            compared += 1
            worst[method] = max(worst.get(method, 0), abs(z))
            if abs(z) > 3 and abs(once_more[key][2]) > 3:
                wrong.append(f"{recipe_file.name}: {key} {m1:.6g}, mergekit {m2:.6g}: {z:+.1f} standard errors, then {once_more[key][2]:+.1f}")
                options.keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(recipe_file, options.keep)
        print(f"{method:13} density {density} {'rescaled' if rescale else 'plain   '}: " + ", ".join(f"{k} {a:.5g} | {b:.5g} ({z:+.1f})" for k, (a, b, z) in seen.items()), flush=True)
    print(f"{len(cases)} recipes with {options.seeds} seeds on each side, {compared} statistics, {len(wrong)} beyond three standard errors")
    print("\n".join(f"DIFFERENT {w}" for w in wrong))
    return wrong


def make_wide(folder):
    """Larger matrices than the golden ones, so that loops run over whole vectors, blocks and threads, with tails."""
    config = json.loads((GOLDEN / "llama" / "base" / "config.json").read_text())
    config.update(hidden_size=72, intermediate_size=203, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=18, vocab_size=3001)
    shapes = {"model.embed_tokens.weight": (3001, 72), "model.norm.weight": (72,), "lm_head.weight": (3001, 72)}
    for i in range(2):
        at = f"model.layers.{i}."
        shapes.update({at + "input_layernorm.weight": (72,), at + "post_attention_layernorm.weight": (72,), at + "self_attn.q_proj.weight": (72, 72),
                       at + "self_attn.k_proj.weight": (36, 72), at + "self_attn.v_proj.weight": (36, 72), at + "self_attn.o_proj.weight": (72, 72),
                       at + "mlp.up_proj.weight": (203, 72), at + "mlp.gate_proj.weight": (203, 72), at + "mlp.down_proj.weight": (72, 203)})
    g = torch.Generator().manual_seed(7)
    base = {n: torch.randn(s, generator=g) * (0.3 if len(s) > 1 else 0.1) + (len(s) == 1) for n, s in shapes.items()}
    for name, size, moved in (("base", 0, 0), ("ft1", 0.05, 1), ("ft2", 0.12, 0.5), ("ft3", 0.3, 0.25)):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(config, indent=2))
        save_file({n: t + size * torch.randn(t.shape, generator=g) * (torch.rand(t.shape, generator=g) < moved) for n, t in base.items()},
                  folder / name / "model.safetensors", metadata={"format": "pt"})
    return folder


def main():
    started = time.monotonic()
    if options.program:
        options.program = options.program.resolve()
    options.keep = options.keep.resolve()
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        families = [Family(GOLDEN / "tiny_llama", 3, forms=["near", "ft1_bf16", "ft2_bf16", "tied", "shards", "small_vocabulary"]),
                    Family(GOLDEN / "llama", 4), Family(GOLDEN / "gpt2", 4), Family(GOLDEN / "tiny_gpt2", 2, forms=["near", "no_prefix"]),
                    Family(GOLDEN / "tiny_gemma2", 2, fixed_layers=True, forms=["near", "ft1_bf16"]), Family(make_wide(work / "wide_llama"), 2)]
        comparison, recipes = Comparison(work), RandomRecipes(random.Random(options.seed), families)
        methods = sorted(METHODS)
        for number in range(options.count):
            method = methods[number % len(methods)]
            made = recipes.recipe(method)
            if options.only in (None, method):
                comparison.run(number, method, *made)
        comparison.table()
        print()
        wrong = random_methods(work) if options.seeds and options.program and not options.only else []
    print(f"{options.count} recipes of seed {options.seed} in {time.monotonic() - started:.0f} s: {len(comparison.disagreements) + len(wrong)} disagreements"
          + (f", kept in {options.keep}" if comparison.disagreements or wrong else ""))
    sys.exit(1 if comparison.disagreements or wrong else 0)


if __name__ == "__main__":
    main()
