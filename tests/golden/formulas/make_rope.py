"""RoPE frequencies in float32 as transformers computes them for Llama 3's scaling, YaRN and LongRoPE.

usage: make_rope.py
needs: torch, transformers (made with torch 2.15.0, transformers 5.23.0; YaRN and LongRoPE with 5.24.0)

rope_llama3.json: a list of {theta, dim, factor, low_freq_factor, high_freq_factor, original_context, inv_freq [dim / 2]}
rope_yarn.json: a list of {theta, dim, factor, original_context, beta_fast, beta_slow, truncate, attention_factor, inv_freq}
rope_longrope.json: a list of {theta, dim, context, original_context, short, long, attention_factor, inv_freq_short, inv_freq_long}
"""
import json, pathlib
from transformers import LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

CASES = [(500000.0, 128, 8.0, 1.0, 4.0, 8192), (500000.0, 64, 32.0, 1.0, 4.0, 8192), (100.0, 6, 8.0, 1.0, 4.0, 8), (1000.0, 64, 7.3, 0.5, 3.0, 100)]
out = []
for theta, dim, factor, low, high, context in CASES:
    rope = dict(rope_type="llama3", rope_theta=theta, factor=factor, low_freq_factor=low, high_freq_factor=high, original_max_position_embeddings=context)
    config = LlamaConfig(head_dim=dim, rope_parameters=rope)
    inv_freq = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0]
    out.append(dict(theta=theta, dim=dim, factor=factor, low_freq_factor=low, high_freq_factor=high, original_context=context, inv_freq=inv_freq.tolist()))
pathlib.Path(__file__).with_name("rope_llama3.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in out) + "\n]\n")

out = []
for theta, dim, factor, context, fast, slow, truncate in [(500000.0, 128, 8.0, 8192, 32.0, 1.0, True), (150000.0, 64, 32.0, 4096, 32.0, 1.0, False),
                                                          (50.0, 6, 4.0, 64, 4.0, 1.0, True), (10000.0, 96, 1.0, 100, 32.0, 1.0, True), (100.0, 8, 3.0, 9, 2.0, 2.0, False)]:
    rope = dict(rope_type="yarn", rope_theta=theta, factor=factor, original_max_position_embeddings=context, beta_fast=fast, beta_slow=slow, truncate=truncate)
    inv_freq, attention = ROPE_INIT_FUNCTIONS["yarn"](LlamaConfig(head_dim=dim, rope_parameters=rope), "cpu")
    out.append(dict(theta=theta, dim=dim, factor=factor, original_context=context, beta_fast=fast, beta_slow=slow, truncate=truncate, attention_factor=attention, inv_freq=inv_freq.tolist()))
pathlib.Path(__file__).with_name("rope_yarn.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in out) + "\n]\n")

out = []
for theta, dim, context, original in [(10000.0, 96, 131072, 4096), (10000.0, 48, 4096, 4096), (100.0, 6, 128, 64)]:
    short, long = [1 + i / 7 for i in range(dim // 2)], [1.1 * 1.09**i for i in range(dim // 2)]
    rope = dict(rope_type="longrope", rope_theta=theta, short_factor=short, long_factor=long, partial_rotary_factor=1.0)
    config = Phi3Config(hidden_size=dim, num_attention_heads=1, max_position_embeddings=context, original_max_position_embeddings=original, rope_parameters=rope)
    few, attention = ROPE_INIT_FUNCTIONS["longrope"](config, "cpu")
    many, _ = ROPE_INIT_FUNCTIONS["longrope"](config, "cpu", seq_len=original + 1)
    out.append(dict(theta=theta, dim=dim, context=context, original_context=original, short=short, long=long, attention_factor=attention,
                    inv_freq_short=few.tolist(), inv_freq_long=many.tolist()))
pathlib.Path(__file__).with_name("rope_longrope.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in out) + "\n]\n")
