"""What transformers and TransformerLens compute when parts of a model are replaced.

usage: make.py [--lens]
needs: torch, transformers, safetensors (made with torch 2.15.0, transformers 5.23.0); with --lens transformer_lens (4.3.0)

Without --lens, for gpt2_a, gemma2 and llama of tests/golden/models, and for llama with the dequantized weights of
tests/golden/gguf/llama_q8_0.gguf and llama_q4_0.gguf (which needs gguf 0.19.0), with PyTorch hooks on transformers' model (float32,
eager attention): <model>.safetensors with log-probabilities "<case>" [3, vocab] after the last three tokens of the run that
recipes/<case>.yaml describes, and with the grid "grid/<case>" of grids/<case>.yaml, NaN where there is no such cell.
VECTORS in a recipe stands for the path of vectors.safetensors, MODEL for the model's name.
With --lens, for gpt2_a and llama: <model>_lens.safetensors with the grids of transformer_lens.patching: "patch/<hook>" [layer,
position or head], "path/<layer>.<head>/<q|k|v>" [layer, head] (get_act_patch_direct_path) and "metric" [clean, corrupt], all
logit differences.
"""
import math, pathlib, sys
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "models"
CLEAN = [5, 33, 7, 120, 11, 2, 40, 300, 17, 9, 64]
CORRUPT = [5, 33, 8, 121, 11, 2, 41, 300, 18, 9, 64]
OTHERS = [[9, 8, 7, 6, 5, 44, 3, 2, 100, 200, 300], [100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110]]
SHORT = [[50, 60, 70], [5, 4, 3, 2, 1, 90, 80]]
PLUS, MINUS = [12, 13, 14, 15], [90, 91]
A, B = 100, 200  # of the logit difference


def quantized(weight, kind):
    """The weight as a file of block type `kind` gives it back; norms are not quantized."""
    import gguf
    if weight.ndim == 1:
        return weight
    kind = gguf.GGMLQuantizationType[kind]
    return torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(weight.numpy(), kind), kind))


