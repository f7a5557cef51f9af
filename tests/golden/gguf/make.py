"""GGUF files of golden models as llama.cpp's converter writes them, and what their quantized forms must give.

usage: make.py [MODEL ...]
needs: gguf, torch, transformers, safetensors, numpy, sentencepiece (made with gguf 0.19.0, torch 2.15.0, transformers 5.23.0;
olmo2, olmo3, smollm3, granite, phi3, gemma4, lfm2 and glm4 with transformers 5.24.0)

qwen3_5.gguf              F32, written by llama.cpp's converter itself (make_converted.convert, whose sources it needs)
<model>.gguf              F32, with the tokenizer where the model has one: its numbers are those of ../models/<model>/golden
llama_<T>.gguf            the llama model as f16, q8_0, q4_0 (rows of 64 and 96; norms stay f32)
rope_llama3.gguf, rope_linear.gguf   of ../variants/llama_rope_llama3 and llama_rope_linear: their numbers are theirs
qwen3_next.gguf           of ../variants/qwen3_next
rope_qwen2.gguf           of ../variants/qwen2_rope_llama3, whose heads are wider than d_model / n_heads
gpt_oss.gguf, gpt_oss_mxfp4.gguf     by make_converted.py
quantized.safetensors     for T in f16, q8_0, q4_0, by float32 runs of the dequantized weights:
    <T>/ids, logits, hidden.<i>, distance     prompt "mid"; distance: the largest one from a float64 run
    <T>/exact                                 logits in float64
    <T>/short/ids, exact                      the same for prompt "short" (at most 8 tokens)
    <T>/tile_rms, tile_max                    error of "mid" if operands of every product are rounded to bf16
    <T>/int8_rms, int8_max                    the same if activations are rounded to int8 per 32 values
    <T>/short/int8_rms, int8_max              that error of "short"
"""
import json, pathlib, sys
import gguf
import numpy as np
import sentencepiece
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
HERE = pathlib.Path(__file__).parent
MODELS, VARIANTS = HERE.parent / "models", HERE.parent / "variants"
TYPES = {"f16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_0": gguf.GGMLQuantizationType.Q4_0}


