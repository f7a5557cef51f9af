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
gpt_neox  attention and MLP read one stream and are added together; 4 of a head's 8 components turn; W_Q, W_K and W_V in one matrix
gptj    the same with one norm for both; 4 of a head's 8 components turn, neighbors together; a bias of the output
opt     a table of positions whose first two rows nothing reads; ReLU; the embedding is the output, too
gpt_neo scores without a scale; a window of 8 in the second of two layers
starcoder2  LayerNorm, grouped queries and a window of 8 on every layer; the embedding is the output, too
stablelm    LayerNorm, biases on q, k and v, 4 of a head's 8 components turn
phi     one norm for attention and MLP, which are added together; 4 of a head's 8 components turn; biases everywhere
bloom   ALiBi on three heads, a number that is no power of two; a norm behind the embedding; W_Q, W_K and W_V in one matrix
cohere  one norm without a bias for attention and MLP, which are added together; neighboring components turn together; logits a quarter
command_r_plus  the same with norms of queries and keys, whose weights each head has for itself; two key and value heads
falcon  one norm for attention and MLP, which are added together; one key and value head, all in one matrix
falcon_40b  a norm for attention and one for the MLP; two key and value heads, each stored after the queries that read it
exaone4 norms behind each sub-layer alone and on each query and key; a window of 8 in the first layer, which alone turns
ernie4_5    neighboring components turn together; two heads of 6 components in a stream of 16
hunyuan     norms of queries and keys after they turned; the base of the angles stretched by an alpha of 4
olmoe   two of five experts, whose weights are probabilities as they are; one norm over all queries, one over all keys
deepseek_v3  keys and values of a latent vector of 8; 4 of a head's 8 components turn, neighbors together, stretched by YaRN; a layer without
        experts, and one with two of six from two of three groups, corrected scores and a shared expert
glm4_moe    4 of a head's 8 components turn; norms of queries and keys, and their biases; a layer without experts, and one with two of five
        and a shared expert, by corrected scores
glm4    4 of a head's 8 components turn, neighbors together; norms behind each sub-layer, too; an output of its own
qwen3_moe   two of five experts, whose weights add up to one again, as in published models
mixtral     two of four experts; a window of 9 on every layer, which ends within the prompts
phimoe      two of five experts, one after the other, each weighed beside those within half of its score; LayerNorm and biases; a window of
            12; RoPE divided by LongRoPE's short factors, cosines and sines times 1.2. Trained as it runs: without sampling of experts
gemma4  layers of two kinds: heads of 4 components and a window of 8, or heads of 8, of which 4 turn; the last three layers read
        the keys and values of layers 1 and 2 and have MLPs of twice the width; a per-layer embedding of 4; a cap of 5
gemma4_moe  two of five experts beside the MLP of each layer; in the last, global one values are keys, and one head has both
gpt_oss     a window of 8 in layers 0 and 2; two of four experts, whose gates and ups reach their limits of 7; sinks of about
            the size of scores; YaRN from a context of 32 by a factor of 4
llama4  three layers with RoPE, norms of queries and keys, and chunks of 4 positions, a fourth without positions whose queries grow by a step at
        every third; layers 1 and 3 have two of four experts, whose weights multiply what they read, and a shared one
lfm2    convolutions over three positions in layers 0 and 2, attention in layer 1, whose pattern is attn.1
mamba2  no attention: two layers with a state of 6 numbers for each of a head's 8, two groups of two heads; convolutions over four
        positions