class Hooked:
    """transformers' model with places that can be read and replaced, under TransformerLens' names."""

    def __init__(self, name):
        from transformers import AutoModelForCausalLM
        name, kind = name.split("_q")[0], name.split("_q")[1:]
        self.name = name
        self.model = AutoModelForCausalLM.from_pretrained(MODELS / name / "model", dtype=torch.float32, attn_implementation="eager").eval()
        for q in kind:
            self.model.load_state_dict({n: quantized(w, "Q" + q.upper()) for n, w in self.model.state_dict().items()})
        c = self.model.config
        self.n_layers = c.num_hidden_layers
        self.n_heads = c.num_attention_heads
        self.edits, self.seen = {}, {}
        if name == "gpt2_a":
            blocks, final = self.model.transformer.h, self.model.transformer.ln_f
            norms = lambda b: {"ln1": b.ln_1, "ln2": b.ln_2}
            attn, project, mlp = lambda b: b.attn, lambda b: b.attn.c_proj, lambda b: b.mlp
            inputs = lambda b: [(b.attn.c_attn, "qkv", 3 * self.n_heads)]
        else:
            blocks, final = self.model.model.layers, self.model.model.norm
            attn, project, mlp = lambda b: b.self_attn, lambda b: b.self_attn.o_proj, lambda b: b.mlp
            inputs = lambda b: [(b.self_attn.q_proj, "q", self.n_heads), (b.self_attn.k_proj, "k", c.num_key_value_heads),
                                (b.self_attn.v_proj, "v", c.num_key_value_heads)]
            if name == "gemma2":
                norms = lambda b: {"ln1": b.input_layernorm, "ln1_post": b.post_attention_layernorm,
                                   "ln2": b.pre_feedforward_layernorm, "ln2_post": b.post_feedforward_layernorm}
            else:
                norms = lambda b: {"ln1": b.input_layernorm, "ln2": b.post_attention_layernorm}
        for i, block in enumerate(blocks):
            at = f"blocks.{i}."
            self.before(block, at + "hook_resid_pre")
            self.after(block, at + "hook_resid_post")
            self.before(project(block), at + "attn.hook_z", heads=True)
            for module, names, heads in inputs(block):
                self.projections(module, [at + f"attn.hook_{n}" for n in names], heads)
            self.before(mlp(block), at + "mlp_input")
            for short, norm in norms(block).items():
                self.norm(norm, at + short)
            if name == "gemma2":  # what is added to the stream comes after the norms
                self.after(block.post_attention_layernorm, at + "hook_attn_out")
                self.after(block.post_feedforward_layernorm, at + "hook_mlp_out")
            else:
                self.after(attn(block), at + "hook_attn_out")
                self.after(mlp(block), at + "hook_mlp_out")
        self.norm(final, "ln_final")

    def show(self, name, x):
        x = self.edits[name](x) if name in self.edits else x
        self.seen[name] = x
        return x

    def before(self, module, name, heads=False):
        def hook(_, args, kwargs):
            x = args[0] if args else kwargs["hidden_states"]
            shape = x.shape
            x = self.show(name, x.view(*shape[:-1], self.n_heads, -1) if heads else x).reshape(shape)
            return ((x,) + args[1:], kwargs) if args else (args, {**kwargs, "hidden_states": x})
        module.register_forward_pre_hook(hook, with_kwargs=True)

    def after(self, module, name):
        def hook(_, args, out):
            return (self.show(name, out[0]),) + tuple(out[1:]) if isinstance(out, tuple) else self.show(name, out)
        module.register_forward_hook(hook)

    def projections(self, module, names, heads):
        """What a projection gives, as one value for each name: [batch, position, head, size]."""
        def hook(_, args, out):
            parts = out.view(*out.shape[:-1], heads, -1).chunk(len(names), -2)
            return torch.cat([self.show(n, x) for n, x in zip(names, parts)], -2).reshape(out.shape)
        module.register_forward_hook(hook)

    def norm(self, module, name):
        """The edit of a norm is a function of its input, its weight factor and its bias."""
        eps = getattr(module, "eps", getattr(module, "variance_epsilon", None))
        bias = getattr(module, "bias", None)
        factor = 1 + module.weight if self.name == "gemma2" else module.weight
        def hook(_, args, out):
            if name not in self.edits:
                return None
            x = args[0]
            mean = x.mean(-1, keepdim=True) if bias is not None else 0
            scale = ((x - mean).pow(2).mean(-1, keepdim=True) + eps).sqrt()
            return self.edits[name](x, x - mean, scale, factor, 0 if bias is None else bias)
        module.register_forward_hook(hook)

    def run(self, ids, edits={}):
        """Log-probabilities [position, vocab]; `seen` holds the values afterwards."""
        self.edits, self.seen = edits, {}
        softmax, layer = torch.nn.functional.softmax, [0]
        def pattern(x, *args, **kwargs):  # eager attention calls it once in a layer
            p = self.show(f"blocks.{layer[0]}.attn.hook_pattern", softmax(x, *args, **kwargs))
            layer[0] += 1
            return p
        torch.nn.functional.softmax = pattern
        try:
            with torch.no_grad():
                logits = self.model(torch.tensor([ids]), use_cache=False).logits[0]
        finally:
            torch.nn.functional.softmax = softmax
        assert layer[0] == self.n_layers
        return torch.log_softmax(logits, -1)


def put(positions=slice(None), heads=None, value=None, f=None):
    """Replaces x[:, positions(, heads)] by a value or by f of what is there."""
    def edit(x):
        x = x.clone()
        at = (slice(None), positions) if heads is None else (slice(None), positions, heads)
        x[at] = f(x[at]) if f else value
        return x
    return edit


def chain(*edits):
    def edit(x):
        for e in edits:
            x = e(x)
        return x
    return edit


