"""Packed weights and what they stand for, and tiny models with such weights.

usage: make.py
needs: torch, transformers, safetensors (made with torch 2.15.0, transformers 5.24.0)

mxfp4.safetensors   X_blocks [2, 3, 85, 16], X_scales [2, 3, 85] in U8 with every scale but NaN, and `values`: what transformers'
                    convert_moe_packed_tensors makes of them in bfloat16, turned back to [2, 3, 2720] and widened
fp8.safetensors     <form>.weight in F8_E4M3 with every code but NaN, its scales, and <form>.values = float32(weight) times
                    float32(scale) in float32; forms: tensor, rows, rows_flat, blocks (5 x 7), experts (two matrices in blocks)
../variants/gpt_oss_mxfp4                   as published: experts as blocks and scales, the rest in bfloat16
../variants/llama_fp8_blocks                quant_method fp8, weight_block_size [16, 24]: scales in float32, weight_scale_inv
../variants/llama_fp8_rows, llama_fp8_tensor  compressed-tensors, float-quantized: scales of rows in bfloat16, of tensors in float32
    with golden.safetensors as in ../variants/make.py, by transformers on the weights that the packed ones stand for
"""
import copy, json, pathlib, sys
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GptOssConfig, LlamaConfig
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "variants"))
import make as variants

torch.set_num_threads(1)
F8 = torch.float8_e4m3fn


def unpacked(blocks, scales, dtype=torch.float32):
    """[E, out, in]"""
    return convert_moe_packed_tensors(blocks, scales, dtype=dtype).transpose(1, 2).contiguous()


def make_mxfp4():
    g = torch.Generator().manual_seed(1)
    blocks = torch.randint(0, 256, (2, 3, 85, 16), generator=g, dtype=torch.uint8)
    scales = (torch.arange(2 * 3 * 85) % 255).to(torch.uint8).reshape(2, 3, 85)
    values = unpacked(blocks, scales, torch.bfloat16).float()
    save_file({"X_blocks": blocks, "X_scales": scales, "values": values}, HERE / "mxfp4.safetensors")


def expanded(scale, shape, block):
    if block is None:
        return scale.float().reshape(*scale.shape[:1], *[1] * (len(shape) - 1)) if scale.numel() > 1 else scale.float().reshape([1] * len(shape))
    wide = scale.float().repeat_interleave(block[0], -2).repeat_interleave(block[1], -1)
    return wide[..., : shape[-2], : shape[-1]]


def make_fp8():
    g = torch.Generator().manual_seed(2)
    codes = torch.arange(256, dtype=torch.uint8)
    codes[[0x7F, 0xFF]] = 1  # NaN
    out = {}
    for form, shape, scale, name, block in [
        ("tensor", (16, 16), torch.rand(1, generator=g), "weight_scale", None),
        ("rows", (16, 16), torch.rand(16, 1, generator=g).bfloat16(), "weight_scale", None),
        ("rows_flat", (16, 16), torch.rand(16, generator=g).half(), "weight_scale", None),
        ("blocks", (16, 16), torch.rand(4, 3, generator=g), "weight_scale_inv", (5, 7)),
        ("wide", (4, 64), torch.rand(2, 2, generator=torch.Generator().manual_seed(3)), "weight_scale_inv", (3, 32)),
        ("experts", (2, 8, 16), torch.rand(2, 2, 3, generator=g) * 1e-3, "weight_scale_inv", (5, 7)),
    ]:
        weight = codes.reshape(shape).view(F8)
        out[f"{form}.weight"], out[f"{form}.{name}"] = weight.clone(), scale
        out[f"{form}.values"] = weight.float() * expanded(scale, shape, block)
    save_file(out, HERE / "fp8.safetensors")


