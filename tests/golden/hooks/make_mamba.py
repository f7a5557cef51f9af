"""Every hook of the golden models with Mamba 2's mixer.

usage: make_mamba.py [NAME ...]      (without names: all of MODELS_HERE)
needs: torch, safetensors (made with torch 2.15.0)

<model>.safetensors: as make.py says. Their modules show next to nothing of their inside: this is the recurrence of the paper in
float64, row by row, with what stands beside it, whose logits are transformers' in every row.
"""
import json, sys
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

from make import HERE, MODELS, T, norm_hooks, prompt, results


class Run:
    """A model's configuration, its weights in float64, and the hooks that its parts leave in `out`."""

    def __init__(self, name, graph):
        self.c = json.loads((MODELS / name / "model/config.json").read_text())
        with safe_open(MODELS / name / "model/model.safetensors", "pt") as file:
            self.w = {k: file.get_tensor(k).double().requires_grad_(graph) for k in file.keys()}
        self.ids = prompt(name)
        self.out = {"ids": self.ids.int()}

    def rms(self, ours, x, weight=None, eps=None):
        y = x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + (eps or self.c.get("rms_norm_eps", self.c.get("layer_norm_epsilon"))))
        y = y * weight if weight is not None else y * 1.0
        norm_hooks(self.out, ours, x, y, eps or self.c.get("rms_norm_eps", self.c.get("layer_norm_epsilon")), rms=True)
        return y

    def mixer(self, p, m, x, sizes, by=(1, 1, 1, 1, 1)):
        """sizes: heads, their width, groups, state, taps; by: what gates, inputs, B, C and steps of time are multiplied by."""
        w, (M, P, U, S, K) = self.w, sizes
        inner = M * P
        parts = F.linear(x, w[m + "in_proj.weight"]).split([inner, inner, U * S, U * S, M], -1)
        gate, *mixed, dt = (part * factor for part, factor in zip(parts, by))
        gate, mixed = gate.reshape(T, M, P), torch.cat(mixed, -1)
        pre = F.conv1d(F.pad(mixed.T[None], (K - 1, 0)), w[m + "conv1d.weight"], w[m + "conv1d.bias"], groups=mixed.shape[1])[0].T
        x, B, C = (t.reshape(T, -1, n) for t, n in zip(F.silu(pre).split([inner, U * S, U * S], -1), (P, S, S)))
        delta = F.softplus(dt + w[m + "dt_bias"])
        if "time_step_min" in self.c and self.c["model_type"] == "nemotron_h":
            delta = delta.clamp(min=self.c["time_step_min"])
        decay = -torch.exp(w[m + "A_log"]) * delta
        state, read = torch.zeros(M, S, P).double(), []
        for t in range(T):
            key, query = (a[t].repeat_interleave(M // U, 0) for a in (B, C))
            state = torch.exp(decay[t])[:, None, None] * state + torch.einsum("m,ms,mp->msp", delta[t], key, x[t])
            read.append(torch.einsum("msp,ms->mp", state, query))
        state_z = torch.stack(read)
        z = state_z + w[m + "D"][:, None] * x
        gated = F.silu(gate) * z
        normed = (self.rms(p + "norm", gated.reshape(T, U, inner // U)).reshape(T, inner) * w[m + "norm.weight"]).reshape(T, M, P)
        W_O = w[m + "out_proj.weight"]
        hooks = dict(pre=pre, x=x, B=B, C=C, time_step=delta, log_decay=decay, state_z=state_z, z=z, gate=gate, gated_z=gated, normed_z=normed,
                     result=results(normed, W_O), out=F.linear(normed.reshape(T, inner), W_O))
        self.out.update({f"{p}hook_{name}": value for name, value in hooks.items()})
        return hooks["out"]

    def attend(self, p, m, x, H, scale, theta=None):
        """Attention without biases; theta: of RoPE, if there is one."""
        w, out = self.w, self.out
        q, k, v = (F.linear(x, w[f"{m}{which}_proj.weight"]).reshape(T, -1, H) for which in "qkv")
        out[p + "hook_q"], out[p + "hook_k"], out[p + "hook_v"] = q, k, v
        if theta is not None:
            angle = torch.outer(torch.arange(T).double(), theta ** (-torch.arange(0, H, 2).double() / H))[:, None]
            def rotate(a):
                first, second = a.chunk(2, -1)
                return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)
            q, k = out[p + "hook_rot_q"], out[p + "hook_rot_k"] = rotate(q), rotate(k)
        k, v = (a.repeat_interleave(q.shape[1] // a.shape[1], 1) for a in (k, v))
        scores = torch.einsum("qnh,knh->nqk", q, k) * scale + torch.triu(torch.full((T, T), -torch.inf).double(), 1)
        pattern = scores.softmax(-1)
        z, W_O = torch.einsum("nqk,knh->qnh", pattern, v), w[m + "o_proj.weight"]
        out.update({p + "hook_attn_scores": scores, p + "hook_pattern": pattern, p + "hook_z": z, p + "hook_result": results(z, W_O),
                    p + "hook_out": F.linear(z.reshape(T, -1), W_O)})
        return out[p + "hook_out"]


def mamba2(graph=False, splice=None):
    """graph, splice: as make.classic's."""
    run = Run("mamba2", graph)
    c, w, out = run.c, run.w, run.out
    sizes = [c[k] for k in ("num_heads", "head_dim", "n_groups", "state_size", "conv_kernel")]
    x = out["hook_embed"] = w["backbone.embeddings.weight"][run.ids]
    for i in range(c["num_hidden_layers"]):
        p, m = f"blocks.{i}.", f"backbone.layers.{i}."
        out[p + "hook_resid_pre"] = x
        out[p + "hook_attn_out"] = run.mixer(p + "ssm.", m + "mixer.", run.rms(p + "ln1", x, w[m + "norm.weight"]), sizes)
        x = x + out[p + "hook_attn_out"]
        if splice and i == 0:
            x = splice(x)
        out[p + "hook_resid_post"] = x
    out["hook_logits"] = F.linear(run.rms("ln_final", x, w["backbone.norm_f.weight"]), w["lm_head.weight"])
    return out


def falcon_h1(graph=False, splice=None):
    """Queries, keys and values are those of the norm as it is; attention_in_multiplier is in the scores and in what attention adds."""
    run = Run("falcon_h1", graph)
    c, w, out = run.c, run.w, run.out
    sizes = [c["mamba_" + k] for k in ("n_heads", "d_head", "n_groups", "d_state", "d_conv")]
    scale = c["head_dim"] ** -0.5 * c["key_multiplier"] * c["attention_in_multiplier"] ** 2
    x = out["hook_embed"] = w["model.embed_tokens.weight"][run.ids] * c["embedding_multiplier"]
    for i in range(c["num_hidden_layers"]):
        p, m = f"blocks.{i}.", f"model.layers.{i}."
        out[p + "hook_resid_pre"] = x
        y = run.rms(p + "ln1", x, w[m + "input_layernorm.weight"])
        attended = run.attend(p + "attn.", m + "self_attn.", y, c["head_dim"], scale, c["rope_parameters"]["rope_theta"])
        out[p + "hook_attn_out"] = attended * c["attention_in_multiplier"] * c["attention_out_multiplier"]
        out[p + "hook_ssm_out"] = run.mixer(p + "ssm.", m + "mamba.", y * c["ssm_in_multiplier"], sizes, c["ssm_multipliers"]) * c["ssm_out_multiplier"]
        x = out[p + "hook_resid_mid"] = x + (out[p + "hook_ssm_out"] + out[p + "hook_attn_out"])
        y = run.rms(p + "ln2", x, w[m + "pre_ff_layernorm.weight"])
        gate, up = (F.linear(y, w[f"{m}feed_forward.{which}_proj.weight"]) for which in ("gate", "up"))
        out[p + "mlp.hook_pre"], out[p + "mlp.hook_pre_linear"] = gate * c["mlp_multipliers"][0], up
        out[p + "mlp.hook_post"] = F.silu(out[p + "mlp.hook_pre"]) * up
        out[p + "hook_mlp_out"] = F.linear(out[p + "mlp.hook_post"], w[m + "feed_forward.down_proj.weight"]) * c["mlp_multipliers"][1]
        x = x + out[p + "hook_mlp_out"]
        if splice and i == 0:
            x = splice(x)
        out[p + "hook_resid_post"] = x
    out["hook_logits"] = F.linear(run.rms("ln_final", x, w["model.final_layernorm.weight"]), w["lm_head.weight"]) * c["lm_head_multiplier"]
    return out


def nemotron_h(graph=False, splice=None):
    run = Run("nemotron_h", graph)
    c, w, out = run.c, run.w, run.out
    sizes = [c[k] for k in ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")]
    x = out["hook_embed"] = w["backbone.embeddings.weight"][run.ids]
    for i, kind in enumerate(c["layers_block_type"]):
        p, m = f"blocks.{i}.", f"backbone.layers.{i}.mixer."
        out[p + "hook_resid_pre"] = x
        y = run.rms(p + "ln1", x, w[f"backbone.layers.{i}.norm.weight"])
        if kind == "linear_attention":
            update = out[p + "hook_attn_out"] = run.mixer(p + "ssm.", m, y, sizes)
        elif kind == "full_attention":
            update = out[p + "hook_attn_out"] = run.attend(p + "attn.", m, y, c["head_dim"], c["head_dim"] ** -0.5)
        else:
            out[p + "mlp.hook_pre"] = F.linear(y, w[m + "up_proj.weight"])
            out[p + "mlp.hook_post"] = F.relu(out[p + "mlp.hook_pre"]).square()
            update = out[p + "hook_mlp_out"] = F.linear(out[p + "mlp.hook_post"], w[m + "down_proj.weight"])
        x = x + update
        if splice and i == 0:
            x = splice(x)
        out[p + "hook_resid_post"] = x
    out["hook_logits"] = F.linear(run.rms("ln_final", x, w["backbone.norm_f.weight"]), w["lm_head.weight"])
    return out


MODELS_HERE = {"mamba2": mamba2, "falcon_h1": falcon_h1, "nemotron_h": nemotron_h}


def main():
    for name in sys.argv[1:] or MODELS_HERE:
        out = MODELS_HERE[name]()
        with safe_open(MODELS / name / "golden/forward.safetensors", "pt") as file:
            assert torch.allclose(out["hook_logits"], file.get_tensor("long/logits")[0, :T].double(), rtol=1e-4, atol=1e-4), name
        save_file({k: (v if k == "ids" else v.float()).contiguous().clone() for k, v in out.items()}, HERE / f"{name}.safetensors")
        print(name, len(out) - 1, "hooks")


if __name__ == "__main__":
    main()
