"""Attributions and gradients at intermediates of the golden models, by torch's autograd in float64.

usage: make.py   (transformers 5.23.0, torch 2.15.0)
Writes attribution.json, for each model: ids; token and against, whose log-probabilities' difference f after the last position is
explained; its value; saliency, gradient_input and integrated (baseline "mean": the vocabulary's mean embedding, "zero" for
models with LayerNorm), per position; mean_value, zero_value: f at the baselines. The integral is Simpson's rule over
600 intervals in float64, which has nothing in common with Gauss-Legendre.
Writes gradients.safetensors: of the mean cross-entropy of ids[1:], <model>/hidden.i at the stream before layer i,
<model>/attn.i at the pattern [head, query, key], <model>/logits.
"""
import json, os
import numpy as np, torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
torch.set_num_threads(1)
result, tensors = {}, {}
for name in ["gpt2_a", "gemma", "gemma2", "llama", "mistral", "qwen2"]:
    model = AutoModelForCausalLM.from_pretrained(os.path.join(here, "..", "models", name, "model"), attn_implementation="eager",
                                                 dtype=torch.float64).eval()
    for p in model.parameters():
        p.requires_grad_(False)
    ids = [5, 17, 3, 101, 42, 8, 200, 33]
    table = model.get_input_embeddings().weight
    # Gemma's scaled embedding module multiplies inside, others after; inputs_embeds enters where the family expects it.
    raw = model.get_input_embeddings()(torch.tensor([ids])).detach()
    rows = model.get_input_embeddings()(torch.arange(table.shape[0])).detach()
    mean = rows.mean(0)
    token, against = 7, 90

    def f_and_gradient(e):
        e = e.clone().requires_grad_(True)
        out = model(inputs_embeds=e, output_hidden_states=True, use_cache=False)
        stream = out.hidden_states[0]
        stream.retain_grad()
        logprobs = torch.log_softmax(out.logits[0, -1], -1)
        f = logprobs[token] - logprobs[against]
        f.backward()
        return f.item(), e.grad[0], stream.grad[0]

    value, g, g_stream = f_and_gradient(raw)
    found = {"ids": ids, "token": token, "against": against, "value": value, "saliency": g_stream.norm(dim=-1).tolist(),
             "gradient_input": (g * raw[0]).sum(-1).tolist()}
    baselines = {"mean": mean.expand_as(raw)}
    if name == "gpt2_a":
        baselines["zero"] = torch.zeros_like(raw)
    intervals = 600
    for kind, base in baselines.items():
        total = torch.zeros_like(raw[0])
        for i in range(intervals + 1):
            weight = (1 if i in (0, intervals) else 4 if i % 2 else 2) / (3 * intervals)
            total += weight * f_and_gradient(base + i / intervals * (raw - base))[1]
        found[kind] = ((raw - base)[0] * total).sum(-1).tolist()
        found[kind + "_value"] = f_and_gradient(base)[0]
        print(name, kind, "sum rule missed by", sum(found[kind]) - (value - found[kind + "_value"]))
    result[name] = found

    e = raw.clone().requires_grad_(True)
    out = model(inputs_embeds=e, output_hidden_states=True, output_attentions=True, use_cache=False)
    layers = len(out.attentions)
    kept = [*out.hidden_states[:layers], *out.attentions, out.logits]
    for t in kept:
        t.retain_grad()
    torch.nn.functional.cross_entropy(out.logits[0, :-1], torch.tensor(ids[1:])).backward()
    for i in range(layers):
        tensors[f"{name}/hidden.{i}"] = out.hidden_states[i].grad[0].float().contiguous()
        tensors[f"{name}/attn.{i}"] = out.attentions[i].grad[0].float().contiguous()
    tensors[f"{name}/logits"] = out.logits.grad[0].float().contiguous()
json.dump(result, open(os.path.join(here, "attribution.json"), "w"), indent=1)
save_file(tensors, os.path.join(here, "gradients.safetensors"))
