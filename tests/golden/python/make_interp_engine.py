#!/usr/bin/env python3
"""Writes interp_engine.npz: the values of interp-engine's points in one layer of small models, under <model>/<point>.
interp-engine 1.14, torch 2.x, transformers, CPU, float32.

usage: make_interp_engine.py   (in an environment with interp-engine)
"""
import importlib.metadata, os, pathlib

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from interp_engine.capture import _capture_eager
from interp_engine.address import Address
from interp_engine.model import EagerModel
from interp_engine.points import POINTS, Scope
from transformers import AutoModelForCausalLM

here = pathlib.Path(__file__).resolve().parent
LAYERS = {"gemma2": 1, "qwen3_moe": 1, "qwen3_5": 2}  # the last: its first layer with attention

out = {"versions": np.array([f"interp-engine {importlib.metadata.version('interp-engine')}", f"torch {torch.__version__}"])}
for name, layer in LAYERS.items():
    path = str(here.parent / "models" / name / "model")
    hf = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    model = EagerModel(path, hf_model=hf, tokenizer=object())
    tokens = torch.tensor([[(i * 7919 + 13) % hf.config.vocab_size for i in range(3)]])
    out[f"{name}/tokens"] = tokens.numpy()
    for point in POINTS:
        address = Address(point.name, layer if point.scope is Scope.LAYER else None)
        if (why := model.refuses(address)) is not None:
            print(f"{name} {point.name}: {why[:90]}")
            continue
        with torch.inference_mode():
            value = _capture_eager(model, tokens, [address])[address]
        out[f"{name}/{point.name}"] = value.numpy()
path = here / "interp_engine.npz"
np.savez_compressed(path, **out)
print(path.name, path.stat().st_size, {k: v.shape for k, v in out.items()})