def permute(w, n_head):  # rows of one head: halves side by side become neighbors
    return w.reshape(n_head, 2, w.shape[0] // n_head // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w, n_head):
    return w.reshape(n_head, w.shape[0] // n_head // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


# gemma3_text is the text part of gemma3, gemma4_text of gemma4; GGUF has one name for both OLMos, and one for Llama and Mixtral.
ARCHITECTURES = {"gemma3_text": "gemma3", "gemma4_text": "gemma4", "olmo3": "olmo2", "qwen3_moe": "qwen3moe", "mixtral": "llama", "gpt_neox": "gptneox", "phi": "phi2", "cohere": "command-r", "hunyuan_v1_dense": "hunyuan-dense",
                 "llama4_text": "llama4", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "glm4_moe": "glm4moe", "qwen3_next": "qwen3next", "falcon_h1": "falcon-h1"}
LLAMAS = ("llama", "smollm3", "granite")  # whose converter is Llama's
PERMUTED = (*LLAMAS, "nemotron_h")


def arch_of(config):
    return ARCHITECTURES.get(config["model_type"], config["model_type"])


def with_stacked_experts(tensors):
    """Of a file with a tensor for each expert: one tensor [experts, out, in] instead of `experts.<e>.<matrix>`."""
    out, stacks = {}, {}
    for name, w in tensors.items():
        stem, _, rest = name.partition(".experts.")
        if rest and rest[0].isdigit():
            e, _, matrix = rest.partition(".")
            stacks.setdefault(f"{stem}.experts.{matrix}", {})[int(e)] = w
        else:
            out[name] = w
    out.update({name: torch.stack([parts[e] for e in sorted(parts)]) for name, parts in stacks.items()})
    return out


def falcon_h1_folded(name, w, c):
    """The factors of Falcon-H1's products, which its GGUF files hold in their weights."""
    gate, down = c["mlp_multipliers"]
    factors = {"down_proj": [down], "gate_proj": [gate], "k_proj": [c["key_multiplier"], c["attention_in_multiplier"]], "q_proj": [c["attention_in_multiplier"]], "v_proj": [c["attention_in_multiplier"]],
               "o_proj": [c["attention_out_multiplier"]], "out_proj": [c["ssm_out_multiplier"]], "in_proj": [c["ssm_in_multiplier"]], "lm_head": [c["lm_head_multiplier"]], "embed_tokens": [c["embedding_multiplier"]]}
    for factor in factors.get(name.split(".")[-2], []):
        w = w * np.float32(factor)
    if name.endswith("in_proj.weight"):
        inner, group = c["mamba_d_ssm"], c["mamba_n_groups"] * c["mamba_d_state"]
        w = w * np.repeat(np.float32(c["ssm_multipliers"]), [inner, inner, group, group, c["mamba_n_heads"]])[:, None]
    return w.reshape(c["mamba_n_groups"], -1) if name.endswith("mamba.norm.weight") else w


def heads_of(name, config):
    if arch_of(config) in PERMUTED and "q_proj" in name:
        return config["num_attention_heads"]
    if arch_of(config) in PERMUTED and "k_proj" in name:
        return config["num_key_value_heads"]
    return 0


def add_phi3(writer, c):
    rope, heads = c["rope_parameters"], c["num_attention_heads"]
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_rope_dimension_count(int(rope["partial_rotary_factor"] * c["hidden_size"]) // heads)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_sliding_window(c["sliding_window"] or 0)
    scale = c["max_position_embeddings"] / rope["original_max_position_embeddings"]
    writer.add_rope_scaling_attn_factors(np.sqrt(1 + np.log(scale) / np.log(rope["original_max_position_embeddings"])))
    for which in ("long", "short"):
        writer.add_tensor(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], dtype=np.float32))


def add_phimoe(writer, c):
    rope, heads = c["rope_parameters"], c["num_attention_heads"]
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_rope_dimension_count(c["hidden_size"] // heads)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_sliding_window(c["sliding_window"] or 0)
    writer.add_expert_used_count(c["num_experts_per_tok"])
    writer.add_expert_count(c["num_local_experts"])
    writer.add_rope_scaling_attn_factors(rope["short_mscale"])  # the converter writes LongRoPE's usual factor
    writer.add_float32("phimoe.vitrine.router_jitter_noise", c["router_jitter_noise"])  # GGUF itself has no key for it
    for which in ("long", "short"):
        writer.add_tensor(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], dtype=np.float32))


