"""What the most active units of an MLP write into the vocabulary, computed by numpy in float64.

usage: make.py
needs: numpy, safetensors (made with numpy 2.4.6)

Activations and the norms' scales are those of ../hooks, which transformers' modules gave; matrices and gains are read from the model's
own file under the names of its family.

<model>.safetensors (L layers, R positions, U units, V tokens):
    ids [T], positions [R]
    units [L, R, U]        numbers of the units of the largest |activation|, largest first
    values [L, R, U]       their activations
    logits [L, R, U, V]    what each adds to the logits before the final cap
"""
import json, pathlib
import numpy as np
from safetensors.numpy import load_file, save_file

HERE = pathlib.Path(__file__).parent
POSITIONS, UNITS = [9, 4, 0], 4


def rms(gain):
    return lambda x, scale: x / scale * gain


def layer_norm(gain):
    return lambda x, scale: (x - x.mean()) / scale * gain


def gpt2(w, c, layer):
    out = [("ln_final", layer_norm(w["transformer.ln_f.weight"]))]
    return w[f"transformer.h.{layer}.mlp.c_proj.weight"], w["transformer.wte.weight"], 1, 1, out  # [in, out]


def llama(w, c, layer, offset=0, post=False):
    at = f"model.layers.{layer}."
    out = [(f"blocks.{layer}.ln2_post", rms(w[at + "post_feedforward_layernorm.weight"] + offset))] if post else []
    out.append(("ln_final", rms(w["model.norm.weight"] + offset)))
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return w[at + "mlp.down_proj.weight"].T, head, c.get("residual_multiplier", 1), 1 / c.get("logits_scaling", 1), out


def classic(w, c, layer):  # norms after each sub-layer, on the stream itself, and none at the end
    out = [(f"blocks.{layer}.ln2", layer_norm(w[f"blocks.{layer}.norm2.weight"]))]
    for later in range(layer + 1, c["n_layers"]):
        out += [(f"blocks.{later}.ln{i}", layer_norm(w[f"blocks.{later}.norm{i}.weight"])) for i in (1, 2)]
    return w[f"blocks.{layer}.linear2.weight"].T, w["unembed.weight"], 1, 1, out


FAMILIES = {"gpt2_a": gpt2, "llama": llama, "granite": llama, "classic_post": classic,
            "gemma2": lambda *a: llama(*a, offset=1, post=True), "olmo2": lambda *a: llama(*a, post=True)}

for name, parts in FAMILIES.items():
    model = HERE.parent / "models" / name / "model"
    c = json.loads((model / "config.json").read_text())
    w = {k: v.astype(np.float64) for k, v in load_file(model / "model.safetensors").items()}
    seen = {k: v.astype(np.float64) for k, v in load_file(HERE.parent / "hooks" / f"{name}.safetensors").items()}
    layers = sum(key.endswith("mlp.hook_post") for key in seen)
    units, values, logits = [], [], []
    for layer in range(layers):
        W_out, W_U, residual, scale, norms = parts(w, c, layer)
        for position in POSITIONS:
            post = seen[f"blocks.{layer}.mlp.hook_post"][position]
            order = np.argsort(-np.abs(post), kind="stable")[:UNITS]
            units.append(order)
            values.append(post[order])
            for unit in order:
                x = post[unit] * W_out[unit] * residual
                for norm, apply in norms:
                    x = apply(x, seen[norm + ".hook_scale"][position].item())
                logits.append(W_U @ x * scale)
    shape = (layers, len(POSITIONS), UNITS)
    save_file({"ids": seen["ids"].astype(np.int32), "positions": np.array(POSITIONS, np.int32),
               "units": np.array(units, np.int32).reshape(shape), "values": np.array(values, np.float32).reshape(shape),
               "logits": np.array(logits, np.float32).reshape(*shape, -1)}, HERE / f"{name}.safetensors")
    print(name, shape, np.abs(logits).max())
