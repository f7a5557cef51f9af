"""Small models with the configurations that the golden models do not show, and 16-bit copies of the golden models.

usage: make.py [NAME ...]      (without names: everything; rounded/MODEL: that file alone)
needs: torch, transformers, safetensors, numpy (made with torch 2.15.0, transformers 5.23.0; those of olmo2 and what came
after it, and those with YaRN, with 5.24.0; float32, eager attention, CPU)

<name>/config.json, model.safetensors (or shards)   the model as Hugging Face directory
<name>/golden.safetensors                           <prompt>/ids, <prompt>/logits, <prompt>/hidden.<i> for prompts 0 and 1;
    hidden.i enters layer i, the last one is after the final norm; "distance" is the largest distance of any of these numbers
    from a float64 run of the same model
../rounded/<model>.safetensors   for every golden model and T in f16, bf16, with all weights rounded to T (prompt "mid", or "long"):
    <model>/<T>/ids, logits, hidden.<i>, distance   float32 arithmetic on the rounded weights
    <model>/<T>/exact                               logits in float64
    <model>/<T>/short/ids, short/logits             float32 again, for a prompt of at most 8 tokens
    <model>/<T>/tile_rms, tile_max                  how far logits move if both operands of every matrix product are rounded to
        bf16 in an otherwise exact float64 run: root mean square and largest, over eight runs whose operands are disturbed by
        3e-7 before they are rounded (which side of a tie a number falls on is up to the arithmetic before it)
"""
import copy, json, math, pathlib, shutil, sys
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, BloomConfig, Cohere2Config, DeepseekV2Config, Ernie4_5_MoeConfig, Ernie4_5Config, Llama4TextConfig, Exaone4Config, FalconConfig, FalconH1Config, Gemma2Config, Gemma4TextConfig, GemmaConfig, Glm4Config, GlmConfig, GPT2Config, GPTJConfig, GPTNeoConfig, GPTNeoXConfig, GptOssConfig, GraniteConfig, GraniteMoeHybridConfig, Lfm2Config, Lfm2MoeConfig, LlamaConfig, Mamba2Config,
                          MistralConfig, NemotronHConfig, Olmo2Config, Olmo3Config, OlmoeConfig, OPTConfig, Phi3Config, PhiConfig, PhimoeConfig, Qwen2Config, Qwen2MoeConfig, Qwen3_5MoeTextConfig, Qwen3MoeConfig, Qwen3NextConfig, SmolLM3Config, StableLmConfig, Starcoder2Config)
from transformers.models.falcon.modeling_falcon import FalconLinear

torch.set_num_threads(1)
FalconLinear.forward = lambda self, x: F.linear(x, self.weight, self.bias)  # it has a product of its own, which would not be rounded
HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "models"
LENGTHS = (7, 19)

TINY = dict(vocab_size=61, hidden_size=24, intermediate_size=37, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None)
GPT2 = dict(vocab_size=61, n_embd=24, n_layer=3, n_head=3, n_positions=40, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            bos_token_id=None, eos_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=50.0, factor=4.0, original_max_position_embeddings=40, beta_fast=5.0, beta_slow=0.5)
GRANITE = dict(embedding_multiplier=5.0, attention_multiplier=0.3, residual_multiplier=0.7, logits_scaling=3.0)
LONGROPE = dict(rope_type="longrope", rope_theta=100.0, short_factor=[1.0, 1.5, 2.0], long_factor=[1.25, 3.0, 8.0])
KIN = dict(vocab_size=61, hidden_size=24, max_position_embeddings=40, bos_token_id=None, eos_token_id=None, pad_token_id=None)
GEMMA2 = {**TINY, "head_dim": 10, "num_hidden_layers": 4, "sliding_window": 5, "query_pre_attn_scalar": 7}


def legacy_rope(config):  # how files looked before transformers 5
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    if rope.pop("rope_type", "default") != "default":
        config["rope_scaling"] = {"type" if rope.get("factor") == 3.0 else "rope_type": "linear" if len(rope) == 1 else "llama3", **rope}
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)


def legacy_olmo3(config):
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope["full_attention"].pop("rope_theta")
    config["rope_scaling"] = rope["full_attention"]
    config.pop("layer_types")


def published_lfm2(config):
    config["block_ff_dim"], config["rope_theta"] = config.pop("intermediate_size"), config.pop("rope_parameters")["rope_theta"]
    config["full_attn_idxs"] = [i for i, kind in enumerate(config.pop("layer_types")) if kind == "full_attention"]
    config["tie_embedding"] = config.pop("tie_word_embeddings")
    config.update(block_dim=24, block_mlp_init_scale=1.0, block_norm_eps=1e-5, block_out_init_scale=1.0, block_use_swiglu=True, block_use_xavier_init=True, conv_dim=24,
                  conv_dim_out=24, conv_use_xavier_init=True, num_heads=4, use_pos_enc=True)


def legacy_phi3(config):
    rope = config.pop("rope_parameters")
    config.update(rope_theta=rope.pop("rope_theta"), partial_rotary_factor=rope.pop("partial_rotary_factor"))
    rope["type"] = rope.pop("rope_type")
    rope.pop("original_max_position_embeddings", None)
    config["rope_scaling"] = rope if rope["type"] != "default" else None


def published_glm(config):
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["partial_rotary_factor"] = 0.5


def share_at_the_top(config):
    rope = config.pop("rope_parameters")
    config.update(rope_theta=rope["rope_theta"], partial_rotary_factor=rope["partial_rotary_factor"])


def published_neox(config):
    rope = config.pop("rope_parameters")
    config.update(rotary_emb_base=rope["rope_theta"], rotary_pct=rope["partial_rotary_factor"], torch_dtype="float16")
    config.pop("attention_bias")


def published_bloom(config):
    config["n_embed"], config["num_attention_heads"] = config.pop("hidden_size"), config.pop("n_head")
    config.update(attention_softmax_in_fp32=True, masked_softmax_fusion=True, offset_alibi=100, skip_bias_add=True, skip_bias_add_qkv=False, n_inner=None, seq_length=40)
    for key in ("max_position_embeddings", "tie_word_embeddings"):
        config.pop(key)


