"""LoRA adapters made, run and trained by PEFT on golden models, in float64.

usage: make.py [MODEL ...]      (without names: everything)
needs: torch, transformers, peft, safetensors (made with torch 2.15.0, transformers 5.23.0, peft 0.21.2; phi3 and what
follows it with transformers 5.24.0, embeddings_tied and what follows some_layers with peft 0.21.2 too)

For each model of ../models or ../variants named below, <model>/:
    adapter/              as PEFT saves it, A and B random
    golden.safetensors    ids [3, T]; logits and merged [T, V] of the first sequence, unmerged and after merge_and_unload;
                          grad/<tensor> of the mean loss over all labels; adamw10/<tensor> after ten steps of AdamW
                          (lr 1e-3, betas 0.9 and 0.95, eps 1e-8, weight decay 0.1) on these three sequences
    losses.json           before each of the ten steps
    llama_cpp.gguf        of llama, gemma2, phi3, glm4 and gpt_neox: adapter/ by llama.cpp's convert_lora_to_gguf.py (of
                          llama_cpp_python 0.3.36; --base the model, --outfile this)
patterns.json             for keys of a rank_pattern, in their order, the one that PEFT takes for each module of gpt2_a's adapter
"""
import json, pathlib, sys
import torch
from peft import LoraConfig, get_peft_model
from peft.utils.other import get_pattern_key
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "models"
T = 20  # beyond the window of gemma2
CASES = {
    "gpt2_a": dict(r=4, lora_alpha=6, target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True,
                   rank_pattern={"h.1.attn.c_attn": 2}, alpha_pattern={"mlp.c_proj": 3}),
    "gemma2": dict(r=3, lora_alpha=5, target_modules=["q_proj", "v_proj", "down_proj"]),
    "llama": dict(r=2, lora_alpha=4, target_modules="all-linear", use_rslora=True),
    "phi3": dict(r=2, lora_alpha=3, target_modules=["qkv_proj", "gate_up_proj"]),  # parts of different sizes
    # Tensors of all experts together: A and B of each expert in one matrix each.
    "qwen3_moe": dict(r=2, lora_alpha=3, target_modules=["q_proj"], target_parameters=["mlp.experts.down_proj", "mlp.experts.gate_up_proj"],
                      rank_pattern={"layers.1.mlp.experts.gate_up_proj": 3}, alpha_pattern={"experts.down_proj": 5}),
    "mixtral": dict(r=2, lora_alpha=4, target_modules=[], target_parameters=["experts.gate_up_proj"], use_rslora=True),
    "gpt_oss_default_rope": dict(r=2, lora_alpha=4, target_modules=["v_proj"], target_parameters=["experts.gate_up_proj", "experts.down_proj"]),
    "gpt_neox": dict(r=2, lora_alpha=3, target_modules=["query_key_value", "dense_4h_to_h"]),
    "glm4": dict(r=2, lora_alpha=3, target_modules=["q_proj", "v_proj", "gate_up_proj", "down_proj"]),
    # What learns beside A and B.
    "saved_modules": dict(base="glm4", r=2, lora_alpha=3, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head", "norm"]),
    "saved_embedding_of_two": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["q_proj"], modules_to_save=["embed_tokens"]),
    "saved_tied": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["q_proj"], modules_to_save=["embed_tokens"],
                       ensure_weight_tying=True),
    "biases_all": dict(base="gpt_neox", r=2, lora_alpha=3, target_modules=["query_key_value"], bias="all"),
    "biases_lora_only": dict(base="glm4", r=2, lora_alpha=3, target_modules=["q_proj", "k_proj"], bias="lora_only"),
    "embeddings": dict(base="stablelm", r=2, lora_alpha=3, target_modules=["embed_tokens", "lm_head", "v_proj"]),
    "embedding_of_two": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["embed_tokens", "q_proj"]),
    "embeddings_tied": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["embed_tokens", "q_proj"], ensure_weight_tying=True),
    "tokens": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["q_proj"], trainable_token_indices=[3, 17, 40]),
    "tokens_untied": dict(base="glm4", r=2, lora_alpha=3, target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [5, 9]}),
    "dora": dict(base="phi", r=2, lora_alpha=3, target_modules=["q_proj", "dense", "fc2"], use_dora=True),
    "dora_gpt2": dict(base="gpt2_unscaled_silu", r=2, lora_alpha=3, target_modules=["c_attn", "mlp.c_proj"], use_dora=True,
                      fan_in_fan_out=True),
    "lora_bias": dict(base="phi", r=2, lora_alpha=3, target_modules=["q_proj", "fc2"], lora_bias=True),
    "router": dict(base="mixtral", r=2, lora_alpha=4, target_modules=["k_proj"], target_parameters=["mlp.gate.weight"]),
    "some_layers": dict(base="glm4", r=2, lora_alpha=3, target_modules=["q_proj", "o_proj", "down_proj"], exclude_modules=["o_proj"], layers_to_transform=[1]),
    # The two places of a tied matrix.
    "head_of_two": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["lm_head", "q_proj"]),
    "both_of_two": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["embed_tokens", "lm_head", "q_proj"]),
    "head_tied": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["lm_head", "q_proj"], ensure_weight_tying=True),
    "saved_head_of_two": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["q_proj"], modules_to_save=["lm_head"]),
    "saved_both_of_two": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"]),
    "saved_head_tied": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["embed_tokens", "q_proj"], modules_to_save=["lm_head"],
                            ensure_weight_tying=True),
    "tokens_of_head": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["q_proj"], trainable_token_indices={"lm_head": [3, 9]}),
    "tokens_of_both": dict(base="starcoder2", r=2, lora_alpha=3, target_modules=["q_proj"],
                           trainable_token_indices={"embed_tokens": [3, 9], "lm_head": [3, 8]}),
    # Matrices beside the blocks.
    "gemma4": dict(r=2, lora_alpha=3, target_modules="all-linear"),
    "gemma4_moe": dict(r=2, lora_alpha=3, target_modules="all-linear"),
    "gemma4_per_layer": dict(base="gemma4", r=2, lora_alpha=3, target_modules=["embed_tokens_per_layer", "per_layer_model_projection"]),
    "positions": dict(base="gpt2_a", r=2, lora_alpha=3, target_modules=["wpe", "c_attn"], fan_in_fan_out=True),
    # Stored [in, out], which transformers does not say and PEFT takes for [out, in]: A and B stand for each other.
    "llama4": dict(r=2, lora_alpha=4, target_modules=["q_proj", "shared_expert.down_proj"], target_parameters=["experts.gate_up_proj", "experts.down_proj"]),
    # Factors of each matrix: of what it reads and of what it gives.
    "falcon_h1": dict(r=2, lora_alpha=3, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "in_proj", "gate_proj", "up_proj", "down_proj"]),
    # transformers has these experts in block_sparse_moe, as their files.
    "granite4_experts": dict(r=2, lora_alpha=3, target_modules=["v_proj"], target_parameters=["experts.gate_up_proj", "experts.down_proj"]),
}
PATTERNS = [
    ["h.1.attn.c_attn"], ["c_attn", "attn.c_attn"], ["attn.c_attn", "c_attn"], ["h.[02].attn.c_attn", "c_proj"],
    [r"h\.\d\.mlp\.c_proj"], ["^transformer.h.0.attn.c_attn"], ["^h.0.attn.c_attn"], [".*c_proj"], ["attn"], ["proj"],
    ["(h.0|h.1).attn.c_attn", "c_attn"], ["c_attn|c_proj"], ["h.[^0].*", "h.0.*"], ["c.attn"], [r"h\.(?!1).*c_attn"],
]


