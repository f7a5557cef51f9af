"""Every hook of Qwen 3.5's golden model, from transformers' modules and the functions they call.

usage: make_qwen3_5.py
needs: torch, transformers, safetensors (made with torch 2.15.0, transformers 5.24.0)

qwen3_5.safetensors: as make.py says, from a run in float64 (the norms, the softmax and the delta rule compute in float32 even then).
What no module gives is one formula: the three hooks of a norm, hook_result, and delta.hook_pre, the convolution without its SiLU.
"""
import json, pathlib, types
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent / "models/qwen3_5"
T = 10


def norm_hooks(out, name, x, y, eps):
    scale = torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    out.update({name + ".hook_scale": scale, name + ".hook_normalized_pre": x / scale, name + ".hook_normalized": y})


def results(z, W_O):
    return torch.einsum("tnh,dnh->tnd", z, W_O.detach().reshape(W_O.shape[0], z.shape[1], z.shape[2]))


def watch(calls, kept):
    """Keeps what the functions of a layer get and give."""
    conv, delta, attention = modeling.causal_conv1d_fn, modeling.torch_chunk_gated_delta_rule, modeling.eager_attention_forward

    def watched_conv(x, weight, bias=None, activation=None, **rest):
        assert activation == "silu"
        calls["pre"].append(kept(conv(x, weight, bias, activation=None, **rest)))
        return F.silu(calls["pre"][-1])

    def watched_delta(q, k, v, g, beta, **rest):
        z, state = delta(q, k, v, g=g, beta=beta, **rest)
        calls["delta"].append([kept(x) for x in (q, k, v, g, beta, z)])
        return z, state

    def watched_attention(module, q, k, v, mask, **rest):
        softmax, scores = F.softmax, []

        def watched_softmax(x, **how):
            scores.append(x)
            return softmax(x, **how)
        F.softmax = watched_softmax
        z, pattern = attention(module, q, k, v, mask, **rest)
        F.softmax = softmax
        calls["attention"].append([kept(x) for x in (q, k, v, *scores, pattern, z)])
        return z, pattern

    def stop():
        modeling.causal_conv1d_fn, modeling.torch_chunk_gated_delta_rule, modeling.eager_attention_forward = conv, delta, attention
    modeling.causal_conv1d_fn, modeling.torch_chunk_gated_delta_rule, modeling.eager_attention_forward = watched_conv, watched_delta, watched_attention
    return stop


def watched(graph=False, before=lambda model: None):
    """As make.py's."""
    model = AutoModelForCausalLM.from_pretrained(MODEL / "model", dtype=torch.float64, attn_implementation="eager").eval()
    base = model.model
    ids = torch.tensor(json.loads((MODEL / "golden/prompts.json").read_text())["long"]["input_ids"][0][:T])
    seen, calls = {}, {"pre": [], "delta": [], "attention": []}
    kept = lambda x: x.detach() if isinstance(x, torch.Tensor) and not graph else x
    before(model)
    stop = watch(calls, kept)
    for label, module in base.named_modules():
        module.register_forward_hook(lambda m, i, o, label=label: seen.__setitem__(label, ([kept(x) for x in i], kept(o[0] if isinstance(o, tuple) else o))))
    with torch.set_grad_enabled(graph):
        logits = model(ids[None], use_cache=False).logits[0]
    stop()
    return types.SimpleNamespace(model=model, ids=ids, seen=seen, calls=calls, logits=logits)


def from_transformers(run):
    """Every hook by name of what watched() saw."""
    c, base, ids, seen, logits = run.model.config, run.model.model, run.ids, run.seen, run.logits
    calls = {name: list(found) for name, found in run.calls.items()}
    flat = lambda x: x.detach().reshape(T, -1)
    into, from_ = (lambda label: flat(seen[label][0][0])), (lambda label: flat(seen[label][1]))
    out = {"ids": ids.int(), "hook_embed": from_("embed_tokens"), "hook_logits": logits}
    heads = lambda x: x[0].transpose(0, 1)  # [1, N, T, H] -> [T, N, H]
    for i, kind in enumerate(c.layer_types):
        ours, theirs = f"blocks.{i}.", f"layers.{i}."
        layer = base.layers[i]
        for mine, module in (("ln1", "input_layernorm"), ("ln2", "post_attention_layernorm")):
            norm_hooks(out, ours + mine, into(theirs + module), from_(theirs + module), c.rms_norm_eps)
        out[ours + "hook_resid_pre"], out[ours + "hook_resid_mid"] = into(theirs + "input_layernorm"), into(theirs + "post_attention_layernorm")
        if kind == "full_attention":
            attn, its = ours + "attn.", theirs + "self_attn."
            q, k, v, scores, pattern, z = calls["attention"].pop(0)
            out[attn + "hook_q"], gate = from_(its + "q_proj").reshape(T, c.num_attention_heads, -1).chunk(2, -1)
            out[attn + "hook_k"] = from_(its + "k_proj").reshape(T, c.num_key_value_heads, -1)
            for which in "qk":
                x, y = seen[f"{its}{which}_norm"]
                norm_hooks(out, f"{attn}{which}_norm", x[0][0], y[0], c.rms_norm_eps)
            gated_z, last = into(its + "o_proj").reshape(gate.shape), layer.self_attn.o_proj
            out.update({attn + "hook_v": heads(v), attn + "hook_rot_q": heads(q), attn + "hook_rot_k": heads(k), attn + "hook_attn_scores": torch.where(scores[0] < -1e30, -torch.inf, scores[0]), attn + "hook_pattern": pattern[0],
                        attn + "hook_z": z[0], attn + "hook_gate": gate})
            here, out_label = attn, its + "o_proj"
        else:
            here, its = ours + "delta.", theirs + "linear_attn."
            for hook, x in zip(("q", "k", "v", "log_decay", "beta", "z"), calls["delta"].pop(0)):
                out[f"{here}hook_{hook}"] = x[0].double()
            z = out[here + "hook_z"]
            out[here + "hook_pre"] = calls["pre"].pop(0)[0].T
            norm_hooks(out, here + "norm", z, z / torch.sqrt(z.pow(2).mean(-1, keepdim=True) + c.rms_norm_eps) * layer.linear_attn.norm.weight.detach(), c.rms_norm_eps)
            out[here + "hook_gate"] = from_(its + "in_proj_z").reshape(z.shape)
            gated_z, last, out_label = into(its + "out_proj").reshape(z.shape), layer.linear_attn.out_proj, its + "out_proj"
        out[here + "hook_gated_z"], out[here + "hook_result"] = gated_z, results(gated_z, last.weight)
        out[here + "hook_out"] = out[ours + "hook_attn_out"] = from_(out_label)
        mlp = theirs + "mlp."
        out.update({ours + "mlp.hook_pre": from_(mlp + "gate_proj"), ours + "mlp.hook_pre_linear": from_(mlp + "up_proj"), ours + "mlp.hook_post": into(mlp + "down_proj"),
                    ours + "hook_mlp_out": from_(mlp + "down_proj"), ours + "hook_resid_post": from_(theirs[:-1])})
    norm_hooks(out, "ln_final", into("norm"), from_("norm"), c.rms_norm_eps)
    return out


def main():
    out = from_transformers(watched())
    save_file({k: (v if k == "ids" else v.float()).detach().contiguous().clone() for k, v in out.items()}, HERE / "qwen3_5.safetensors")


if __name__ == "__main__":
    main()