def published_cohere2(config):
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    for key in ("layer_types", "head_dim"):
        config.pop(key, None)
    config.update(layer_switch=4, order_of_interleaved_layers="local_attn_first", position_embedding_type="rope_gptj", rotary_pct=1.0, sliding_window_pattern=4, use_embedding_sharing=True,
                  use_gated_activation=True, use_parallel_block=True, use_parallel_embedding=False, use_qk_norm=False)


def without(*keys):
    return lambda config: [config.pop(key, None) for key in keys]


def legacy_rope_of(kind):
    def edit(config):
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = {**rope, "rope_type": kind}
        config.pop("layer_types", None)
    return edit


def legacy_granite4(config):
    config["layers_block_type"] = ["attention" for _ in config.pop("layer_types")]
    config.pop("time_step_limit")


def published_gemma4(config):  # what global layers have of their own, as published files say it
    own = next(iter(config.pop("per_layer_config").values()))
    config["global_head_dim"], config["num_global_key_value_heads"] = own["head_dim"], own.get("num_key_value_heads")


def multimodal_gemma4(config):
    published_gemma4(config)
    text = {k: config.pop(k) for k in list(config)}
    config.update(model_type="gemma4", architectures=["Gemma4ForConditionalGeneration"], text_config=text, vision_config=dict(model_type="gemma4_vision", hidden_size=8),
                  audio_config=None, image_token_id=60, tie_word_embeddings=True)


def published_llama4(config):  # as the first published files have it, beside what reads images
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    for key in ("layer_types", "no_rope_layer_interval"):
        config.pop(key, None)
    text = {**config, "rope_scaling": rope, "attn_temperature_tuning": 4, "for_llm_compressor": False}
    config.clear()
    config.update(model_type="llama4", architectures=["Llama4ForConditionalGeneration"], text_config=text, vision_config=dict(model_type="llama4_vision_model", hidden_size=8),
                  boi_token_index=58, eoi_token_index=59, image_token_index=60, tie_word_embeddings=False)


def published_names(config):  # of the number of experts
    config["num_experts"] = config.pop("num_local_experts")


def published_deepseek(config):
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {("type" if k == "rope_type" else k): v for k, v in rope.items()}
    config.update(aux_loss_alpha=0.001, seq_aux=True, moe_layer_freq=1, scoring_func="softmax", ep_size=1)
    config.pop("head_dim")


def published_next(config):
    rope = config.pop("rope_parameters")
    config.update(rope_theta=rope["rope_theta"], partial_rotary_factor=rope["partial_rotary_factor"], rope_scaling=None)


LLAMA4 = {**TINY, "head_dim": 8, "intermediate_size": 13, "intermediate_size_mlp": 20, "num_local_experts": 4, "attention_chunk_size": 5, "floor_scale": 4, "attn_scale": 0.4}
def published_falcon_h1(config):
    config.update(rope_theta=config.pop("rope_parameters")["rope_theta"], rope_scaling=None, mamba_d_head="auto", mamba_use_mlp=True, mlp_expansion_factor=8, time_step_rank="auto",
                  time_step_min=0.001, time_step_max=0.1, time_step_floor=0.0001)
    config.pop("time_step_limit")


FALCON_H1 = dict(embedding_multiplier=2.5, lm_head_multiplier=0.4, key_multiplier=0.6, attention_out_multiplier=0.9, ssm_in_multiplier=1.25, ssm_out_multiplier=0.7, ssm_multipliers=[0.4, 0.8, 1.2, 0.9, 0.7],
                 mlp_multipliers=[0.8, 0.5])
def published_nemotron_h(config):
    letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
    config["hybrid_override_pattern"] = "".join(letters[kind] for kind in config.pop("layers_block_type"))
    config.update(num_hidden_layers=len(config["hybrid_override_pattern"]), time_step_rank=2, rms_norm_eps=1e-5, mamba_d_conv=config.pop("conv_kernel"))


NEMOTRON = dict(vocab_size=61, hidden_size=24, intermediate_size=37, num_attention_heads=4, num_key_value_heads=2, head_dim=7, max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None,
                ssm_state_size=5, mamba_num_heads=6, mamba_head_dim=8, n_groups=3, conv_kernel=3, chunk_size=4, time_step_min=0.2)
MIXTURE = dict(vocab_size=48, hidden_size=16, intermediate_size=21, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=6,
               pad_token_id=0, bos_token_id=2, eos_token_id=1, rope_parameters=dict(rope_type="default", rope_theta=100.0))
DELTAS = dict(vocab_size=48, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=128, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=4,
              linear_value_head_dim=6, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=5, shared_expert_intermediate_size=7, pad_token_id=0, bos_token_id=2, eos_token_id=1)
GEMMA4 = {**TINY, "num_hidden_layers": 3, "head_dim": 6, "global_head_dim": 16, "sliding_window": 5}
MOE = {**TINY, "head_dim": 8, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 11}

