"""Two types of one model, compared by transformers in float64 on the dequantized weights.

usage: make.py
needs: torch, transformers, safetensors, gguf (made with torch 2.15.0, transformers 5.23.0, gguf 0.19.0)

compare.safetensors, for a in llama, gemma2, gpt2_a and b the same weights as bf16 (every tensor rounded), for llama also as
f16, q8_0, q4_0 (../gguf/llama_<T>.gguf), on `<model>/ids` [T], under <model>/<b>/:
    cosine, distance, relative [L + 1]      of the stream entering layer 0 and leaving each: mean cosine over positions, largest
                                            1 - cosine, |b - a| / |a| over all positions
    attention_mean, attention_most [L]      sum |pattern_b - pattern_a| / 2 over keys: mean over heads and queries, largest
    kl [T], same [T]                        KL(a || b) of the next token; 1 where both find the same one most likely
"""
import pathlib
import gguf
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "models"


def run(model, ids):
    """The stream [L + 1, T, D] entering layer 0 and leaving each layer, patterns [L, N, T, T], logits [T, V]."""
    base = model.transformer if model.config.model_type == "gpt2" else model.model
    streams = []
    layers = base.h if model.config.model_type == "gpt2" else base.layers
    keep = lambda x: streams.append((x[0] if isinstance(x, tuple) else x).detach().reshape(len(ids), -1))
    handles = [layers[0].register_forward_pre_hook(lambda m, args: keep(args[0]))]
    handles += [layer.register_forward_hook(lambda m, args, out: keep(out)) for layer in layers]
    with torch.no_grad():
        out = model(ids[None], output_attentions=True, use_cache=False)
    for handle in handles:
        handle.remove()
    return torch.stack(streams), torch.stack([p[0].double() for p in out.attentions]), out.logits[0]


def open_model(name):
    return AutoModelForCausalLM.from_pretrained(MODELS / name / "model", dtype=torch.float64, attn_implementation="eager").eval()


def from_gguf(path, n_heads, n_kv):
    """Hugging Face names of a Llama GGUF file, dequantized, q and k back in halves."""
    reader, names = gguf.GGUFReader(path), {}
    table = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    for t in reader.tensors:
        w = torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy()).double()
        parts = t.name.split(".")
        theirs = f"model.layers.{parts[1]}.{table[parts[2]]}.weight" if parts[0] == "blk" else table[parts[0]] + ".weight"
        heads = n_heads if "q_proj" in theirs else n_kv if "k_proj" in theirs else 0
        names[theirs] = w.reshape(heads, -1, 2, w.shape[1]).transpose(1, 2).reshape(w.shape) if heads else w
    return names


out = {}
for name in ("llama", "gemma2", "gpt2_a"):
    model = open_model(name)
    g = torch.Generator().manual_seed(len(name))
    ids = torch.randint(3, model.config.vocab_size - 3, (13,), generator=g)
    out[f"{name}/ids"] = ids.int()
    stream_a, pattern_a, z_a = run(model, ids)
    variants = {"bf16": {k: v.bfloat16().double() for k, v in load_file(MODELS / name / "model/model.safetensors").items()}}
    if name == "llama":
        for kind in ("f16", "q8_0", "q4_0"):
            variants[kind] = from_gguf(HERE.parent / "gguf" / f"llama_{kind}.gguf", model.config.num_attention_heads, model.config.num_key_value_heads)
    for kind, weights in variants.items():
        other = open_model(name)
        missing, unexpected = other.load_state_dict(weights, strict=False)
        assert not unexpected and all("lm_head" in k for k in missing), (missing, unexpected)
        stream_b, pattern_b, z_b = run(other, ids)
        cosine = torch.nn.functional.cosine_similarity(stream_a, stream_b, dim=-1)
        moved = (pattern_b - pattern_a).abs().sum(-1) / 2
        p, q = z_a.log_softmax(-1), z_b.log_softmax(-1)
        own = {"cosine": cosine.mean(-1), "distance": (1 - cosine).amax(-1), "relative": (stream_b - stream_a).flatten(1).norm(dim=1) / stream_a.flatten(1).norm(dim=1),
               "attention_mean": moved.flatten(1).mean(1), "attention_most": moved.flatten(1).amax(1), "kl": (p.exp() * (p - q)).sum(-1), "same": (p.argmax(-1) == q.argmax(-1)).double()}
        out.update({f"{name}/{kind}/{k}": v.contiguous().clone() for k, v in own.items()})
        print(name, kind, "distance", float(own["distance"][-1]), "kl", float(own["kl"].mean()))
save_file(out, HERE / "compare.safetensors")