def golden_of(name, config, model, stored, quantization):
    """Writes the directory: `model` has the values that `stored` packs."""
    folder, g = variants.fresh(name), variants.generator(name)
    wide = AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation="eager", experts_implementation="eager").double().eval()
    wide.load_state_dict(model.state_dict())
    golden, far = {}, 0.0
    for i, ids in enumerate(variants.prompts(g, config.vocab_size)):
        mine = variants.run(model, ids)
        far = max(far, variants.distance(variants.run(wide, ids), mine))
        golden.update({f"{i}/ids": ids, **{f"{i}/{k}": v for k, v in mine.items()}})
    golden["distance"] = torch.tensor([far])
    variants.save(folder / "golden.safetensors", golden)
    config.save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    written["architectures"] = [type(model).__name__]
    written["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    variants.save(folder / "model.safetensors", stored, metadata={"format": "pt"})
    variants.report(name, golden, far)


def model_of(config, g):
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").float().eval()
    variants.randomize(dict(model.named_parameters()), g)
    return model


def make_gpt_oss():
    g = torch.Generator().manual_seed(3)
    yarn = dict(rope_type="yarn", rope_theta=150.0, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=16)
    config = GptOssConfig(vocab_size=61, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                          max_position_embeddings=512, num_local_experts=4, num_experts_per_tok=2, sliding_window=5, rope_parameters=yarn,
                          bos_token_id=None, eos_token_id=None, pad_token_id=None)
    model, stored = model_of(config, g), {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("gate_up_proj", "down_proj")):
                experts, rows, columns = p.shape
                blocks = torch.randint(0, 256, (experts, columns, rows // 32, 16), generator=g, dtype=torch.uint8)
                scales = torch.randint(123, 126, (experts, columns, rows // 32), generator=g, dtype=torch.uint8)
                stored[name + "_blocks"], stored[name + "_scales"] = blocks, scales
                p.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
            else:
                stored[name] = p.detach().bfloat16()
                p.copy_(stored[name].float())
    golden_of("gpt_oss_mxfp4", config, model, stored,
              dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]))


def compressed(strategy):
    weights = dict(actorder=None, block_structure=None, dynamic=False, group_size=None, num_bits=8, observer="minmax", observer_kwargs={}, strategy=strategy, symmetric=True, type="float")
    inputs = {**weights, "dynamic": True, "observer": None, "strategy": "token"}
    group = dict(input_activations=inputs, output_activations=None, targets=["Linear"], weights=weights)
    return dict(config_groups=dict(group_0=group), format="float-quantized", global_compression_ratio=None, ignore=["lm_head"], kv_cache_scheme=None, quant_method="compressed-tensors",
                quantization_status="compressed")


def make_llama(name, block, quantization, ending, seed):
    g = torch.Generator().manual_seed(seed)
    config = LlamaConfig(**{**variants.TINY, "hidden_size": 40, "intermediate_size": 56})
    model, stored = model_of(config, g), {}
    with torch.no_grad():
        for key, p in model.named_parameters():
            if not key.endswith("proj.weight"):
                stored[key] = p.detach().bfloat16()
                p.copy_(stored[key].float())
                continue
            rows, columns = p.shape
            if block:
                down, across = -(-rows // block[0]), -(-columns // block[1])
                padded = torch.zeros(down * block[0], across * block[1])
                padded[:rows, :columns] = p
                scale = padded.reshape(down, block[0], across, block[1]).abs().amax((1, 3)) / 448
            else:
                scale = (p.abs().amax(1, keepdim=True) / 448).bfloat16() if ending.startswith("rows") else (p.abs().amax() / 448).reshape(1)
            wide = expanded(scale, p.shape, block)
            stored[key] = (p / wide).clamp(-448, 448).to(F8)
            stored[key + ("_scale_inv" if block else "_scale")] = scale
            if ending == "tensor":
                stored[key.replace("weight", "input_scale")] = torch.tensor([0.5])
            p.copy_(stored[key].float() * wide)
    golden_of(name, config, model, stored, quantization)


def main():
    make_mxfp4()
    make_fp8()
    make_gpt_oss()
    make_llama("llama_fp8_blocks", (16, 24), dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=[16, 24]), "blocks", 4)
    make_llama("llama_fp8_rows", None, compressed("channel"), "rows", 5)
    make_llama("llama_fp8_tensor", None, compressed("tensor"), "tensor", 6)


if __name__ == "__main__":
    main()