# Models with experts are written as transformers holds them, the experts stacked in one tensor.
# gemma4_multimodal also holds a tensor of its vision tower, and matrices of keys that nothing reads; llama4_published two of what
# reads images.
# name: (configuration, what to do to config.json before it is written, prefix of tensor names to leave out or "old>new", sharded)
VARIANTS = {
    "gpt_oss_default_rope": (GptOssConfig(**TINY, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=5, swiglu_limit=0.5, swiglu_alpha=1.3,
                                          rope_parameters=dict(rope_type="default", rope_theta=100.0)), None, "", False),
    "qwen3_moe_stacked": (Qwen3MoeConfig(**MOE, norm_topk_prob=True, use_sliding_window=True, sliding_window=5), None, "", False),
    "qwen3_moe_dense_layers": (Qwen3MoeConfig(**{**MOE, "num_hidden_layers": 4}, norm_topk_prob=False, decoder_sparse_step=2, mlp_only_layers=[3], attention_bias=True, tie_word_embeddings=True),
                               published_names, "", False),
    "llama4_published": (Llama4TextConfig(**{**LLAMA4, "num_hidden_layers": 4}, num_experts_per_tok=1, interleave_moe_layer_step=2,
                                          rope_parameters=dict(rope_type="llama3", rope_theta=50.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=1.0, original_max_position_embeddings=32)),
                         published_llama4, ">language_model.", False),
    "llama4_layer_types": (Llama4TextConfig(**{**LLAMA4, "num_hidden_layers": 3}, num_experts_per_tok=3, moe_layers=[0, 2], no_rope_layers=[1, 0, 1], use_qk_norm=False, attention_bias=True,
                                            layer_types=["full_attention", "chunked_attention", "chunked_attention"], rope_parameters=dict(rope_type="default", rope_theta=50.0)), None, "", False),
    "llama4_dense": (Llama4TextConfig(**{**LLAMA4, "num_local_experts": 0}, num_experts_per_tok=0, interleave_moe_layer_step=0, moe_layers=[], no_rope_layers=[1, 1], layer_types=["full_attention"] * 2,
                                      attn_temperature_tuning=False, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=50.0)), None, "", False),
    "gemma4_multimodal": (Gemma4TextConfig(**{**GEMMA4, "num_hidden_layers": 5}, hidden_size_per_layer_input=6, vocab_size_per_layer_input=61, num_kv_shared_layers=2, use_double_wide_mlp=False,
                                           final_logit_softcapping=2.0, layer_types=["full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]),
                          multimodal_gemma4, "model.>model.language_model.", False),
    "gemma4_dense": (Gemma4TextConfig(**{**GEMMA4, "tie_word_embeddings": False}, num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0, num_kv_shared_layers=0,
                                      layer_types=["sliding_attention", "full_attention", "full_attention"],
                                      rope_parameters=dict(full_attention=dict(rope_type="proportional", rope_theta=50.0, partial_rotary_factor=0.75), sliding_attention=dict(rope_type="default", rope_theta=20.0))),
                     published_gemma4, "", False),
    "llama_rope_llama3": (LlamaConfig(**TINY, rope_parameters=LLAMA3), None, "", False),
    "llama_rope_llama3_legacy": (LlamaConfig(**TINY, rope_parameters={**LLAMA3, "rope_theta": 500.0}), legacy_rope, "", False),
    "llama_rope_linear": (LlamaConfig(**TINY, rope_parameters=dict(rope_type="linear", rope_theta=1000.0, factor=2.5)), None, "", False),
    "llama_rope_linear_legacy": (LlamaConfig(**TINY, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=3.0)), legacy_rope, "", False),
    "llama_theta_in_scaling": (LlamaConfig(**TINY, rope_parameters=dict(rope_type="linear", rope_theta=300.0, factor=2.0)), lambda c: c.update(rope_scaling=c.pop("rope_parameters")), "", False),
    "llama_theta_legacy": (LlamaConfig(**TINY, rope_parameters=dict(rope_type="default", rope_theta=77.0)), legacy_rope, "", False),
    "llama_biases": (LlamaConfig(**TINY, attention_bias=True, mlp_bias=True), None, "", False),
    "llama_head_dim": (LlamaConfig(**{**TINY, "head_dim": 10}), None, "", False),
    "llama_mqa_tied": (LlamaConfig(**{**TINY, "num_key_value_heads": 1, "num_attention_heads": 3, "tie_word_embeddings": True}), None, "", False),
    "llama_mha_gelu": (LlamaConfig(**{**TINY, "num_key_value_heads": 4, "hidden_act": "gelu", "rms_norm_eps": 1e-3}), without("head_dim", "num_key_value_heads"), "", False),
    "llama_sharded": (LlamaConfig(**TINY), None, "", True),
    "llama_bare_names": (LlamaConfig(**{**TINY, "tie_word_embeddings": True}), None, "model.", False),
    "mistral_no_window": (MistralConfig(**TINY, sliding_window=None, head_dim=6), None, "", False),
    "mistral_window_short": (MistralConfig(**TINY, sliding_window=3, head_dim=6), None, "", False),
    "mistral_window_mid": (MistralConfig(**TINY, sliding_window=8, head_dim=8), None, "", False),
    "mistral_window_long": (MistralConfig(**TINY, sliding_window=50, head_dim=6), None, "", False),
    "qwen2_rope_llama3": (Qwen2Config(**{**TINY, "head_dim": 10}, rope_parameters=LLAMA3), None, "", False),
    "qwen2_window_layers": (Qwen2Config(**{**TINY, "num_hidden_layers": 3}, use_sliding_window=True, sliding_window=4, max_window_layers=1), without("layer_types"), "", False),
    "qwen2_layer_types": (Qwen2Config(**{**TINY, "num_hidden_layers": 3}, use_sliding_window=True, sliding_window=4, max_window_layers=0,
                                      layer_types=["sliding_attention", "full_attention", "sliding_attention"]), None, "", False),
    "qwen2_window_unused": (Qwen2Config(**TINY, use_sliding_window=False, sliding_window=4, max_window_layers=0), None, "", False),
    "gemma2_layer_types": (Gemma2Config(**GEMMA2, layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"]), None, "", False),
    "gemma2_by_turns_legacy": (Gemma2Config(**{**GEMMA2, "num_hidden_layers": 3}, rope_parameters=dict(rope_type="default", rope_theta=300.0)), legacy_rope, "", False),
    # transformers cannot run sliding_window null, although with global layers alone nothing depends on it
    "gemma2_no_window_no_caps": (Gemma2Config(**GEMMA2, layer_types=["full_attention"] * 4, attn_logit_softcapping=None, final_logit_softcapping=None), lambda c: c.update(sliding_window=None), "", False),
    "gemma2_caps_mha": (Gemma2Config(**{**GEMMA2, "num_key_value_heads": 4, "query_pre_attn_scalar": 23}, attn_logit_softcapping=1.5, final_logit_softcapping=2.0), None, "", False),
    "gemma2_untied": (Gemma2Config(**{**GEMMA2, "tie_word_embeddings": False, "num_hidden_layers": 2}), None, "", False),
    "gemma_kv_heads": (GemmaConfig(**{**TINY, "head_dim": 14, "num_attention_heads": 6, "num_key_value_heads": 3}), None, "", False),
    "gemma_bare_names_gelu": (GemmaConfig(**{**TINY, "head_dim": 8, "num_key_value_heads": 1}), lambda c: c.update(hidden_act="gelu", hidden_activation="gelu_pytorch_tanh"), "model.", False),
    "llama_rope_yarn": (LlamaConfig(**{**TINY, "head_dim": 10}, rope_parameters=YARN), None, "", False),
    "qwen2_rope_yarn": (Qwen2Config(**{**TINY, "head_dim": 10}, rope_parameters={**YARN, "truncate": False, "attention_factor": 1.3, "rope_theta": 30.0}), legacy_rope_of("yarn"), "", False),
    "olmo2_biases": (Olmo2Config(**{**TINY, "num_key_value_heads": 4}, attention_bias=True, rms_norm_eps=1e-2, rope_parameters=dict(rope_type="linear", rope_theta=70.0, factor=3.0)), None, "", False),
    "olmo3_legacy": (Olmo3Config(**{**TINY, "num_hidden_layers": 4}, sliding_window=5, rope_parameters=dict(full_attention={**YARN, "rope_theta": 500000.0, "attention_factor": 1.2}, sliding_attention=dict(rope_type="default", rope_theta=500000.0))), legacy_olmo3, "", False),
    "olmo3_layer_types": (Olmo3Config(**{**TINY, "num_hidden_layers": 3}, sliding_window=4, layer_types=["full_attention", "sliding_attention", "full_attention"],
                                      rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=20.0), sliding_attention=dict(rope_type="default", rope_theta=90.0))), None, "", False),
    "smollm3_no_rope_first": (SmolLM3Config(**{**TINY, "num_hidden_layers": 3}, no_rope_layers=[0, 1, 0], use_sliding_window=True, sliding_window=5, attention_bias=True, mlp_bias=True), without("layer_types"), "", False),
    "smollm3_interval_untied": (SmolLM3Config(**{**TINY, "num_hidden_layers": 3, "tie_word_embeddings": False}, no_rope_layer_interval=2), without("no_rope_layers", "layer_types"), "", False),
    "granite_biases_tied": (GraniteConfig(**{**TINY, "tie_word_embeddings": True}, **GRANITE, attention_bias=True, mlp_bias=True), None, "", False),
    "granite_plain": (GraniteConfig(**TINY, rope_parameters=dict(rope_type="default", rope_theta=200.0)), without("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"), "", False),
    "granite4_no_positions": (GraniteMoeHybridConfig(**TINY, **GRANITE, shared_intermediate_size=30, num_local_experts=0, layer_types=["full_attention"] * 2, position_embedding_type="nope", mamba_n_heads=2), legacy_granite4, "", False),
    "phi3_long": (Phi3Config(**{**TINY, "hidden_size": 32}, original_max_position_embeddings=3, rope_parameters={**LONGROPE, "partial_rotary_factor": 0.75, "attention_factor": 1.4}), None, "", False),
    "phi3_short_legacy": (Phi3Config(**TINY, original_max_position_embeddings=32, rope_parameters={**LONGROPE, "partial_rotary_factor": 1.0}), legacy_phi3, "", False),
    "phi3_plain_legacy": (Phi3Config(**{**TINY, "hidden_size": 32, "num_key_value_heads": 4, "tie_word_embeddings": True}, sliding_window=6, rope_parameters=dict(rope_type="default", rope_theta=40.0, partial_rotary_factor=0.5)), legacy_phi3, "", False),
    # As published: the share at the top, and no settings of RoPE beside the base.
    "glm_published": (GlmConfig(**{**TINY, "hidden_size": 12, "intermediate_size": 15, "head_dim": 12}, partial_rotary_factor=0.5, rope_parameters=dict(rope_type="default", rope_theta=50.0)), published_glm, "", False),
    "glm4_tied_yarn": (Glm4Config(**{**TINY, "hidden_size": 12, "intermediate_size": 15, "num_key_value_heads": 1, "tie_word_embeddings": True}, head_dim=16, attention_bias=False, rms_norm_eps=1e-3,
                                  rope_parameters={**YARN, "partial_rotary_factor": 0.375}), None, "", False),
    "lfm2_biases": (Lfm2Config(**{**TINY, "num_hidden_layers": 3}, layer_types=["conv", "conv", "full_attention"], conv_L_cache=4, conv_bias=True, block_auto_adjust_ff_dim=False,
                               tie_word_embeddings=False, norm_eps=1e-3, rope_parameters=dict(rope_type="default", rope_theta=70.0)), None, "", False),
    "lfm2_published": (Lfm2Config(**{**TINY, "num_hidden_layers": 3}, layer_types=["full_attention", "conv", "full_attention"], conv_L_cache=9, block_ffn_dim_multiplier=1.3,
                                  block_multiple_of=16, rope_parameters=dict(rope_type="default", rope_theta=200.0)), published_lfm2, "", False),
    # One after the other, as RedPajama's and StableLM's first models; biases nowhere around attention.
    "gpt_neox_sequential": (GPTNeoXConfig(**KIN, intermediate_size=37, num_hidden_layers=2, num_attention_heads=3, use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True,
                                          hidden_act="relu", layer_norm_eps=1e-3, rotary_pct=1.0, rotary_emb_base=50), None, "", False),
    "gpt_neox_published": (GPTNeoXConfig(**KIN, intermediate_size=37, num_hidden_layers=2, num_attention_heads=3, rotary_pct=0.25, rotary_emb_base=10000), published_neox, "gpt_neox.", False),
    "gptj_bare_names": (GPTJConfig(**KIN, n_inner=None, n_layer=2, n_head=3, rotary_dim=8, activation_function="gelu", tie_word_embeddings=True), None, "transformer.", False),
    "gpt_neo_inverted": (GPTNeoConfig(**KIN, num_layers=3, num_heads=3, attention_types=[[["local"], 1], [["global", "local"], 1]], window_size=5, activation_function="relu", layer_norm_epsilon=1e-3,
                                      tie_word_embeddings=False), None, "", False),
    "opt_no_biases": (OPTConfig(**KIN, ffn_dim=37, num_hidden_layers=2, num_attention_heads=3, word_embed_proj_dim=24, enable_bias=False, tie_word_embeddings=False, activation_function="gelu"), None, "model.", False),
    "starcoder2_no_biases": (Starcoder2Config(**TINY, use_bias=False, tie_word_embeddings=False, hidden_act="gelu", norm_epsilon=1e-3, rope_parameters=LLAMA3), legacy_rope, "", False),
    "stablelm_published": (StableLmConfig(**{**TINY, "hidden_size": 32}, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=50.0, partial_rotary_factor=0.25)), share_at_the_top, "model.", False),
    "phi_grouped": (PhiConfig(**{**TINY, "hidden_size": 32}, hidden_act="gelu", tie_word_embeddings=True, layer_norm_eps=1e-3, partial_rotary_factor=0.5, rope_parameters=dict(rope_type="default", rope_theta=40.0, partial_rotary_factor=0.5)),
                    share_at_the_top, "", False),
    "bloom_published": (BloomConfig(**KIN, n_layer=2, n_head=4, layer_norm_epsilon=1e-3, tie_word_embeddings=True), published_bloom, "transformer.", False),
    "cohere2_windows": (Cohere2Config(**{**TINY, "num_hidden_layers": 4, "hidden_size": 16, "intermediate_size": 19}, tie_word_embeddings=True, logit_scale=0.5, layer_norm_eps=1e-3, sliding_window=5,
                                      rope_parameters=dict(rope_type="default", rope_theta=50.0)), published_cohere2, "", False),
    "falcon_biases": (FalconConfig(**KIN, ffn_hidden_size=20, num_hidden_layers=2, num_attention_heads=3, bias=True, tie_word_embeddings=False, layer_norm_epsilon=1e-3, activation="relu",
                                   rope_parameters=dict(rope_type="default", rope_theta=50.0)), legacy_rope, "transformer.", False),
    # As Falcon 2: one norm for attention and MLP.
    "falcon_one_norm": (FalconConfig(**KIN, ffn_hidden_size=20, num_hidden_layers=2, num_attention_heads=6, num_kv_heads=3, new_decoder_architecture=True, num_ln_in_parallel_attn=1, tie_word_embeddings=False,
                                     rope_parameters=dict(rope_type="default", rope_theta=50.0)), legacy_rope, "transformer.", False),
    "phimoe_stacked": (PhimoeConfig(**{**TINY, "intermediate_size": 11}, num_local_experts=6, tie_word_embeddings=True, router_jitter_noise=0.2, rope_parameters=dict(rope_type="default", rope_theta=40.0)), None, "", False),
    "exaone4_full": (Exaone4Config(**TINY, sliding_window=None, layer_types=["full_attention"] * 2, rope_parameters=LLAMA3, tie_word_embeddings=True), legacy_rope, "model.", False),
    "ernie4_5_biases": (Ernie4_5Config(**TINY, head_dim=6, use_bias=True, tie_word_embeddings=False, hidden_act="gelu", rope_parameters=dict(rope_type="default", rope_theta=50.0)), legacy_rope, "", False),
    "granite4_hybrid": (GraniteMoeHybridConfig(**{**TINY, "num_hidden_layers": 3}, **GRANITE, shared_intermediate_size=21, num_local_experts=0, num_experts_per_tok=0, layer_types=["linear_attention", "full_attention", "linear_attention"],
                                               mamba_n_heads=6, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=5, mamba_d_conv=3, tie_word_embeddings=True), None, "", False),
    "granite4_experts": (GraniteMoeHybridConfig(**{**TINY, "intermediate_size": 11}, **GRANITE, shared_intermediate_size=13, num_local_experts=5, num_experts_per_tok=2, layer_types=["linear_attention", "full_attention"],
                                                mamba_n_heads=3, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=6, mamba_d_conv=4), None, "", False),
    "falcon_h1_ungated_norm": (FalconH1Config(**TINY, rope_parameters=LLAMA3, mamba_d_ssm=None, mamba_n_heads=6, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=5, mamba_d_conv=3, mamba_chunk_size=4, mamba_rms_norm=True,
                                              attention_bias=True, mlp_bias=True, mamba_proj_bias=True, projectors_bias=True, mamba_conv_bias=False, tie_word_embeddings=True, time_step_limit=(0.1, 0.9), **FALCON_H1,
                                              attention_in_multiplier=1.0), None, "", False),
    "falcon_h1_published": (FalconH1Config(**TINY, rope_parameters=dict(rope_type="default", rope_theta=1e11), mamba_d_ssm=40, mamba_n_heads=5, mamba_d_state=6, mamba_d_conv=4, **FALCON_H1, attention_in_multiplier=0.8),
                            published_falcon_h1, "", False),
    "nemotron_h_moe": (NemotronHConfig(**{**NEMOTRON, "head_dim": 8, "time_step_min": 1e-6}, layers_block_type=["linear_attention", "moe", "full_attention", "moe"], n_routed_experts=6, n_group=3, topk_group=2, num_experts_per_tok=2, moe_intermediate_size=9,
                                       moe_shared_expert_intermediate_size=13, moe_latent_size=10, routed_scaling_factor=1.5), None, "model.>backbone.", False),
    "nemotron_h_every_kind": (NemotronHConfig(**NEMOTRON, layers_block_type=["full_attention", "mlp", "moe", "linear_attention"], n_routed_experts=4, num_experts_per_tok=3, moe_intermediate_size=9,
                                              moe_shared_expert_intermediate_size=7, norm_topk_prob=False, mlp_bias=True, use_bias=True, use_conv_bias=False, mamba_hidden_act="gelu", mlp_hidden_act="silu"), published_nemotron_h, "model.>backbone.", False),
    "mamba2_one_group": (Mamba2Config(vocab_size=61, hidden_size=24, num_hidden_layers=2, num_heads=3, head_dim=16, n_groups=1, state_size=5, conv_kernel=3, use_bias=True, use_conv_bias=False, tie_word_embeddings=True,
                                      time_step_limit=(0.4, 0.9), layer_norm_epsilon=1e-3, bos_token_id=None, eos_token_id=None, pad_token_id=None), None, "backbone.", False),
    "olmoe_stacked": (OlmoeConfig(**{**TINY, "intermediate_size": 11}, num_experts=6, num_experts_per_tok=3, norm_topk_prob=True, attention_bias=True, tie_word_embeddings=True), None, "", False),
    # V2-Lite's queries, which are no latent vectors, and V2's groups.
    "deepseek_v2_groups": (DeepseekV2Config(vocab_size=48, hidden_size=16, intermediate_size=21, num_hidden_layers=2, num_attention_heads=2, first_k_dense_replace=1, moe_intermediate_size=7, max_position_embeddings=256,
                                            q_lora_rank=None, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3, n_shared_experts=2,
                                            topk_method="group_limited_greedy", routed_scaling_factor=3.0, rms_norm_eps=1e-4,
                                            rope_parameters=dict(rope_type="yarn", rope_theta=50.0, factor=8.0, original_max_position_embeddings=32, mscale=0.707, mscale_all_dim=0.707)), published_deepseek, "", False),
    # A recurrence and attention, both with experts.
    "qwen3_5_moe": (Qwen3_5MoeTextConfig(**DELTAS, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"],
                                         rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5, mrope_section=[1, 1, 0], mrope_interleaved=True)), None, "", False),
    "qwen3_next": (Qwen3NextConfig(**DELTAS, intermediate_size=12, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], norm_topk_prob=False,
                                   rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5)), published_next, "", False),
    # A layer with an MLP, and one with a window.
    "qwen2_moe": (Qwen2MoeConfig(**MIXTURE, shared_expert_intermediate_size=9, num_hidden_layers=3, mlp_only_layers=[1], use_sliding_window=True, sliding_window=4, max_window_layers=2), without("layer_types"), "", False),
    "lfm2_moe": (Lfm2MoeConfig(**MIXTURE, num_hidden_layers=2, num_dense_layers=1, layer_types=["conv", "full_attention"], routed_scaling_factor=1.5, norm_eps=1e-4), None, "", False),
    "ernie4_5_moe": (Ernie4_5_MoeConfig(**{k: v for k, v in MIXTURE.items() if k not in ("num_experts", "num_experts_per_tok")}, moe_num_experts=5, moe_k=2, moe_num_shared_experts=2, num_hidden_layers=2, moe_layer_start_index=1,
                                        moe_norm_min=0.6, tie_word_embeddings=True), None, "", False),
    "gpt2_by_layer_relu": (GPT2Config(**GPT2, scale_attn_by_inverse_layer_idx=True, activation_function="relu"), None, "", False),
    "gpt2_unscaled_silu": (GPT2Config(**GPT2, scale_attn_weights=False, activation_function="silu", n_inner=51), None, "", False),
    "gpt2_gelu_bare_names": (GPT2Config(**GPT2, activation_function="gelu", reorder_and_upcast_attn=True), None, "transformer.", False),
    "gpt2_sharded": (GPT2Config(**GPT2, layer_norm_epsilon=1e-2), None, "", True),
}


