#!/usr/bin/env python3
"""Writes transformer_lens_gpt2_a.npz: what TransformerLens keeps of a run of tests/golden/models/gpt2_a, by its own names, and
what two hook functions make of it. transformer-lens 4.3.0, torch 2.x, CPU, float32; no processing of weights.

usage: make.py   (in an environment with transformer-lens)
"""
import importlib.metadata, os, pathlib, sys

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM

here = pathlib.Path(__file__).resolve().parent
path = str(here.parent / "models" / "gpt2_a" / "model")
hf = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
model = TransformerBridge.boot_transformers(path, hf_model=hf, dtype=torch.float32)
model.enable_compatibility_mode(no_processing=True)
ids = torch.tensor([[(i * 7919 + 13) % hf.config.vocab_size for i in range(12)]])

layer = ["hook_resid_pre", "ln1.hook_scale", "ln1.hook_normalized", "attn.hook_q", "attn.hook_k", "attn.hook_v",
         "attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z", "hook_attn_out", "hook_resid_mid", "ln2.hook_scale",
         "ln2.hook_normalized", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out", "hook_resid_post"]
names = ["hook_embed", "hook_pos_embed", "ln_final.hook_scale", "ln_final.hook_normalized"]
names += [f"blocks.{i}.{name}" for i in range(hf.config.n_layer) for name in layer]


def zero_head(value, hook):  # [batch, position, head, d_head], in place and returned
    value[:, :, 2] = 0
    return value


def double(value, hook):
    return value * 2


saved = {}
with torch.inference_mode():
    logits, cache = model.run_with_cache(ids, names_filter=lambda name: name in names)
    saved["tokens"] = ids.numpy()
    saved["logits"] = logits.numpy()
    saved["loss"] = model(ids, return_type="loss").numpy()
    for name in names:
        saved["cache/" + name] = cache[name].numpy()
    saved["zero_head"] = model.run_with_hooks(ids, fwd_hooks=[("blocks.1.attn.hook_z", zero_head)]).numpy()
    saved["double_mlp"] = model.run_with_hooks(ids, fwd_hooks=[(lambda name: name.endswith("hook_mlp_out"), double)]).numpy()
saved["versions"] = np.array([f"transformer-lens {importlib.metadata.version('transformer-lens')}", f"torch {torch.__version__}"])
np.savez_compressed(here / "transformer_lens_gpt2_a.npz", **saved)
print({name: value.shape for name, value in saved.items() if "blocks.0" in name or "cache" not in name}, file=sys.stderr)
