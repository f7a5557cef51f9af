"""Random merge recipes over every method and form of mergekit's configuration; see compare_merges.py."""

# What a method takes. models: how many beside the base. base: "none" (never read, but a base_model becomes an input), "optional",
# "required", "member" (one of the models, or added to them). each: parameters of models, shared: of the whole tensor.
WEIGHT = dict(weight="weight")
TASKS = dict(normalize="flag", rescale="flag", int8_mask="flag", **{"lambda": "lambda"})
METHODS = {
    "linear": dict(models=(1, 4), base="none", each=WEIGHT, shared=dict(normalize="flag")),
    "slerp": dict(models=(1, 1), base="member", required=["t"], shared=dict(t="share")),
    "nuslerp": dict(models=(2, 2), base="optional", each=WEIGHT, shared=dict(nuslerp_flatten="flag", nuslerp_row_wise="flag")),
    "multislerp": dict(models=(1, 4), base="optional", each=WEIGHT, shared=dict(normalize_weights="flag", eps="epsilon")),
    "karcher": dict(models=(1, 4), base="none", shared=dict(max_iter="steps", tol="epsilon")),
    "task_arithmetic": dict(models=(1, 3), base="required", each=WEIGHT, shared=TASKS),
    "ties": dict(models=(1, 3), base="required", each=dict(WEIGHT, density="density"), shared=TASKS),
    "dare_linear": dict(models=(1, 3), base="required", each=dict(WEIGHT, density="all or none"), shared=TASKS),
    "dare_ties": dict(models=(1, 3), base="required", each=dict(WEIGHT, density="all or none"), shared=TASKS),
    "della": dict(models=(1, 3), base="required", each=dict(WEIGHT, density="all or none", epsilon="share"), shared=TASKS),
    "della_linear": dict(models=(1, 3), base="required", each=dict(WEIGHT, density="all or none", epsilon="share"), shared=TASKS),
    "breadcrumbs": dict(models=(1, 3), base="required", each=dict(WEIGHT, density="density", gamma="gamma"), shared=TASKS),
    "breadcrumbs_ties": dict(models=(1, 3), base="required", each=dict(WEIGHT, density="density", gamma="gamma"), shared=TASKS),
    "sce": dict(models=(1, 3), base="required", shared=dict(select_topk="density", int8_mask="flag")),
    "model_stock": dict(models=(2, 3), base="required", shared=dict(filter_wise="flag")),
    "nearswap": dict(models=(1, 1), base="member", required=["t"], shared=dict(t="small")),
    "arcee_fusion": dict(models=(1, 1), base="member", shared={}),
    "passthrough": dict(models=(1, 1), base="none", each=dict(scale="weight"), optional=["scale"], shared={}),
    "ram": dict(models=(1, 3), base="required", shared=dict(epsilon="small")),
    "ramplus_tl": dict(models=(1, 3), base="required", shared=dict(epsilon="small", r="share", alpha="share")),
}
FILTERS = {"llama": ["self_attn", "mlp", "q_proj", "layernorm", "layers.1.", "embed", "lm_head", "*", "nowhere"],
           "gpt2": ["attn", "mlp", "c_proj", "bias", "h.1.", "wte", "ln_", "*", "nowhere"]}


class Family:
    """A folder of models that can be merged with each other."""

    def __init__(self, folder, layers, fixed_layers=False, forms=()):
        self.folder, self.layers, self.fixed_layers, self.forms = folder, layers, fixed_layers, list(forms)
        self.filters = FILTERS["gpt2" if "gpt2" in folder.name else "llama"]


