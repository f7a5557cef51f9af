#!/usr/bin/env python3
"""Writes transformer_lens_gradients.json: gradients of a logit difference at hooks, of runs that hook functions change, from
TransformerLens with torch's autograd, for tests/golden/models/<model>. transformer-lens 4.3.0, torch 2.x, CPU, float32.

usage: make_gradients.py   (in an environment with transformer-lens)

{model: {case: {"value": the metric, "at": {hook: its gradient's products with cos(0.7 + 1.9 k + (1.1 + 0.37 k) i), k = 0 to 2}}}}
"""
import json

import numpy as np
import torch

from make_calls import boot, here

IDS, ANSWER, OTHER = [5, 17, 3, 101, 42, 8, 77], 7, 11
HOOKS = ["blocks.0.attn.hook_z", "blocks.0.hook_mlp_out", "blocks.0.hook_mlp_in", "blocks.1.hook_mlp_in",
         *(f"blocks.{layer}.hook_{which}_input" for layer in (0, 1) for which in "qkv")]


def patch(value, hook):
    value = value.clone()
    value[:, 2:4] = 0.5
    return value


def ablate(value, hook):
    value = value.clone()
    value[:, :, 1] = 0
    return value


CASES = {
    "free": [],
    "patched": [("blocks.1.hook_resid_pre", patch)],
    "ablated": [("blocks.0.attn.hook_z", ablate)],
    "steered": [("blocks.0.hook_mlp_out", lambda value, hook: value + 1.5)],
    "halved": [("blocks.0.hook_mlp_out", lambda value, hook: value * 0.5)],
    "rectified": [("blocks.1.hook_resid_pre", lambda value, hook: torch.relu(value) - value.mean(-1, keepdim=True))],
}


def products(g):
    i = np.arange(g.size)
    return [float(g.ravel() @ np.cos(0.7 + 1.9 * k + (1.1 + 0.37 * k) * i)) for k in range(3)]


written = {}
for name in ("gpt2_a", "gemma"):
    model = boot(name, no_processing=True)
    model.set_use_split_qkv_input(True)
    model.set_use_hook_mlp_in(True)
    for case, functions in CASES.items():
        at = {}
        with torch.enable_grad(), model.hooks(fwd_hooks=functions, bwd_hooks=[(hook, lambda g, hook: at.__setitem__(hook.name, g.detach().double().numpy())) for hook in HOOKS]):
            logits = model(torch.tensor([IDS]))
            metric = logits[0, -1, ANSWER] - logits[0, -1, OTHER]
            metric.backward()
        assert sorted(at) == sorted(HOOKS), sorted(at)
        written.setdefault(name, {})[case] = {"value": metric.item(), "at": {hook: products(at[hook]) for hook in HOOKS}}
(here / "transformer_lens_gradients.json").write_text(json.dumps(written, indent=1))