def generator(name):
    return torch.Generator().manual_seed(sum(ord(c) * 131**i for i, c in enumerate(name)) % 2**31)


def randomize(parameters, g):
    """Weights large enough that attention is peaked and every branch of the configuration moves the logits."""
    with torch.no_grad():
        for name, p in sorted(parameters.items()):
            n = torch.randn(p.shape, generator=g)
            if p.dim() == 2:
                n = n * (1.0 if "embed" in name or "wte" in name else 1.3 / math.sqrt(max(p.shape[0] if "c_" in name else p.shape[1], 1)))
            elif name.endswith("bias"):
                n = 0.3 * n
            else:
                n = 0.2 * n + p.mean()  # norms: about the value they begin with
            p.copy_(n)


def prompts(g, vocab):
    return [torch.randint(0, vocab, (n,), generator=g) for n in LENGTHS]


def run(model, ids):
    with torch.no_grad():
        out = model(ids[None], output_hidden_states=True, use_cache=False)
    states = out.hidden_states
    if model.config.model_type == "mamba2":  # begins behind the first layer and ends with two of the last
        states = (model.get_input_embeddings()(ids[None]), *states[:-2], states[-1])
    return {"logits": out.logits[0], **{f"hidden.{i}": h[0] for i, h in enumerate(states)}}


