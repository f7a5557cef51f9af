"""Gradients of five metrics at every hook of every golden model, by torch's autograd in float64.

usage: make_gradients.py [NAME ...]      (without names: every golden model)
needs: what make.py needs (made with numpy 2.4.6, torch 2.15.0, transformers 5.24.0)

gradients/<model>.safetensors:
    gradients  f32 [hook, metric, 5]: the hooks in the order of their names, the metrics in that of METRICS, and of the gradient at a
        hook its length, its products with three vectors, projection(n, 0 to 2), and what errors of rounding are in proportion to: the
        length again, but at a norm's scale, where terms cancel, the length of the sums of their sizes
    values     the metrics
The last metric is the logit difference of a run with a small ReLU autoencoder in the place of the stream behind block 0.

transformers' norms and softmax, which compute in float32 by themselves, are made to compute in float64 as well (in_double()).
Where a module gives or takes the value, the gradient is the one at that tensor. At what make.py writes as a formula, it is the
formula's own derivative, times the gradient at what the formula ends in; at indices there is none.
"""
import contextlib, json, math, sys
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

import make, make_mamba, make_qwen3_5
from make import HERE, T

METRICS = ("cross_entropy", "logit_difference", "log_probability", "kl_divergence", "sum_of_squares", "autoencoder")


def waves(*shape, seed=0):
    """Numbers that every program can make."""
    i = torch.arange(math.prod(shape)).double()
    return torch.cos(1.3 * i + 0.37 * i * i % 7 + seed).reshape(shape)


def projection(n, which):
    return np.cos(0.7 + 1.9 * which + (1.1 + 0.37 * which) * np.arange(n))


def metrics_of(logits, ids):
    """Logits [T, vocab_size]."""
    log_p = logits.log_softmax(-1)
    reference = (3 * waves(*logits.shape)).log_softmax(-1)
    return [
        F.cross_entropy(logits[:-1], ids[1:]),
        logits[-1, 7] - logits[-1, 11],
        log_p[4, 5],
        (reference.exp() * (reference - log_p)).sum(-1).mean(),
        logits[2:5, :7].pow(2).sum(),
    ]


def autoencoder(x):
    """x [..., D] through 2 D features and back."""
    D = x.shape[-1]
    W = waves(D, 2 * D) / math.sqrt(D)
    return F.relu(x @ W + 0.1) @ (waves(2 * D, D, seed=1) / math.sqrt(2 * D)) + 0.05


@contextlib.contextmanager
def in_double():
    """No tensor of float64 becomes one of float32."""
    to, as_float, as_type, softmax = torch.Tensor.to, torch.Tensor.float, torch.Tensor.type, F.softmax
    narrows = lambda t, given: t.dtype == torch.float64 and torch.float32 in given
    torch.Tensor.to = lambda t, *given, **named: t if narrows(t, (*given, *named.values())) else to(t, *given, **named)
    torch.Tensor.type = lambda t, *given: t.double() if torch.float32 in given else as_type(t, *given)
    torch.Tensor.float = lambda t: t if t.dtype == torch.float64 else as_float(t)
    F.softmax = lambda x, dim=None, dtype=None, **rest: softmax(x, dim=dim, dtype=None if x.dtype == torch.float64 else dtype)
    try:
        yield
    finally:
        torch.Tensor.to, torch.Tensor.float, torch.Tensor.type, F.softmax = to, as_float, as_type, softmax