def cases(m, vectors):
    """Pairs of a recipe and the edits that do the same here."""
    L, all_layers = f"blocks.{{}}.".format, range(m.n_layers)
    def cache(ids):
        m.run(ids)
        return m.seen
    own, corrupt = cache(CLEAN), cache(CORRUPT)
    T = len(CLEAN)
    ids = lambda xs: "{tokens: " + str(xs) + "}"
    head = f"prompt: {ids(CLEAN)}\ncorrupt: {ids(CORRUPT)}\ninterventions:\n"
    def recipe(*entries):
        return head + "".join("  - " + "\n    ".join(e.split("; ")) + "\n" for e in entries)
    def mean_of(name, prompts):
        rows = torch.cat([cache(p)[name][0] for p in prompts])
        return rows.mean(0)
    v = vectors[m.name]
    identity = lambda x, centered, scale, w, b: x
    unit = lambda x, centered, scale, w, b: centered * w + b
    plain = lambda x, centered, scale, w, b: centered / scale

    yield "zero_head", recipe("head: 1.0; do: zero"), {L(1) + "attn.hook_z": put(heads=0, value=0)}
    some = [2, T - 3, T - 2]
    yield "zero_heads_at_positions", recipe("head: [0.1, 1.*]; positions: [2, -3:-1]; do: zero"), {
        L(0) + "attn.hook_z": put(some, 1, 0), L(1) + "attn.hook_z": put(some, value=0)}
    yield "mean_mlp", recipe("mlp: 1; do: mean"), {
        L(1) + "hook_mlp_out": put(value=own[L(1) + "hook_mlp_out"].mean(1, keepdim=True))}
    by_position = torch.stack([cache(p)[L(1) + "hook_attn_out"] for p in OTHERS]).mean(0)
    yield "mean_over_prompts_by_position", recipe(
        f"attn: 1; do: mean; over: [{ids(OTHERS[0])}, {ids(OTHERS[1])}]; by_position: true"), {
        L(1) + "hook_attn_out": put(value=by_position)}
    z = mean_of(L(1) + "attn.hook_z", SHORT)
    yield "mean_over_prompts", recipe(f"head: 1.1; positions: '3:'; do: mean; over: [{ids(SHORT[0])}, {ids(SHORT[1])}]"), {
        L(1) + "attn.hook_z": put(slice(3, None), 1, z[1])}
    yield "resample_attn", recipe("attn: '*'; positions: 6; do: resample; from: corrupt"), {
        L(i) + "hook_attn_out": put(6, value=corrupt[L(i) + "hook_attn_out"][:, 6]) for i in all_layers}
    yield "resample_pattern", recipe("hook: pattern.1[heads=1:3,positions=4:]; do: resample; from: corrupt"), {
        L(1) + "attn.hook_pattern": lambda x: torch.cat([x[:, :1], torch.cat(
            [x[:, 1:3, :4], corrupt[L(1) + "attn.hook_pattern"][:, 1:3, 4:]], 2), x[:, 3:]], 1)}
    yield "scale_pattern", recipe("hook: pattern.1[heads=1]; do: scale; by: 0.5"), {
        L(1) + "attn.hook_pattern": lambda x: torch.cat([x[:, :1], x[:, 1:2] * 0.5, x[:, 2:]], 1)}
    yield "set_number", recipe("hook: resid_post.0[positions=3]; do: set; vector: 0.5"), {
        L(0) + "hook_resid_post": put(3, value=0.5)}
    yield "add_vector", recipe("hook: resid_pre.1; positions: '2:'; do: add; vector: {file: VECTORS, tensor: " + m.name + "}; times: -2.5"), {
        L(1) + "hook_resid_pre": put(slice(2, None), f=lambda x: x - 2.5 * v)}
    plus, minus = cache(PLUS)[L(1) + "hook_resid_pre"][0, -1], cache(MINUS)[L(1) + "hook_resid_pre"][0, -1]
    yield "steer", recipe(f"hook: resid_pre.1; do: add; vector: {{plus: {ids(PLUS)}, minus: {ids(MINUS)}}}; times: 1.5"), {
        L(1) + "hook_resid_pre": put(f=lambda x: x + 1.5 * (plus - minus))}
    yield "layer_zero", recipe("layer: 1; do: zero"), {
        L(1) + "hook_attn_out": put(value=0), L(1) + "hook_mlp_out": put(value=0)}
    kept = {}
    def remember(x):
        kept["x"] = x
        return x
    yield "layer_identity", recipe("layer: 1; do: identity"), {
        L(1) + "hook_resid_pre": remember, L(1) + "hook_resid_post": lambda x: kept["x"]}
    yield "position_zero", recipe("positions: [2, 4]; do: zero"), {L(0) + "hook_resid_pre": put([2, 4], value=0)}
    yield "norm_unit_scale", recipe("norm: blocks.1.ln1; do: unit_scale"), {L(1) + "ln1": unit}
    yield "norm_no_weight", recipe("norm: 'blocks.*.ln2'; do: no_weight"), {L(i) + "ln2": plain for i in all_layers}
    names = ["ln1", "ln2"] + (["ln1_post", "ln2_post"] if m.name == "gemma2" else [])
    yield "norms_identity", recipe("norm: '*'; do: identity"), {
        **{L(i) + n: identity for i in all_layers for n in names}, "ln_final": identity}
    yield "several", recipe("head: 0.1; do: zero", "mlp: 0; do: scale; by: 2", "hook: z.0[heads=1]; positions: -1; do: set; vector: 0.25",
                            "norm: ln_final; do: unit_scale"), {
        L(0) + "attn.hook_z": chain(put(heads=1, value=0), put(T - 1, 1, 0.25)),
        L(0) + "hook_mlp_out": put(f=lambda x: 2 * x), "ln_final": unit}