nemotron_h  the same in layer 0, an MLP with squared ReLU in layer 1, and attention without positions in layer 2
falcon_h1   the same beside attention with two key and value heads of 6 components; a factor of each product
The files of mixtral and qwen3_moe hold a tensor for each expert, as published ones do, and so do train.safetensors and
train.json; transformers holds them stacked. Between an expert that is chosen and one that is not lies more than 3e-3 in every
prompt. Those with norms of queries and keys have weights far from one in them, which golden_lib would leave near it.
"""
import os, pathlib, sys

HERE = pathlib.Path(__file__).parent


def specs(tokenizers):
    from transformers import (BloomConfig, CohereConfig, Ernie4_5Config, Exaone4Config, FalconConfig, FalconH1Config, NemotronHConfig, HunYuanDenseV1Config, Llama4TextConfig, Gemma3TextConfig, Gemma4TextConfig, Glm4Config, GPTJConfig, GPTNeoConfig, GPTNeoXConfig, GptOssConfig, GraniteConfig, GraniteMoeHybridConfig, Lfm2Config, MixtralConfig, Olmo2Config, Olmo3Config, OlmoeConfig, OPTConfig, Phi3Config, PhiConfig, PhimoeConfig, Qwen3Config, Mamba2Config, DeepseekV3Config, Glm4MoeConfig,
                              Qwen3MoeConfig, SmolLM3Config, StableLmConfig, Starcoder2Config)
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
                         emb_std=0.5, zero_centered_norm=True, post_norm=1.0, seed=20248, tokenizer_dir=str(tokenizers / "spm512"))
    yield "gemma4", dict(config=Gemma4TextConfig(**{**small, "vocab_size": 96, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 6}, head_dim=4, global_head_dim=8, hidden_size_per_layer_input=4, vocab_size_per_layer_input=96,
                                                 num_kv_shared_layers=3, use_double_wide_mlp=True, sliding_window=8, final_logit_softcapping=5.0, layer_types=(["sliding_attention"] * 2 + ["full_attention"]) * 2,
                                                 rope_parameters=dict(full_attention=dict(rope_type="proportional", rope_theta=100.0, partial_rotary_factor=0.5),
                                                                      sliding_attention=dict(rope_type="default", rope_theta=10.0))),
                         emb_std=0.5, post_norm=-0.3, seed=20402, longest=32)
    yield "gemma4_moe", dict(config=Gemma4TextConfig(**{**small, "vocab_size": 96, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 3}, head_dim=4, global_head_dim=8, attention_k_eq_v=True,
                                                     num_global_key_value_heads=1, hidden_size_per_layer_input=0, vocab_size_per_layer_input=96, sliding_window=8, layer_types=["sliding_attention"] * 2 + ["full_attention"],
                                                     enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=8,
                                                     rope_parameters=dict(full_attention=dict(rope_type="proportional", rope_theta=100.0, partial_rotary_factor=0.5),
                                                                          sliding_attention=dict(rope_type="default", rope_theta=10.0))),
                             emb_std=0.5, post_norm=1.0, seed=20290, longest=32)
    yield "qwen3_moe", dict(config=Qwen3MoeConfig(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                                                  max_position_embeddings=128, rope_parameters=dict(rope_type="default", rope_theta=100.0), num_experts=5, num_experts_per_tok=2,
                                                  moe_intermediate_size=32, norm_topk_prob=True, pad_token_id=0, bos_token_id=2, eos_token_id=1),
                            emb_std=1.0, seed=20249)
    yield "gpt_oss", dict(config=GptOssConfig(vocab_size=256, hidden_size=32, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                                              max_position_embeddings=128, num_local_experts=4, num_experts_per_tok=2, sliding_window=8, pad_token_id=0, bos_token_id=2, eos_token_id=1,
                                              rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=4.0, beta_slow=1.0, truncate=True, original_max_position_embeddings=32)),
                          emb_std=1.0, seed=20263)
    yield "mixtral", dict(config=MixtralConfig(vocab_size=512, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, bos_token_id=2, eos_token_id=1,
                                               max_position_embeddings=128, rope_parameters=dict(rope_type="default", rope_theta=100.0), num_local_experts=4, num_experts_per_tok=2,
                                               sliding_window=9),
                          emb_std=0.7, seed=20250, tokenizer_dir=str(tokenizers / "spm512"))

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
    yield "glm4", dict(config=Glm4Config(**{**small, "vocab_size": 48, "hidden_size": 12, "intermediate_size": 14}, head_dim=8, rope_parameters={**rope, "partial_rotary_factor": 0.5}),
                       emb_std=0.7, seed=20257, longest=32)
    tiny = dict(vocab_size=48, hidden_size=16, max_position_embeddings=128, pad_token_id=0, bos_token_id=2, eos_token_id=1)
    yield "gpt_neox", dict(config=GPTNeoXConfig(**tiny, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, rotary_pct=0.5, rotary_emb_base=100.0), emb_std=0.7, seed=20258, longest=32)
    yield "gptj", dict(config=GPTJConfig(**tiny, n_inner=24, num_hidden_layers=2, num_attention_heads=2, rotary_dim=4), emb_std=0.7, seed=20259, longest=32)
    yield "opt", dict(config=OPTConfig(**tiny, ffn_dim=24, num_hidden_layers=2, num_attention_heads=2, word_embed_proj_dim=16, dropout=0.0), emb_std=0.5, seed=20260, longest=32)
    yield "gpt_neo", dict(config=GPTNeoConfig(**tiny, intermediate_size=24, num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]], window_size=8), emb_std=0.5, seed=20261, longest=32)
    grouped = dict(**tiny, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    yield "starcoder2", dict(config=Starcoder2Config(**{**grouped, "hidden_size": 32}, sliding_window=8, rope_parameters=rope), emb_std=0.5, seed=20262, longest=32)
    yield "stablelm", dict(config=StableLmConfig(**{**grouped, "hidden_size": 32}, use_qkv_bias=True, rope_parameters={**rope, "partial_rotary_factor": 0.5}), emb_std=0.7, seed=20264, longest=32)
    yield "phi", dict(config=PhiConfig(**tiny, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, rope_parameters={**rope, "partial_rotary_factor": 0.5}), emb_std=0.7, seed=20265, longest=32)
    yield "bloom", dict(config=BloomConfig(**{k: v for k, v in tiny.items() if k != "max_position_embeddings"} | {"hidden_size": 12}, seq_length=128, n_layer=2, n_head=3, tie_word_embeddings=True), emb_std=0.5, seed=20270, longest=32)
    pair = {**grouped, "num_attention_heads": 2, "num_key_value_heads": 1}
    yield "cohere", dict(config=CohereConfig(**pair, rope_parameters=rope, logit_scale=0.25, tie_word_embeddings=True), emb_std=1.0, seed=20271, longest=32)
    yield "falcon", dict(config=FalconConfig(**tiny, ffn_hidden_size=24, num_hidden_layers=2, num_attention_heads=2, rope_parameters=rope), emb_std=0.7, seed=20272, longest=32)
    yield "command_r_plus", dict(config=CohereConfig(**grouped, use_qk_norm=True, rope_parameters=rope, logit_scale=0.25, tie_word_embeddings=True), emb_std=1.0, seed=20291, longest=32)
    yield "falcon_40b", dict(config=FalconConfig(**{**tiny, "max_position_embeddings": 2048}, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2, new_decoder_architecture=True, rope_parameters=rope), emb_std=0.7, seed=20292, longest=32)
    yield "exaone4", dict(config=Exaone4Config(**pair, rope_parameters=rope, sliding_window=8, sliding_window_pattern=2), emb_std=1.0, post_norm=-0.3, seed=20273, longest=32)
    yield "ernie4_5", dict(config=Ernie4_5Config(**pair, head_dim=6, rope_parameters=rope, tie_word_embeddings=True), emb_std=0.5, seed=20274, longest=32)
    yield "hunyuan", dict(config=HunYuanDenseV1Config(**pair, head_dim=6, rope_parameters=dict(rope_type="dynamic", rope_theta=100.0, alpha=4.0, factor=1.0)), emb_std=0.7, seed=20275, longest=32)
    yield "olmoe", dict(config=OlmoeConfig(**{**grouped, "intermediate_size": 16}, rope_parameters=rope, num_experts=5, num_experts_per_tok=2), emb_std=1.0, seed=20266, longest=32)
    yield "phimoe", dict(config=PhimoeConfig(**{**grouped, "intermediate_size": 8}, num_local_experts=5, num_experts_per_tok=2, router_jitter_noise=0.25, attention_bias=True, lm_head_bias=True, sliding_window=12,
                                             rope_parameters=dict(rope_type="longrope", rope_theta=100.0, short_factor=[1.0, 1.75], long_factor=[1.5, 7.0], short_mscale=1.2, long_mscale=1.2, original_max_position_embeddings=64)),
                         emb_std=1.0, seed=20370, longest=32)
    yield "mamba2", dict(config=Mamba2Config(vocab_size=48, hidden_size=16, num_hidden_layers=2, num_heads=4, head_dim=8, state_size=6, n_groups=2, conv_kernel=4, chunk_size=8, pad_token_id=0, bos_token_id=2, eos_token_id=1),
                         emb_std=0.5, seed=20290, longest=32)
    yield "falcon_h1", dict(config=FalconH1Config(**grouped, head_dim=6, rope_parameters=rope, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=6, mamba_d_conv=4, mamba_chunk_size=8,
                                                  mamba_rms_norm=True, mamba_norm_before_gate=False, embedding_multiplier=1.7, lm_head_multiplier=0.6, key_multiplier=0.7, attention_in_multiplier=1.0,
                                                  attention_out_multiplier=0.8, ssm_in_multiplier=1.2, ssm_out_multiplier=0.55, ssm_multipliers=[0.7, 0.9, 1.4, 0.8, 1.1], mlp_multipliers=[1.5, 0.65]),
                            emb_std=0.5, seed=20291, longest=32)
    yield "nemotron_h", dict(config=NemotronHConfig(**tiny, intermediate_size=24, layers_block_type=["linear_attention", "mlp", "full_attention"], num_attention_heads=4, num_key_value_heads=2, head_dim=6, ssm_state_size=6,
                                                    mamba_num_heads=4, mamba_head_dim=8, n_groups=2, conv_kernel=4, chunk_size=8, time_step_min=0.1), emb_std=0.5, seed=20292, longest=32)
    latent = dict(**tiny, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, first_k_dense_replace=1, moe_intermediate_size=8, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6)
    yield "deepseek_v3", dict(config=DeepseekV3Config(**latent, num_key_value_heads=2, q_lora_rank=12, n_routed_experts=6, n_group=3, topk_group=2, num_experts_per_tok=2, n_shared_experts=1, routed_scaling_factor=1.5, num_mtp_layers=0,
                                                      rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=32, beta_fast=4.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)),
                              emb_std=1.0, seed=20274, longest=32)
    yield "glm4_moe", dict(config=Glm4MoeConfig(**grouped, head_dim=8, first_k_dense_replace=1, moe_intermediate_size=8, n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=1, routed_scaling_factor=1.5, use_qk_norm=True,
                                                attention_bias=True, num_mtp_layers=0, rope_parameters={**rope, "partial_rotary_factor": 0.5}), emb_std=1.0, seed=20280, longest=32)
    yield "llama4", dict(config=Llama4TextConfig(**{**grouped, "intermediate_size": 8, "num_hidden_layers": 4}, intermediate_size_mlp=12, head_dim=6, num_local_experts=4, num_experts_per_tok=2, interleave_moe_layer_step=2,
                                                 attention_chunk_size=4, floor_scale=3, attn_scale=0.5, rope_parameters=rope),
                         emb_std=1.0, seed=20302, longest=32)
    yield "lfm2", dict(config=Lfm2Config(**{**small, "hidden_size": 32, "num_hidden_layers": 3}, layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, conv_bias=False,
                                         block_multiple_of=8, norm_eps=1e-4, rope_parameters=rope), emb_std=0.5, seed=20255)


def with_head_norms(randomize):
    """`randomize`, and weights of the norms of queries and keys with a deviation of 0.5."""
    import torch

    def randomize_all(model, seed, *args):
        randomize(model, seed, *args)
        g = torch.Generator().manual_seed(seed + 1000)
        with torch.no_grad():
            for name, p in sorted(model.named_parameters()):
                if name.endswith("sinks"):
                    p.copy_(torch.randn(p.shape, generator=g) + 1)
                if name.endswith("gate_up_proj") and model.config.model_type == "gpt_oss":
                    p.mul_(4)
                if name.endswith("post_per_layer_input_norm.weight"):
                    p.mul_(0.6)
                if name.endswith(("router.scale", "per_expert_scale")):
                    p.copy_(1 + 0.3 * torch.randn(p.shape, generator=g))
                if name.endswith("router.proj.weight"):  # what it reads is short
                    p.mul_(4)
                if name.endswith(("q_norm.weight", "k_norm.weight", "q_layernorm.weight", "k_layernorm.weight", "query_layernorm.weight", "key_layernorm.weight")):
                    p.copy_(0.5 * torch.randn(p.shape, generator=g) + (0.0 if model.config.model_type == "gemma3_text" else 1.0))
                    if getattr(model.config, "num_kv_shared_layers", 0):  # scores without a scale in many layers
                        p.mul_(0.6)
                if any(getattr(model.config, size, 0) for size in ("state_size", "mamba_d_state", "ssm_state_size")):  # wide decays, steps of time and factors
                    n = torch.randn(p.shape, generator=g)
                    for end, values in (("A_log", n), ("dt_bias", n - 1), ("mixer.D", 1 + 0.5 * n), ("mamba.D", 1 + 0.5 * n), ("mixer.norm.weight", 1 + 0.5 * n), ("mamba.norm.weight", 1 + 0.5 * n), ("conv1d.weight", 0.6 * n), ("embeddings.weight", 0.7 * n)):
                        if name.endswith(end):
                            p.copy_(values)
            for name, b in sorted(model.named_buffers()):
                if name.endswith("e_score_correction_bias"):
                    b.copy_(0.2 * torch.randn(b.shape, generator=g))
                if name.endswith("layer_scalar"):
                    b.copy_(0.75 + 0.5 * torch.rand(b.shape, generator=g) if model.config.num_kv_shared_layers else 0.5 + torch.rand(b.shape, generator=g))
    return randomize_all


def with_plain_experts():
    """Experts one after the other, which runs in float64, too; the default is a grouped product."""
    from transformers import AutoModelForCausalLM
    plain = AutoModelForCausalLM.from_pretrained
    AutoModelForCausalLM.from_pretrained = lambda *args, **how: plain(*args, experts_implementation="eager", **how)


def each_expert(name, tensor, mixtral):
    """The names and values that a file of one tensor for each expert has instead of a stacked one."""
    stem, _, matrix = name.rpartition(".")
    if mixtral:
        name, stem = name.replace(".mlp.", ".block_sparse_moe.").replace(".router.", ".gate."), stem.replace(".mlp.", ".block_sparse_moe.")
    if not stem.endswith("experts") or matrix not in ("gate_up_proj", "down_proj"):
        return {name: tensor}
    out, (gate, up, down) = {}, ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    for e, m in enumerate(tensor):
        parts = dict(zip((gate, up), m.chunk(2))) if matrix == "gate_up_proj" else {down: m}
        out.update({f"{stem}.{e}.{part}.weight": w for part, w in parts.items()})
    return out


def unstack(folder, mixtral):
    """Names the experts' gradients and weights as the model's file does."""
    import json, torch
    from safetensors.torch import load_file, save_file
    trained, stacked = {}, load_file(folder / "train.safetensors")
    for name, tensor in stacked.items():
        trained.update(each_expert(name, tensor, mixtral))
    save_file({k: v.contiguous() for k, v in trained.items()}, folder / "train.safetensors")
    told = json.loads((folder / "train.json").read_text())
    noise = "noise_from_1e-7_relative_disturbance"
    told[noise] = {part: of for name, of in told[noise].items() for part in each_expert(name, stacked["grad/" + name], mixtral)}
    (folder / "train.json").write_text(json.dumps(told, indent=1) + "\n")


def with_other_norms(final_norm):
    """`final_norm`, which knows other families' names for it, too."""
    def norm_of(model):
        if model.config.model_type == "llama4_text":
            return model.model.norm
        base = getattr(model.base_model, "decoder", model.base_model)
        own = (getattr(base, name, None) for name in ("embedding_norm", "final_layer_norm", "final_layernorm", "norm_f"))
        return next((norm for norm in own if norm is not None), None) or final_norm(model)
    return norm_of


