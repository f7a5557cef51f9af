"""Writes the config.json of well-known models from their published shapes, and parameters.json with the number of
parameters that transformers counts for each, on the meta device (no weight is made).

    python make.py            (transformers 5.23.0, torch 2.15.0; olmo-2-7b and what comes after it: transformers 5.24.0)
    python make.py NAME ...   (these alone)
"""
import json
import pathlib
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent


def gpt2(width, layers, heads, context=1024):
    return dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=width, n_layer=layers, n_head=heads,
                n_positions=context, n_ctx=context, vocab_size=50257, initializer_range=0.02,
                activation_function="gelu_new",
                layer_norm_epsilon=1e-5, embd_pdrop=0.1, attn_pdrop=0.1, resid_pdrop=0.1,
                bos_token_id=50256, eos_token_id=50256,
                summary_activation=None, summary_first_dropout=0.1, summary_proj_to_labels=True, summary_type="cls_index",
                summary_use_proj=True, task_specific_params={"text-generation": {"do_sample": True, "max_length": 50}})


def gemma(width, layers, heads, kv_heads, mlp):
    return dict(model_type="gemma", architectures=["GemmaForCausalLM"], hidden_size=width, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=256, intermediate_size=mlp,
                vocab_size=256000, max_position_embeddings=8192, rms_norm_eps=1e-6, rope_theta=10000.0,
                hidden_act="gelu_pytorch_tanh", attention_bias=False, tie_word_embeddings=True)


def gemma2(width, layers, heads, kv_heads, head_dim, mlp, scalar):
    return dict(model_type="gemma2", architectures=["Gemma2ForCausalLM"], hidden_size=width, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim, intermediate_size=mlp,
                query_pre_attn_scalar=scalar, vocab_size=256000, max_position_embeddings=8192, sliding_window=4096,
                attn_logit_softcapping=50.0, final_logit_softcapping=30.0, rms_norm_eps=1e-6, rope_theta=10000.0,
                hidden_activation="gelu_pytorch_tanh", attention_bias=False)


def llama_kin(kind, width, layers, heads, kv_heads, mlp, vocab, context, theta, tied, **more):
    name = dict(exaone4="Exaone4ForCausalLM", ernie4_5="Ernie4_5ForCausalLM", hunyuan_v1_dense="HunYuanDenseV1ForCausalLM", llama="LlamaForCausalLM", mistral="MistralForCausalLM", mixtral="MixtralForCausalLM", qwen2="Qwen2ForCausalLM",
                qwen3_moe="Qwen3MoeForCausalLM", olmo2="Olmo2ForCausalLM", olmo3="Olmo3ForCausalLM", smollm3="SmolLM3ForCausalLM",
                granite="GraniteForCausalLM", qwen2_moe="Qwen2MoeForCausalLM", granitemoehybrid="GraniteMoeHybridForCausalLM", phi3="Phi3ForCausalLM",
                glm="GlmForCausalLM", glm4="Glm4ForCausalLM")[kind]
    return dict(model_type=kind, architectures=[name], hidden_size=width, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=kv_heads, intermediate_size=mlp, vocab_size=vocab,
                max_position_embeddings=context, rope_theta=theta, tie_word_embeddings=tied, hidden_act="silu", **more)


PHI4_LONG = [1, 1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897, 1.956131817, 2.187582649, 2.446418898,
             2.735880826, 3.059592084, 3.421605075, 3.826451687, 4.279200023, 4.785517845, 5.351743533, 5.984965424, 6.693110555,
             7.485043894, 8.370679318, 9.36110492, 10.4687158, 11.70738129, 13.09260651, 14.64173252, 16.37415215, 18.31155283,
             20.47818807, 22.90118105, 25.61086418, 28.64115884, 32.03, 32.1, 32.13, 32.23, 32.6, 32.61, 32.64, 32.66, 32.7,
             32.71, 32.93, 32.97, 33.28, 33.49, 33.5, 44.16, 47.77]
