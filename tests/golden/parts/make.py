"""The residual stream as a sum of parts, direct logit attribution and the logit lens, computed by transformers in float64.

usage: make.py [NAME ...]      (without names: everything)
needs: torch, transformers, safetensors, numpy (made with torch 2.15.0, transformers 5.23.0; olmo2, granite and lfm2 with 5.24.0)

<model>.safetensors, one for each golden model that transformers can run (R positions, K tokens, P parts, L layers):
    ids [T], positions [R], tokens [K]
    parts [P, R, D]       in the order of the metadata's "parts"; each head through the output projection and the post-norm alone
    attribution [R, K, P] of the logit before the final cap, by autograd through the final norm with its scale detached
    norm_bias, before_cap, logit [R, K]
    lens_top [L + 1, R, 5], lens_logprob [L + 1, R, 5], lens_kl, lens_rank [L + 1, R]
"""
import pathlib, sys
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
MODELS = {**{name: HERE.parent / "models" / name / "model" for name in ("gpt2_a", "gpt2_b", "gemma", "gemma2", "llama", "mistral", "qwen2", "olmo2", "granite", "lfm2")},
          "lfm2_biases": HERE.parent / "variants" / "lfm2_biases",
          "gemma2_caps_mha": HERE.parent / "variants" / "gemma2_caps_mha", "llama_biases": HERE.parent / "variants" / "llama_biases"}
RMS_IN_F32 = 1e-5  # transformers' RMSNorms compute in float32 even in a float64 model