def with_hidden_states_as_others():
    """Mamba 2's begin behind the first layer and end with two of the last."""
    from transformers.models.mamba2 import modeling_mamba2 as modeling
    forward = modeling.Mamba2Model.forward

    def as_others(self, input_ids=None, **how):
        out = forward(self, input_ids, **how)
        if out.hidden_states:
            out.hidden_states = (self.embeddings(input_ids), *out.hidden_states[:-2], out.hidden_states[-1])
        return out
    modeling.Mamba2Model.forward = as_others
    modeling.Mamba2CausalLMOutput.attentions = ()


def with_positions_of_padded_rows():
    """Llama 4's factor of queries goes by position_ids, as its RoPE and its chunks do: transformers 5.24 counts padding there."""
    import torch
    from transformers.models.llama4 import modeling_llama4 as modeling
    run, attend, given = modeling.Llama4TextModel.forward, modeling.Llama4TextAttention.forward, {}

    def run_at(self, *args, position_ids=None, **how):
        given["positions"] = position_ids
        return run(self, *args, position_ids=position_ids, **how)

    def attend_at(self, hidden_states, *args, cache=None, **how):
        n, past, positions = hidden_states.shape[1], cache.get_seq_length(self.layer_idx) if cache is not None else 0, given["positions"]
        counted = torch.arange(n)[None] + past
        if self.use_rope or positions is None or bool((positions == counted).all()):
            return attend(self, hidden_states, *args, cache=cache, **how)
        true, used = (torch.log1p(torch.floor((x.float() + 1.0) / self.floor_scale)) * self.attn_scale + 1.0 for x in (positions, counted))
        corrected = self.q_proj.register_forward_hook(lambda m, i, q: q * (true / used)[..., None].to(q.dtype))
        try:
            return attend(self, hidden_states, *args, cache=cache, **how)
        finally:
            corrected.remove()
    modeling.Llama4TextModel.forward, modeling.Llama4TextAttention.forward = run_at, attend_at