class RandomRecipes:
    def __init__(self, rng, families):
        self.rng, self.families = rng, families

    def chance(self, p):
        return self.rng.random() < p

    def value(self, kind):
        """One number or flag. Weights are multiples of 1/16, so that sums that cancel are exactly 0 for both sides."""
        r = self.rng
        if kind == "flag":
            return r.choice([True, False] * 10 + ["yes", "off", 1, 0])
        if kind == "weight":
            return r.choice([r.randint(1, 24) / 16, r.randint(1, 24) / 16, r.randint(1, 24) / 16, -r.randint(1, 16) / 16, 0, 1, "0.5"])
        if kind == "density":
            return r.choice([r.uniform(0.05, 0.95), round(r.random(), 2), 0.5, 0, 1, 1.5, 0.001])
        return {"all or none": lambda: r.choice([1, 1.0, 1.2, 0]), "share": lambda: r.choice([round(r.random(), 3), 0, 1, 0.5]),
                "gamma": lambda: r.choice([0.01, 0, round(r.uniform(0, 0.3), 2), 0.5, 0.95]), "epsilon": lambda: r.choice([1e-8, 1e-5, "1e-6"]),
                "small": lambda: r.choice([1e-5, 0.01, 0.05, 0.3, 0]), "lambda": lambda: r.choice([1, 0.5, round(r.uniform(-1, 2), 2), 0]),
                "steps": lambda: r.choice([1, 2, 5, 10, 30])}[kind]()

    def values(self, kind):
        """A number, or a gradient over the layers. Between densities of 0 and 1 lie those at which methods are random."""
        return [self.value(kind) for _ in range(self.rng.randint(1, 5))] if kind != "all or none" and self.chance(0.2) else self.value(kind)

    def setting(self, kind, family):
        """What a recipe may say of a parameter: values, or one of several by the tensor's name."""
        if self.chance(0.75):
            return self.values(kind)
        cases = [{"filter": self.rng.choice(family.filters), "value": self.values(kind)} for _ in range(self.rng.randint(1, 3))]
        return cases + ([{"value": self.values(kind)}] if self.chance(0.85) else [])

    def settings(self, kinds, family, p):
        return {name: self.setting(kind, family) for name, kind in kinds.items() if self.chance(p)}

    def sources(self, names, what, family, p):
        entries = []
        for name in names:
            own = self.settings(what.get("each", {}), family, p)
            entries.append({"model": f"./{name}", **({"parameters": own} if own else {})})
        return entries

    def recipe(self, method):
        """(family, recipe, arguments)"""
        r, what = self.rng, METHODS[method]
        family = r.choice(self.families)
        pool = ["ft1", "ft2", "ft3"] + (family.forms if self.chance(0.3) else [])
        n = r.randint(*what["models"]) + (self.chance(0.04) if method != "karcher" else 0)
        names = r.sample(pool, min(n, len(pool)))
        base = None
        if what["base"] in ("required", "member") and not self.chance(0.03) or what["base"] == "optional" and self.chance(0.5) or self.chance(0.05):
            base = r.choice(["base"] * 6 + [m for m in pool if m not in names][:1])
        recipe = {"merge_method": method}
        slices = self.chance(0.4)
        inputs = names + ([base] if base and (slices or self.chance(0.4)) and base not in names else [])
        r.shuffle(inputs)
        if what["base"] == "none" and not base and method != "passthrough" and self.chance(0.3) and "base" not in inputs:
            inputs.append("base")
        p = r.choice([0.0, 0.5, 0.9, 1.0])  # how often a source has its own value
        if slices:
            body = {"slices": [self.slice(inputs, what, family, p, whole) for whole in self.lengths(family)]}
        else:
            body = {"models": self.sources(inputs, what, family, p)}
        if self.chance(0.2):
            inner = self.settings({**what.get("each", {}), **what["shared"]}, family, 0.4)
            body = {"modules": {"default": {**body, **({"parameters": inner} if inner else {})}}}
        recipe.update(body)
        if base:
            recipe["base_model"] = f"./{base}"
        shared = self.settings(what["shared"], family, 0.5)
        for name in what.get("required", []):
            if not self.chance(0.04):
                shared.setdefault(name, self.value(what["shared"][name]))
        for name, kind in what.get("each", {}).items():
            if self.chance(0.95 if name not in what.get("optional", []) else 0.3):
                shared.setdefault(name, self.value(kind))
        if shared:
            recipe["parameters"] = shared
        dtype = r.choice(["float32"] * 7 + [None, None, "bfloat16", "float16"])
        if dtype:
            recipe["dtype"] = dtype
        if self.chance(0.15):
            recipe["out_dtype"] = r.choice(["float32", "bfloat16", "float16"])
        arguments = {"out_shard_size": r.choice([3000, 20000, 100000])} if self.chance(0.2) else {}
        return family, recipe, arguments

    def lengths(self, family):
        """How many layers each output slice has."""
        if self.chance(0.5) or family.fixed_layers:
            if family.layers == 1 or self.chance(0.5):
                return [family.layers]
            first = self.rng.randint(1, family.layers - 1)
            return [first, family.layers - first]
        return [self.rng.randint(1, family.layers) for _ in range(self.rng.randint(1, 3))]

    def slice(self, inputs, what, family, p, length):
        sources = []
        for entry in self.sources(inputs, what, family, p):
            first = self.rng.randint(0, family.layers - length) + self.chance(0.01)
            own = {"parameters": entry["parameters"]} if "parameters" in entry else {}
            sources.append({"model": entry["model"], "layer_range": [first, first + length - (length > 1 and self.chance(0.01))], **own})
        inner = self.settings({**what.get("each", {}), **what["shared"]}, family, 0.3) if self.chance(0.4) else {}
        return {"sources": sources, **({"parameters": inner} if inner else {})}