def make(name, path):
    torch.manual_seed(sum(map(ord, name)))
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager").eval()
    c, gpt2, gemma = model.config, model.config.model_type == "gpt2", model.config.model_type.startswith("gemma")
    writes_normed = c.model_type in ("gemma2", "olmo2")
    embedding, residual, divisor = (getattr(c, key, 1.0) for key in ("embedding_multiplier", "residual_multiplier", "logits_scaling"))
    if gemma:
        embedding = c.hidden_size ** 0.5
    base = model.transformer if gpt2 else model.model
    layers = base.h if gpt2 else base.layers
    ids = torch.randint(3, c.vocab_size - 3, (13,))
    positions = torch.tensor([12, 4, 0])
    seen = {}
    keep = lambda key: (lambda module, inputs, output: seen.__setitem__(key, (inputs[0].detach(), (output[0] if isinstance(output, tuple) else output).detach())))
    lfm2 = c.model_type == "lfm2"
    projection_of = lambda layer: layer.attn.c_proj if gpt2 else layer.self_attn.out_proj if lfm2 else layer.self_attn.o_proj
    for i, layer in enumerate(layers):
        if hasattr(layer, "conv"):
            layer.conv.out_proj.register_forward_hook(keep(f"conv{i}"))
        else:
            projection_of(layer).register_forward_hook(keep(f"o{i}"))
        (layer.feed_forward if lfm2 else layer.mlp).register_forward_hook(keep(f"mlp{i}"))
        if writes_normed:
            layer.post_attention_layernorm.register_forward_hook(keep(f"post_attn{i}"))
            layer.post_feedforward_layernorm.register_forward_hook(keep(f"post_mlp{i}"))
        layer.register_forward_hook(keep(f"layer{i}"))
    final = base.ln_f if gpt2 else base.embedding_norm if lfm2 else base.norm
    final.register_forward_hook(keep("final"))
    with torch.no_grad():
        logits = model(ids[None], use_cache=False).logits[0]

    parts, names = [], []
    def add(label, value):
        names.append(label)
        parts.append(value[positions])
    if gpt2:
        add("embed", base.wte.weight[ids].detach())
        add("pos_embed", base.wpe.weight[:len(ids)].detach())
    else:
        add("embed", (base.embed_tokens.weight[ids] * embedding).detach())
    n_heads = c.num_attention_heads
    for i, layer in enumerate(layers):
        if hasattr(layer, "conv"):
            add(f"L{i}.conv", seen[f"conv{i}"][1].reshape(len(ids), -1))
            add(f"L{i}.mlp", seen[f"mlp{i}"][1].reshape(len(ids), -1))
            continue
        projection = projection_of(layer)
        W = (projection.weight.T if gpt2 else projection.weight).detach()  # [D, N H]
        z = seen[f"o{i}"][0][0]
        after = lambda x: x * residual
        if writes_normed:
            norm, raw = layer.post_attention_layernorm, seen[f"post_attn{i}"][0][0]
            factor = (norm.weight.detach() + gemma) / torch.sqrt(raw.pow(2).mean(-1, keepdim=True) + getattr(norm, "eps", getattr(norm, "variance_epsilon", None)))
            after = lambda x, factor=factor: x * factor
        for h, (zh, Wh) in enumerate(zip(z.chunk(n_heads, -1), W.chunk(n_heads, -1))):
            add(f"L{i}.H{h}", after(zh @ Wh.T))
        if projection.bias is not None:
            add(f"L{i}.attn_bias", after(projection.bias.detach().expand(len(ids), -1)))
        add(f"L{i}.mlp", residual * seen[f"post_mlp{i}" if writes_normed else f"mlp{i}"][1].reshape(len(ids), -1))
    parts = torch.stack(parts)
    stream = seen["final"][0][0]
    assert torch.allclose(parts.sum(0), stream[positions], rtol=RMS_IN_F32, atol=RMS_IN_F32), name

    # Attribution by autograd: the final norm written out with its statistics detached.
    W_U = model.lm_head.weight.detach() / divisor
    top = logits[positions[0]].argmax().item()
    tokens = torch.tensor([top, 7, int(ids[3])])
    x = stream[positions].clone().requires_grad_()
    weight = final.weight.detach() + (1 if gemma else 0)
    if gpt2:
        scale = torch.sqrt(x.detach().var(-1, unbiased=False, keepdim=True) + final.eps)
        y, bias = (x - x.mean(-1, keepdim=True)) / scale * weight, final.bias.detach()
    else:
        eps = final.eps if hasattr(final, "eps") else final.variance_epsilon
        y, bias = x / torch.sqrt(x.detach().pow(2).mean(-1, keepdim=True) + eps) * weight, torch.zeros_like(weight)
    R, K = len(positions), len(tokens)
    attribution = torch.zeros(R, K, len(parts), dtype=torch.float64)
    for r in range(R):
        for k in range(K):
            (grad,) = torch.autograd.grad(y[r] @ W_U[tokens[k]], x, retain_graph=True)
            attribution[r, k] = parts[:, r] @ grad[r]
    norm_bias = (W_U[tokens] @ bias).expand(R, -1)
    before = attribution.sum(-1) + norm_bias
    cap = getattr(c, "final_logit_softcapping", None)
    logit = logits[positions][:, tokens]
    assert torch.allclose(cap * torch.tanh(before / cap) if cap else before, logit, rtol=RMS_IN_F32, atol=RMS_IN_F32), name

    # The logit lens, through the model's own modules.
    points = [parts.new_tensor(0)] * (len(layers) + 1)
    points[0] = (base.wte.weight[ids] + base.wpe.weight[:len(ids)] if gpt2 else base.embed_tokens.weight[ids] * embedding)
    for i in range(len(layers)):
        points[i + 1] = seen[f"layer{i}"][1].reshape(len(ids), -1)
    lens = {"top": [], "logprob": [], "kl": [], "rank": []}
    with torch.no_grad():
        model_logp = logits[positions].log_softmax(-1)
        for point in points:
            z = model.lm_head(final(point[positions])) / divisor
            z = cap * torch.tanh(z / cap) if cap else z
            logp = z.log_softmax(-1)
            values, best = logp.topk(5)
            lens["top"].append(best)
            lens["logprob"].append(values)
            lens["kl"].append((model_logp.exp() * (model_logp - logp)).sum(-1))
            lens["rank"].append((z > z.gather(1, model_logp.argmax(-1, keepdim=True))).sum(-1))
    out = {"ids": ids, "positions": positions, "tokens": tokens, "parts": parts, "attribution": attribution, "norm_bias": norm_bias,
           "before_cap": before, "logit": logit, **{f"lens_{k}": torch.stack(v) for k, v in lens.items()}}
    save_file({k: (v.float() if v.dtype == torch.float64 else v.int()).detach().contiguous().clone() for k, v in out.items()},
              HERE / f"{name}.safetensors", metadata={"parts": ",".join(names)})
    print(name, len(names), "parts; largest rank", int(torch.stack(lens["rank"]).max()))


for name in sys.argv[1:] or MODELS:
    make(name, MODELS[name])
