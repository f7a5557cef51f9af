"""Every hook of every golden model, from the modules of other implementations.

usage: make.py [NAME ...]      (without names: everything)
needs: numpy, torch, transformers, safetensors (made with numpy 2.4.6, torch 2.15.0, transformers 5.23.0; olmo2 and what came after
it with transformers 5.24.0)

<model>.safetensors: `ids` [T] (T = 10, longer than the windows of gemma2 and mistral) and every hook by its name, f32 from a
run in float64 (transformers' RMSNorm and softmax compute in float32 even then). Taken from inputs and outputs of
transformers' modules and of its attention function; what no module gives is one formula:
    hook_scale = sqrt(mean(x^2) + eps) or sqrt(variance + eps) of the norm's input, hook_normalized_pre = (x - mean) / scale
    hook_result = z of one head through its columns of W_O
    hook_pre, hook_pre_linear, hook_post, hook_expert_out = what a row's chosen experts make of it, by their matrices; weighed and
    added, they are asserted to be what the module gives
    hook_temperature = what the query of a position is multiplied by, of the module's settings
The classic decoder is written out with torch.nn.functional, and its logits are asserted to be those of the golden folder, which
torch.nn.TransformerEncoderLayer made.
"""
import importlib, json, math, pathlib, sys, types
import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "models"
T = 10


def prompt(name):
    written = json.loads((MODELS / name / "golden/prompts.json").read_text())
    long = written.get("prompts", written)["long"]
    return torch.tensor((long["input_ids"] if isinstance(long, dict) else long)[0][:T])


def norm_hooks(out, name, x, y, eps, rms):
    """The three hooks of a norm that made y of x, both [T, D]."""
    centered = x if rms else x - x.mean(-1, keepdim=True)
    scale = torch.sqrt(centered.pow(2).mean(-1, keepdim=True) + eps)
    out[name + ".hook_scale"] = scale
    out[name + ".hook_normalized_pre"] = centered / scale
    out[name + ".hook_normalized"] = y


def results(z, W_O):
    """z [T, N, H], W_O [D, N H] -> [T, N, D]"""
    return torch.einsum("tnh,dnh->tnd", z, W_O.reshape(W_O.shape[0], z.shape[1], z.shape[2]))


def expert_hooks(out, name, experts, x, mlp_out, logits, weights, indices):
    """The hooks of a layer whose router gave logits [T, E] and the weights and indices [T, K]."""
    out[name + "hook_router_logits"], out[name + "hook_expert_weights"], out[name + "hook_expert_indices"] = logits, weights, indices.double()
    with torch.no_grad():
        read = x[:, None].expand(-1, indices.shape[1], -1)
        if hasattr(experts, "expert_dim"):  # Llama 4: matrices [in, out]; weights multiply what experts read
            read = read * weights[..., None]
            out_of, weights = lambda y, e: y @ experts.down_proj[e], torch.ones_like(weights)
            of_row = lambda r, k, e: (read[r, k] @ experts.gate_up_proj[e]).chunk(2)
        elif hasattr(experts, "limit"):  # gpt-oss: matrices [in, out] with biases, gate and up by turns
            out_of = lambda y, e: y @ experts.down_proj[e] + experts.down_proj_bias[e]
            def of_row(r, k, e):
                both = x[r] @ experts.gate_up_proj[e] + experts.gate_up_proj_bias[e]
                return both[::2], both[1::2]
        else:
            out_of = lambda y, e: F.linear(y, experts.down_proj[e])
            of_row = lambda r, k, e: F.linear(x[r], experts.gate_up_proj[e]).chunk(2)
        pairs = [[of_row(r, k, e) for k, e in enumerate(indices[r])] for r in range(len(x))]
        gate, up = (torch.stack([torch.stack([pair[side] for pair in row]) for row in pairs]) for side in (0, 1))
        post = experts._apply_gate(torch.stack([gate, up], -1).flatten(-2)) if hasattr(experts, "limit") else experts.act_fn(gate) * up
        result = torch.stack([torch.stack([out_of(post[r, k], e) for k, e in enumerate(indices[r])]) for r in range(len(x))])
    out[name + "hook_pre"], out[name + "hook_pre_linear"], out[name + "hook_post"], out[name + "hook_expert_out"] = gate, up, post, result
    assert torch.allclose((weights[..., None] * result).sum(1), mlp_out.sum(0) if mlp_out.dim() == 3 else mlp_out)


def conv_hooks(out, name, conv, projected, into_last, y):
    """The hooks of an LFM2 convolution whose in_proj gave projected [T, 3 D], and whose out_proj made y of into_last."""
    B, C, x = projected.chunk(3, -1)
    kernel, bias = conv.conv.weight.detach(), None if conv.conv.bias is None else conv.conv.bias.detach()
    mixed = F.conv1d(F.pad((B * x).T[None], (kernel.shape[2] - 1, 0)), kernel, bias, groups=kernel.shape[0])[0].T
    assert torch.allclose(C * mixed, into_last)
    for hook, value in dict(B=B, C=C, x=x, conv=mixed, post=into_last, out=y).items():
        out[name + "hook_" + hook] = value
    out[name + "hook_in"] = B * x