def gpt_oss(layers, experts):
    return dict(model_type="gpt_oss", architectures=["GptOssForCausalLM"], hidden_size=2880, num_hidden_layers=layers, num_attention_heads=64, num_key_value_heads=8,
                head_dim=64, intermediate_size=2880, vocab_size=201088, max_position_embeddings=131072, rope_theta=150000, tie_word_embeddings=False, hidden_act="silu",
                rms_norm_eps=1e-5, attention_bias=True, num_local_experts=experts, num_experts_per_tok=4, experts_per_token=4, sliding_window=128, swiglu_limit=7.0,
                layer_types=["sliding_attention", "full_attention"] * (layers // 2), initial_context_length=4096, output_router_logits=False, router_aux_loss_coef=0.9,
                rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=4096))


def deepseek(kind, name, width, layers, heads, mlp, vocab, q_rank, dense, experts, shared, width_of_expert, per_token, groups, scale, mscale, **more):
    return dict(model_type=kind, architectures=[name], hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads, intermediate_size=mlp, vocab_size=vocab,
                max_position_embeddings=163840, q_lora_rank=q_rank, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, first_k_dense_replace=dense, n_routed_experts=experts,
                n_shared_experts=shared, moe_intermediate_size=width_of_expert, num_experts_per_tok=per_token, n_group=groups[0], topk_group=groups[1], routed_scaling_factor=scale, moe_layer_freq=1, seq_aux=True,
                rope_theta=10000, rope_scaling=dict(type="yarn", factor=40, beta_fast=32, beta_slow=1, mscale=mscale, mscale_all_dim=mscale, original_max_position_embeddings=4096), rms_norm_eps=1e-6,
                hidden_act="silu", attention_bias=False, attention_dropout=0.0, tie_word_embeddings=False, **more)


def llama4(experts, step, context, scaling, norms):
    return dict(model_type="llama4_text", architectures=["Llama4ForCausalLM"], hidden_size=5120, num_hidden_layers=48, num_attention_heads=40, num_key_value_heads=8, head_dim=128, intermediate_size=8192,
                intermediate_size_mlp=16384, vocab_size=202048, max_position_embeddings=context, rope_theta=500000.0, rope_scaling=scaling, rms_norm_eps=1e-5, hidden_act="silu", attention_bias=False,
                attention_dropout=0.0, attention_chunk_size=8192, attn_temperature_tuning=True, attn_scale=0.1, floor_scale=8192, no_rope_layers=[1, 1, 1, 0] * 12, use_qk_norm=norms, num_local_experts=experts,
                num_experts_per_tok=1, interleave_moe_layer_step=step, moe_layers=list(range(step - 1, 48, step)), output_router_logits=False, router_aux_loss_coef=0.001, router_jitter_noise=0.0,
                for_llm_compressor=False, tie_word_embeddings=False)


def lfm2(width, heads, mlp):
    return dict(model_type="lfm2", architectures=["Lfm2ForCausalLM"], hidden_size=width, num_hidden_layers=16, num_attention_heads=heads, num_heads=heads,
                num_key_value_heads=8, vocab_size=65536, max_position_embeddings=128000, norm_eps=1e-5, rope_theta=1000000.0, use_pos_enc=True,
                full_attn_idxs=[2, 5, 8, 10, 12, 14], conv_L_cache=3, conv_bias=False, conv_dim=width, conv_dim_out=width, conv_use_xavier_init=True,
                block_dim=width, block_ff_dim=mlp, block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.0, block_multiple_of=256,
                block_mlp_init_scale=1.0, block_out_init_scale=1.0, block_norm_eps=1e-5, block_use_swiglu=True, block_use_xavier_init=True)


def qwen3_5(width, layers, heads, mlp, value_heads):
    return dict(model_type="qwen3_5_text", architectures=["Qwen3_5ForCausalLM"], hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=4,
                head_dim=256, intermediate_size=mlp, vocab_size=248320, max_position_embeddings=262144, rms_norm_eps=1e-6, hidden_act="silu", attention_bias=False,
                attention_dropout=0.0, attn_output_gate=True, full_attention_interval=4, layer_types=(["linear_attention"] * 3 + ["full_attention"]) * (layers // 4),
                linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_value_head_dim=128, linear_num_key_heads=16, linear_num_value_heads=value_heads,
                mamba_ssm_dtype="float32", mlp_only_layers=[], mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False, tie_word_embeddings=False,
                rope_parameters=dict(rope_type="default", rope_theta=10000000, partial_rotary_factor=0.25, mrope_section=[11, 11, 10], mrope_interleaved=True))
def gemma4(width, layers, heads, kv_heads, mlp, every, shared=0, window=512, per_layer=256, **more):
    full, sliding = dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1000000.0), dict(rope_type="default", rope_theta=10000.0)
    types = ["full_attention" if i % every == every - 1 else "sliding_attention" for i in range(layers)]
    return dict(model_type="gemma4_text", architectures=["Gemma4ForCausalLM"], hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads, head_dim=256, global_head_dim=512, intermediate_size=mlp, vocab_size=262144, vocab_size_per_layer_input=262144,
                hidden_size_per_layer_input=per_layer, num_kv_shared_layers=shared, sliding_window=window, layer_types=types, max_position_embeddings=131072,
                rms_norm_eps=1e-6, final_logit_softcapping=30.0, hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, attention_bias=False,
                rope_parameters=dict(full_attention=full, sliding_attention=sliding), **more)


