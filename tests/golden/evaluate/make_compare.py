"""A quantized file against its original over a text, by transformers in float64 on the dequantized weights.

usage: make_compare.py
needs: torch, transformers, safetensors, gguf (made with torch 2.15.0, transformers 5.24.0, gguf 0.19.0)

compare.json, of ../models/llama (f32) and ../gguf/llama_q8_0.gguf and llama_q4_0.gguf over text.txt, in
windows of 64 tokens that begin with BOS and do not overlap:
    tokens                      that are scored
    by type, "q8_0" and "q4_0":
    kl, kl_error, kl_median, kl_most, same_top, nll_a, nll_b, difference_error, prob_mean, prob_rms
    cosine, relative, distance  [L + 1] of the stream entering layer 0 and leaving each, over all scored positions
"""
import json
import math
import pathlib

import torch
from transformers import AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "models" / "llama" / "model"
CONTEXT = 64


def helpers():
    """run(), open_model() and from_gguf() of ../compare/make.py, without what that script computes."""
    source = (HERE.parent / "compare" / "make.py").read_text().split("\nout = {}\n")[0]
    names = {"__file__": str(HERE.parent / "compare" / "make.py")}
    exec(compile(source, "make.py", "exec"), names)
    return names


def windows(ids, bos):
    room = CONTEXT - 1
    return [torch.tensor([bos] + ids[i:i + room]) for i in range(0, len(ids), room)]


def spread(x):
    return x.std(correction=1).item() / math.sqrt(len(x))


def compare(run, a, b, parts):
    kl, same, logprob_a, logprob_b, streams_a, streams_b = [], [], [], [], [], []
    for ids in parts:
        read, labels = ids[:-1], ids[1:, None]
        stream_a, _, z_a = run(a, read)
        stream_b, _, z_b = run(b, read)
        p, q = z_a.log_softmax(-1), z_b.log_softmax(-1)
        kl.append((p.exp() * (p - q)).sum(-1))
        same.append((p.argmax(-1) == q.argmax(-1)).double())
        logprob_a.append(p.gather(1, labels)[:, 0])
        logprob_b.append(q.gather(1, labels)[:, 0])
        streams_a.append(stream_a)
        streams_b.append(stream_b)
    kl, same, logprob_a, logprob_b = map(torch.cat, (kl, same, logprob_a, logprob_b))
    x, y = torch.cat(streams_a, 1), torch.cat(streams_b, 1)
    cosine = torch.nn.functional.cosine_similarity(x, y, dim=-1)
    moved = logprob_b.exp() - logprob_a.exp()
    return {"tokens": len(kl), "kl": kl.mean().item(), "kl_error": spread(kl), "kl_median": kl.sort().values[round((len(kl) - 1) * .5 + 1e-9)].item(),
            "kl_most": kl.max().item(), "same_top": same.mean().item(), "nll_a": -logprob_a.mean().item(),
            "nll_b": -logprob_b.mean().item(), "difference_error": spread(logprob_a - logprob_b), "prob_mean": moved.mean().item(),
            "prob_rms": moved.square().mean().sqrt().item(), "cosine": cosine.mean(-1).tolist(),
            "distance": (1 - cosine).amax(-1).tolist(),
            "relative": ((y - x).flatten(1).norm(dim=1) / x.flatten(1).norm(dim=1)).tolist()}


def main():
    names = helpers()
    text = (HERE / "text.txt").read_text()
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    parts = windows(tokenizer.encode(text, add_special_tokens=False), tokenizer.bos_token_id)
    original = names["open_model"]("llama")
    out = {}
    for kind in ("q8_0", "q4_0"):
        other = names["open_model"]("llama")
        config = other.config
        weights = names["from_gguf"](HERE.parent / "gguf" / f"llama_{kind}.gguf", config.num_attention_heads,
                                     config.num_key_value_heads)
        other.load_state_dict(weights, strict=False)
        out[kind] = compare(names["run"], original, other, parts)
    (HERE / "compare.json").write_text(json.dumps(out, indent=1) + "\n")


main()
