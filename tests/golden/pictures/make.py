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


def sigma_rows(x):
    return [sigma(row) for row in x]


def scale(update, skip):
    return update / math.sqrt(update * update + skip * skip)


def cosines(rows):
    unit = rows / rows.norm(dim=1, keepdim=True)
    return (unit @ unit.T).tolist()


def multiplies(norm):
    """A norm's weight as it multiplies: Gemma's files hold w and mean 1 + w."""
    return norm.weight.detach().double() + (1 if type(norm).__name__ == "Gemma2RMSNorm" else 0)


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


def scores_of(model, seen, layer, n):
    """Attention scores of a layer before the cap and the mask, [head, target, source], in double."""
    c = model.config
    if c.model_type == "gpt2":
        q, k, _ = (m.double().reshape(n, c.n_head, -1).transpose(0, 1) for m in seen[f"{layer}.qkv"][1].chunk(3, -1))
        return q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    q, k = (seen[f"{layer}.{m}"][1].reshape(1, n, -1, c.head_dim).transpose(1, 2) for m in "qk")
    cos, sin = model.model.rotary_emb(torch.zeros(1, n, c.hidden_size), torch.arange(n)[None])
    q, k = apply_rotary_pos_emb(q, k, cos, sin)  # halves, the same in Llama and Gemma 2
    k = k.repeat_interleave(c.num_attention_heads // c.num_key_value_heads, dim=1)
    return (q.double() @ k.double().transpose(2, 3))[0] / math.sqrt(getattr(c, "query_pre_attn_scalar", c.head_dim))


def softmax_row(model, seen, n, patterns):
    """The last token's row in head 0 of the middle layer: scores as softmax reads them, and weights."""
    layer = len(patterns) // 2
    row = scores_of(model, seen, layer, n)[0, -1]
    cap = getattr(model.config, "attn_logit_softcapping", None)
    if cap:
        row = cap * torch.tanh(row / cap)
    return dict(layer=layer, head=0, target=n - 1, scores=row.tolist(), weights=patterns[layer][0, -1].tolist())


def uncapped_logits(model, normalized):
    return normalized.double() @ model.get_output_embeddings().weight.detach().double().T


def capped(logits, model):
    cap = getattr(model.config, "final_logit_softcapping", None)
    return cap * torch.tanh(logits / cap) if cap else logits


def lens(model, streams, final, out):
    """streams: before each layer. By position and depth: five most likely ids and their probabilities; KL(prediction || depth); of the predicted token its
    probability and rank."""
    last = torch.log_softmax(out.logits[0].double(), -1)
    answer = last.argmax(-1, keepdim=True)
    found = dict(ids=[], probs=[], kl=[], finalProb=[], finalRank=[])
    for x in streams + [None]:
        logp = last
        if x is not None:
            with torch.no_grad():
                logp = torch.log_softmax(capped(uncapped_logits(model, final.forward(x)), model), -1)
        top = logp.topk(5)
        found["ids"].append(top.indices.tolist())
        found["probs"].append(top.values.exp().tolist())
        found["kl"].append((last.exp() * (last - logp)).sum(-1).tolist())
        found["finalProb"].append(logp.gather(1, answer)[:, 0].exp().tolist())
        found["finalRank"].append((logp > logp.gather(1, answer)).sum(-1).tolist())
    turned = {key: [list(rows) for rows in zip(*value)] for key, value in found.items()}  # [position][depth]
    return turned


def attribution(model, seen, out, ids, targets):
    """logit = sum over parts, each through the last norm with its scale held at this run's; label -> a number by target."""
    c = model.config
    layers, final, _, _ = parts_of(model)
    rows = model.get_output_embeddings().weight.detach().double()[targets]
    x = seen["ln_final"][0][-1].double()
    gain = multiplies(final)
    gpt2 = c.model_type == "gpt2"
    if gpt2:
        size = math.sqrt(float(x.var(unbiased=False)) + c.layer_norm_epsilon)
        through = lambda part: rows @ ((part - part.mean()) / size * gain)
    else:
        size = math.sqrt(float(x.pow(2).mean()) + c.rms_norm_eps)
        through = lambda part: rows @ (part / size * gain)

    parts = {}
    if gpt2:
        parts["embedding"] = model.transformer.wte.weight.detach().double()[ids[-1]]
        parts["position"] = model.transformer.wpe.weight.detach().double()[len(ids) - 1]
    else:
        parts["embedding"] = seen["blocks.0.ln1"][0][-1].double()
    for i, layer in enumerate(layers):
        z = seen[f"{i}.o"][0][-1].double()  # what the output projection reads, the heads one after the other
        if gpt2:
            weight, bias, n_heads = layer.attn.c_proj.weight.detach().double(), layer.attn.c_proj.bias.detach().double(), c.n_head
        else:
            weight, bias, n_heads = layer.self_attn.o_proj.weight.detach().double().T, None, c.num_attention_heads
        after = lambda part: part
        if c.model_type == "gemma2":
            whole = seen[f"blocks.{i}.ln1_post"][0][-1].double()
            norm = multiplies(layer.post_attention_layernorm) / math.sqrt(float(whole.pow(2).mean()) + c.rms_norm_eps)
            after = lambda part, norm=norm: part * norm
        head_dim = z.numel() // n_heads
        for h in range(n_heads):
            at = slice(h * head_dim, (h + 1) * head_dim)
            parts[f"layer {i} head {h}"] = after(z[at] @ weight[at])
        if bias is not None:
            parts[f"layer {i} attention bias"] = bias
        parts[f"layer {i} MLP"] = seen[f"{i}.mlp"][1][-1].double()
    figures = {label: through(part) for label, part in parts.items()}
    if gpt2:
        figures["final norm bias"] = rows @ final.bias.detach().double()
    uncapped = uncapped_logits(model, seen["ln_final"][1][-1][None])[0, targets]
    distance = (sum(figures.values()) - uncapped).abs().max()
    assert distance < 1e-4, f"the parts miss the logit by {distance}"
    return dict(targets=targets, uncapped=uncapped.tolist(), logits=out.logits[0, -1, targets].double().tolist(),
                parts={label: value.tolist() for label, value in figures.items()})


def projections(model):
    """Numbers in each projection of one layer."""
    layers = parts_of(model)[0]
    if model.config.model_type == "gpt2":
        third = layers[0].attn.c_attn.weight.numel() // 3
        return dict(q=third, k=third, v=third, o=layers[0].attn.c_proj.weight.numel())
    return {m: getattr(layers[0].self_attn, f"{m}_proj").weight.numel() for m in "qkvo"}


def caps(model, seen, n, windows):
    """Share of the unmasked scores and of the logits that the cap changes by more than one hundredth, share beyond half of the
    cap, and the largest before the cap."""
    c = model.config

    def count(raw, cap):
        moved = (raw - cap * torch.tanh(raw / cap)).abs() > 0.01 * raw.abs()
        return moved.double().mean(-1), (raw.abs() > cap / 2).double().mean(-1), raw.abs().amax(-1)

    changed, half, largest = [], [], []
    for i, window in enumerate(windows):
        visible = torch.ones(n, n).tril().bool()
        if window:
            visible &= ~torch.ones(n, n).tril(-window).bool()
        for rows, value in zip((changed, half, largest), count(scores_of(model, seen, i, n)[:, visible], c.attn_logit_softcapping)):
            rows.append(value.tolist())
    final = count(uncapped_logits(model, seen["ln_final"][1]).flatten(), c.final_logit_softcapping)
    return dict(changed=changed, beyondHalf=half, largest=largest), dict(zip(("changed", "beyondHalf", "largest"), map(float, final)))


def transformer_figures(folder, ids):
    model = load(folder)
    layers, final, norms, names = parts_of(model)
    watch = Watch()
    module_of = {"ln_final": final}
    for i, layer in enumerate(layers):
        for ours, theirs in norms:
            module_of[f"blocks.{i}.{ours}"] = getattr(layer, theirs)
        watch.on(getattr(layer, names["attention"]), f"{i}.attention")
        watch.on(getattr(layer, names["mlp"]), f"{i}.mlp")
        if model.config.model_type == "gpt2":
            watch.on(layer.attn.c_attn, f"{i}.qkv")
            watch.on(layer.attn.c_proj, f"{i}.o")
            watch.on(layer.mlp.c_fc, f"{i}.hidden")
        else:
            watch.on(layer.self_attn.q_proj, f"{i}.q")
            watch.on(layer.self_attn.k_proj, f"{i}.k")
            watch.on(layer.self_attn.o_proj, f"{i}.o")
            watch.on(layer.mlp.gate_proj, f"{i}.hidden")
    for name, module in module_of.items():
        watch.on(module, name)
    with torch.no_grad():
        out = model(torch.tensor([ids]), output_attentions=True)
    seen = watch.seen
    pre_name = next(ours for ours, theirs in norms if theirs == names["pre"])
    mid_name = next(ours for ours, theirs in norms if theirs == names["mid"])
    update = []
    for i in range(len(layers)):
        for part, norm in (("attention", pre_name), ("mlp", mid_name)):
            skip, added = seen[f"blocks.{i}.{norm}"][0], seen[f"{i}.{part}"][1]
            s, r = sigma(skip), sigma(added)
            update.append(dict(layer=i, part=part, sigmaSkip=s, sigmaUpdate=r, scale=scale(r, s),
                               byToken=[scale(a, b) for a, b in zip(sigma_rows(added), sigma_rows(skip))]))
    windows = [0] * len(layers)
    if model.config.model_type == "gemma2":
        windows = [model.config.sliding_window if t == "sliding_attention" else 0 for t in model.config.layer_types]
    figures = dict(ids=ids, update=update)
    order = [f"blocks.{i}.{ours}" for i in range(len(layers)) for ours, _ in norms] + ["ln_final"]
    figures["norms"] = [dict(name=name, inMean=float(seen[name][0].double().mean()), inSigma=sigma(seen[name][0]), inRms=rms(seen[name][0]),
                             outMean=float(seen[name][1].double().mean()), outSigma=sigma(seen[name][1]), outRms=rms(seen[name][1]),
                             inRmsByToken=rms_rows(seen[name][0]), outRmsByToken=rms_rows(seen[name][1]),
                             weightMean=float(multiplies(module_of[name]).mean()), weightMin=float(multiplies(module_of[name]).min()),
                             weightMax=float(multiplies(module_of[name]).max())) for name in order]
    figures["finalNorm"] = dict(before=rms_rows(seen["ln_final"][0]), after=rms_rows(seen["ln_final"][1]))
    patterns = [a[0] for a in out.attentions]
    figures["attention"] = attention_figures(patterns, windows)
    figures["patterns"] = [p.double().numpy().round(7).tolist() for p in patterns]
    probs = torch.softmax(out.logits[0].double(), -1)
    top = probs.topk(10)
    figures["next"] = dict(ids=top.indices.tolist(), probs=top.values.tolist())
    figures["actual"] = [float(probs[t, ids[t + 1]]) for t in range(len(ids) - 1)]
    figures["actualRank"] = [int((probs[t] > probs[t, ids[t + 1]]).sum()) for t in range(len(ids) - 1)]
    figures["windows"] = windows
    figures["active"] = [float((seen[f"{i}.hidden"][1] > 0).double().mean()) for i in range(len(layers))]
    figures["softmax"] = softmax_row(model, seen, len(ids), patterns)
    figures["lens"] = lens(model, [seen[f"blocks.{i}.ln1"][0] for i in range(len(layers))], final, out)
    figures["attribution"] = attribution(model, seen, out, ids, figures["next"]["ids"][-1][:5])
    figures["projections"] = projections(model)
    if model.config.model_type != "gpt2":
        d = model.config.head_dim
        lengths = []
        for i in range(len(layers)):
            q = seen[f"{i}.q"][1].double().reshape(len(ids), -1, 2, d // 2)  # halves
            lengths.append(q.pow(2).sum(2).sqrt().mean(0).tolist())
        figures["queryLength"] = lengths
        figures["frequencies"] = model.model.rotary_emb.inv_freq.double().tolist()
    else:
        rows = model.transformer.wpe.weight.detach().double()[:len(ids)]
        figures["positions"] = dict(cosine=cosines(rows), lengths=rows.norm(dim=1).tolist())
    if model.config.model_type == "gemma2":
        figures["softCap"], figures["finalCap"] = caps(model, seen, len(ids), windows)

    embedding = model.get_input_embeddings().weight.detach().double()
    chosen = embedding[ids]
    figures["cosine"] = cosines(chosen)
    figures["lengths"] = chosen.norm(dim=1).tolist()

    figures["stream"] = stream(load(folder), ids)
    off = load(folder)
    for module in off.modules():
        if type(module).__name__ in ("Gemma2RMSNorm", "LlamaRMSNorm", "LayerNorm"):
            module.forward = lambda x: x
    figures["streamWithoutNorms"] = stream(off, ids)
    return figures, model, embedding


def splits(model, spm, ids):
    """How many ways the vocabulary cuts the prompt, and ln p of each way with at most one token more than the tokenizer's, and
    of the one by single characters."""
    text = "".join(spm.id_to_piece(i) for i in ids[1:])
    usable = {spm.id_to_piece(i): i for i in range(spm.get_piece_size())
              if not (spm.is_control(i) or spm.is_unknown(i) or spm.is_byte(i))}
    ways = [1] + [0] * len(text)
    short = [[[]]] + [[] for _ in text]  # splits up to a place, of few tokens
    for end in range(1, len(text) + 1):
        for begin in range(end):
            if text[begin:end] in usable:
                ways[end] += ways[begin]
                short[end] += [cut + [text[begin:end]] for cut in short[begin] if len(cut) < len(ids)]
    cuts = short[-1] + [list(text)]
    found = []
    for pieces in cuts:
        tokens = [ids[0]] + [usable[p] for p in pieces]
        with torch.no_grad():
            logp = torch.log_softmax(model(torch.tensor([tokens])).logits[0].double(), -1)
        found.append(dict(pieces=pieces, logprob=float(sum(logp[t, tokens[t + 1]] for t in range(len(tokens) - 1)))))
    return dict(log10Count=math.log10(ways[-1]), bytes=len(text.encode()), cuts=found)


def tales():
    folder = ROOT / "models" / "tales9m"
    prompt = "Once upon a time there was a king"
    spm = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
    ids = [spm.bos_id()] + spm.encode(prompt)
    figures, model, embedding = transformer_figures(folder, ids)
    figures["prompt"] = prompt
    c = model.config
    proto = spm.encode(prompt, return_type="proto")
    figures["offsets"] = [[0, 0]] + [[p.begin, p.end] for p in proto.pieces]  # BOS has no bytes
    figures["splits"] = splits(model, spm, ids)
    # king - man + woman
    terms = [spm.piece_to_id("▁" + w) for w in ("king", "man", "woman")]
    total = embedding[terms[0]] - embedding[terms[1]] + embedding[terms[2]]
    likeness = (embedding @ total) / (embedding.norm(dim=1) * total.norm())
    nearest = likeness.topk(13)
    figures["neighbors"] = dict(terms=terms, ids=nearest.indices.tolist(), cosine=nearest.values.tolist())

    # The first layer without the embedding's factor.
    model = load(folder)
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
        return scale(sigma(pieces[update][1]), sigma(pieces[skip][0]))
    figures["rescaling"] = dict(factor=math.sqrt(c.hidden_size), sigmaWith=sigma(x * math.sqrt(c.hidden_size)), sigmaWithout=sigma(x), attention=share("post_attention_layernorm", "input_layernorm"),
                                mlp=share("post_feedforward_layernorm", "pre_feedforward_layernorm"))

    # Merges by SentencePiece's own rule: the neighbors whose joined piece has the highest score, the leftmost of equal ones.
    words = ["▁" + w for w in prompt.split()]
    words[0] = words[0][1:]  # this vocabulary puts no space in front of a text
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
    embedded = x
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
                update.append(dict(layer=layer, part=part, sigmaSkip=s, sigmaUpdate=r, scale=scale(r, s),
                                   byToken=[scale(a, b) for a, b in zip(sigma_rows(added), sigma_rows(x))]))
                x = x + added
                if norms:
                    x = torch.nn.functional.layer_norm(x, (d,), w[norm + ".weight"], w[norm + ".bias"], eps)
        return update, sigmas + [sigma(x)]

    update, stream_with = run(x, True)
    return dict(ids=ids, update=update, stream=stream_with, streamWithoutNorms=run(x, False)[1],
                positions=dict(cosine=cosines(table.double()), lengths=table.double().norm(dim=1).tolist()),
                embeddedLengths=embedded.double().norm(dim=1).tolist())


def functions():
    """What needs no model."""
    x = torch.linspace(-4, 4, 161, dtype=torch.float64)
    f = torch.nn.functional
    three = f.layer_norm(torch.tensor([2.0, 4.0, 6.0], dtype=torch.float64), (3,), eps=0)
    return dict(x=x.tolist(), relu=f.relu(x).tolist(), geluTanh=f.gelu(x, approximate="tanh").tolist(), geluExact=f.gelu(x).tolist(),
                silu=f.silu(x).tolist(), tanh=torch.tanh(x).tolist(), three=three.tolist(),
                softmaxPair=torch.softmax(torch.tensor([0, -0.693], dtype=torch.float64), 0).tolist(),
                cap2=(2 * torch.tanh(torch.tensor([0.5, 1, 2, 3], dtype=torch.float64) / 2)).tolist(),
                gemmaFrequencies=(1 / 10000 ** (torch.arange(0, 256, 2, dtype=torch.float64) / 256)).tolist())


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return value


def main():
    written = {"tales9m": tales(), "classic_post": classic_post(), "functions": functions()}
    for name in ("gpt2_a", "llama"):
        written[name] = transformer_figures(ROOT / f"tests/golden/models/{name}/model", [5, 3, 7, 9, 2, 11])[0]
    # Longer than this model's window of 8.
    written["gemma2"] = transformer_figures(ROOT / "tests/golden/models/gemma2/model", [2] + [(7 * i * i + 3 * i) % 60 + 3 for i in range(15)])[0]
    for name, figures in written.items():
        figures["made_with"] = dict(torch=torch.__version__, transformers=transformers.__version__, numpy=np.__version__)
        (HERE / f"{name}.json").write_text(json.dumps(rounded(figures), ensure_ascii=False) + "\n")


main()
