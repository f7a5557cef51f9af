"""Golden models of newer families: a tiny random model of each and the numbers it must give.

usage: make.py REFERENCE_DIR [NAME ...]      (without names: everything)
needs: torch, transformers, safetensors, numpy (made with torch 2.15.0, transformers 5.23.0 (qwen3, gemma3) and 5.24.0, numpy
2.4.6; float32, eager attention, CPU). REFERENCE_DIR holds golden_lib.py, which made the other folders beside this file (seeds 20240 to 20246);
its first lines name what a folder contains.

qwen3   heads wider than d_model / n_heads, grouped queries, an output of its own, RoPE with a base of 100
gemma3  five layers with a window of 8, a full one and one more with the window; RoPE with a base of 10 within windows and of
        1000 with positions divided by 8 in the full layer; scores divided by sqrt(7), heads have 12 components
olmo2   norms behind each sub-layer alone, and one over all queries, one over all keys
olmo3   the same, three layers with a window of 8 and a full one, whose RoPE YaRN stretches from 64 to 256 positions
smollm3 the last of four layers turns nothing; the embedding is the output, too
granite factors of embeddings (3), scores (0.4), updates (0.6) and a divisor of the logits (2.5)
granite4  the same with the MLP's first two matrices stored as one (granitemoehybrid without experts and Mamba layers)
phi3    stacked matrices, 6 of a head's 8 components turn, divided by LongRoPE's short factors; a window of 12
Those with norms of queries and keys have weights far from one in them, which golden_lib would leave near it.
"""
import os, pathlib, sys

HERE = pathlib.Path(__file__).parent


def specs(tokenizers):
    from transformers import Gemma3TextConfig, GraniteConfig, GraniteMoeHybridConfig, Olmo2Config, Olmo3Config, Phi3Config, Qwen3Config, SmolLM3Config
    small = dict(vocab_size=128, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                 pad_token_id=0, bos_token_id=2, eos_token_id=1)
    rope = dict(rope_type="default", rope_theta=100.0)
    factors = dict(embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.6, logits_scaling=2.5)
    yarn = dict(rope_type="yarn", rope_theta=50.0, factor=4.0, original_max_position_embeddings=64, beta_fast=4.0, beta_slow=1.0)
    yield "qwen3", dict(config=Qwen3Config(vocab_size=256, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=12,
                                           max_position_embeddings=128, rope_parameters=dict(rope_type="default", rope_theta=100.0), pad_token_id=0, bos_token_id=2, eos_token_id=1),
                        emb_std=1.0, seed=20247)
    yield "gemma3", dict(config=Gemma3TextConfig(vocab_size=512, hidden_size=32, intermediate_size=64, num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                                                 query_pre_attn_scalar=7, sliding_window=8, max_position_embeddings=128,
                                                 rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=8.0),
                                                                      sliding_attention=dict(rope_type="default", rope_theta=10.0))),
                         emb_std=0.5, zero_centred_norm=True, post_norm=1.0, seed=20248, tokenizer_dir=str(tokenizers / "spm512"))

    yield "olmo2", dict(config=Olmo2Config(**small, rms_norm_eps=1e-4, rope_parameters=rope), emb_std=1.0, post_norm=-0.3, seed=20249)
    yield "olmo3", dict(config=Olmo3Config(**{**small, "num_hidden_layers": 4, "max_position_embeddings": 256}, sliding_window=8,
                                           rope_parameters=dict(full_attention=yarn, sliding_attention=dict(rope_type="default", rope_theta=50.0))),
                        emb_std=1.0, post_norm=-0.3, seed=20250)
    yield "smollm3", dict(config=SmolLM3Config(**{**small, "num_hidden_layers": 4}, rope_parameters=rope), emb_std=0.5, seed=20251)
    yield "granite", dict(config=GraniteConfig(**small, rope_parameters=rope, **factors), emb_std=0.5, seed=20252)
    yield "granite4", dict(config=GraniteMoeHybridConfig(**small, rope_parameters=rope, **factors, shared_intermediate_size=40, num_local_experts=0, num_experts_per_tok=0,
                                                         layer_types=["full_attention"] * 2, position_embedding_type="rope", tie_word_embeddings=True, mamba_n_heads=2), emb_std=0.5, seed=20253)
    yield "phi3", dict(config=Phi3Config(**{**small, "hidden_size": 32}, sliding_window=12, original_max_position_embeddings=64,
                                         rope_parameters=dict(rope_type="longrope", rope_theta=100.0, partial_rotary_factor=0.75, short_factor=[1.0, 1.25, 1.75], long_factor=[1.5, 3.0, 7.0])),
                       emb_std=1.0, seed=20254)


def with_head_norms(randomize):
    """`randomize`, and weights of the norms of queries and keys with a deviation of 0.5."""
    import torch

    def randomize_all(model, seed, *args):
        randomize(model, seed, *args)
        g = torch.Generator().manual_seed(seed + 1000)
        with torch.no_grad():
            for name, p in sorted(model.named_parameters()):
                if name.endswith(("q_norm.weight", "k_norm.weight")):
                    p.copy_(0.5 * torch.randn(p.shape, generator=g) + (0.0 if model.config.model_type.startswith("gemma") else 1.0))
    return randomize_all


def main():
    sys.path.insert(0, sys.argv[1])
    import golden_lib
    golden_lib.randomize = with_head_norms(golden_lib.randomize)
    for name, how in specs(HERE.parent / "tokenizers"):
        if not sys.argv[2:] or name in sys.argv[2:]:
            golden_lib.make(os.path.join(HERE, name), **how)


if __name__ == "__main__":
    main()
