"""Ten steps of torch.optim.Muon on golden models, with torch.optim.AdamW for what lies outside the blocks: muon_NAME.safetensors
(the second block and the norms) and muon.json.

usage: make_muon.py   (torch 2.15.0, transformers 5.24.0, safetensors; float32, CPU)

Muon's orthogonalisation rounds to bf16. Here torch's own function runs in float32 instead: it asks the module's `torch` for
bfloat16 by name, and is given a stand-in that says float32. What the rounding would change is in muon.json (`bf16`).
"""
import json, pathlib, types
import torch
import torch.optim._muon as module
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
LR, BETAS, DECAY = 1e-2, (0.9, 0.95), 0.1
CASES = {"llama": dict(), "gpt2_a": dict(nesterov=False, ns_steps=3), "qwen3": dict(adjust_lr_fn="original", momentum=0.8)}


class InFloat32(types.ModuleType):
    bfloat16 = torch.float32
    def __getattr__(self, name):
        return getattr(torch, name)


def run(name, options, stand_in):
    module.torch = stand_in
    torch.manual_seed(0)
    folder = HERE.parent / "models" / name
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="eager").eval()
    prompt = json.loads((folder / "golden" / "prompts.json").read_text())["train"]
    ids, labels = torch.tensor(prompt["input_ids"]), torch.tensor(prompt["labels"])
    matrices = [(n, p) for n, p in model.named_parameters() if p.ndim == 2 and (".layers." in n or ".h." in n)]
    named = {n for n, _ in matrices}
    rest = [(n, p) for n, p in model.named_parameters() if n not in named]
    muon = torch.optim.Muon([p for _, p in matrices], lr=LR, weight_decay=DECAY,
                            **{"adjust_lr_fn": "match_rms_adamw", **options})
    adamw = torch.optim.AdamW([{"params": [p for _, p in rest if p.ndim == 2], "weight_decay": DECAY},
                               {"params": [p for _, p in rest if p.ndim != 2], "weight_decay": 0.0}],
                              lr=LR / 4, betas=BETAS, eps=1e-8, foreach=False)
    losses = []
    for _ in range(10):
        logits = model(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        muon.step(), adamw.step()
    return losses, {n: p.detach().clone() for n, p in model.named_parameters()}


told = {}
for name, options in CASES.items():
    losses, weights = run(name, options, InFloat32("torch"))
    rounded, _ = run(name, options, torch)
    kept = {n: w.contiguous() for n, w in weights.items() if ".1." in n or "norm.weight" in n}
    save_file(kept, HERE / f"muon_{name}.safetensors")
    told[name] = {"lr": LR, "adamw_lr": LR / 4, "losses_before_each_step": losses, "bf16": rounded}
(HERE / "muon.json").write_text(json.dumps(told, indent=1) + "\n")