def distance(wide, narrow):
    return max(float((wide[k] - narrow[k].double()).abs().max()) for k in narrow)


def save(path, tensors, **kwargs):
    save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, path, **kwargs)


def write_weights(folder, tensors, sharded):
    if not sharded:
        return save(folder / "model.safetensors", tensors, metadata={"format": "pt"})
    names = sorted(tensors)
    total, index = 3, {}
    for i in range(total):
        file = f"model-{i + 1:05d}-of-{total:05d}.safetensors"
        mine = names[i::total]
        save(folder / file, {n: tensors[n] for n in mine}, metadata={"format": "pt"})
        index.update({n: file for n in mine})
    size = sum(t.numel() * 4 for t in tensors.values())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": index}, indent=1))


def fresh(name):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def make_variant(name):
    config, edit, strip, sharded = VARIANTS[name]
    folder, g = fresh(name), generator(name)
    plain = {"experts_implementation": "eager"} if hasattr(config, "num_experts_per_tok") else {}
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", **plain).float().eval()
    randomize(dict(model.named_parameters()), g)
    kept = {n: b for n, b in model.named_buffers() if n in model.state_dict()}  # Gemma 4's factors of the stream
    for _, b in sorted(kept.items()):
        b.copy_(0.5 + torch.rand(b.shape, generator=g))
    golden, far = {}, 0.0
    wide = copy.deepcopy(config)
    if hasattr(wide, "reorder_and_upcast_attn"):
        wide.reorder_and_upcast_attn = False  # it upcasts to float32
    wide = AutoModelForCausalLM.from_config(wide, attn_implementation="eager", **plain).double().eval()
    wide.load_state_dict(model.state_dict())
    for i, ids in enumerate(prompts(g, config.vocab_size)):
        mine = run(model, ids)
        far = max(far, distance(run(wide, ids), mine))
        golden.update({f"{i}/ids": ids, **{f"{i}/{k}": v for k, v in mine.items()}})
    golden["distance"] = torch.tensor([far])
    save(folder / "golden.safetensors", golden)
    model.save_pretrained(folder)  # for config.json alone
    for file in [*folder.glob("model*"), folder / "generation_config.json"]:
        file.unlink(missing_ok=True)
    written = json.loads((folder / "config.json").read_text())
    if edit:
        edit(written)
    (folder / "config.json").write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    old, _, new = strip.partition(">")
    tensors = {new + n.removeprefix(old) if n.startswith(old) else n: p for n, p in [*model.named_parameters(), *kept.items()]}
    if config.model_type == "gpt_neox":  # transformers calls the file's embed_out lm_head
        tensors = {n.replace("lm_head", "embed_out"): p for n, p in tensors.items()}
    if name == "granite4_experts":  # as published files call them
        for new, published in (("experts.gate_up_proj", "input_linear.weight"), ("experts.down_proj", "output_linear.weight"), ("router.weight", "router.layer.weight")):
            tensors = {n.replace("block_sparse_moe." + new, "block_sparse_moe." + published): p for n, p in tensors.items()}
    if name == "nemotron_h_moe":  # a tensor for each expert
        stacked = {n: tensors.pop(n) for n in list(tensors) if n.endswith(("experts.up_proj", "experts.down_proj"))}
        tensors.update({n.replace("experts.", f"experts.{e}.") + ".weight": w for n, all in stacked.items() for e, w in enumerate(all)})
    if name == "gemma4_multimodal":
        layers = "model.language_model.layers."
        unread = {f"{layers}{i}.self_attn.{m}.weight": tensors[f"{layers}{giver}.self_attn.{m}.weight"] for i, giver in ((3, 2), (4, 0)) for m in ("k_proj", "v_proj", "k_norm")}
        tensors.update(unread, **{"model.vision_tower.patch_embedder.input_proj.weight": torch.zeros(8, 12)})
    if name == "llama4_published":
        tensors.update({"vision_model.class_embedding": torch.zeros(8), "multi_modal_projector.linear_1.weight": torch.zeros(24, 8)})
    write_weights(folder, tensors, sharded)
    report(name, golden, far)


