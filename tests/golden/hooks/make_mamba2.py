"""Every hook of Mamba 2's golden model.

usage: make_mamba2.py
needs: torch, safetensors (made with torch 2.15.0)

mamba2.safetensors: as make.py says. Mamba 2's modules show next to nothing of their inside: this is the recurrence of the paper in
float64, row by row, whose logits are transformers' in every row.
"""
import json
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

from make import HERE, MODELS, T, norm_hooks, prompt, results

FOLDER = MODELS / "mamba2"


def made(graph=False, splice=None):
    """graph, splice: as make.classic's."""
    c = json.loads((FOLDER / "model/config.json").read_text())
    with safe_open(FOLDER / "model/model.safetensors", "pt") as file:
        w = {k: file.get_tensor(k).double().requires_grad_(graph) for k in file.keys()}
    M, P, U, S, K, eps = (c[k] for k in ("num_heads", "head_dim", "n_groups", "state_size", "conv_kernel", "layer_norm_epsilon"))
    ids, inner = prompt("mamba2"), M * P
    out = {"ids": ids.int()}

    def rms(ours, x, weight=None):
        y = x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        y = y * weight if weight is not None else y * 1.0
        norm_hooks(out, ours, x, y, eps, rms=True)
        return y

    def mixer(p, m, x):
        gate, mixed, dt = F.linear(x, w[m + "in_proj.weight"]).split([inner, inner + 2 * U * S, M], -1)
        gate = gate.reshape(T, M, P)
        pre = F.conv1d(F.pad(mixed.T[None], (K - 1, 0)), w[m + "conv1d.weight"], w[m + "conv1d.bias"], groups=mixed.shape[1])[0].T
        x, B, C = (t.reshape(T, -1, n) for t, n in zip(F.silu(pre).split([inner, U * S, U * S], -1), (P, S, S)))
        delta = F.softplus(dt + w[m + "dt_bias"])
        decay = -torch.exp(w[m + "A_log"]) * delta
        state, read = torch.zeros(M, S, P).double(), []
        for t in range(T):
            key, query = (a[t].repeat_interleave(M // U, 0) for a in (B, C))
            state = torch.exp(decay[t])[:, None, None] * state + torch.einsum("m,ms,mp->msp", delta[t], key, x[t])
            read.append(torch.einsum("msp,ms->mp", state, query))
        state_z = torch.stack(read)
        z = state_z + w[m + "D"][:, None] * x
        gated = F.silu(gate) * z
        normed = (rms(p + "norm", gated.reshape(T, U, inner // U)).reshape(T, inner) * w[m + "norm.weight"]).reshape(T, M, P)
        W_O = w[m + "out_proj.weight"]
        hooks = dict(pre=pre, x=x, B=B, C=C, time_step=delta, log_decay=decay, state_z=state_z, z=z, gate=gate, gated_z=gated, normed_z=normed,
                     result=results(normed, W_O), out=F.linear(normed.reshape(T, inner), W_O))
        out.update({f"{p}hook_{name}": value for name, value in hooks.items()})
        return hooks["out"]

    x = out["hook_embed"] = w["backbone.embeddings.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p, m = f"blocks.{i}.", f"backbone.layers.{i}."
        out[p + "hook_resid_pre"] = x
        out[p + "hook_attn_out"] = mixer(p + "ssm.", m + "mixer.", rms(p + "ln1", x, w[m + "norm.weight"]))
        x = x + out[p + "hook_attn_out"]
        if splice and i == 0:
            x = splice(x)
        out[p + "hook_resid_post"] = x
    out["hook_logits"] = F.linear(rms("ln_final", x, w["backbone.norm_f.weight"]), w["lm_head.weight"])
    return out


def main():
    out = made()
    with safe_open(FOLDER / "golden/forward.safetensors", "pt") as file:
        assert torch.allclose(out["hook_logits"], file.get_tensor("long/logits")[0, :T].double(), rtol=1e-4, atol=1e-4)
    save_file({k: (v if k == "ids" else v.float()).contiguous().clone() for k, v in out.items()}, HERE / "mamba2.safetensors")
    print(len(out) - 1, "hooks")


if __name__ == "__main__":
    main()
