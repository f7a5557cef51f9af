"""Ten steps of torch.optim.Muon on golden models, with torch.optim.AdamW for what lies outside the blocks: muon_NAME.safetensors
(the second block and the norms) and muon.json.

usage: make_muon.py   (torch 2.15.0, transformers 5.24.0, safetensors; float32, CPU)

Muon's orthogonalization rounds to bf16. Here torch's own function runs in float32 instead: it asks the module's `torch` for
bfloat16 by name, and is given a stand-in that says float32. What the rounding would change is in muon.json (`bf16`).
"""
import json, pathlib, types
import torch
import torch.optim._muon as module
from safetensors.torch import save_file

from ten_steps import DECAY, LR, ten_steps

HERE = pathlib.Path(__file__).parent
CASES = {"llama": dict(), "gpt2_a": dict(nesterov=False, ns_steps=3), "qwen3": dict(adjust_lr_fn="original", momentum=0.8)}


class InFloat32(types.ModuleType):
    bfloat16 = torch.float32
    def __getattr__(self, name):
        return getattr(torch, name)


def run(name, options, stand_in):
    module.torch = stand_in
    make = lambda matrices: torch.optim.Muon(matrices, lr=LR, weight_decay=DECAY, **{"adjust_lr_fn": "match_rms_adamw", **options})
    return ten_steps(name, make)


told = {}
for name, options in CASES.items():
    losses, weights = run(name, options, InFloat32("torch"))
    rounded, _ = run(name, options, torch)
    kept = {n: w.contiguous() for n, w in weights.items() if ".1." in n or "norm.weight" in n}
    save_file(kept, HERE / f"muon_{name}.safetensors")
    told[name] = {"lr": LR, "adamw_lr": LR / 4, "losses_before_each_step": losses, "bf16": rounded}
(HERE / "muon.json").write_text(json.dumps(told, indent=1) + "\n")
