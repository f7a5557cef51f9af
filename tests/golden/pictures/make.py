"""Numbers of the pictures from other implementations: transformers' models with forward hooks, torch and NumPy.

Run from the repository's root: python tests/golden/pictures/make.py
Writes one JSON file per model beside itself. Everything is computed in float32 from the stored weights widened.
"""
import json
import math
import pathlib

import numpy as np
import sentencepiece
import torch
import transformers
from safetensors.torch import load_file
from transformers.models.gemma2.modeling_gemma2 import apply_rotary_pos_emb

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent.parent
torch.set_num_threads(1)
torch.manual_seed(0)


def sigma(x):
    return float(x.double().std(unbiased=False))


def rms(x):
    return float(x.double().pow(2).mean().sqrt())


def rms_rows(x):
    return [rms(row) for row in x]


class Watch:
    """Keeps what enters and leaves chosen modules: one run, batch of one."""

    def __init__(self):
        self.seen = {}

    def on(self, module, name):
        def keep(_, inputs, kwargs, output):
            first = inputs[0] if inputs else kwargs["hidden_states"]
            out = output[0] if isinstance(output, tuple) else output
            self.seen[name] = (first.detach()[0].clone(), out.detach()[0].clone())

        module.register_forward_hook(keep, with_kwargs=True)


def parts_of(model):
    """By family: the modules of a layer whose input is the stream, and those whose output is added to it."""
    kind = model.config.model_type
    if kind == "gpt2":
        layers, final = model.transformer.h, model.transformer.ln_f
        norms = [("ln1", "ln_1"), ("ln2", "ln_2")]
        names = dict(pre="ln_1", mid="ln_2", attention="attn", mlp="mlp")
    elif kind == "gemma2":
        layers, final = model.model.layers, model.model.norm
        norms = [("ln1", "input_layernorm"), ("ln1_post", "post_attention_layernorm"),
                 ("ln2", "pre_feedforward_layernorm"), ("ln2_post", "post_feedforward_layernorm")]
        names = dict(pre="input_layernorm", mid="pre_feedforward_layernorm",
                     attention="post_attention_layernorm", mlp="post_feedforward_layernorm")
    else:  # llama
        layers, final = model.model.layers, model.model.norm
        norms = [("ln1", "input_layernorm"), ("ln2", "post_attention_layernorm")]
        names = dict(pre="input_layernorm", mid="post_attention_layernorm", attention="self_attn", mlp="mlp")
    return layers, final, norms, names


def attention_figures(patterns, windows):
    """flatness: mean over targets that see n > 1 positions of entropy / ln n."""
    flatness, first, previous, own = [], [], [], []
    for layer, pattern in enumerate(patterns):  # [head, target, source]
        rows = dict(flat=[], first=[], previous=[], own=[])
        for head in pattern.double().numpy():
            n = head.shape[0]
            shares = []
            for t in range(1, n):
                low = 0 if windows[layer] == 0 else max(0, t - windows[layer] + 1)
                p = head[t, low:t + 1]
                if len(p) < 2:
                    continue
                p = p[p > 0]
                shares.append(-(p * np.log(p)).sum() / math.log(t + 1 - low))
            rows["flat"].append(float(np.mean(shares)))
            rows["first"].append(float(head[1:, 0].mean()))
            rows["previous"].append(float(np.diagonal(head, -1).mean()))
            rows["own"].append(float(np.diagonal(head)[1:].mean()))
        flatness.append(rows["flat"])
        first.append(rows["first"])
        previous.append(rows["previous"])
        own.append(rows["own"])
    return dict(flatness=flatness, onFirst=first, onPrevious=previous, onSelf=own)