def tensor_name(parameter):
    return parameter.replace(".default", "").replace(".modules_to_save", "").replace("lora_magnitude_vector.weight", "lora_magnitude_vector")


for index, (name, settings) in enumerate(CASES.items()):
    if sys.argv[1:] and name not in sys.argv[1:]:
        continue
    torch.manual_seed(index)
    base_name = settings.pop("base", name)
    source = MODELS / base_name / "model"
    source = source if source.exists() else HERE.parent / "variants" / base_name
    experts = {"experts_implementation": "eager"} if "target_parameters" in settings or "moe" in name else {}  # the default has no float64
    base = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager", **experts).eval()
    base.name_or_path = base_name  # not where it lies here
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
    model.peft_config["default"].base_model_name_or_path = base_name
    for key, value in model.named_parameters():
        if "lora_B" in key or "lora_embedding_A" in key:
            torch.nn.init.normal_(value, std=0.1)
        elif value.requires_grad and "lora_" not in key:
            value.data += torch.randn_like(value) * 0.1
        elif "magnitude" in key:
            value.data *= 1 + torch.randn_like(value) * 0.1
    folder = HERE / name
    model.save_pretrained(folder / "adapter")
    (folder / "adapter" / "README.md").unlink(missing_ok=True)

    model = model.double()
    ids = torch.randint(3, model.config.vocab_size - 3, (3, T))
    out = {"ids": ids}
    with torch.no_grad():
        out["logits"] = model(ids[:1], use_cache=False).logits[0]
    learned = {tensor_name(k): p for k, p in model.named_parameters() if p.requires_grad}
    # A and B of a tied embedding are those of the head, transposed and exchanged: in float64 no longer the same numbers in memory,
    # and two parameters for an optimizer. Here they are one, whose gradient is the sum of the two.
    twins = {}
    if settings.get("ensure_weight_tying"):
        for k in [k for k in learned if k.endswith("lm_head.lora_A.weight") or k.endswith("lm_head.lora_B.weight")]:
            of_embedding = "base_model.model.model.embed_tokens.lora_embedding_" + ("B" if "lora_A" in k else "A")
            twins[of_embedding] = learned.pop(k)
            twins[of_embedding].data = learned[of_embedding].data.T
    optimizer = torch.optim.AdamW(learned.values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses = []
    start = {k: p.detach().clone() for k, p in learned.items()}
    for step in range(10):
        optimizer.zero_grad()
        loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        for k, p in twins.items():
            learned[k].grad += p.grad.T
            p.grad = None
        losses.append(loss.item())
        if step == 0:
            out.update({f"grad/{k}": p.grad.clone() for k, p in learned.items()})
        optimizer.step()
    out.update({f"adamw10/{k}": p.detach().clone() for k, p in learned.items()})
    with torch.no_grad():
        for k, p in learned.items():
            p.copy_(start[k])
        out["merged"] = model.merge_and_unload()(ids[:1], use_cache=False).logits[0]
    save_file({k: (v.int() if k == "ids" else v.float()).contiguous() for k, v in out.items()}, folder / "golden.safetensors")
    (folder / "losses.json").write_text(json.dumps(losses, indent=1) + "\n")

if sys.argv[1:]:
    sys.exit()
with safe_open(HERE / "gpt2_a/adapter/adapter_model.safetensors", "pt") as stored:
    modules = sorted({key.removeprefix("base_model.model.").rsplit(".lora_", 1)[0] for key in stored.keys()})
chosen = [{"keys": keys, "chosen": {module: get_pattern_key(keys, module) for module in modules}} for keys in PATTERNS]
(HERE / "patterns.json").write_text(json.dumps(chosen, indent=1) + "\n")