def report(name, golden, far):
    print(f"{name:28} std {golden['1/logits'].std():.2f} largest {golden['1/logits'].abs().max():.1f} distance from float64 {far:.1e}")


# The classic decoder, written out with torch's functions ---------------------------------------------------------------
CLASSIC = dict(model_type="classic_decoder", vocab_size=61, d_model=20, n_heads=4, d_ff=33, n_layers=2, positions="sinusoidal", dtype="float32")
CLASSICS = {
    "classic_pre_relu_halves": dict(norm_order="pre", activation="relu", position_layout="halves"),
    "classic_pre_gelu_unscaled": dict(norm_order="pre", activation="gelu", position_layout="pairs", embedding_scale="none", layer_norm_eps=1e-2),
    "classic_post_gelu_halves_tied": dict(norm_order="post", activation="gelu", position_layout="halves", tied=True),
    "classic_post_gelu_tanh": dict(norm_order="post", activation="gelu_tanh", position_layout="pairs"),
}


def positions(n, d, layout, dtype):
    angle = torch.arange(n, dtype=torch.float64)[:, None] / 10000.0 ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
    if layout == "halves":
        return torch.cat([angle.sin(), angle.cos()], 1).to(dtype)
    return torch.stack([angle.sin(), angle.cos()], 2).reshape(n, d).to(dtype)


