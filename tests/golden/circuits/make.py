"""Circuits and head scores by NumPy, with every matrix written out: no factors, no shortcuts.

usage: make.py [NAME ...]      (without names: everything)
needs: numpy, safetensors; for the patterns torch and transformers (made with numpy 2.4.6, torch 2.15.0, transformers 5.23.0)

<model>.safetensors for golden models (L layers, N query heads, H head size), in float64 and stored as f32:
    qk [L, N, H], qk_turned [L, N, H]   singular values of the folded QK [D, D] at offset 0, and at offset 5 for rotary models
    ov [L, N, H]                        of the folded OV [D, D]
    rank [L, N, 2]                      numpy.linalg.matrix_rank of both, at d_model * 2^-23 of the largest
    copying [L, N]                      sum of Re / sum of |.| of numpy.linalg.eigvals of W_E OV W_U^T [V, V]
    largest [L, N]                      its largest eigenvalue's absolute value
    composition_q, _k, _v [L, N, L, N]  |A B| / (|A| |B|) from the first two to the last two indices; 0 where not later
scores.safetensors for models that transformers can run:
    <model>/ids [T]; <model>/<previous|duplicate|induction|first> [L, N], each the mean over queries that have a target,
    <model>/detector_<name> [L, N]: sum(pattern * detection) / sum(pattern), the detection patterns as matrices
"""
import json, pathlib, sys
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "models"
OFFSET = 5


def load(name):
    folder = MODELS / name / "model"
    config = json.loads((folder / "config.json").read_text())
    with safe_open(folder / "model.safetensors", "np") as file:
        w = {k: file.get_tensor(k).astype(np.float64) for k in file.keys()}
    return config, w