class OfValues:
    """What stands in the place of make.py's formulas while its extraction reads gradients: their derivatives at the values."""

    def __init__(self, values):
        self.values = values
        self.sizes = {}  # of what is added up, where that is more than the sum

    def norm_hooks(self, out, name, _, dy, eps, rms):
        pre, y, scale = (self.values[f"{name}.hook_{which}"] for which in ("normalized_pre", "normalized", "scale"))
        a, b = pre.reshape(-1, pre.shape[-1]), y.reshape(-1, pre.shape[-1])
        if not rms and pre.dim() == 3:  # each head has weights of its own
            a, b = pre, y
        w = (a * b).sum(0) / (a * a).sum(0) if rms else ((a - a.mean(0)) * (b - b.mean(0))).sum(0) / (a - a.mean(0)).pow(2).sum(0)
        out[name + ".hook_normalized"], out[name + ".hook_normalized_pre"] = dy, dy * w
        out[name + ".hook_scale"] = -(dy * w * pre).sum(-1, keepdim=True) / scale
        self.sizes[name + ".hook_scale"] = (dy * w * pre).abs().sum(-1) / scale[..., 0]

    def temperature_hook(self, out, attn, module, d_scaled):
        out[attn + "hook_temperature"] = (d_scaled * self.values[attn + "hook_q"]).sum((1, 2))[:, None]

    def expert_hooks(self, out, name, experts, _, dy, d_logits, d_weights, indices):
        if hasattr(experts, "expert_dim"):
            return self.hooks_of_weighed_inputs(out, name, experts, dy[0], d_logits)
        gate, up, weights, chosen = (self.values[name + "hook_" + which].clone() for which in ("pre", "pre_linear", "expert_weights", "expert_indices"))
        for leaf in (gate, up, weights):
            leaf.requires_grad_(True)
        post = experts._apply_gate(torch.stack([gate, up], -1).flatten(-2)) if hasattr(experts, "limit") else experts.act_fn(gate) * up
        down = experts.down_proj.detach()[chosen.long()]  # gpt-oss: [T, K, in, out]
        result = (post[:, :, None] @ down)[:, :, 0] + experts.down_proj_bias.detach()[chosen.long()] if hasattr(experts, "limit") else (down @ post[..., None])[..., 0]
        made = torch.autograd.grad((weights[..., None] * result).sum(1), [gate, up, post, result, weights], dy)
        for which, d in zip(("pre", "pre_linear", "post", "expert_out", "expert_weights"), made):
            out[name + "hook_" + which] = d
        out[name + "hook_router_logits"], out[name + "hook_expert_indices"] = d_logits, torch.zeros_like(chosen)

    def hooks_of_weighed_inputs(self, out, name, experts, dy, d_logits):
        weights, chosen = (self.values[name + "hook_expert_" + which].clone() for which in ("weights", "indices"))
        read = self.values[name.replace("mlp.", "ln2.hook_normalized")][:, None] * weights.requires_grad_(True)[..., None]
        gate, up = torch.einsum("tkd,tkdf->tkf", read, experts.gate_up_proj.detach()[chosen.long()]).chunk(2, -1)
        post = experts.act_fn(gate) * up
        result = torch.einsum("tkf,tkfd->tkd", post, experts.down_proj.detach()[chosen.long()])
        made = torch.autograd.grad(result.sum(1), [gate, up, post, result, weights], dy)
        for which, d in zip(("pre", "pre_linear", "post", "expert_out", "expert_weights"), made):
            out[name + "hook_" + which] = d
        out[name + "hook_router_logits"], out[name + "hook_expert_indices"] = d_logits, torch.zeros_like(chosen)

    def conv_hooks(self, out, name, conv, d_projected, d_post, d_out):
        for hook, d in zip("BCx", d_projected.chunk(3, -1)):
            out[name + "hook_" + hook] = d
        into = self.values[name + "hook_in"].clone().requires_grad_(True)
        kernel, bias = conv.conv.weight.detach(), None if conv.conv.bias is None else conv.conv.bias.detach()
        mixed = F.conv1d(F.pad(into.T[None], (kernel.shape[2] - 1, 0)), kernel, bias, groups=kernel.shape[0])[0].T
        d_mixed = d_post * self.values[name + "hook_C"]
        out[name + "hook_conv"], out[name + "hook_post"], out[name + "hook_out"] = d_mixed, d_post, d_out
        out[name + "hook_in"], = torch.autograd.grad(mixed, into, d_mixed)

    def results(self, dz, _):
        return dz  # whose heads are counted by each_result()