def classic(w, c, ids):
    eps, d, heads = c.get("layer_norm_eps", 1e-5), c["d_model"], c["n_heads"]
    act = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}[c["activation"]]
    x = w["embed.weight"][ids] * (math.sqrt(d) if c.get("embedding_scale") != "none" else 1)
    x = x + positions(len(ids), d, c["position_layout"], x.dtype)
    mask = torch.full((len(ids), len(ids)), -math.inf, dtype=x.dtype).triu(1)
    out = {}
    for i in range(c["n_layers"]):
        out[f"hidden.{i}"] = x
        at = lambda name: w[f"blocks.{i}.{name}"]
        norm = lambda k, t: F.layer_norm(t, (d,), at(f"norm{k}.weight"), at(f"norm{k}.bias"), eps)

        def attend(t):
            q, k, v = (u.reshape(-1, heads, d // heads).transpose(0, 1) for u in F.linear(t, at("self_attn.in_proj_weight"), at("self_attn.in_proj_bias")).chunk(3, 1))
            p = (q @ k.transpose(1, 2) / math.sqrt(d // heads) + mask).softmax(-1)
            return F.linear((p @ v).transpose(0, 1).reshape(-1, d), at("self_attn.out_proj.weight"), at("self_attn.out_proj.bias"))

        mlp = lambda t: F.linear(act(F.linear(t, at("linear1.weight"), at("linear1.bias"))), at("linear2.weight"), at("linear2.bias"))
        if c["norm_order"] == "pre":
            x = x + attend(norm(1, x))
            x = x + mlp(norm(2, x))
        else:
            x = norm(1, x + attend(x))
            x = norm(2, x + mlp(x))
    if c["norm_order"] == "pre":
        x = F.layer_norm(x, (d,), w["final_norm.weight"], w["final_norm.bias"], eps)
    out[f"hidden.{c['n_layers']}"] = x
    out["logits"] = F.linear(x, w["embed.weight" if c.get("tied") else "unembed.weight"], w["unembed.bias"])
    return out


def make_classic(name):
    c, folder, g = {**CLASSIC, **CLASSICS[name]}, fresh(name), generator(name)
    d, f, v = c["d_model"], c["d_ff"], c["vocab_size"]
    w = {"embed.weight": torch.zeros(v, d), "unembed.bias": torch.zeros(v)}
    if not c.get("tied"):
        w["unembed.weight"] = torch.zeros(v, d)
    if c["norm_order"] == "pre":
        w.update({"final_norm.weight": torch.ones(d), "final_norm.bias": torch.zeros(d)})
    for i in range(c["n_layers"]):
        shapes = {"self_attn.in_proj_weight": (3 * d, d), "self_attn.in_proj_bias": (3 * d,), "self_attn.out_proj.weight": (d, d), "self_attn.out_proj.bias": (d,),
                  "linear1.weight": (f, d), "linear1.bias": (f,), "linear2.weight": (d, f), "linear2.bias": (d,)}
        w.update({f"blocks.{i}.{k}": torch.zeros(s) for k, s in shapes.items()})
        for k in (1, 2):
            w.update({f"blocks.{i}.norm{k}.weight": torch.ones(d), f"blocks.{i}.norm{k}.bias": torch.zeros(d)})
    randomize(w, g)
    golden, far = {}, 0.0
    for i, ids in enumerate(prompts(g, v)):
        mine = classic(w, c, ids)
        far = max(far, distance(classic({k: t.double() for k, t in w.items()}, c, ids), mine))
        golden.update({f"{i}/ids": ids, **{f"{i}/{k}": t for k, t in mine.items()}})
    golden["distance"] = torch.tensor([far])
    save(folder / "golden.safetensors", golden)
    save(folder / "model.safetensors", w)
    (folder / "config.json").write_text(json.dumps(c, indent=1, sort_keys=True) + "\n")
    report(name, golden, far)


# 16-bit copies of the golden models -------------------------------------------------------------------------------------
class RoundedOperands:
    """Rounds both operands of every product with a weight to bf16, after a disturbance of `noise`."""

    def __init__(self, noise, g):
        self.noise, self.g = noise, g

    def round(self, x):
        return (x * (1 + self.noise * torch.randn(x.shape, generator=self.g, dtype=x.dtype))).to(torch.bfloat16).to(x.dtype)

    def __enter__(self):
        self.linear, self.addmm = F.linear, torch.addmm
        F.linear = lambda x, w, b=None: self.linear(x, w, b) if getattr(w, "is_router", False) else self.linear(self.round(x), w.to(torch.bfloat16).to(w.dtype), b)
        torch.addmm = lambda b, x, w: self.addmm(b, self.round(x), w.to(torch.bfloat16).to(w.dtype))

    def __exit__(self, *_):
        F.linear, torch.addmm = self.linear, self.addmm


def gpt_oss_experts(experts, x, indices, weights):
    """What GptOssExperts computes, by F.linear instead of @, so that the operands can be rounded."""
    out = torch.zeros_like(x)
    for e in range(experts.num_experts):
        row, choice = torch.where(indices == e)
        both = F.linear(x[row], experts.gate_up_proj[e].T, experts.gate_up_proj_bias[e])
        y = F.linear(experts._apply_gate(both), experts.down_proj[e].T, experts.down_proj_bias[e])
        out.index_add_(0, row, y * weights[row, choice, None])
    return out


def llama4_experts(experts, rows):
    """What Llama4TextExperts computes, likewise. rows: those of every expert, one expert after the other."""
    out = []
    for e, x in enumerate(rows.chunk(experts.num_experts)):
        gate, up = F.linear(x, experts.gate_up_proj[e].T).chunk(2, -1)
        out.append(F.linear(up * experts.act_fn(gate), experts.down_proj[e].T))
    return torch.cat(out)


def golden_model(name, dtype, wide):
    """The golden model with weights rounded to dtype, as a function from ids to logits and hidden states."""
    folder = MODELS / name / "model"
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] == "classic_decoder":
        w = {k: t.to(dtype).to(wide) for k, t in load_file(folder / "model.safetensors").items()}
        return lambda ids: classic(w, {"position_layout": "pairs", **config}, ids)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
    with torch.no_grad():
        for p in [*model.parameters(), *(b for n, b in model.named_buffers() if n in model.state_dict())]:
            p.copy_(p.to(dtype).float())
    model = model.to(wide)
    for label, p in model.named_parameters():
        p.is_router = label.endswith(("mlp.gate.weight", "router.weight"))  # routers multiply in full precision
    for part in model.modules():
        if type(part).__name__ == "GptOssExperts":
            part.forward = lambda *how, part=part: gpt_oss_experts(part, *how)
        if type(part).__name__ == "Llama4TextExperts":
            part.forward = lambda *how, part=part: llama4_experts(part, *how)
    return lambda ids: run(model, ids)


def make_rounded(names):
    for folder in sorted(p for p in MODELS.iterdir() if p.is_dir() and (not names or p.name in names)):
        tensors = {}
        written = json.loads((folder / "golden" / "prompts.json").read_text())
        written = written.get("prompts", written)
        ids_of = lambda k: torch.tensor((written[k]["input_ids"] if isinstance(written[k], dict) else written[k])[0])
        ids, short = ids_of("mid" if "mid" in written else "long"), ids_of("short")
        for dtype, label in ((torch.float16, "f16"), (torch.bfloat16, "bf16")):
            key = f"{folder.name}/{label}/"
            narrow, wide = golden_model(folder.name, dtype, torch.float32), golden_model(folder.name, dtype, torch.float64)
            with torch.no_grad():
                mine, exact = narrow(ids), wide(ids)
                runs = []
                for seed in range(8):
                    with RoundedOperands(3e-7, torch.Generator().manual_seed(seed)):
                        runs.append(wide(ids)["logits"] - exact["logits"])
                tensors.update({key + k: v for k, v in mine.items()})
                tensors.update({key + "ids": ids, key + "exact": exact["logits"], key + "short/ids": short, key + "short/logits": narrow(short)["logits"],
                                key + "distance": torch.tensor([distance(exact, mine)]),
                                key + "tile_rms": torch.tensor([max(float(r.square().mean().sqrt()) for r in runs)]),
                                key + "tile_max": torch.tensor([max(float(r.abs().max()) for r in runs)])})
            print(key, "distance from float64 %.1e, rounded operands: rms %.1e, largest %.1e" % tuple(float(tensors[key + k]) for k in ("distance", "tile_rms", "tile_max")))
        save(HERE.parent / "rounded" / f"{folder.name}.safetensors", tensors)


if __name__ == "__main__":
    wanted = sys.argv[1:] or [*VARIANTS, *CLASSICS, "rounded"]
    for name in wanted:
        make_rounded([pathlib.Path(name).name] if "/" in name else []) if name.startswith("rounded") else make_classic(name) if name in CLASSICS else make_variant(name)