def temperature_hook(out, attn, module, scaled):
    """scaled [T, N, H]: the queries behind it."""
    positions = torch.arange(len(scaled)).float()
    out[attn + "hook_temperature"] = (torch.log1p(torch.floor((positions + 1) / module.floor_scale)) * module.attn_scale + 1)[:, None].double()


def turned_back(x, model, first):
    """Heads [T, N, H] whose neighboring components from `first` on were rotated: as they were before. So are gradients."""
    freq = model.model.rotary_emb.inv_freq.double()
    assert model.model.rotary_emb.attention_scaling == 1.0
    angle = torch.outer(torch.arange(len(x)).float(), freq.float()).double()[:, None]
    a, b = x[..., first::2], x[..., first + 1::2]
    back = torch.stack([a * angle.cos() + b * angle.sin(), b * angle.cos() - a * angle.sin()], -1).flatten(-2)
    return torch.cat([x[..., :first], back], -1)


def latent_hooks(out, attn, run, i, from_):
    """Queries and keys of DeepSeek's attention: transformers puts the components that rotate in another order afterwards."""
    c, module = run.model.config, f"layers.{i}.self_attn."
    for which, x in zip("qk", run.attention[i]):
        x = x[0].transpose(0, 1)
        if c.rope_interleave:
            x = torch.cat([x[..., :c.qk_nope_head_dim], x[..., c.qk_nope_head_dim:].unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)], -1)
        out[f"{attn}hook_rot_{which}"], out[f"{attn}hook_{which}"] = x, turned_back(x, run.model, c.qk_nope_head_dim)
    for ours, theirs in (("q_latent_norm", "q_a_layernorm"), ("kv_latent_norm", "kv_a_layernorm")):
        norm_hooks(out, attn + ours, *(x.reshape(T, -1) for x in run.seen[module + theirs]), 1e-6, True)


def best_of(scores, k):
    """Of zeros but for the k best."""
    best = scores.topk(k)
    return best.values, best.indices


def best_first(model):
    """Routers that give the chosen in any order give the best first."""
    def sort(gate, _, out):
        logits, weights, indices = out
        order = (logits.sigmoid() + gate.e_score_correction_bias).gather(1, indices).argsort(-1, descending=True)
        return logits, weights.gather(1, order), indices.gather(1, order)
    for name, module in model.named_modules():
        if name.endswith("mlp.gate") and hasattr(module, "e_score_correction_bias"):
            module.register_forward_hook(sort)


# Of GPT-2's kin: where a model's blocks are and what their modules are called: embeddings, norms, attention, its last matrix, the
# MLP's two, the final norm; `qkv`: one matrix of each head's queries, keys and values; `alibi`: where positions are in scores alone.
KIN = {
    "gpt_neox": dict(base="gpt_neox", layers="layers", embed="embed_in", ln1="input_layernorm", ln2="post_attention_layernorm", attn="attention", qkv="query_key_value", o="dense",
                     mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), final="final_layer_norm"),
    "bloom": dict(base="transformer", layers="h", embed="word_embeddings_layernorm", embed_norm="word_embeddings_layernorm", ln1="input_layernorm", ln2="post_attention_layernorm", attn="self_attention",
                  qkv="query_key_value", o="dense", alibi=True, mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), final="ln_f"),
    "gptj": dict(base="transformer", layers="h", embed="wte", ln1="ln_1", ln2="ln_1", attn="attn", o="out_proj", mlp=("mlp.fc_in", "mlp.fc_out"), final="ln_f"),
    "gpt_neo": dict(base="transformer", layers="h", embed="wte", positions="wpe", ln1="ln_1", ln2="ln_2", attn="attn.attention", o="out_proj", mlp=("mlp.c_fc", "mlp.c_proj"), final="ln_f"),
    "opt": dict(base="model.decoder", layers="layers", embed="embed_tokens", positions="embed_positions", ln1="self_attn_layer_norm", ln2="final_layer_norm", attn="self_attn", o="out_proj",
                mlp=("fc1", "fc2"), final="final_layer_norm"),
    "cohere": dict(base="model", layers="layers", embed="embed_tokens", ln1="input_layernorm", ln2="input_layernorm", attn="self_attn", o="o_proj", mlp=("mlp.gate_proj", "mlp.down_proj"),
                   up="mlp.up_proj", final="norm"),
    "falcon": dict(base="transformer", layers="h", embed="word_embeddings", ln1="input_layernorm", ln2="input_layernorm", attn="self_attention", qkv="query_key_value", one_key_head=True, o="dense",
                   mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), final="ln_f"),
    "phi": dict(base="model", layers="layers", embed="embed_tokens", ln1="input_layernorm", ln2="input_layernorm", attn="self_attn", o="dense", mlp=("mlp.fc1", "mlp.fc2"), final="final_layernorm"),
    "starcoder2": dict(base="model", layers="layers", embed="embed_tokens", ln1="input_layernorm", ln2="post_attention_layernorm", attn="self_attn", o="o_proj", mlp=("mlp.c_fc", "mlp.c_proj"), final="norm"),
    "stablelm": dict(base="model", layers="layers", embed="embed_tokens", ln1="input_layernorm", ln2="post_attention_layernorm", attn="self_attn", o="o_proj", mlp=("mlp.gate_proj", "mlp.down_proj"),
                     up="mlp.up_proj", final="norm"),
}