def each_result(out):
    """Every head's result is a term of hook_out."""
    for name in [n for n in out if n.endswith("hook_result")]:
        d = out[name.replace("hook_result", "hook_out")]
        out[name] = d[:, None].expand(-1, out[name].shape[1], -1)


def tensors_in(x):
    if isinstance(x, torch.Tensor):
        return [x]
    return [t for part in (x.values() if isinstance(x, dict) else x) for t in tensors_in(part)] if isinstance(x, (dict, list, tuple)) else []


def with_gradients(x, gradients):
    if isinstance(x, torch.Tensor):
        return gradients[id(x)]
    if isinstance(x, dict):
        return {k: with_gradients(v, gradients) for k, v in x.items()}
    return type(x)(with_gradients(v, gradients) for v in x) if isinstance(x, (list, tuple)) else x


def gradients_of(metric, tensors):
    """By the tensor's id; zeros where the metric does not depend on it."""
    tensors = list({id(t): t for t in tensors}.values())
    asked = [t for t in tensors if t.requires_grad]
    found = dict(zip(map(id, asked), torch.autograd.grad(metric, asked, retain_graph=True, allow_unused=True)))
    return {id(t): torch.zeros_like(t) if found.get(id(t)) is None else found[id(t)] for t in tensors}


def of_transformers(name):
    """The metrics' values; for each, gradients by hook and OfValues.sizes."""
    def apart(model):  # what enters the first block, apart from what else reads the embedding
        hooks(model).register_forward_pre_hook(lambda m, i: (i[0].clone(), *i[1:]))
    def splice(model):
        apart(model)
        hooks(model).register_forward_hook(put)
    hooks = lambda model: make.parts_of(model)[1][0]
    put = lambda m, i, o: (autoencoder(o[0]), *o[1:]) if isinstance(o, tuple) else autoencoder(o)
    plain, spliced = (make.watched(name, graph=True, before=before) for before in (apart, splice))
    values, found, sizes = [], [], []
    formulas = make.norm_hooks, make.expert_hooks, make.conv_hooks, make.results, make.temperature_hook
    for run, metrics in ((plain, metrics_of(plain.logits, plain.ids)), (spliced, metrics_of(spliced.logits, spliced.ids)[1:2])):
        at = {k: v.detach() for k, v in make.from_transformers(run).items()}
        for metric in metrics:
            base = (run.seen, run.attention, run.scores, run.routed, run.logits)
            gradients = gradients_of(metric, tensors_in(base))
            seen, attention, scores, routed, logits = with_gradients(base, gradients)
            for i, layer in enumerate(make.parts_of(run.model)[1]):
                if hasattr(getattr(layer, "self_attn", None), "sinks"):  # the last column is the sink's
                    scores[i] = scores[i][..., :-1]
            changed = type(run)(model=run.model, ids=run.ids, seen=seen, attention=attention, scores=scores, routed=routed, logits=logits,
                                scaled=lambda x, factor: x / factor, shared=lambda x: x.sum(2))
            derived = OfValues(at)
            make.norm_hooks, make.expert_hooks, make.conv_hooks, make.results, make.temperature_hook = derived.norm_hooks, derived.expert_hooks, derived.conv_hooks, derived.results, derived.temperature_hook
            out = make.from_transformers(changed)
            make.norm_hooks, make.expert_hooks, make.conv_hooks, make.results, make.temperature_hook = formulas
            each_result(out)
            if "told" in seen:
                out["hook_embed"] = seen["embed_tokens"][1].reshape(T, -1)
            values.append(metric.item())
            found.append({k: v for k, v in out.items() if k != "ids"})
            sizes.append(derived.sizes)
    return values, found, sizes