def heads(name):
    """Row-vector convention: x @ QK @ y, x @ OV. Yields per layer (Q [N,D,H], K, V, O [N,H,D]), plus W_E [V,D] and W_U [D,V]."""
    c, w = load(name)
    kind = c["model_type"]
    layers = []
    center = lambda m: m - m.mean(0, keepdims=True)  # what reads behind LayerNorm does not see the mean
    if kind == "gpt2":
        D, N, L = c["n_embd"], c["n_head"], c["n_layer"]
        for i in range(L):
            p = f"transformer.h.{i}."
            qkv = center(w[p + "ln_1.weight"][:, None] * w[p + "attn.c_attn.weight"])
            q, k, v = (m.reshape(D, N, D // N).transpose(1, 0, 2) for m in np.split(qkv, 3, axis=1))
            layers.append((q, k, v, w[p + "attn.c_proj.weight"].reshape(N, D // N, D)))
        E = w["transformer.wte.weight"]
        U = center(w["transformer.ln_f.weight"][:, None] * E.T)
    elif kind == "classic_decoder":
        D, N, L, before = c["d_model"], c["n_heads"], c["n_layers"], c.get("norm_order", "pre") == "pre"
        for i in range(L):
            p = f"blocks.{i}."
            qkv = w[p + "self_attn.in_proj_weight"].T
            qkv = center(w[p + "norm1.weight"][:, None] * qkv) if before else qkv
            q, k, v = (m.reshape(D, N, D // N).transpose(1, 0, 2) for m in np.split(qkv, 3, axis=1))
            layers.append((q, k, v, w[p + "self_attn.out_proj.weight"].T.reshape(N, D // N, D)))
        E = w["embed.weight"]
        U = E.T if "unembed.weight" not in w else w["unembed.weight"].T
        U = center(w["final_norm.weight"][:, None] * U) if before else U
    else:
        D, N, G, L = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["num_hidden_layers"]
        one = 1.0 if kind.startswith("gemma") else 0.0
        for i in range(L):
            p = f"model.layers.{i}."
            gain = (one + w[p + "input_layernorm.weight"])[:, None]
            split = lambda m, n: (gain * m.T).reshape(D, n, -1).transpose(1, 0, 2)
            q = split(w[p + "self_attn.q_proj.weight"], N)
            k, v = (np.repeat(split(w[p + f"self_attn.{x}_proj.weight"], G), N // G, axis=0) for x in "kv")
            o = w[p + "self_attn.o_proj.weight"].T
            if kind == "gemma2":
                o = o * (one + w[p + "post_attention_layernorm.weight"])
            layers.append((q, k, v, o.reshape(N, -1, D)))
        E = w["model.embed_tokens.weight"]
        U = (one + w["model.norm.weight"])[:, None] * w.get("lm_head.weight", E).T
    return c, layers, E, U


def rotation(c, H, offset):
    """R with (R_i q) . (R_j k) = q^T R k for i - j = offset, from theta alone; components i and i + H/2 pair up."""
    rope = c.get("rope_parameters") or c
    angle = offset * rope.get("rope_theta", 10000.0) ** (-np.arange(0, H, 2) / H)
    R, i = np.zeros((H, H)), np.arange(H // 2)
    R[i, i] = R[i + H // 2, i + H // 2] = np.cos(angle)
    R[i, i + H // 2], R[i + H // 2, i] = np.sin(angle), -np.sin(angle)
    return R


def circuits(name):
    c, layers, E, U = heads(name)
    L, N, D, H = len(layers), *layers[0][0].shape
    rotary = c["model_type"] not in ("gpt2", "classic_decoder")
    QK = [[q[h] @ k[h].T for h in range(N)] for q, k, v, o in layers]
    OV = [[v[h] @ o[h] for h in range(N)] for q, k, v, o in layers]
    sv = lambda m: np.linalg.svd(m, compute_uv=False)[:min(H, D)]
    every = lambda f: np.array([[f(l, h) for h in range(N)] for l in range(L)])
    rank = lambda m: np.linalg.matrix_rank(m, rtol=D * 2.0 ** -23)
    eig = every(lambda l, h: np.linalg.eigvals(E @ OV[l][h] @ U))
    out = {"qk": every(lambda l, h: sv(QK[l][h])), "ov": every(lambda l, h: sv(OV[l][h])),
           "rank": every(lambda l, h: [rank(QK[l][h]), rank(OV[l][h])]),
           "copying": eig.sum(-1).real / np.abs(eig).sum(-1), "largest": np.abs(eig).max(-1)}
    if rotary:
        R = rotation(c, H, OFFSET)
        out["qk_turned"] = every(lambda l, h: sv(layers[l][0][h] @ R @ layers[l][1][h].T))
    norm = np.linalg.norm
    for kind in "qkv":
        table = np.zeros((L, N, L, N))
        for a in range(L):
            for b in range(a + 1, L):
                for i in range(N):
                    for j in range(N):
                        reader = {"q": QK[b][j], "k": QK[b][j].T, "v": OV[b][j]}[kind]
                        table[a, i, b, j] = norm(OV[a][i] @ reader) / (norm(OV[a][i]) * norm(reader))
        out[f"composition_{kind}"] = table
    save_file({k: np.ascontiguousarray(v, dtype=np.float32) for k, v in out.items()}, HERE / f"{name}.safetensors")
    print(name, "copying from", out["copying"].min(), "to", out["copying"].max())


def scores(names):
    import torch
    from transformers import AutoModelForCausalLM
    out = {}
    for name in names:
        model = AutoModelForCausalLM.from_pretrained(MODELS / name / "model", dtype=torch.float64, attn_implementation="eager").eval()
        rng = np.random.default_rng(sum(map(ord, name)))
        half = rng.integers(3, model.config.vocab_size, 9)
        ids = np.concatenate([[2], half, half, half[3:5]])
        with torch.no_grad():
            patterns = model(torch.tensor(ids)[None], output_attentions=True, use_cache=False).attentions
        A = np.stack([p[0].double().numpy() for p in patterns])  # [L, N, T, T]
        T = len(ids)
        same = np.tril(ids[:, None] == ids[None, :], -1).astype(float)
        induction = np.zeros((T, T))
        induction[:, 1:] = same[:, :-1]
        first = np.zeros((T, T))
        first[1:, 0] = 1
        for kind, detection in {"previous": np.eye(T, k=-1), "duplicate": same, "induction": induction, "first": first}.items():
            rows = detection.any(1)
            out[f"{name}/{kind}"] = (A * detection).sum(-1)[..., rows].mean(-1)
            out[f"{name}/detector_{kind}"] = (A * detection).sum((-1, -2)) / A.sum((-1, -2))
        out[f"{name}/ids"] = ids
    save_file({k: np.ascontiguousarray(v, dtype=np.int32 if k.endswith("ids") else np.float32) for k, v in out.items()}, HERE / "scores.safetensors")


ALL = ["gpt2_a", "gemma", "gemma2", "llama", "mistral", "qwen2", "classic_pre", "classic_post"]
for name in sys.argv[1:] or ALL:
    circuits(name)
if not sys.argv[1:]:
    scores(["gpt2_a", "gemma2", "llama", "mistral"])
