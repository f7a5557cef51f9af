"""The golden models of qwen3 and gemma3: a tiny random model of each family and the numbers it must give.

usage: make.py REFERENCE_DIR [NAME ...]      (without names: everything)
needs: torch, transformers, safetensors, numpy (made with torch 2.15.0, transformers 5.23.0, numpy 2.4.6; float32, eager
attention, CPU). REFERENCE_DIR holds golden_lib.py, which made the other folders beside this file (seeds 20240 to 20246);
its first lines name what a folder contains.

qwen3   heads wider than d_model / n_heads, grouped queries, an output of its own, RoPE with a base of 100
gemma3  five layers with a window of 8, a full one and one more with the window; RoPE with a base of 10 within windows and of
        1000 with positions divided by 8 in the full layer; scores divided by sqrt(7), heads have 12 components
Both have weights far from one in the norms of queries and keys, which golden_lib would leave near it.
"""
import os, pathlib, sys

HERE = pathlib.Path(__file__).parent


def specs(tokenizers):
    from transformers import Gemma3TextConfig, Qwen3Config
    yield "qwen3", dict(config=Qwen3Config(vocab_size=256, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=12,
                                           max_position_embeddings=128, rope_parameters=dict(rope_type="default", rope_theta=100.0), pad_token_id=0, bos_token_id=2, eos_token_id=1),
                        emb_std=1.0, seed=20247)
    yield "gemma3", dict(config=Gemma3TextConfig(vocab_size=512, hidden_size=32, intermediate_size=64, num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                                                 query_pre_attn_scalar=7, sliding_window=8, max_position_embeddings=128,
                                                 rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=8.0),
                                                                      sliding_attention=dict(rope_type="default", rope_theta=10.0))),
                         emb_std=0.5, zero_centred_norm=True, post_norm=1.0, seed=20248, tokenizer_dir=str(tokenizers / "spm512"))


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