def stream(model, ids):
    """σ of the stream where each sub-layer reads it and at the end."""
    layers, final, _, names = parts_of(model)
    watch = Watch()
    for i, layer in enumerate(layers):
        watch.on(getattr(layer, names["pre"]), f"{i}.pre")
        watch.on(getattr(layer, names["mid"]), f"{i}.mid")
    watch.on(final, "final")
    with torch.no_grad():
        model(torch.tensor([ids]))
    order = [f"{i}.{part}" for i in range(len(layers)) for part in ("pre", "mid")]
    return [sigma(watch.seen[name][0]) for name in order] + [sigma(watch.seen["final"][0])]


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def transformer_figures(folder, ids):
    model = load(folder)
    layers, final, norms, names = parts_of(model)
    watch = Watch()
    for i, layer in enumerate(layers):
        for ours, theirs in norms:
            watch.on(getattr(layer, theirs), f"blocks.{i}.{ours}")
        watch.on(getattr(layer, names["attention"]), f"{i}.attention")
        watch.on(getattr(layer, names["mlp"]), f"{i}.mlp")
    watch.on(final, "ln_final")
    if model.config.model_type != "gpt2":
        for i, layer in enumerate(layers):
            watch.on(layer.self_attn.q_proj, f"{i}.q")
    with torch.no_grad():
        out = model(torch.tensor([ids]), output_attentions=True)
    seen = watch.seen
    pre_name = next(ours for ours, theirs in norms if theirs == names["pre"])
    mid_name = next(ours for ours, theirs in norms if theirs == names["mid"])
    update = []
    for i in range(len(layers)):
        for part, norm in (("attention", pre_name), ("mlp", mid_name)):
            s, r = sigma(seen[f"blocks.{i}.{norm}"][0]), sigma(seen[f"{i}.{part}"][1])
            update.append(dict(layer=i, part=part, sigmaSkip=s, sigmaUpdate=r, scale=r / math.sqrt(r * r + s * s)))
    windows = [0] * len(layers)
    if model.config.model_type == "gemma2":
        windows = [model.config.sliding_window if t == "sliding_attention" else 0 for t in model.config.layer_types]
    figures = dict(ids=ids, update=update)
    order = [f"blocks.{i}.{ours}" for i in range(len(layers)) for ours, _ in norms] + ["ln_final"]
    figures["norms"] = [dict(name=name, inMean=float(seen[name][0].double().mean()), inSigma=sigma(seen[name][0]), inRms=rms(seen[name][0]),
                             outMean=float(seen[name][1].double().mean()), outSigma=sigma(seen[name][1]), outRms=rms(seen[name][1]),
                             inRmsByToken=rms_rows(seen[name][0])) for name in order]
    figures["finalNorm"] = dict(before=rms_rows(seen["ln_final"][0]), after=rms_rows(seen["ln_final"][1]))
    patterns = [a[0] for a in out.attentions]
    figures["attention"] = attention_figures(patterns, windows)
    figures["patterns"] = [p.double().numpy().round(7).tolist() for p in patterns]
    probs = torch.softmax(out.logits[0].double(), -1)
    top = probs.topk(10)
    figures["next"] = dict(ids=top.indices.tolist(), probs=top.values.tolist())
    figures["actual"] = [float(probs[t, ids[t + 1]]) for t in range(len(ids) - 1)]
    if model.config.model_type != "gpt2":
        d = model.config.head_dim
        lengths = []
        for i in range(len(layers)):
            q = seen[f"{i}.q"][1].double().reshape(len(ids), -1, 2, d // 2)  # halves
            lengths.append(q.pow(2).sum(2).sqrt().mean(0).tolist())
        figures["queryLength"] = lengths

    embedding = model.get_input_embeddings().weight.detach().double()
    chosen = embedding[ids]
    unit = chosen / chosen.norm(dim=1, keepdim=True)
    figures["cosine"] = (unit @ unit.T).tolist()
    figures["lengths"] = chosen.norm(dim=1).tolist()

    figures["stream"] = stream(load(folder), ids)
    off = load(folder)
    for module in off.modules():
        if type(module).__name__ in ("Gemma2RMSNorm", "LlamaRMSNorm", "LayerNorm"):
            module.forward = lambda x: x
    figures["streamWithoutNorms"] = stream(off, ids)
    return figures, model, embedding


def tales():
    folder = ROOT / "models" / "tales9m"
    prompt = "Once upon a time there was a king"
    spm = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
    ids = [spm.bos_id()] + spm.encode(prompt)
    figures, model, embedding = transformer_figures(folder, ids)
    figures["prompt"] = prompt
    # Share of attention scores that the cap changes by more than one hundredth, and their largest, before the cap.
    c = model.config
    changed, half, largest = [], [], []
    watch = Watch()
    for i, layer in enumerate(model.model.layers):
        watch.on(layer.self_attn.q_proj, f"{i}.q")
        watch.on(layer.self_attn.k_proj, f"{i}.k")
    with torch.no_grad():
        model(torch.tensor([ids]))
        positions = torch.arange(len(ids))[None]
        cos, sin = model.model.rotary_emb(torch.zeros(1, len(ids), c.hidden_size), positions)
        for i in range(c.num_hidden_layers):
            q = watch.seen[f"{i}.q"][1].reshape(1, len(ids), -1, c.head_dim).transpose(1, 2)
            k = watch.seen[f"{i}.k"][1].reshape(1, len(ids), -1, c.head_dim).transpose(1, 2)
            q, k = apply_rotary_pos_emb(q, k, cos, sin)
            k = k.repeat_interleave(c.num_attention_heads // c.num_key_value_heads, dim=1)
            score = (q @ k.transpose(2, 3))[0].double() / math.sqrt(c.query_pre_attn_scalar)
            cap = c.attn_logit_softcapping
            seen = torch.ones(len(ids), len(ids)).tril().bool()
            if c.layer_types[i] == "sliding_attention":
                seen &= ~torch.ones(len(ids), len(ids)).tril(-c.sliding_window).bool()
            rows = score[:, seen]
            moved = (rows - cap * torch.tanh(rows / cap)).abs() > 0.01 * rows.abs()
            changed.append(moved.double().mean(1).tolist())
            half.append((rows.abs() > cap / 2).double().mean(1).tolist())
            largest.append(rows.abs().amax(1).tolist())
    figures["softCap"] = dict(changed=changed, beyondHalf=half, largest=largest)

    # king - man + woman
    terms = [spm.piece_to_id("▁" + w) for w in ("king", "man", "woman")]
    total = embedding[terms[0]] - embedding[terms[1]] + embedding[terms[2]]
    likeness = (embedding @ total) / (embedding.norm(dim=1) * total.norm())
    nearest = likeness.topk(13)
    figures["neighbours"] = dict(terms=terms, ids=nearest.indices.tolist(), cosine=nearest.values.tolist())

    # The first layer without the embedding's factor.
    model = load(folder)
    scale = math.sqrt(c.hidden_size)
    watch = Watch()
    first = model.model.layers[0]
    for name in ("input_layernorm", "pre_feedforward_layernorm", "post_attention_layernorm", "post_feedforward_layernorm"):
        watch.on(getattr(first, name), name)
    with torch.no_grad():
        x = model.model.embed_tokens.weight[ids]  # the table itself; the module's own forward multiplies
        model(inputs_embeds=x[None])
    pieces = watch.seen
    ratio = sigma(pieces["input_layernorm"][0]) / sigma(x)
    assert abs(ratio - 1) < 1e-6, f"transformers scaled inputs_embeds by {ratio}"
    def share(update, skip):
        r, s = sigma(pieces[update][1]), sigma(pieces[skip][0])
        return r / math.sqrt(r * r + s * s)
    figures["rescaling"] = dict(factor=scale, sigmaWithout=sigma(x), attention=share("post_attention_layernorm", "input_layernorm"),
                                mlp=share("post_feedforward_layernorm", "pre_feedforward_layernorm"))

    # Merges by SentencePiece's own rule: the neighbours whose joined piece has the highest score, the leftmost of equal ones.
    words = ["▁" + w for w in prompt.split()]
    figures["pieces"] = [spm.id_to_piece(i) for i in ids]
    figures["wordMerges"] = []
    for word in words:
        parts, made = list(word), []
        while True:
            options = [(-spm.get_score(spm.piece_to_id(a + b)), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))
                       if spm.piece_to_id(a + b) != spm.unk_id()]
            if not options:
                break
            _, i = min(options)
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
            made.append(parts[i])
        figures["wordMerges"].append(made)
    return figures


def classic_post():
    """PyTorch's TransformerEncoderLayer with norm_first False, as the golden folder's model uses it."""
    folder = ROOT / "tests/golden/models/classic_post/model"
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(str(folder / "model.safetensors"))
    d, heads = config["d_model"], config["n_heads"]
    ids = [5, 3, 7, 9, 2, 11]
    x = weights["embed.weight"][ids]
    if config.get("embedding_scale", "sqrt(d_model)") == "sqrt(d_model)":
        x = x * math.sqrt(d)
    t, i = torch.arange(len(ids)).float()[:, None], torch.arange(0, d, 2).float()
    angle = t / 10000 ** (i / d)
    table = torch.zeros(len(ids), d)
    table[:, 0::2], table[:, 1::2] = torch.sin(angle), torch.cos(angle)
    if config.get("position_layout", "pairs") == "halves":
        table = torch.cat([torch.sin(angle), torch.cos(angle)], 1)
    x = x + table
    f = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}[config.get("activation", "relu")]
    eps = config.get("layer_norm_eps", 1e-5)
    mask = torch.full((len(ids), len(ids)), -math.inf).triu(1)

    def run(x, norms):
        sigmas, update = [], []
        for layer in range(config["n_layers"]):
            w = {k.split(".", 2)[2]: v for k, v in weights.items() if k.startswith(f"blocks.{layer}.")}
            q, k, v = (x @ w["self_attn.in_proj_weight"].T + w["self_attn.in_proj_bias"]).chunk(3, -1)
            q, k, v = (m.reshape(len(ids), heads, -1).transpose(0, 1) for m in (q, k, v))
            pattern = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(d // heads) + mask, -1)
            z = (pattern @ v).transpose(0, 1).reshape(len(ids), d)
            attention = z @ w["self_attn.out_proj.weight"].T + w["self_attn.out_proj.bias"]
            for part, norm in (("attention", "norm1"), ("mlp", "norm2")):
                added = attention if part == "attention" else f(x @ w["linear1.weight"].T + w["linear1.bias"]) @ w["linear2.weight"].T + w["linear2.bias"]
                sigmas.append(sigma(x))
                s, r = sigma(x), sigma(added)
                update.append(dict(layer=layer, part=part, sigmaSkip=s, sigmaUpdate=r, scale=r / math.sqrt(r * r + s * s)))
                x = x + added
                if norms:
                    x = torch.nn.functional.layer_norm(x, (d,), w[norm + ".weight"], w[norm + ".bias"], eps)
        return update, sigmas + [sigma(x)]

    update, stream_with = run(x, True)
    return dict(ids=ids, update=update, stream=stream_with, streamWithoutNorms=run(x, False)[1])


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return value


def main():
    written = {"tales9m": tales(), "classic_post": classic_post()}
    for name in ("gpt2_a", "llama"):
        written[name] = transformer_figures(ROOT / f"tests/golden/models/{name}/model", [5, 3, 7, 9, 2, 11])[0]
    for name, figures in written.items():
        figures["made_with"] = dict(torch=torch.__version__, transformers=transformers.__version__, numpy=np.__version__)
        (HERE / f"{name}.json").write_text(json.dumps(rounded(figures), ensure_ascii=False) + "\n")


main()