def names_of(config):
    """Falcon 40B's layers have two norms, and its matrix each key head's queries, keys and values."""
    own = dict(ln1="ln_attn", ln2="ln_mlp", grouped=True) if getattr(config, "new_decoder_architecture", False) else {}
    return KIN[config.model_type] | own


def parts_of(model):
    """The module that holds the blocks, and the blocks."""
    if model.config.model_type in KIN:
        base = model.get_submodule(KIN[model.config.model_type]["base"])
        return base, base.get_submodule(KIN[model.config.model_type]["layers"])
    base = model.transformer if model.config.model_type == "gpt2" else model.model
    return base, base.h if model.config.model_type == "gpt2" else base.layers


def from_kin(run):
    """Every hook by name, of GPT-2's kin."""
    names, c = names_of(run.model.config), run.model.config
    base, layers = parts_of(run.model)
    into = lambda label: run.seen[label][0].reshape(T, -1)
    from_ = lambda label: run.seen[label][1].reshape(T, -1)
    heads = lambda x: x[0].transpose(0, 1)  # [1, N, T, H] -> [T, N, H]
    out = {"ids": run.ids.int(), "hook_embed": from_(names["embed"])}
    if "positions" in names:
        out["hook_pos_embed"] = from_(names["positions"])
    def norm(ours, label, made=None):
        norm_hooks(out, ours, into(label), from_(label) if made is None else made, getattr(base.get_submodule(label), "eps", None) or base.get_submodule(label).variance_epsilon, False)
    if "embed_norm" in names:
        norm("ln_embed", names["embed_norm"])
    for i, layer in enumerate(layers):
        ours, theirs = f"blocks.{i}.", f"{names['layers']}.{i}."
        attn, module = ours + "attn.", theirs + names["attn"] + "."
        shared = names["ln1"] == names["ln2"]  # one norm: what attention reads of it, and what the MLP
        norm(ours + "ln1", theirs + names["ln1"], into(module + names.get("qkv", "q_proj")) if shared else None)
        norm(ours + "ln2", theirs + names["ln2"], into(theirs + names["mlp"][0]) if shared else None)
        q, k, v, z, pattern = run.attention[i]
        N = q.shape[1]
        if "grouped" in names:
            k = run.shared(k.unflatten(1, (c.num_kv_heads, -1)))  # which it gives each query head
            projected = [part.reshape(T, -1, q.shape[-1]) for part in from_(module + names["qkv"]).reshape(T, c.num_kv_heads, N // c.num_kv_heads + 2, -1).split([N // c.num_kv_heads, 1, 1], 2)]
        elif "one_key_head" in names:
            projected = from_(module + names["qkv"]).reshape(T, N + 2, -1).split([N, 1, 1], 1)
        elif "qkv" in names:
            projected = from_(module + names["qkv"]).reshape(T, N, -1).chunk(3, -1)
        else:
            projected = [from_(f"{module}{which}_proj").reshape(T, n, -1) for which, n in zip("qkv", (N, k.shape[1], k.shape[1]))]
        out.update(zip((attn + "hook_q", attn + "hook_k", attn + "hook_v"), projected))
        for which in "qk" if getattr(c, "use_qk_norm", False) else "":
            x, y = run.seen[f"{module}{which}_norm"]
            norm_hooks(out, f"{attn}{which}_norm", x[0], y[0], c.layer_norm_eps, False)
        if "positions" not in names and "alibi" not in names:
            out[attn + "hook_rot_q"], out[attn + "hook_rot_k"] = heads(q), heads(k)
        scores = run.scores[i][0]
        out[attn + "hook_attn_scores"] = torch.where(scores < -1e30, -torch.inf, scores)
        z = z[0].reshape(T, N, -1)
        out[attn + "hook_pattern"], out[attn + "hook_z"] = pattern[0], z
        out[attn + "hook_result"] = results(z, base.get_submodule(module + names["o"]).weight.detach())
        out[attn + "hook_out"] = out[ours + "hook_attn_out"] = from_(module + names["o"])
        first, last = (theirs + matrix for matrix in names["mlp"])
        out[ours + "mlp.hook_pre"], out[ours + "mlp.hook_post"], out[ours + "hook_mlp_out"] = from_(first), into(last), from_(last)
        if "up" in names:
            out[ours + "mlp.hook_pre_linear"] = from_(theirs + names["up"])
        out[ours + "hook_resid_pre"], out[ours + "hook_resid_post"] = into(theirs[:-1]), from_(theirs[:-1])
        if not shared and not getattr(c, "use_parallel_residual", False) and c.model_type != "falcon":
            out[ours + "hook_resid_mid"] = into(theirs + names["ln2"])
    norm("ln_final", names["final"])
    out["hook_logits"] = run.logits
    return out


def watched(name, graph=False, before=lambda model: None):
    """A run of transformers' model, with what goes in and out of its modules and of its attention function; graph: as tensors that
    autograd knows. before(model) is called ahead of the hooks that watch.
    """
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(MODELS / name / "model", dtype=torch.float64, attn_implementation="eager", experts_implementation="eager").eval()
    c, ids = model.config, prompt(name)
    base, layers = parts_of(model)
    modeling = importlib.import_module(type(model).__module__)
    if c.model_type in ("cohere", "falcon", "gptj", "phi"):  # what reads the one norm, apart
        for layer in layers:
            layer.get_submodule(KIN[c.model_type]["attn"]).register_forward_pre_hook(lambda m, i, named: (tuple(x.clone() for x in i[:1]) + i[1:], {k: x.clone() if k == "hidden_states" else x for k, x in named.items()}), with_kwargs=True)
            layer.mlp.register_forward_pre_hook(lambda m, i: (i[0].clone(),))
            if c.model_type == "falcon":  # which adds to it in its place
                layer.mlp.register_forward_hook(lambda m, i, o: o.clone())
    best_first(model)
    before(model)
    seen, attention, scores, routed = {}, [], [], {}
    kept = (lambda x: x) if graph else lambda x: x.detach()
    for label, module in base.named_modules():
        module.register_forward_hook(lambda m, i, o, label=label: seen.__setitem__(
            label, (kept(i[0]) if i else None, kept(o[0] if isinstance(o, tuple) else o) if not isinstance(o, dict) else None)))
    if c.model_type == "llama4_text":
        for label, module in base.named_modules():
            if label.endswith("shared_expert"):  # which experts are added to in its place
                module.register_forward_hook(lambda m, i, o: o.clone())
            if label.endswith("qk_norm"):  # one for both
                module.register_forward_hook(lambda m, i, o, label=label: seen.__setitem__(label + (".k" if label + ".q" in seen else ".q"), (kept(i[0]), kept(o))))
            if label.endswith("router"):  # of the best first
                module.register_forward_hook(lambda m, _, o, i=int(label.split(".")[1]): routed.__setitem__(i, [kept(o[1]), *best_of(kept(o[0]), m.top_k)]))
    if hasattr(base, "project_per_layer_inputs"):
        project = base.project_per_layer_inputs
        def watched_project(*given, **named):
            seen["told"] = (None, kept(project(*given, **named)))
            return seen["told"][1]
        base.project_per_layer_inputs = watched_project
    for i, layer in enumerate(layers):
        if getattr(layer, "enable_moe_block", False):
            layer.router.register_forward_hook(lambda m, _, o, i=i: routed.__setitem__(i, [seen[f"layers.{i}.router.proj"][1], *(kept(x) for x in o[1:])]))
        elif hasattr(getattr(layer, "mlp", None), "experts"):
            (layer.mlp.gate if hasattr(layer.mlp, "gate") else layer.mlp.router).register_forward_hook(lambda m, _, o, i=i: routed.__setitem__(i, [kept(x) for x in o]))
    plain_softmax = F.softmax
    def watched_attention(module, q, k, v, mask, **rest):
        def watched_softmax(x, **how):
            scores.append(kept(x))
            return plain_softmax(x, **how)
        F.softmax = watched_softmax
        z, pattern = plain_attention(module, q, k, v, mask, **rest)
        F.softmax = plain_softmax
        if hasattr(module, "sinks") and not graph:  # its softmax goes over the sink, too
            scores[-1] = (q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(2, 3) * module.scaling + mask).detach()
        attention.append(tuple(map(kept, (q, k, v, z, pattern))))
        return z, pattern
    if c.model_type == "gpt_neo":  # which has no such function: its method is given heads first, and gives them so
        method = modeling.GPTNeoSelfAttention._attn
        def plain_attention(module, q, k, v, mask):
            z, pattern = method(module, q, k, v, mask)
            return z.transpose(1, 2), pattern
        def watched_method(module, q, k, v, mask=None):
            z, pattern = watched_attention(module, q, k, v, mask)
            return z.transpose(1, 2), pattern
        modeling.GPTNeoSelfAttention._attn = watched_method
    elif c.model_type == "bloom":  # which has no such function either
        def watched_softmax(x, **how):  # of scores that have the slope times a key's position, not its distance
            T = x.shape[-1]
            slopes = modeling.build_alibi_tensor(torch.ones(1, T), x.shape[1], x.dtype)[:, 0, 1]
            scores.append(x if graph else x.detach() - slopes[None, :, None, None] * torch.arange(T)[:, None])
            return plain_softmax(x, **how)
        F.softmax = watched_softmax
    elif c.model_type == "falcon":
        rotate, turned, patterns = modeling.apply_rotary_pos_emb, [], []
        def watched_rotation(*given, **named):
            turned.append(rotate(*given, **named))
            return turned[-1]
        def watched_softmax(x, **how):
            scores.append(kept(x))
            patterns.append(plain_softmax(x, **how))
            return patterns[-1]
        F.softmax, modeling.apply_rotary_pos_emb = watched_softmax, watched_rotation
    else:
        plain_attention, modeling.eager_attention_forward = modeling.eager_attention_forward, watched_attention
    with torch.set_grad_enabled(graph):
        logits = model(ids[None], use_cache=False).logits[0]
    if c.model_type == "gpt_neo":
        modeling.GPTNeoSelfAttention._attn = method
    elif c.model_type == "falcon":
        F.softmax, modeling.apply_rotary_pos_emb = plain_softmax, rotate
        for i in range(len(layers)):
            attention.append((*map(kept, turned[i]), None, seen[f"h.{i}.self_attention.dense"][0], kept(patterns[i])))
    elif c.model_type == "bloom":
        F.softmax = plain_softmax
        def of_heads(label):  # [T, 3 N H] -> q, k, v [1, N, T, H], as the attention function of others is given them
            return seen[label][1].reshape(T, c.n_head, 3, -1).permute(2, 1, 0, 3)[:, None]
        for i in range(len(layers)):
            module = f"h.{i}.self_attention."
            attention.append((*of_heads(module + "query_key_value"), seen[module + "dense"][0], seen[module + "attention_dropout"][0]))
    else:
        modeling.eager_attention_forward = plain_attention
    attends = [i for i, layer in enumerate(layers) if not hasattr(layer, "conv")]
    assert len(attention) == len(scores) == len(attends)
    return types.SimpleNamespace(model=model, ids=ids, seen=seen, attention=dict(zip(attends, attention)), scores=dict(zip(attends, scores)),
                                 routed=routed, logits=logits, scaled=lambda x, factor: factor * x, shared=lambda x: x[:, :, 0])


def from_transformers(run):
    """Every hook by name of what watched() saw."""
    if run.model.config.model_type in KIN:
        return from_kin(run)
    model, seen, attention, scores, routed = run.model, run.seen, run.attention, run.scores, run.routed
    c, gpt2, lfm2 = model.config, model.config.model_type == "gpt2", model.config.model_type == "lfm2"
    base = model.transformer if gpt2 else model.model
    layers = base.h if gpt2 else base.layers
    attends = list(attention)
    out = {"ids": run.ids.int()}
    into = lambda label: seen[label][0].reshape(T, -1)
    from_ = lambda label: seen[label][1].reshape(T, -1)
    if gpt2:
        out["hook_embed"], out["hook_pos_embed"] = from_("wte"), from_("wpe")
    else:
        out["hook_embed"] = into("layers.0")
    if getattr(c, "hidden_size_per_layer_input", 0):  # what a table says to each layer, and the embedding itself
        by_layers = lambda x: x.reshape(T, len(layers), -1)
        out["hook_per_layer_embed"] = by_layers(from_("embed_tokens_per_layer"))
        norm_hooks(out, "per_layer_norm", by_layers(seen["per_layer_projection_norm"][0]), by_layers(seen["per_layer_projection_norm"][1]), c.rms_norm_eps, True)
        out["hook_per_layer"] = by_layers(seen["told"][1])
    rms, eps = not gpt2 and c.model_type != "phimoe", c.layer_norm_epsilon if gpt2 else c.norm_eps if lfm2 else c.rms_norm_eps
    glm4 = c.model_type == "glm4"
    posts = ("post_self_attn_layernorm", "post_mlp_layernorm") if glm4 else ("post_attention_layernorm", "post_feedforward_layernorm")
    writes_normed = hasattr(layers[0], posts[1])  # norms on what a sub-layer writes
    reads_normed = gpt2 or lfm2 or hasattr(layers[0], "input_layernorm")
    four_norms = writes_normed and reads_normed
    factor = getattr(c, "residual_multiplier", 1.0)  # Granite's, of what a sub-layer adds
    names = ({"ln1": "ln_1", "ln2": "ln_2", "attn": "attn", "o": "attn.c_proj", "mlp": "mlp"} if gpt2 else
             {"ln1": "operator_norm", "ln2": "ffn_norm", "attn": "self_attn", "o": "self_attn.out_proj", "mlp": "feed_forward"} if lfm2 else
             {"ln1": "input_layernorm", "ln2": "pre_feedforward_layernorm" if four_norms and not glm4 else "post_attention_layernorm", "attn": "self_attn", "o": "self_attn.o_proj", "mlp": "mlp"})
    def mlp_hooks(out, ours, theirs, gate="w1", up="w3", down="w2"):  # LFM2's and Llama 4's
        for hook, matrix in dict(pre=gate, pre_linear=up).items():
            out[f"{ours}mlp.hook_{hook}"] = from_(f"{theirs}feed_forward.{matrix}")
        out[ours + "mlp.hook_post"], out[ours + "hook_mlp_out"] = into(f"{theirs}feed_forward.{down}"), from_(f"{theirs}feed_forward.{down}")
        out[ours + "hook_resid_post"] = from_(theirs[:-1])
    def shared_hooks(out, ours, shared):
        for hook, matrix in dict(pre="gate_proj", pre_linear="up_proj").items():
            out[f"{ours}shared.hook_{hook}"] = from_(f"{shared}.{matrix}")
        out[ours + "shared.hook_post"], out[ours + "shared.hook_out"] = into(f"{shared}.down_proj"), from_(f"{shared}.down_proj")
    heads = lambda x: x[0].transpose(0, 1)  # [1, N, T, H] -> [T, N, H]
    for i, layer in enumerate(layers):
        ours, theirs = f"blocks.{i}.", f"{'h' if gpt2 else 'layers'}.{i}."
        norm = lambda mine, module: norm_hooks(out, ours + mine, into(theirs + module), from_(theirs + module), eps, rms)
        if reads_normed:
            norm("ln1", names["ln1"])
            norm("ln2", names["ln2"])
        out[ours + "hook_resid_pre"] = into(theirs[:-1])
        out[ours + "hook_resid_mid"] = into(theirs + (names["ln2"] if reads_normed else "mlp"))
        if i not in attends:
            conv_hooks(out, ours + "conv.", layer.conv, from_(theirs + "conv.in_proj"), into(theirs + "conv.out_proj"), from_(theirs + "conv.out_proj"))
            out[ours + "hook_attn_out"] = from_(theirs + "conv")
            mlp_hooks(out, ours, theirs)
            continue
        q, k, v, z, pattern = attention[i]
        attn = ours + "attn."
        own_keys = True
        if gpt2:
            out[attn + "hook_q"], out[attn + "hook_k"] = heads(q), heads(k)
        elif hasattr(layer.self_attn, "kv_b_proj"):
            latent_hooks(out, attn, run, i, from_)
        else:
            if hasattr(layer.self_attn, "qkv_proj"):  # queries, keys and values of one matrix
                n, g, h = c.num_attention_heads, c.num_key_value_heads, q.shape[-1]
                projected = from_(theirs + "self_attn.qkv_proj").split([n * h, g * h, g * h], -1)
            else:
                projected = [from_(f"{theirs}self_attn.{which}_proj") for which in "qk" if hasattr(layer.self_attn, f"{which}_proj")]
            own_keys = len(projected) > 1  # or those of an earlier layer
            out[attn + "hook_q"] = projected[0].reshape(T, c.num_attention_heads, -1)
            if own_keys:
                out[attn + "hook_k"] = projected[1].reshape(T, k.shape[1], -1)
            turns = not hasattr(layer.self_attn, "use_rope") or layer.self_attn.use_rope
            if c.model_type == "exaone4":
                turns = layer.self_attn.sliding_window is None or layer.self_attn.is_sliding
            if c.model_type == "llama4_text" and turns:
                q, k = (seen[f"{theirs}self_attn.qk_norm.{which}"][0].transpose(1, 2) for which in "qk")
                for which in "qk":
                    norm_hooks(out, f"{attn}rot_{which}_norm", *(x[0] for x in seen[f"{theirs}self_attn.qk_norm.{which}"]), eps, True)
            elif c.model_type == "llama4_text":
                temperature_hook(out, attn, layer.self_attn, heads(q))
            if c.model_type == "hunyuan_v1_dense":  # norms act on what turned
                q, k = (seen[f"{theirs}self_attn.{which}_layernorm"][0] for which in ("query", "key"))
            if turns:
                out[attn + "hook_rot_q"] = heads(q)
                if own_keys:
                    out[attn + "hook_rot_k"] = heads(k)
            if own_keys and hasattr(layer.self_attn, "v_norm"):
                norm_hooks(out, f"{attn}v_norm", *(x[0] for x in seen[f"{theirs}self_attn.v_norm"]), eps, True)
            for which, n in (("q", c.num_attention_heads), ("k", k.shape[1])):
                head_norm = f"{which}_layernorm" if lfm2 else f"{which}_norm"
                if c.model_type == "hunyuan_v1_dense":
                    head_norm, which = {"q": "query", "k": "key"}[which] + "_layernorm", f"rot_{which}"
                if hasattr(layer.self_attn, head_norm):  # on each head of a query or key, or on all at once
                    x, y = seen[f"{theirs}self_attn.{head_norm}"]
                    if x.dim() == 3:
                        norm_hooks(out, f"{attn}{which}_norm", x[0], y[0], eps, True)
                        continue
                    by_heads = lambda x: x[0] if x.shape[2] == n else x[0].transpose(0, 1)
                    norm_hooks(out, f"{attn}{which}_norm", *(by_heads(x) for x in seen[f"{theirs}self_attn.{head_norm}"]), eps, True)
        if gpt2 or own_keys:
            out[attn + "hook_v"] = heads(v)
        masked = scores[i][0]
        out[attn + "hook_attn_scores"] = torch.where(masked < -1e30, -torch.inf, masked)
        out[attn + "hook_pattern"] = pattern[0]
        out[attn + "hook_z"] = z[0]
        projection = layer.attn.c_proj if gpt2 else layer.self_attn.out_proj if lfm2 else layer.self_attn.o_proj
        out[attn + "hook_result"] = results(z[0], (projection.weight.T if gpt2 else projection.weight).detach())
        out[attn + "hook_out"] = from_(theirs + names["o"])
        out[ours + "hook_attn_out"] = run.scaled(from_(theirs + (posts[0] if writes_normed else names["o"])), factor)
        if writes_normed:
            norm("ln1_post", posts[0])
            norm("ln2_post", posts[1])
        if lfm2:
            mlp_hooks(out, ours, theirs)
            continue
        mlp = ours + "mlp."
        if c.model_type == "llama4_text" and i not in routed:
            mlp_hooks(out, ours, theirs, "gate_proj", "up_proj", "down_proj")
            continue
        if c.model_type == "llama4_text":
            part = theirs + "feed_forward"
            expert_hooks(out, mlp, layer.feed_forward.experts, into(part), seen[part + ".experts"][1].reshape(c.num_local_experts, T, -1), *routed[i])
            shared_hooks(out, ours, part + ".shared_expert")
            out[ours + "hook_mlp_out"], out[ours + "hook_resid_post"] = from_(part), from_(theirs[:-1])
            continue
        if hasattr(layer, "router"):  # experts beside the MLP
            norm("mlp_post", "post_feedforward_layernorm_1")
            norm("ln2_experts", "pre_feedforward_layernorm_2")
            norm("experts_post", "post_feedforward_layernorm_2")
            x = into(theirs + "router")
            norm_hooks(out, ours + "router_norm", x, run.scaled(from_(theirs + "router.norm"), layer.router.scale.detach()), eps, True)
            expert_hooks(out, ours + "experts.", layer.experts, into(theirs + "experts"), from_(theirs + "experts"), *(r.reshape(T, -1) for r in routed[i]))
        elif i in routed:
            shared = "mlp.shared_experts" if hasattr(layer.mlp, "shared_experts") else None
            expert_hooks(out, mlp, layer.mlp.experts, into(theirs + "mlp"), from_(theirs + ("mlp.experts" if shared else "mlp")), *(r.reshape(T, -1) for r in routed[i]))
            if shared:
                shared_hooks(out, ours, theirs + shared)
            out[ours + "hook_mlp_out"], out[ours + "hook_resid_post"] = from_(theirs + "mlp"), from_(theirs[:-1])
            continue
        stacked = next((n for n in ("mlp.gate_up_proj", "shared_mlp.input_linear") if theirs + n in seen), None)
        if stacked:  # the gate and what it gates of one matrix
            out[mlp + "hook_pre"], out[mlp + "hook_pre_linear"] = from_(theirs + stacked).chunk(2, -1)
        else:
            out[mlp + "hook_pre"] = from_(theirs + ("mlp.c_fc" if gpt2 else "mlp.gate_proj"))
        if not gpt2 and not stacked:
            out[mlp + "hook_pre_linear"] = from_(theirs + "mlp.up_proj")
        last = next(n for n in ("mlp.c_proj", "mlp.down_proj", "shared_mlp.output_linear") if theirs + n in seen)
        out[mlp + "hook_post"] = into(theirs + last)
        out[ours + "hook_mlp_out"] = run.scaled(from_(theirs + (posts[1] if writes_normed else last)), factor)
        if hasattr(layer, "per_layer_projection"):
            told = ours + "per_layer."
            out[told + "hook_pre"], out[told + "hook_pre_linear"] = from_(theirs + "per_layer_input_gate"), out["hook_per_layer"][:, i]
            out[told + "hook_post"] = into(theirs + "per_layer_projection")
            norm("per_layer_post", "post_per_layer_input_norm")
            out[ours + "hook_per_layer_out"] = from_(theirs + "post_per_layer_input_norm")
        out[ours + "hook_resid_post"] = from_(theirs[:-1])
    final = "ln_f" if gpt2 else "embedding_norm" if lfm2 else "norm"
    norm_hooks(out, "ln_final", into(final), from_(final), eps, rms)
    out["hook_logits"] = run.logits
    return out


def classic(name, graph=False, splice=None):
    """graph: as tensors that autograd knows. splice: a function in the place of the stream behind block 0."""
    c = json.loads((MODELS / name / "model/config.json").read_text())
    with safe_open(MODELS / name / "model/model.safetensors", "pt") as file:
        w = {k: file.get_tensor(k).double().requires_grad_(graph) for k in file.keys()}
    ids, D, N, eps = prompt(name), c["d_model"], c["n_heads"], c["layer_norm_eps"]
    before, act = c["norm_order"] == "pre", {"relu": F.relu, "gelu": F.gelu}[c["activation"]]
    out = {"ids": ids.int()}
    angle = torch.arange(T).double()[:, None] / 10000.0 ** (torch.arange(0, D, 2).double() / D)
    out["hook_embed"] = w["embed.weight"][ids] * math.sqrt(D)
    out["hook_pos_embed"] = torch.stack([angle.sin(), angle.cos()], -1).reshape(T, D).requires_grad_(graph)
    x = out["hook_embed"] + out["hook_pos_embed"]
    mask = torch.triu(torch.full((T, T), -torch.inf).double(), 1)
    def norm(ours, theirs, x):
        y = F.layer_norm(x, (D,), w[theirs + ".weight"], w[theirs + ".bias"], eps)
        norm_hooks(out, ours, x, y, eps, rms=False)
        return y
    for i in range(c["n_layers"]):
        p, mlp_weights = f"blocks.{i}.", [w[f"blocks.{i}.linear{j}.{kind}"] for j in (1, 2) for kind in ("weight", "bias")]
        attn = p + "attn."
        def attend(x):
            q, k, v = (m.reshape(T, N, D // N) for m in F.linear(x, w[p + "self_attn.in_proj_weight"], w[p + "self_attn.in_proj_bias"]).chunk(3, -1))
            s = torch.einsum("qnh,knh->nqk", q, k) / math.sqrt(D // N) + mask
            pattern = s.softmax(-1)
            z = torch.einsum("nqk,knh->qnh", pattern, v)
            W_O = w[p + "self_attn.out_proj.weight"]
            out.update({attn + "hook_q": q, attn + "hook_k": k, attn + "hook_v": v, attn + "hook_attn_scores": s, attn + "hook_pattern": pattern,
                        attn + "hook_z": z, attn + "hook_result": results(z, W_O)})
            out[attn + "hook_out"] = out[p + "hook_attn_out"] = F.linear(z.reshape(T, D), W_O, w[p + "self_attn.out_proj.bias"])
            return out[p + "hook_attn_out"]
        def mlp(x):
            out[p + "mlp.hook_pre"] = F.linear(x, mlp_weights[0], mlp_weights[1])
            out[p + "mlp.hook_post"] = act(out[p + "mlp.hook_pre"])
            out[p + "hook_mlp_out"] = F.linear(out[p + "mlp.hook_post"], mlp_weights[2], mlp_weights[3])
            return out[p + "hook_mlp_out"]
        out[p + "hook_resid_pre"] = x
        if before:
            x = x + attend(norm(p + "ln1", p + "norm1", x))
            out[p + "hook_resid_mid"] = x
            x = x + mlp(norm(p + "ln2", p + "norm2", x))
        else:
            x = norm(p + "ln1", p + "norm1", x + attend(x))
            out[p + "hook_resid_mid"] = x
            x = norm(p + "ln2", p + "norm2", x + mlp(x))
        if splice and i == 0:
            x = splice(x)
        out[p + "hook_resid_post"] = x
    if before:
        x = norm("ln_final", "final_norm", x)
    out["hook_logits"] = F.linear(x, w["unembed.weight"], w["unembed.bias"])
    return out


def main():
    for name in sys.argv[1:] or sorted(p.name for p in MODELS.iterdir() if p.is_dir()):
        out = classic(name) if name.startswith("classic") else from_transformers(watched(name))
        with safe_open(MODELS / name / "golden/forward.safetensors", "pt") as file:
            golden = file.get_tensor("long/logits")
        golden = golden.reshape(-1, golden.shape[-1])[:T].double()
        assert torch.allclose(out["hook_logits"], golden, rtol=1e-4, atol=1e-4), name
        save_file({k: v.contiguous().clone() if k == "ids" else v.detach().float().contiguous().clone() for k, v in out.items()}, HERE / f"{name}.safetensors")
        print(name, len(out) - 1, "hooks")


if __name__ == "__main__":
    main()