def grids(m):
    """Pairs of a recipe and its grid."""
    L = "blocks.{}.".format
    def cache(ids):
        plain = m.run(ids)
        return m.seen, plain
    (clean, clean_logprobs), (corrupt, _) = cache(CLEAN), cache(CORRUPT)
    T, last = len(CLEAN), m.n_layers - 1
    difference = lambda p: (p[-1, A] - p[-1, B]).item()
    loss = lambda p: -sum(p[t, CLEAN[t + 1]].item() for t in range(T - 1)) / (T - 1)
    kl = lambda p: (clean_logprobs[-2].exp() * (clean_logprobs[-2] - p[-2])).sum().item()
    ids = lambda xs: "{tokens: " + str(xs) + "}"
    def recipe(metric, text):
        return f"prompt: {ids(CLEAN)}\ncorrupt: {ids(CORRUPT)}\nmetric: {metric}\n{text}\n"
    by_difference = lambda text: recipe(f"{{logit_difference: [{A}, {B}]}}", text)

    def places(hook, metric, positions=None, heads=None, run=CORRUPT, source=clean, value=None):
        """One cell for each layer and position, or layer and head."""
        def cell(layer, position, head):
            name = L(layer) + hook
            x = source[name]
            at = (slice(None), position) if head is None else (slice(None), position, head)
            new = x[at] if value is None else value(x)[at]
            return metric(m.run(run, {name: put(position, head, new)}))
        if heads is None:
            return torch.tensor([[cell(l, p, None) for p in positions] for l in range(m.n_layers)])
        return torch.tensor([[cell(l, positions, h) for h in heads] for l in range(m.n_layers)])

    every, heads = slice(None), range(m.n_heads)
    kv = range(clean[L(0) + "attn.hook_k"].shape[2])
    yield "resid_pre", by_difference("patch: resid_pre"), places("hook_resid_pre", difference, range(T))
    yield "attn_out_loss", recipe("loss", "patch: attn_out"), places("hook_attn_out", loss, range(T))
    yield "mlp_out_kl", recipe("{kl: true, position: -2}", "run: clean\npatch: mlp_out"), places(
        "hook_mlp_out", kl, range(T), run=CLEAN, source=corrupt)
    yield "result", by_difference("patch: result"), places("attn.hook_z", difference, every, heads)
    yield "k", by_difference("patch: k"), places("attn.hook_k", difference, every, kv)
    yield "v", by_difference("patch: {what: v, positions: '3:'}"), places("attn.hook_v", difference, slice(3, None), kv)
    yield "ablate_z_zero", by_difference("ablate: z"), places("attn.hook_z", difference, every, heads, CLEAN, clean, torch.zeros_like)
    yield "ablate_z_mean", by_difference("ablate: {what: z, do: mean}"), places(
        "attn.hook_z", difference, every, heads, CLEAN, clean, lambda x: x.mean(1, keepdim=True).expand_as(x))

    def paths(senders, receivers, columns, freeze_mlps=True, run=CORRUPT, own=corrupt, other=clean):
        """senders: pairs of layer and head ("mlp"); receivers: pairs of a name and a head, or None for all of it."""
        frozen = [L(i) + n for i in range(m.n_layers) for n in ["attn.hook_z", "hook_mlp_out"][:2 if freeze_mlps else 1]]
        rows = sorted({l for l, _ in senders})
        grid = torch.full([len(rows), len(columns)], math.nan)
        for layer, head in senders:
            edits = {name: put(value=own[name]) for name in frozen}
            name = L(layer) + ("hook_mlp_out" if head == "mlp" else "attn.hook_z")
            send = put(value=other[name]) if head == "mlp" else put(heads=head, value=other[name][:, :, head])
            edits[name] = chain(edits.get(name, lambda x: x), send)
            m.run(run, edits)
            heard, back = m.seen, {}
            for name, at in receivers:
                put_back = put(value=heard[name]) if at is None else put(heads=at, value=heard[name][:, :, at])
                back[name] = chain(back.get(name, lambda x: x), put_back)
            grid[rows.index(layer), columns.index(head)] = difference(m.run(run, back))
        return grid

    group = m.n_heads // len(kv)
    of_layer = lambda l: [(l, h) for h in heads]
    everyone = [(l, s) for l in range(m.n_layers) for s in [*heads, "mlp"]]
    inputs = lambda l, h: [(L(l) + "attn.hook_q", h), (L(l) + "attn.hook_k", h // group), (L(l) + "attn.hook_v", h // group)]
    yield "path_to_heads", by_difference("path: {senders: {head: '0.*', mlp: 0}, receivers: {head: [-1.1, -1.3]}}"), paths(
        [*of_layer(0), (0, "mlp")], inputs(last, 1) + inputs(last, 3), [*heads, "mlp"])
    for n in "qkv":
        yield f"path_to_{n}", by_difference(f"path: {{senders: {{head: '*'}}, receivers: {{head: -1.2, inputs: {n}}}}}"), paths(
            [s for s in everyone if s[1] != "mlp"], [x for x in inputs(last, 2) if x[0].endswith(n)], [*heads])
    yield "path_to_mlp", by_difference("path: {senders: {head: [0.*, 1.*], mlp: 0}, receivers: {mlp: -1}}"), paths(
        [*of_layer(0), *of_layer(1), (0, "mlp")], [(L(last) + "mlp_input", None)], [*heads, "mlp"])
    yield "path_to_logits", by_difference("path: {senders: {head: '*', mlp: '*'}, receivers: logits}"), paths(
        everyone, [(L(last) + "hook_resid_post", None)], [*heads, "mlp"])
    yield "path_recomputed", by_difference(
        "path: {senders: {head: '*'}, receivers: {head: -1.0, inputs: [q, v], logits: true}, mlps: recomputed}"), paths(
        [s for s in everyone if s[1] != "mlp"],
        [inputs(last, 0)[0], inputs(last, 0)[2], (L(last) + "hook_resid_post", None)], [*heads], freeze_mlps=False)
    yield "path_noising", by_difference("run: clean\npath: {senders: {head: 0.*}, receivers: {mlp: 1, head: 1.*, inputs: v}}"), paths(
        of_layer(0), [(L(1) + "mlp_input", None), (L(1) + "attn.hook_v", every)], [*heads], run=CLEAN, own=clean, other=corrupt)


def write_recipe(folder, case, text, first):
    """The same recipe for every model."""
    path = HERE / folder / f"{case}.yaml"
    path.parent.mkdir(exist_ok=True)
    if not first:
        assert path.read_text() == text, case
    path.write_text(text)


def main():
    torch.manual_seed(3)
    sizes = {"gpt2_a": 48, "gemma2": 48, "llama": 64}
    vectors = {name: torch.randn(d) for name, d in sizes.items()}
    save_file(vectors, HERE / "vectors.safetensors")
    for name in [*sizes, "llama_q8_0", "llama_q4_0"]:
        m = Hooked(name)
        last = lambda logprobs: logprobs[-3:].contiguous()
        results = {"plain": last(m.run(CLEAN))}
        for case, recipe, edits in cases(m, vectors):
            write_recipe("recipes", case, recipe.replace("tensor: " + m.name, "tensor: MODEL"), name == "gpt2_a")
            results[case] = last(m.run(CLEAN, edits))
            print(name, case, "KL at the end", float((results["plain"][-1].exp() * (results["plain"][-1] - results[case][-1])).sum()))
        for case, recipe, grid in grids(m):
            write_recipe("grids", case, recipe, name == "gpt2_a")
            results["grid/" + case] = grid
            print(name, case, [round(x, 4) for x in grid.flatten().tolist()[:6]])
        save_file(results, HERE / f"{name}.safetensors")


def lens(name):
    import transformer_lens.patching as patching
    from transformer_lens.model_bridge import TransformerBridge
    model = TransformerBridge.boot_transformers(str(MODELS / name / "model"), device="cpu", dtype=torch.float32)
    model.eval()
    clean, corrupt = torch.tensor([CLEAN]), torch.tensor([CORRUPT])
    metric = lambda logits: logits[0, -1, A] - logits[0, -1, B]
    plain = lambda grid: getattr(grid, "tensor", grid).detach().float().contiguous().clone()
    with torch.no_grad():
        clean_logits, clean_cache = model.run_with_cache(clean)
        corrupt_logits, corrupt_cache = model.run_with_cache(corrupt)
        found = {"metric": torch.stack([metric(clean_logits), metric(corrupt_logits)]).float()}
        hooks = {"resid_pre": "resid_pre", "resid_mid": "resid_mid", "attn_out": "attn_out", "mlp_out": "mlp_out",
                 "z": "attn_head_out_all_pos", "q": "attn_head_q_all_pos", "pattern": "attn_head_pattern_all_pos"}
        if name == "gpt2_a":  # transformer_lens counts query heads where keys and values have fewer
            hooks["k"], hooks["v"] = "attn_head_k_all_pos", "attn_head_v_all_pos"
        for ours, theirs in hooks.items():
            found["patch/" + ours] = plain(getattr(patching, "get_act_patch_" + theirs)(model, corrupt, clean_cache, metric))
        for layer, head in [(0, 1), (0, 3), (1, 2)]:
            for component in "qkv" if name == "gpt2_a" else "q":
                found[f"path/{layer}.{head}/{component}"] = plain(patching.get_act_patch_direct_path(
                    model, corrupt, clean_cache, corrupt_cache, metric, layer, head, component, verbose=False))
    for key, grid in found.items():
        print(name, key, tuple(grid.shape), grid.flatten()[:4].tolist())
    save_file(found, HERE / f"{name}_lens.safetensors")


if "--lens" in sys.argv:
    lens("gpt2_a"), lens("llama")
else:
    main()