def name_layers_with_attention(folder, types):
    """transformers counts attention patterns and not layers."""
    from safetensors.torch import load_file, save_file
    layers = [i for i, kind in enumerate(types) if kind == "full_attention"]
    def renamed(name):
        stem, _, i = name.rpartition("/attn.")
        return f"{stem}/attn.{layers[int(i)]}" if stem else name
    path = folder / "forward.safetensors"
    save_file({renamed(name): x for name, x in load_file(path).items()}, path)


def name_as_files(folder, of_transformers, of_files):
    """Files of GPT-NeoX call the head embed_out, transformers' parameters lm_head; those of Nemotron-H begin with backbone."""
    import json
    from safetensors.torch import load_file, save_file
    path = folder / "train.safetensors"
    save_file({name.replace(of_transformers, of_files): x for name, x in load_file(path).items()}, path)
    path = folder / "train.json"
    path.write_text(path.read_text().replace(of_transformers, of_files))


def assert_clear_choices(folder):
    """No expert is chosen by rounding."""
    import json, torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float64).eval()
    c, least = model.config, 1.0
    if c.model_type in ("deepseek_v3", "glm4_moe"):
        return assert_steady_choices(folder, model)
    if c.model_type == "phimoe":
        return assert_clear_masks(folder, model)
    chosen = c.top_k_experts if c.model_type == "gemma4_text" else c.num_experts_per_tok
    for prompt in json.loads((folder / "golden/prompts.json").read_text()).values():
        logits = model(torch.tensor(prompt["input_ids"]), attention_mask=torch.tensor(prompt["attention_mask"]), output_router_logits=True).router_logits
        kept = torch.tensor(prompt["attention_mask"]).reshape(-1) == 1
        for layer in logits:
            best = layer.detach().reshape(-1, layer.shape[-1])[kept].sort(-1, descending=True).values
            if c.model_type == "gemma4_text":  # probabilities
                best = best.log()
            least = min(least, float((best[:, chosen - 1] - best[:, chosen]).min()))
    print(folder.name, "least distance of a chosen expert to the next %.1e" % least)
    assert least > 3e-3


