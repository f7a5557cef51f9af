"""Golden model of Qwen 3.5 (text): a tiny random model and the numbers it must give.

usage: make_qwen3_5.py REFERENCE_DIR
needs: torch, transformers, safetensors, numpy (made with torch 2.15.0, transformers 5.24.0; float32, eager attention, the delta
rule in PyTorch, CPU). REFERENCE_DIR as in make.py.

qwen3_5  the delta rule in layers 0, 1 and 3, two heads to a key head, convolutions over four positions; attention in layer 2, whose
         pattern is attn.2, with 4 of a head's 16 components turned
Decays, their biases and the weights of all norms of heads lie further from their neutral values than golden_lib would have them.
"""
import os, pathlib, sys

HERE = pathlib.Path(__file__).parent


def with_wide_values(randomize):
    import torch

    def randomize_all(model, seed, *args):
        randomize(model, seed, *args)
        g = torch.Generator().manual_seed(seed + 1000)
        with torch.no_grad():
            for name, p in sorted(model.named_parameters()):
                n = torch.randn(p.shape, generator=g)
                if name.endswith(("q_norm.weight", "k_norm.weight")):
                    p.copy_(0.5 * n)
                elif name.endswith("linear_attn.norm.weight"):
                    p.copy_(1 + 0.5 * n)
                elif name.endswith("A_log"):
                    p.copy_(n - 1)
                elif name.endswith("dt_bias"):
                    p.copy_(n)
                elif name.endswith("conv1d.weight"):
                    p.copy_(0.6 * n)
    return randomize_all


def name_layers_with_attention(folder, types):
    """transformers counts attention patterns and not layers."""
    from safetensors.torch import load_file, save_file
    layers = [i for i, kind in enumerate(types) if kind == "full_attention"]

    def renamed(name):
        stem, _, i = name.rpartition("/attn.")
        return f"{stem}/attn.{layers[int(i)]}" if stem else name
    path = folder / "forward.safetensors"
    save_file({renamed(name): x for name, x in load_file(path).items()}, path)


def main():
    sys.path.insert(0, sys.argv[1])
    import golden_lib
    from transformers import Qwen3_5TextConfig
    config = Qwen3_5TextConfig(vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                               max_position_embeddings=128, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
                               layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
                               rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.25, mrope_section=[1, 1, 0], mrope_interleaved=True),
                               pad_token_id=0, bos_token_id=2, eos_token_id=1)
    golden_lib.randomize = with_wide_values(golden_lib.randomize)
    golden_lib.make(os.path.join(HERE, "qwen3_5"), config=config, emb_std=1.0, zero_centered_norm=True, seed=20260)
    name_layers_with_attention(HERE / "qwen3_5/golden", config.layer_types)


if __name__ == "__main__":
    main()