CONFIGS = {
    # Radford et al. 2019, table 2; Brown et al. 2020 (arXiv:2005.14165), table 2.1.
    "gpt2": gpt2(768, 12, 12), "gpt2-medium": gpt2(1024, 24, 16), "gpt2-large": gpt2(1280, 36, 20),
    "gpt2-xl": gpt2(1600, 48, 25), "gpt3": gpt2(12288, 96, 96, context=2048),
    # arXiv:2403.08295, table 1; arXiv:2408.00118, table 1.
    "gemma-2b": gemma(2048, 18, 8, 1, 16384), "gemma-7b": gemma(3072, 28, 16, 16, 24576),
    "gemma-2-2b": gemma2(2304, 26, 8, 4, 256, 9216, 256), "gemma-2-9b": gemma2(3584, 42, 16, 8, 256, 14336, 256),
    "gemma-2-27b": gemma2(4608, 46, 32, 16, 128, 36864, 144),
    # arXiv:2307.09288, 2407.21783, 2310.06825, 2407.10671.
    "llama-2-7b": llama_kin("llama", 4096, 32, 32, 32, 11008, 32000, 4096, 10000.0, False, rms_norm_eps=1e-5),
    "llama-3-8b": llama_kin("llama", 4096, 32, 32, 8, 14336, 128256, 8192, 500000.0, False, rms_norm_eps=1e-5),
    "llama-3.1-8b": llama_kin("llama", 4096, 32, 32, 8, 14336, 128256, 131072, 500000.0, False, rms_norm_eps=1e-5,
                             rope_scaling=dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                               original_max_position_embeddings=8192, rope_type="llama3")),
    "mistral-7b": llama_kin("mistral", 4096, 32, 32, 8, 14336, 32000, 32768, 10000.0, False, rms_norm_eps=1e-5,
                            sliding_window=4096),
    "qwen2-0.5b": llama_kin("qwen2", 896, 24, 14, 2, 4864, 151936, 131072, 1000000.0, True, rms_norm_eps=1e-6,
                            use_sliding_window=False, sliding_window=131072, max_window_layers=24),
    "qwen2-7b": llama_kin("qwen2", 3584, 28, 28, 4, 18944, 152064, 131072, 1000000.0, False, rms_norm_eps=1e-6,
                          use_sliding_window=False, sliding_window=131072, max_window_layers=28),
    # arXiv:2501.00656, 2512.13961, huggingface.co/blog/smollm3, IBM's cards of Granite 3.1 and 4.0, arXiv:2404.14219, 2503.01743.
    "olmo-2-7b": llama_kin("olmo2", 4096, 32, 32, 32, 11008, 100352, 4096, 500000, False, rms_norm_eps=1e-6, attention_bias=False),
    "olmo-3-7b": llama_kin("olmo3", 4096, 32, 32, 32, 11008, 100278, 65536, 500000, False, rms_norm_eps=1e-6, attention_bias=False,
                           sliding_window=4096, layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 8,
                           rope_scaling=dict(attention_factor=1.2079441541679836, beta_fast=32.0, beta_slow=1.0, factor=8.0,
                                             original_max_position_embeddings=8192, rope_type="yarn")),
    "smollm3-3b": llama_kin("smollm3", 2048, 36, 16, 4, 11008, 128256, 65536, 5000000.0, True, rms_norm_eps=1e-6,
                            attention_bias=False, mlp_bias=False, no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0] * 9,
                            use_sliding_window=False, sliding_window=None, max_window_layers=28),
    "granite-3.1-8b": llama_kin("granite", 4096, 40, 32, 8, 12800, 49155, 131072, 10000000.0, True, rms_norm_eps=1e-5,
                                attention_bias=False, mlp_bias=False, attention_multiplier=0.0078125,
                                embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=16.0),
    "granite-4.0-micro": llama_kin("granitemoehybrid", 2560, 40, 40, 8, 8192, 100352, 131072, 10000000, True, rms_norm_eps=1e-5,
                                   attention_bias=False, attention_multiplier=0.015625, embedding_multiplier=12,
                                   residual_multiplier=0.22, logits_scaling=10, shared_intermediate_size=8192,
                                   num_local_experts=0, num_experts_per_tok=0, position_embedding_type="rope",
                                   layer_types=["attention"] * 40, mamba_n_heads=128, mamba_expand=2, mamba_d_head=40),
    "phi-3-mini-4k": llama_kin("phi3", 3072, 32, 32, 32, 8192, 32064, 4096, 10000.0, False, rms_norm_eps=1e-5,
                               original_max_position_embeddings=4096, sliding_window=2047, rope_scaling=None),
    "phi-4-mini": llama_kin("phi3", 3072, 32, 24, 8, 8192, 200064, 131072, 10000.0, True, rms_norm_eps=1e-5,
                            original_max_position_embeddings=4096, sliding_window=262144, partial_rotary_factor=0.75,
                            rope_scaling=dict(type="longrope", short_factor=[1.0] * 48, long_factor=PHI4_LONG)),
    # Team GLM 2024, arXiv:2406.12793, and the configurations beside the weights.
    "glm-4-9b": llama_kin("glm", 4096, 40, 32, 2, 13696, 151552, 131072, 10000.0, False, rms_norm_eps=1.5625e-07, head_dim=128,
                          attention_bias=True, partial_rotary_factor=0.5),
    "glm-4-9b-0414": llama_kin("glm4", 4096, 40, 32, 2, 13696, 151552, 32768, 10000.0, False, rms_norm_eps=1e-5, head_dim=128,
                               attention_bias=True, partial_rotary_factor=0.5),
    "glm-4-32b-0414": llama_kin("glm4", 6144, 61, 48, 2, 23040, 151552, 32768, 10000.0, False, rms_norm_eps=1e-5, head_dim=128,
                                attention_bias=False, partial_rotary_factor=0.5),
    # Biderman et al. 2023, arXiv:2304.01373, table 1; Wang and Komatsuzaki 2021; Zhang et al. 2022, arXiv:2205.01068, table 1; Black et al. 2021.
    "pythia-160m": dict(model_type="gpt_neox", architectures=["GPTNeoXForCausalLM"], hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, vocab_size=50304,
                        max_position_embeddings=2048, rotary_pct=0.25, rotary_emb_base=10000, use_parallel_residual=True, hidden_act="gelu", layer_norm_eps=1e-5, tie_word_embeddings=False),
    "gpt-j-6b": dict(model_type="gptj", architectures=["GPTJForCausalLM"], n_embd=4096, n_layer=28, n_head=16, n_inner=None, n_positions=2048, rotary_dim=64, rotary=True, vocab_size=50400,
                     activation_function="gelu_new", layer_norm_epsilon=1e-5, scale_attn_weights=True, tie_word_embeddings=False, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0),
    "opt-1.3b": dict(model_type="opt", architectures=["OPTForCausalLM"], hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, ffn_dim=8192, word_embed_proj_dim=2048, vocab_size=50272,
                     max_position_embeddings=2048, do_layer_norm_before=True, activation_function="relu", dropout=0.1, attention_dropout=0.0, activation_dropout=0.0, layerdrop=0.0, init_std=0.02,
                     prefix="</s>"),
    "gpt-neo-125m": dict(model_type="gpt_neo", architectures=["GPTNeoForCausalLM"], hidden_size=768, num_layers=12, num_heads=12, intermediate_size=None, window_size=256, vocab_size=50257,
                         max_position_embeddings=2048, attention_types=[[["global", "local"], 6]], attention_layers=["global", "local"] * 6, activation_function="gelu_new", layer_norm_epsilon=1e-5,
                         resid_dropout=0, embed_dropout=0, attention_dropout=0),
    # Lozhkov et al. 2024, arXiv:2402.19173, table 6; Bellagamba et al. 2024, arXiv:2402.17834, table 2.
    "starcoder2-3b": dict(model_type="starcoder2", architectures=["Starcoder2ForCausalLM"], hidden_size=3072, num_hidden_layers=30, num_attention_heads=24, num_key_value_heads=2, intermediate_size=12288,
                          vocab_size=49152, max_position_embeddings=16384, rope_theta=999999.4420358813, sliding_window=4096, use_bias=True, hidden_act="gelu_pytorch_tanh", norm_epsilon=1e-5, norm_type="layer_norm",
                          mlp_type="default", activation_function="gelu_pytorch_tanh", attention_dropout=0.1, residual_dropout=0.1, embedding_dropout=0.1),
    "stablelm-2-1.6b": dict(model_type="stablelm", architectures=["StableLmForCausalLM"], hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, num_key_value_heads=32, intermediate_size=5632,
                            vocab_size=100352, max_position_embeddings=4096, rope_theta=10000, partial_rotary_factor=0.25, use_qkv_bias=True, hidden_act="silu", layer_norm_eps=1e-5, tie_word_embeddings=False),
    # BigScience 2022, arXiv:2211.05100, table 3; Almazrouei et al. 2023, arXiv:2311.16867; Cohere 2024; LG AI Research 2025; Baidu 2025; Tencent 2025: the configurations beside the weights.
    "bloom-560m": dict(model_type="bloom", architectures=["BloomForCausalLM"], n_embed=1024, n_layer=24, num_attention_heads=16, vocab_size=250880, layer_norm_epsilon=1e-5, n_inner=None, seq_length=2048,
                       apply_residual_connection_post_layernorm=False, attention_dropout=0.0, attention_softmax_in_fp32=True, hidden_dropout=0.0, masked_softmax_fusion=True, offset_alibi=100, pretraining_tp=1,
                       skip_bias_add=True, skip_bias_add_qkv=False, slow_but_exact=False),
    "falcon-7b": dict(model_type="falcon", architectures=["FalconForCausalLM"], hidden_size=4544, num_hidden_layers=32, num_attention_heads=71, num_kv_heads=71, vocab_size=65024, alibi=False, bias=False,
                      multi_query=True, new_decoder_architecture=False, parallel_attn=True, apply_residual_connection_post_layernorm=False, attention_dropout=0.0, hidden_dropout=0.0, layer_norm_epsilon=1e-5),
    "falcon-40b": dict(model_type="falcon", architectures=["FalconForCausalLM"], hidden_size=8192, num_hidden_layers=60, num_attention_heads=128, num_kv_heads=8, vocab_size=65024, alibi=False, bias=False,
                       multi_query=True, new_decoder_architecture=True, parallel_attn=True, apply_residual_connection_post_layernorm=False, attention_dropout=0.0, hidden_dropout=0.0, layer_norm_epsilon=1e-5),
    "command-r-plus": dict(model_type="cohere", architectures=["CohereForCausalLM"], hidden_size=12288, num_hidden_layers=64, num_attention_heads=96, num_key_value_heads=8, intermediate_size=33792, vocab_size=256000,
                           max_position_embeddings=8192, model_max_length=131072, rope_theta=75000000.0, layer_norm_eps=1e-5, logit_scale=0.8333333333333334, use_qk_norm=True, hidden_act="silu", attention_bias=False, attention_dropout=0.0),
    "command-r7b": dict(model_type="cohere2", architectures=["Cohere2ForCausalLM"], hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, head_dim=128, intermediate_size=14336,
                        vocab_size=256000, max_position_embeddings=8192, rope_theta=50000, rope_scaling=None, layer_norm_eps=1e-5, logit_scale=0.25, sliding_window=4096, sliding_window_pattern=4, hidden_act="silu",
                        attention_bias=False, attention_dropout=0.0, cache_implementation="hybrid", layer_switch=4, order_of_interleaved_layers="local_attn_first", position_embedding_type="rope_gptj", rotary_pct=1.0,
                        use_embedding_sharing=True, use_gated_activation=True, use_parallel_block=True, use_parallel_embedding=False, use_qk_norm=False),
    "exaone-4.0-1.2b": llama_kin("exaone4", 2048, 30, 32, 8, 4096, 102400, 65536, 1000000.0, True, rms_norm_eps=1e-5, head_dim=64, sliding_window=None, sliding_window_pattern=None, layer_types=["full_attention"] * 30,
                                 rope_scaling=dict(rope_type="llama3", factor=16.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192)),
    "ernie-4.5-0.3b": llama_kin("ernie4_5", 1024, 18, 16, 2, 3072, 103424, 131072, 500000.0, True, rms_norm_eps=1e-5, head_dim=128, use_bias=False),
    "hunyuan-0.5b": llama_kin("hunyuan_v1_dense", 1024, 24, 16, 8, 3584, 120818, 262144, 10000.0, True, rms_norm_eps=1e-5, head_dim=128, attention_head_dim=128, use_qk_norm=True, use_cla=False, attention_bias=False,
                              mlp_bias=False, cla_share_factor=2, norm_type="rms", use_rotary_pos_emb=True, rope_scaling=dict(type="dynamic", alpha=1000.0, factor=1.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)),
    # arXiv:2401.04088, table 1; arXiv:2505.09388, table 2.
    "mixtral-8x7b": llama_kin("mixtral", 4096, 32, 32, 8, 14336, 32000, 32768, 1000000.0, False, rms_norm_eps=1e-5,
                              sliding_window=None, num_local_experts=8, num_experts_per_tok=2, output_router_logits=False,
                              router_aux_loss_coef=0.02),
    "qwen3-30b-a3b": llama_kin("qwen3_moe", 2048, 48, 32, 4, 6144, 151936, 40960, 1000000.0, False, rms_norm_eps=1e-6, head_dim=128,
                               num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True,
                               decoder_sparse_step=1, mlp_only_layers=[], use_sliding_window=False, sliding_window=None,
                               max_window_layers=48, output_router_logits=False, router_aux_loss_coef=0.001),
    # Meta 2025: the text part of the configurations beside the weights.
    "llama-4-scout": llama4(16, 1, 10485760, dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0, original_max_position_embeddings=8192), True),
    "llama-4-maverick": llama4(128, 2, 1048576, None, False),
    # arXiv:2405.04434, 2412.19437, 2508.06471; Qwen Team 2024 and 2025, Liquid AI 2025: the configurations beside the weights.
    "deepseek-v2-lite": deepseek("deepseek_v2", "DeepseekV2ForCausalLM", 2048, 27, 16, 10944, 102400, None, dense=1, experts=64, shared=2, width_of_expert=1408, per_token=6, groups=(1, 1), scale=1.0, mscale=0.707,
                                 norm_topk_prob=False, scoring_func="softmax", topk_method="greedy", aux_loss_alpha=0.001),
    "deepseek-v3": deepseek("deepseek_v3", "DeepseekV3ForCausalLM", 7168, 61, 128, 18432, 129280, 1536, dense=3, experts=256, shared=1, width_of_expert=2048, per_token=8, groups=(8, 4), scale=2.5, mscale=1.0,
                            norm_topk_prob=True, scoring_func="sigmoid", topk_method="noaux_tc", num_nextn_predict_layers=1, ep_size=1),
    "glm-4.5-air": dict(model_type="glm4_moe", architectures=["Glm4MoeForCausalLM"], hidden_size=4096, num_hidden_layers=46, num_attention_heads=96, num_key_value_heads=8, head_dim=128, intermediate_size=10944,
                        vocab_size=151552, max_position_embeddings=131072, rope_theta=1000000, rope_scaling=None, partial_rotary_factor=0.5, rms_norm_eps=1e-5, attention_bias=True, use_qk_norm=False, n_group=1,
                        topk_group=1, n_routed_experts=128, n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=8, num_nextn_predict_layers=1, moe_intermediate_size=1408, routed_scaling_factor=1.0,
                        first_k_dense_replace=1, tie_word_embeddings=False, hidden_act="silu"),
    "qwen1.5-moe-a2.7b": llama_kin("qwen2_moe", 2048, 24, 16, 16, 5632, 151936, 8192, 1000000.0, False, rms_norm_eps=1e-6, num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408,
                                   shared_expert_intermediate_size=5632, norm_topk_prob=False, decoder_sparse_step=1, use_sliding_window=False, sliding_window=32768, max_window_layers=21, output_router_logits=False,
                                   router_aux_loss_coef=0.001),
    "qwen3-next-80b-a3b": dict(model_type="qwen3_next", architectures=["Qwen3NextForCausalLM"], hidden_size=2048, num_hidden_layers=48, num_attention_heads=16, num_key_value_heads=2, head_dim=256, intermediate_size=5120,
                               vocab_size=151936, max_position_embeddings=262144, rope_theta=10000000, rope_scaling=None, partial_rotary_factor=0.25, rms_norm_eps=1e-6, attention_bias=False, full_attention_interval=4,
                               linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_value_head_dim=128, linear_num_key_heads=16, linear_num_value_heads=32, decoder_sparse_step=1, mlp_only_layers=[],
                               moe_intermediate_size=512, shared_expert_intermediate_size=512, num_experts=512, num_experts_per_tok=10, norm_topk_prob=True, output_router_logits=False, router_aux_loss_coef=0.001,
                               tie_word_embeddings=False, hidden_act="silu"),
    "lfm2-8b-a1b": dict(model_type="lfm2_moe", architectures=["Lfm2MoeForCausalLM"], hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, num_key_value_heads=8, intermediate_size=7168, vocab_size=65536,
                        max_position_embeddings=128000, norm_eps=1e-5, rope_theta=1000000.0, conv_L_cache=3, conv_bias=False, num_dense_layers=2, num_experts=32, num_experts_per_tok=4, moe_intermediate_size=1792,
                        norm_topk_prob=True, routed_scaling_factor=1.0, use_expert_bias=True, layer_types=["full_attention" if i in (2, 6, 10, 14, 18, 21) else "conv" for i in range(24)]),
    # Microsoft 2024, the configuration beside the weights, but for LongRoPE's divisors, which change no shape.
    "phi-3.5-moe": dict(model_type="phimoe", architectures=["PhiMoEForCausalLM"], hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, intermediate_size=6400, vocab_size=32064,
                        max_position_embeddings=131072, original_max_position_embeddings=4096, rope_theta=10000.0, rms_norm_eps=1e-5, attention_bias=True, lm_head_bias=True, attention_dropout=0.0, hidden_act="silu",
                        rope_scaling=dict(type="longrope", short_factor=[1.0] * 64, long_factor=[2.0] * 64, short_mscale=1.243163121016122, long_mscale=1.243163121016122, original_max_position_embeddings=4096),
                        sliding_window=131072, num_local_experts=16, num_experts_per_tok=2, input_jitter_noise=0.01, router_jitter_noise=0.01, output_router_logits=False, router_aux_loss_coef=0.0, tie_word_embeddings=False),
    # Google's files of Gemma 4, the text part.
    "gemma-4-e2b": gemma4(1536, 35, 8, 1, 6144, 5, shared=20, use_double_wide_mlp=True),
    "gemma-4-e4b": gemma4(2560, 42, 8, 2, 10240, 6, shared=18, use_double_wide_mlp=False),
    "gemma-4-26b-a4b": gemma4(2816, 30, 16, 8, 2112, 6, window=1024, per_layer=0, attention_k_eq_v=True, num_global_key_value_heads=2, enable_moe_block=True,
                              num_experts=128, top_k_experts=8, moe_intermediate_size=704),
    # OpenAI 2025, arXiv:2508.10925, table 1; Liquid AI 2025, arXiv:2511.23404.
    "gpt-oss-20b": gpt_oss(24, 32), "gpt-oss-120b": gpt_oss(36, 128),
    "lfm2-350m": lfm2(1024, 16, 6656), "lfm2-1.2b": lfm2(2048, 32, 12288),
    # Qwen Team 2026, the configurations beside the weights (of the text alone).
    "qwen3.5-9b": qwen3_5(4096, 32, 16, 12288, 32), "qwen3.5-27b": qwen3_5(5120, 64, 24, 17408, 48),
}
if sys.argv[1:]:
    CONFIGS = {name: CONFIGS[name] for name in sys.argv[1:]}

expected = json.loads((HERE / "parameters.json").read_text()) if sys.argv[1:] else {}
for name, config in CONFIGS.items():
    path = HERE / f"{name}.json"
    path.write_text(json.dumps(config, indent=1) + "\n")
    kind = config["model_type"]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(kind, **{k: v for k, v in config.items() if k not in ("model_type", "architectures")}))
    expected[name] = model.num_parameters()
    print(name, expected[name])
(HERE / "parameters.json").write_text(json.dumps(expected, indent=1) + "\n")