def assert_steady_choices(folder, model):
    """Routers that choose by more than logits: what they read may differ by 1e-3 of its size."""
    import json, torch
    g, changes = torch.Generator().manual_seed(5), []
    def watch(gate, given, out):
        chosen = out[2].sort(-1).values
        for _ in range(20):
            near = given[0] * (1 + 1e-3 * torch.randn(given[0].shape, generator=g, dtype=given[0].dtype))
            changes.append((gate.forward(near)[2].sort(-1).values != chosen).any(-1))
    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):
            module.register_forward_hook(watch)
    kept = []
    for prompt in json.loads((folder / "golden/prompts.json").read_text()).values():
        model(torch.tensor(prompt["input_ids"]), attention_mask=torch.tensor(prompt["attention_mask"]))
        kept.append(sum(int(change[torch.tensor(prompt["attention_mask"]).reshape(-1) == 1].sum()) for change in changes))
        changes.clear()
    print(folder.name, "choices that change when what the router reads does by 1e-3:", kept)
    assert sum(kept) == 0


def assert_clear_masks(folder, model):
    """Phi-3.5-MoE's router: neither a choice nor whom a chosen expert is weighed beside goes by rounding."""
    import json, torch
    least, spread, alone, all_of_them = 1.0, 2 * model.config.router_jitter_noise, 0, 0
    for prompt in json.loads((folder / "golden/prompts.json").read_text()).values():
        logits = model(torch.tensor(prompt["input_ids"]), attention_mask=torch.tensor(prompt["attention_mask"]), output_router_logits=True).router_logits
        kept = torch.tensor(prompt["attention_mask"]).reshape(-1) == 1
        for scores in (layer.detach().reshape(-1, layer.shape[-1])[kept] for layer in logits):
            ordered = scores.sort(-1, descending=True).values
            least = min(least, float((ordered[:, :2] - ordered[:, 1:3]).min()))
            for best in (ordered[:, :1], ordered[:, 1:2]):
                apart = (best - scores) / torch.maximum(scores.abs(), best)
                least = min(least, float((apart - spread).abs().min()))
                alone, all_of_them = alone + int((apart.abs() <= spread).sum(-1).eq(1).sum()), all_of_them + len(scores)
    print(folder.name, "least distance of a choice or a mask %.1e; %d of %d chosen are alone" % (least, alone, all_of_them))
    assert least > 2e-3


