"""Ten steps of torch.optim.AdamW on the golden llama with rates by group, some frozen, and a clipped gradient: lr_groups.json.

usage: make_lr_groups.py   (torch 2.15.0, transformers 5.24.0; float32, CPU)
"""
import fnmatch, json, pathlib
import torch

from ten_steps import BETAS, DECAY, load

HERE = pathlib.Path(__file__).parent
LR, CLIP = 1e-3, 0.5
GROUPS = {"*embed_tokens*": 0.0, "model.layers.0.*": 0.25, "*mlp*": 2.0}

torch.manual_seed(0)
model, prompt = load("llama")
ids, labels = torch.tensor(prompt["input_ids"]), torch.tensor(prompt["labels"])
start = {n: p.detach().clone() for n, p in model.named_parameters()}
groups = []
for name, p in model.named_parameters():
    factor = 1.0
    for pattern, of_pattern in GROUPS.items():
        factor *= of_pattern if fnmatch.fnmatchcase(name, pattern) else 1.0
    p.requires_grad_(factor > 0)
    if factor > 0:
        groups.append({"params": [p], "lr": LR * factor, "weight_decay": DECAY if p.ndim == 2 else 0.0})
optimizer = torch.optim.AdamW(groups, betas=BETAS, eps=1e-8, foreach=False)
losses, norms = [], []
for _ in range(10):
    logits = model(input_ids=ids, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
    losses.append(loss.item())
    model.zero_grad()
    loss.backward()
    norms.append(torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], CLIP).item())
    optimizer.step()
changes = {n: (p.detach() - start[n]).double().norm().item() for n, p in model.named_parameters()}
told = {"lr": LR, "clip": CLIP, "groups": GROUPS, "losses": losses, "gradient_norms": norms, "changes": changes}
(HERE / "lr_groups.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")