def add_gemma4(writer, c):
    layers, sliding = c["num_hidden_layers"], [t == "sliding_attention" for t in c["layer_types"]]
    full, local = c["rope_parameters"]["full_attention"], c["rope_parameters"]["sliding_attention"]
    own = next(of for layer, of in c["per_layer_config"].items() if not sliding[int(layer)])
    writer.add_block_count(layers)
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    shared, width = c["num_kv_shared_layers"], c["intermediate_size"]
    writer.add_feed_forward_length([width * (2 if i >= layers - shared else 1) for i in range(layers)] if c["use_double_wide_mlp"] else width)
    writer.add_head_count(c["num_attention_heads"])
    kv, full_kv = c["num_key_value_heads"], own.get("num_key_value_heads")
    writer.add_head_count_kv([kv if s else full_kv for s in sliding] if full_kv else kv)
    writer.add_rope_freq_base(full["rope_theta"])
    writer.add_rope_freq_base_swa(local["rope_theta"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    for add, head_dim in ((writer.add_key_length, own["head_dim"]), (writer.add_value_length, own["head_dim"]), (writer.add_rope_dimension_count, own["head_dim"]),
                          (writer.add_key_length_swa, c["head_dim"]), (writer.add_value_length_swa, c["head_dim"]), (writer.add_rope_dimension_count_swa, c["head_dim"])):
        add(head_dim)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    if c["final_logit_softcapping"]:
        writer.add_final_logit_softcapping(c["final_logit_softcapping"])
    writer.add_sliding_window(c["sliding_window"])
    writer.add_sliding_window_pattern(sliding)
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(c["hidden_size_per_layer_input"])
    if c["enable_moe_block"]:
        writer.add_expert_count(c["num_experts"])
        writer.add_expert_used_count(c["top_k_experts"])
        writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
    pairs = own["head_dim"] // 2
    turning = int(pairs * full["partial_rotary_factor"])
    writer.add_tensor("rope_freqs.weight", np.array([1.0] * turning + [1e30] * (pairs - turning), dtype=np.float32))


def qwen3_next_tensors(name, w, c):
    """Of the converter: (GGUF name or None, numbers) of what it stores in another form."""
    layer, keys, values = name.split(".")[2] if "layers" in name else "", c["linear_key_head_dim"], c["linear_value_head_dim"] * c["linear_num_value_heads"] // c["linear_num_key_heads"]
    if name.endswith("A_log"):
        return {f"blk.{layer}.ssm_a": -np.exp(w)}
    if name.endswith("dt_bias"):
        return {f"blk.{layer}.ssm_dt.bias": w}
    if name.endswith("in_proj_qkvz.weight"):  # each key head's parts: those of all heads side by side
        q, k, v, z = (part.reshape(-1, w.shape[1]) for part in np.split(w.reshape(c["linear_num_key_heads"], -1, w.shape[1]), np.cumsum([keys, keys, values]), axis=1))
        return {f"blk.{layer}.attn_qkv.weight": np.concatenate([q, k, v]), f"blk.{layer}.attn_gate.weight": z}
    if name.endswith("experts.gate_up_proj"):
        gate, up = np.split(w, 2, axis=1)
        return {f"blk.{layer}.ffn_gate_exps.weight": gate, f"blk.{layer}.ffn_up_exps.weight": up}
    if name.endswith("norm.weight") and "linear_attn" not in name:
        return {None: w + 1}
    return {None: w.squeeze() if name.endswith(("conv1d.weight", "shared_expert_gate.weight")) else w}


def name_in_gguf(names, name):
    for theirs, ours in (("router.scale", "ffn_gate_inp.scale"), ("router.per_expert_scale", "ffn_down_exps.scale")):
        if name.endswith(theirs):
            return f"blk.{name.split('.')[2]}.{ours}"
    if name.endswith((".ln_attn.weight", ".ln_attn.bias", ".ln_mlp.weight", ".ln_mlp.bias")):
        name = "transformer." + name
    name = name.replace(".dt_bias", ".dt_proj.bias")
    name = name.replace("e_score_correction_bias", "e_score_correction.bias")
    if name.endswith(("layer_scalar", "experts.gate_up_proj", "experts.down_proj")):
        name += ".weight"
    return names.get_name(name, try_suffixes=(".weight", ".bias"))


def tensors_of(folder, config):
    """Name in the Hugging Face file -> (GGUF name, numbers as the converter stores them)."""
    arch = arch_of(config)
    transposed = config["model_type"] == "llama4_text"
    layers = len(config.get("layers_block_type", ())) or config.get("num_hidden_layers", config.get("n_layer"))
    names = gguf.get_tensor_name_map(next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == arch), layers)
    out = {}
    for name, tensor in sorted(with_stacked_experts(load_file(folder / "model.safetensors")).items()):
        w = tensor.numpy()
        if arch == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            w = w.T
        if arch in ("gemma", "gemma2", "gemma3") and name.endswith("norm.weight"):
            w = w + 1
        if ".query_key_value." in name and config.get("new_decoder_architecture"):  # each key head's queries, key and value
            groups, heads = config["num_kv_heads"], config["num_attention_heads"]
            parts = np.split(w.reshape(groups, heads // groups + 2, -1, *w.shape[1:]), [heads // groups, heads // groups + 1], axis=1)
            w = np.concatenate([part.reshape(-1, *w.shape[1:]) for part in parts])
        elif ".query_key_value." in name and arch != "falcon":  # each head's queries, keys and values: those of all heads side by side
            w = w.reshape(config.get("num_attention_heads", config.get("n_head")), 3, -1, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape)
        if name.endswith(".A_log"):
            w = -np.exp(w)
        if arch == "falcon-h1":
            w = falcon_h1_folded(name, w, config)
        if name.endswith((".A_log", ".mixer.D", ".mamba.D")):
            w = w.reshape(-1, 1)
        if name.endswith("mixer.norm.weight"):
            w = w.reshape(config["n_groups"], -1)
        if name.endswith((".conv.conv.weight", ".conv1d.weight")):
            w = w.squeeze(1)
        if name.endswith("kv_b_proj.weight"):  # each head's keys, turned, and values
            keys, values = np.split(w.reshape(config["num_attention_heads"], -1, w.shape[1]), [config["qk_nope_head_dim"]], axis=1)
            for which, part in (("k_b", keys.swapaxes(1, 2)), ("v_b", values)):
                out[name.replace("kv_b", which)] = (f"blk.{name.split('.')[2]}.attn_{which}.weight", np.ascontiguousarray(part))
            continue
        if arch == "qwen3next":
            for new, part in qwen3_next_tensors(name, w, config).items():
                out[new or name] = (new or name_in_gguf(names, name), np.ascontiguousarray(part))
            continue
        if transposed and name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            w = w.swapaxes(1, 2)
        if transposed and name.endswith("experts.gate_up_proj"):
            for which, part in zip(("gate", "up"), np.split(w, 2, axis=1)):
                out[name.replace("gate_up", which)] = (f"blk.{name.split('.')[2]}.ffn_{which}_exps.weight", np.ascontiguousarray(part))
            continue
        if heads_of(name, config):
            w = permute(w, heads_of(name, config))
        out[name] = (name_in_gguf(names, name.removeprefix("transformer.") if arch in ("bloom", "falcon") else name), np.ascontiguousarray(w))
    return out


def add_lfm2(writer, c):
    width, multiple = int(c["block_ffn_dim_multiplier"] * (2 * c["intermediate_size"] // 3)), c["block_multiple_of"]
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_feed_forward_length((width + multiple - 1) // multiple * multiple)
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv([0 if kind == "conv" else c["num_key_value_heads"] for kind in c["layer_types"]])
    writer.add_rope_freq_base(c["rope_parameters"]["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(c["vocab_size"])
    writer.add_shortconv_l_cache(c["conv_L_cache"])
    writer.add_layer_norm_rms_eps(c["norm_eps"])


def add_mamba2(writer, c):
    writer.add_context_length(c.get("context", 2**20))
    writer.add_embedding_length(c["hidden_size"])
    writer.add_feed_forward_length(c.get("width", 0))
    writer.add_head_count(c.get("heads", 0))
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_ssm_conv_kernel(c["conv_kernel"])
    writer.add_ssm_inner_size(c["num_heads"] * c["head_dim"])
    writer.add_ssm_state_size(c["state_size"])
    writer.add_ssm_time_step_rank(c["num_heads"])
    writer.add_ssm_group_count(c["n_groups"])
    writer.add_layer_norm_rms_eps(c["layer_norm_epsilon"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def add_llama4(writer, c):
    """The last keys are vitrine's: llama.cpp takes the values of published models."""
    rope, dim = c["rope_parameters"], c["head_dim"]
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_feed_forward_length(c["intermediate_size_mlp"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_expert_count(c["num_local_experts"])
    writer.add_expert_used_count(c["num_experts_per_tok"])
    writer.add_key_length(dim)
    writer.add_value_length(dim)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(c["vocab_size"])
    writer.add_rope_dimension_count(dim)
    writer.add_interleave_moe_layer_step(c["interleave_moe_layer_step"])
    writer.add_expert_feed_forward_length(c["intermediate_size"])
    writer.add_uint32("llama4.vitrine.attention_chunk_size", c["attention_chunk_size"])
    writer.add_uint32("llama4.vitrine.attention_floor_scale", c["floor_scale"])
    writer.add_float32("llama4.vitrine.attention_temperature", c["attn_scale"])


def add_gpt_neox(writer, c):
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_rope_dimension_count(int(c["rope_parameters"]["partial_rotary_factor"] * (c["hidden_size"] // c["num_attention_heads"])))
    writer.add_rope_freq_base(c["rope_parameters"]["rope_theta"])  # which the converter leaves out, as it is 10000 in published models
    writer.add_head_count(c["num_attention_heads"])
    writer.add_parallel_residual(c["use_parallel_residual"])
    writer.add_layer_norm_eps(c["layer_norm_eps"])


def add_deepseek(writer, c):
    rope, rank, turning = c["rope_parameters"], c["kv_lora_rank"], c["qk_rope_head_dim"]
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(1)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_expert_count(c["n_routed_experts"])
    writer.add_expert_used_count(c["num_experts_per_tok"])
    writer.add_expert_group_count(c["n_group"])
    writer.add_expert_group_used_count(c["topk_group"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_leading_dense_block_count(c["first_k_dense_replace"])
    writer.add_vocab_size(c["vocab_size"])
    writer.add_q_lora_rank(c["q_lora_rank"])
    writer.add_kv_lora_rank(rank)
    writer.add_key_length(rank + turning)
    writer.add_value_length(rank)
    writer.add_key_length_mla(c["qk_nope_head_dim"] + turning)
    writer.add_value_length_mla(c["v_head_dim"])
    writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
    writer.add_expert_shared_count(c["n_shared_experts"])
    writer.add_expert_weights_scale(c["routed_scaling_factor"])
    writer.add_expert_weights_norm(c["norm_topk_prob"])
    writer.add_rope_dimension_count(turning)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])


def add_qwen3_next(writer, c):
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_rope_freq_base(c["rope_theta"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_key_length(c["head_dim"])
    writer.add_value_length(c["head_dim"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_expert_count(c["num_experts"])
    writer.add_expert_used_count(c["num_experts_per_tok"])
    writer.add_expert_weights_norm(c["norm_topk_prob"])
    writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
    writer.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    writer.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(c["linear_key_head_dim"])
    writer.add_ssm_group_count(c["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(c["linear_num_value_heads"])
    writer.add_ssm_inner_size(c["linear_value_head_dim"] * c["linear_num_value_heads"])
    writer.add_full_attention_interval(2)
    writer.add_rope_dimension_count(int(c["head_dim"] * c["partial_rotary_factor"]))


def add_falcon_h1(writer, c):
    add_mamba2(writer, {**c, "conv_kernel": c["mamba_d_conv"], "num_heads": c["mamba_n_heads"], "head_dim": c["mamba_d_head"], "state_size": c["mamba_d_state"], "n_groups": c["mamba_n_groups"],
                        "layer_norm_epsilon": c["rms_norm_eps"], "heads": c["num_attention_heads"], "context": c["max_position_embeddings"], "width": c["intermediate_size"]})
    writer.add_vocab_size(c["vocab_size"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_key_length(c["head_dim"])
    writer.add_value_length(c["head_dim"])
    writer.add_rope_freq_base(c["rope_parameters"]["rope_theta"])


def add_nemotron_h(writer, c):
    kinds, dense = c["layers_block_type"], "moe" not in c["layers_block_type"]
    width = c["intermediate_size"] if dense else c["moe_intermediate_size"]
    add_mamba2(writer, {**c, "num_heads": c["mamba_num_heads"], "head_dim": c["mamba_head_dim"], "state_size": c["ssm_state_size"], "heads": c["num_attention_heads"], "num_hidden_layers": len(kinds), "context": c["max_position_embeddings"],
                        "width": [width if kind in ("mlp", "moe") else 0 for kind in kinds]})
    writer.add_layer_norm_eps(c["layer_norm_epsilon"])
    writer.add_vocab_size(c["vocab_size"])
    writer.add_head_count_kv([c["num_key_value_heads"] if kind == "full_attention" else 0 for kind in kinds])
    writer.add_key_length(c["head_dim"])
    writer.add_value_length(c["head_dim"])
    writer.add_rope_scaling_finetuned(False)
    if c["time_step_min"] > 0:  # a word of our own
        writer.add_array(f"{arch_of(c)}.time_step_limit", [float(c["time_step_min"]), float(np.finfo(np.float32).max)])


def add_config(writer, c):
    own = {"qwen3_next": add_qwen3_next, "deepseek_v3": add_deepseek, "gpt_neox": add_gpt_neox, "phi3": add_phi3, "phimoe": add_phimoe, "lfm2": add_lfm2, "mamba2": add_mamba2, "falcon_h1": add_falcon_h1, "nemotron_h": add_nemotron_h, "gemma4_text": add_gemma4, "llama4_text": add_llama4}.get(c["model_type"])
    if own:
        return own(writer, c)
    arch, get = arch_of(c), lambda *keys: next(c[k] for k in keys if k in c)
    d, heads = get("hidden_size", "n_embd"), get("num_attention_heads", "n_head")
    writer.add_block_count(get("num_hidden_layers", "n_layer"))
    writer.add_context_length(get("max_position_embeddings", "n_positions", "seq_length"))
    writer.add_embedding_length(d)
    writer.add_feed_forward_length(c.get("intermediate_size", c.get("ffn_hidden_size", 4 * d)))
    writer.add_head_count(heads)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    if c["model_type"] in ("olmo3", "exaone4"):
        writer.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])
    for key, add in (("attention_multiplier", writer.add_attention_scale), ("embedding_multiplier", writer.add_embedding_scale),
                     ("residual_multiplier", writer.add_residual_scale), ("logits_scaling", writer.add_logit_scale)):
        if key in c:
            add(c[key])
    if arch == "bloom":
        writer.add_head_count_kv(heads)
    if arch in ("gpt2", "bloom"):
        return writer.add_layer_norm_eps(c["layer_norm_epsilon"])
    writer.add_head_count_kv(c["num_kv_heads"] or 1 if arch == "falcon" else c["num_key_value_heads"])
    if arch == "falcon":
        writer.add_tensor_data_layout("jploski")
    if arch == "command-r":
        writer.add_logit_scale(c["logit_scale"])
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    if "norm_epsilon" in c or "layer_norm_eps" in c or "layer_norm_epsilon" in c:
        writer.add_layer_norm_eps(get("norm_epsilon", "layer_norm_eps", "layer_norm_epsilon"))
    else:
        writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    if arch == "stablelm":
        writer.add_parallel_residual(c["use_parallel_residual"])
    rope = c.get("rope_parameters") or {"rope_theta": c.get("rope_theta", 10000.0)}
    if "sliding_attention" in rope:  # of the layers with a window
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    rope = rope.get("full_attention", rope)
    if rope.get("alpha"):  # of Hunyuan: a factor of the base
        rope = {"rope_type": "default", "rope_theta": rope["rope_theta"] * rope["alpha"] ** (c["head_dim"] / (c["head_dim"] - 2))}
    if arch not in ("gemma", "gemma2"):
        writer.add_rope_freq_base(rope["rope_theta"])
    head_dim = c.get("head_dim") or d // heads
    if arch in LLAMAS:
        writer.add_vocab_size(c["vocab_size"])
        writer.add_rope_dimension_count(head_dim)
    if arch in ("glm4", "glm4moe", "phi2", "stablelm"):
        writer.add_rope_dimension_count(int(head_dim * rope["partial_rotary_factor"]))
    if c.get("head_dim"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if rope.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if rope.get("rope_type") == "llama3":  # llama.cpp keeps the divisors of the frequencies as a tensor
        freq = 1 / rope["rope_theta"] ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        low, high, factors = rope["original_max_position_embeddings"] / rope["low_freq_factor"], rope["original_max_position_embeddings"] / rope["high_freq_factor"], []
        for f in freq.tolist():
            wave = 2 * np.pi / f
            smooth = (rope["original_max_position_embeddings"] / wave - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
            factors.append(1.0 if wave < high else rope["factor"] if wave > low else 1 / ((1 - smooth) / rope["factor"] + smooth))
        writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
    if c.get("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(c["attn_logit_softcapping"])
    if c.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(c["final_logit_softcapping"])
    if "num_experts_per_tok" in c:
        writer.add_expert_count(get("num_local_experts", "num_experts", "n_routed_experts"))
        writer.add_expert_used_count(c["num_experts_per_tok"])
        if "moe_intermediate_size" in c:
            writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
        if arch == "glm4moe":
            writer.add_expert_group_count(c["n_group"])
            writer.add_expert_group_used_count(c["topk_group"])
            writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
            writer.add_expert_shared_count(c["n_shared_experts"])
            writer.add_leading_dense_block_count(c["first_k_dense_replace"])
            writer.add_expert_weights_scale(c["routed_scaling_factor"])
            writer.add_expert_weights_norm(c["norm_topk_prob"])
            writer.add_nextn_predict_layers(c["num_nextn_predict_layers"])
        elif c.get("norm_topk_prob") is False:
            writer.add_expert_weights_norm(False)
    if c.get("sliding_window"):
        writer.add_sliding_window(c["sliding_window"])
    if "query_pre_attn_scalar" in c:
        writer.add_float32(f"{arch_of(c)}.vitrine.query_pre_attn_scalar", c["query_pre_attn_scalar"])  # GGUF itself has no key for it


def add_tokenizer(writer, folder):
    T = gguf.TokenType
    if (folder / "tokenizer.model").exists():
        sp = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        n = sp.get_piece_size()
        kind = lambda i: T.UNKNOWN if sp.is_unknown(i) else T.CONTROL if sp.is_control(i) else T.BYTE if sp.is_byte(i) else T.UNUSED if sp.is_unused(i) else T.NORMAL
        from sentencepiece import sentencepiece_model_pb2 as pb
        proto = pb.ModelProto()
        proto.ParseFromString((folder / "tokenizer.model").read_bytes())
        types = [T.USER_DEFINED if proto.pieces[i].type == proto.pieces[i].USER_DEFINED else kind(i) for i in range(n)]
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list([sp.id_to_piece(i).encode() for i in range(n)])
        writer.add_token_scores([sp.get_score(i) for i in range(n)])
        writer.add_token_types([int(t) for t in types])
        writer.add_bos_token_id(sp.bos_id())
        writer.add_eos_token_id(sp.eos_id())
        writer.add_unk_token_id(sp.unk_id())
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(False)
        writer.add_add_space_prefix(proto.normalizer_spec.add_dummy_prefix)
    elif (folder / "vocab.json").exists():
        vocab = json.loads((folder / "vocab.json").read_text())
        pieces = sorted(vocab, key=vocab.get)
        merges = [line for line in (folder / "merges.txt").read_text().split("\n") if line and not line.startswith("#version")]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([p.encode() for p in pieces])
        writer.add_token_types([int(T.CONTROL if p == "<|endoftext|>" else T.NORMAL) for p in pieces])
        writer.add_token_merges([m.encode() for m in merges])
        writer.add_bos_token_id(vocab["<|endoftext|>"])
        writer.add_eos_token_id(vocab["<|endoftext|>"])


def write(path, folder, kind=None):
    """Writes the file; returns the model's weights as the file holds them, dequantized, under their Hugging Face names."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, arch_of(config))
    add_config(writer, config)
    add_tokenizer(writer, folder)
    held = {}
    for name, (new, w) in tensors_of(folder, config).items():
        if kind is None or w.ndim == 1:
            writer.add_tensor(new, w)
        else:
            q = gguf.quants.quantize(w, TYPES[kind])
            writer.add_tensor(new, q, raw_dtype=TYPES[kind])
            w = gguf.quants.dequantize(q, TYPES[kind])
        held[name] = torch.from_numpy(np.ascontiguousarray(unpermute(w, heads_of(name, config)) if heads_of(name, config) else w))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


def run(model, ids):
    with torch.no_grad():
        out = model(ids[None], output_hidden_states=True, use_cache=False)
    return {"logits": out.logits[0], **{f"hidden.{i}": h[0] for i, h in enumerate(out.hidden_states)}}


def to_bf16(x):
    return x.to(torch.bfloat16).to(x.dtype)


def to_int8(x):
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    return (torch.where(scale > 0, (blocks / scale).round(), 0) * scale).reshape(x.shape)


def with_rounded(model, ids, of_x, of_w, exact):
    """rms and largest error of the logits if the operands of products are rounded so; worst of eight disturbed runs."""
    plain, errors = F.linear, []
    for seed in range(8):
        g = torch.Generator().manual_seed(seed)
        F.linear = lambda x, w, b=None: plain(of_x(x * (1 + 3e-7 * torch.randn(x.shape, generator=g, dtype=x.dtype))), of_w(w), b)
        errors.append(run(model, ids)["logits"] - exact)
    F.linear = plain
    return torch.tensor([max(float(e.square().mean().sqrt()) for e in errors)]), torch.tensor([max(float(e.abs().max()) for e in errors)])


def make_quantized():
    folder, tensors = MODELS / "llama" / "model", {}
    written = json.loads((MODELS / "llama" / "golden" / "prompts.json").read_text())
    mid, short = (torch.tensor(written[k]["input_ids"][0]) for k in ("mid", "short"))
    for kind in TYPES:
        held = write(HERE / f"llama_{kind}.gguf", folder, kind)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        model.load_state_dict(held)
        narrow = run(model, mid)
        model = model.double()
        wide, few = run(model, mid), run(model, short)["logits"]
        far = max(float((wide[k] - narrow[k].double()).abs().max()) for k in narrow)
        tile = with_rounded(model, mid, to_bf16, to_bf16, wide["logits"])
        int8, few_int8 = (with_rounded(model, ids, to_int8, lambda w: w, exact) for ids, exact in ((mid, wide["logits"]), (short, few)))
        own = {**narrow, "ids": mid, "exact": wide["logits"], "distance": torch.tensor([far]), "tile_rms": tile[0], "tile_max": tile[1],
               "int8_rms": int8[0], "int8_max": int8[1],
               "short/ids": short, "short/exact": few, "short/int8_rms": few_int8[0], "short/int8_max": few_int8[1]}
        tensors.update({f"{kind}/{k}": v.contiguous().clone() for k, v in own.items()})
        print(kind, "distance %.1e tile %.1e %.1e int8 %.1e %.1e" % (far, *tile, *int8))
    save_file(tensors, HERE / "quantized.safetensors")


if __name__ == "__main__":
    # Names: only these. Without: every family that GGUF has.
    if sys.argv[1:] == ["qwen3_next"]:
        sys.exit(write(HERE / "qwen3_next.gguf", VARIANTS / "qwen3_next") and None)
    for name in sys.argv[1:] or sorted(m.name for m in MODELS.iterdir() if m.is_dir() and not m.name.startswith(("classic", "mistral", "gpt2_b", "gpt_neo", "gptj", "granite4", "gpt_oss", "opt")) or m.name == "gpt_neox"):
        write(HERE / f"{name}.gguf", MODELS / name / "model")
    if sys.argv[1:]:
        sys.exit()
    for kind in ("llama3", "linear"):
        write(HERE / f"rope_{kind}.gguf", VARIANTS / f"llama_rope_{kind}")
    write(HERE / "rope_qwen2.gguf", VARIANTS / "qwen2_rope_llama3")
    write(HERE / "qwen3_next.gguf", VARIANTS / "qwen3_next")
    make_quantized()
