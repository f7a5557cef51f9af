"""RoPE frequencies in float32 as transformers computes them for Llama 3's scaling.

usage: make_rope.py
needs: torch, transformers (made with torch 2.15.0, transformers 5.23.0)

rope_llama3.json: a list of {theta, dim, factor, low_freq_factor, high_freq_factor, original_context, inv_freq [dim / 2]}
"""
import json, pathlib
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

CASES = [(500000.0, 128, 8.0, 1.0, 4.0, 8192), (500000.0, 64, 32.0, 1.0, 4.0, 8192), (100.0, 6, 8.0, 1.0, 4.0, 8), (1000.0, 64, 7.3, 0.5, 3.0, 100)]
out = []
for theta, dim, factor, low, high, context in CASES:
    rope = dict(rope_type="llama3", rope_theta=theta, factor=factor, low_freq_factor=low, high_freq_factor=high, original_max_position_embeddings=context)
    config = LlamaConfig(head_dim=dim, rope_parameters=rope)
    inv_freq = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0]
    out.append(dict(theta=theta, dim=dim, factor=factor, low_freq_factor=low, high_freq_factor=high, original_context=context, inv_freq=inv_freq.tolist()))
pathlib.Path(__file__).with_name("rope_llama3.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in out) + "\n]\n")