def add_noise_of_losses(folder):
    """How far losses of SGD in float32 are from those in float64, step by step: as transformers computes them, and from three starts
    that differ in their last bits. Rounding changes which experts are chosen from the seventh step on."""
    import json, torch
    from transformers import AutoModelForCausalLM
    import golden_lib
    prompt = json.loads((folder / "golden/prompts.json").read_text())["train"]
    batch = {k: torch.tensor(prompt[k]) for k in ("input_ids", "attention_mask", "position_ids", "labels")}

    def losses(dtype, seed=None):
        model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=dtype).train()
        if seed is not None:
            g = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(1 + 1e-7 * torch.randn(p.shape, generator=g))
        return golden_lib.train_steps(model, batch, 10, torch.optim.SGD(model.parameters(), **golden_lib.SGD))[0]

    exact, others = losses(torch.float64), [losses(torch.float32, seed) for seed in (None, 1, 2, 3)]
    path = folder / "golden/train.json"
    told = json.loads(path.read_text())
    told["sgd"]["noise_of_losses"] = [max(abs(other[i] - loss) for other in others) for i, loss in enumerate(exact)]
    path.write_text(json.dumps(told, indent=1) + "\n")


def without_cache(run_generation):
    """Of Nemotron-H: a step of the reference's that takes states from the cache does not limit the steps of time, as its forward pass does."""
    def run(model, prompts, pad):
        model.generation_config.use_cache = model.config.model_type != "nemotron_h"
        return run_generation(model, prompts, pad)
    return run


