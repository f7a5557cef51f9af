#!/usr/bin/env python3
"""Writes transformer_lens_names.npz: every value of a bridge's run_with_cache by the names of TransformerLens 4.3, and what its
get_act_name makes of short names. transformer-lens 4.3.0, torch 2.x, CPU, float32.

usage: make_hook_names.py   (in an environment with transformer-lens)

`<model>/ids`, and `<model>/<hook>` of all hooks outside the layers and in layer 1. Weights are not processed. `act_names` [n, 2]: the
arguments as JSON, and the name.
"""
import json
import os
import pathlib

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.utilities import get_act_name
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
SHORT = [["k", 6, "a"], ["pre", 2], ["embed"], ["normalized", 27, "ln2"], ["k6"], ["scale4ln1"], ["pre5"], ["z", 3], ["pattern", 0], ["attn", 1],
         ["attn_logits", 1], ["key", 2], ["query", 2], ["value", 2], ["mlp_post", 4], ["mlp_pre", 4], ["resid_pre", 0], ["resid_post", 11],
         ["mlp_out", 3], ["attn_out", 3], ["pos_embed"], ["normalized"], ["scale"], ["scale", 2, "ln1"], ["rot_q", 1], ["result", 1],
         ["blocks.3.attn.hook_z"], ["hook_embed"], ["resid_mid", 5], ["pre_linear", 5]]


def main():
    found = {"act_names": np.array([[json.dumps(given), get_act_name(*given)] for given in SHORT])}
    for name in ("gpt2_a", "gemma2", "llama"):
        path = str(HERE.parent / "models" / name / "model")
        hf = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
        model = TransformerBridge.boot_transformers(path, hf_model=hf, dtype=torch.float32)
        ids = torch.tensor([[(i * 7919 + 13) % model.cfg.d_vocab for i in range(5)]])
        with torch.inference_mode():
            _, cache = model.run_with_cache(ids)
        found[f"{name}/ids"] = ids.numpy()
        for hook, value in cache.items():
            if hook.startswith("blocks.1.") or not hook.startswith("blocks."):
                found[f"{name}/{hook}"] = value.numpy()
    np.savez_compressed(HERE / "transformer_lens_names.npz", **found)


if __name__ == "__main__":
    main()