def of_qwen3_5(_):
    put = lambda m, i, o: (autoencoder(o[0]), *o[1:]) if isinstance(o, tuple) else autoencoder(o)
    runs = make_qwen3_5.watched(graph=True), make_qwen3_5.watched(graph=True, before=lambda model: model.model.layers[0].register_forward_hook(put))
    values, found, sizes = [], [], []
    formulas = make_qwen3_5.norm_hooks, make_qwen3_5.results
    for run, these in zip(runs, (slice(None), slice(1, 2))):
        at = {k: v.detach() for k, v in make_qwen3_5.from_transformers(run).items()}
        for metric in metrics_of(run.logits, run.ids)[these]:
            base = (run.seen, run.calls, run.logits)
            seen, calls, logits = with_gradients(base, gradients_of(metric, tensors_in(base)))
            derived = OfValues(at)
            make_qwen3_5.norm_hooks = lambda out, name, x, dy, eps: derived.norm_hooks(out, name, x, dy, eps, True)
            make_qwen3_5.results = derived.results
            out = make_qwen3_5.from_transformers(type(run)(model=run.model, ids=run.ids, seen=seen, calls=calls, logits=logits))
            make_qwen3_5.norm_hooks, make_qwen3_5.results = formulas
            for norm in [k.removesuffix(".hook_normalized") for k in out if k.endswith("delta.norm.hook_normalized")]:  # which a gate multiplies
                gated = norm.replace("norm", "hook_gated_z")
                derived.norm_hooks(out, norm, None, out[gated] * at[gated] / at[norm + ".hook_normalized"], 0, True)
            each_result(out)
            values.append(metric.item())
            found.append({k: v for k, v in out.items() if k != "ids"})
            sizes.append(derived.sizes)
    return values, found, sizes


def of_classic(name):
    return of_formulas(lambda **how: make.classic(name, **how), rms=False)


def of_mamba(name):
    return of_formulas(make_mamba.MODELS_HERE[name], rms=True)


def of_formulas(made_by, rms):
    values, found, sizes = [], [], []
    for splice in (None, autoencoder):
        made = made_by(graph=True, splice=splice)
        ids = made.pop("ids").long()
        metrics = metrics_of(made["hook_logits"], ids)
        for metric in metrics[1:2] if splice else metrics:
            gradients = gradients_of(metric, made.values())
            out, derived = {k: gradients[id(v)] for k, v in made.items()}, OfValues({k: v.detach() for k, v in made.items()})
            for norm in [k.removesuffix(".hook_normalized") for k in out if k.endswith(".hook_normalized")]:
                derived.norm_hooks(out, norm, None, out[norm + ".hook_normalized"], 0, rms)
            each_result(out)
            values.append(metric.item())
            found.append(out)
            sizes.append(derived.sizes)
    return values, found, sizes


def main():
    (HERE / "gradients").mkdir(exist_ok=True)
    for name in sys.argv[1:] or sorted(p.stem for p in HERE.glob("*.safetensors")):
        with in_double():
            of = of_mamba if name in make_mamba.MODELS_HERE else of_qwen3_5 if name == "qwen3_5" else of_classic if name.startswith("classic") else of_transformers
            values, found, sizes = of(name)
        names = sorted(found[0])
        table = np.zeros((len(names), len(METRICS), 5))
        for i, hook in enumerate(names):
            for j, gradients in enumerate(found):
                g = gradients[hook].detach().double().numpy().ravel()
                length = np.linalg.norm(g)
                table[i, j] = length, *(g @ projection(g.size, which) for which in range(3)), sizes[j][hook].norm() if hook in sizes[j] else length
        assert np.isfinite(table).all(), name
        save_file({"gradients": table.astype(np.float32), "values": np.array(values, np.float32)}, HERE / "gradients" / f"{name}.safetensors")
        print(name, len(names), "hooks")


if __name__ == "__main__":
    main()
