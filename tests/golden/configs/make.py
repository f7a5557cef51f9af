"""Writes the config.json of well-known models from their published shapes, and parameters.json with the number of
parameters that transformers counts for each, on the meta device (no weight is made).

    python make.py            (transformers 5.23.0, torch 2.15.0)
"""
import json
import pathlib

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
    name = dict(llama="LlamaForCausalLM", mistral="MistralForCausalLM", qwen2="Qwen2ForCausalLM")[kind]
    return dict(model_type=kind, architectures=[name], hidden_size=width, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=kv_heads, intermediate_size=mlp, vocab_size=vocab,
                max_position_embeddings=context, rope_theta=theta, tie_word_embeddings=tied, hidden_act="silu", **more)


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
}

expected = {}
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