def main():
    sys.path.insert(0, sys.argv[1])
    import golden_lib
    golden_lib.run_generation = without_cache(golden_lib.run_generation)
    golden_lib.randomize = with_head_norms(golden_lib.randomize)
    golden_lib.final_norm = with_other_norms(golden_lib.final_norm)
    with_plain_experts()
    with_hidden_states_as_others()
    fresh = golden_lib.fresh
    with_positions_of_padded_rows()
    for name, how in specs(HERE.parent / "tokenizers"):
        if not sys.argv[2:] or name in sys.argv[2:]:
            golden_lib.fresh = (lambda model: fresh(model).eval()) if name == "phimoe" else fresh  # in training its experts are drawn
            golden_lib.make(os.path.join(HERE, name), **how)
            if name == "gemma4_moe":
                add_noise_of_losses(HERE / name)
            if how["config"].model_type in ("lfm2", "nemotron_h"):
                name_layers_with_attention(HERE / name / "golden", how["config"].layer_types)
            if name == "gpt_neox":
                name_as_files(HERE / name / "golden", "lm_head", "embed_out")
            if name == "nemotron_h":  # whose configuration has experts, and whose layers have none
                name_as_files(HERE / name / "golden", "model.", "backbone.")
                continue
            if getattr(how["config"], "num_experts_per_tok", None) or getattr(how["config"], "top_k_experts", None):
                if name not in ("gpt_oss", "gemma4_moe", "llama4"):
                    unstack(HERE / name / "golden", name in ("mixtral", "phimoe"))
                assert_clear_choices(HERE / name)


if __name__ == "__main__":
    main()
