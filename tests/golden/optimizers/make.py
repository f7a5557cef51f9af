"""Steps of torch.optim.AdamW and torch.optim.SGD on 37 parameters: optimizers.json.

usage: make.py   (torch 2.15.0; float32, CPU)
"""
import json, pathlib, torch

CASES = [
    {"kind": "adamw", "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "grad_scale": 1.0},
    {"kind": "adamw", "lr": 6e-2, "beta1": 0.8, "beta2": 0.95, "eps": 1e-5, "weight_decay": 0.1, "grad_scale": 0.25},
    {"kind": "sgd", "lr": 0.1, "factor": 0.0, "weight_decay": 0.0, "grad_scale": 0.5},
    {"kind": "sgd", "lr": 0.05, "factor": 0.9, "weight_decay": 0.01, "grad_scale": 2.0},
]
torch.manual_seed(5)
for case in CASES:
    w = torch.nn.Parameter(torch.randn(37))
    if case["kind"] == "adamw":
        optimizer = torch.optim.AdamW([w], lr=case["lr"], betas=(case["beta1"], case["beta2"]), eps=case["eps"],
                                      weight_decay=case["weight_decay"], foreach=False, fused=False)
    else:
        optimizer = torch.optim.SGD([w], lr=case["lr"], momentum=case["factor"], weight_decay=case["weight_decay"])
    case["start"] = w.tolist()
    case["gradients"], case["weights"] = [], []
    for step in range(6):
        g = torch.randn(37) * 10.0 ** (step - 3)
        case["gradients"].append(g.tolist())
        w.grad = g * case["grad_scale"]
        optimizer.step()
        case["weights"].append(w.tolist())
pathlib.Path(__file__).with_name("optimizers.json").write_text(json.dumps(CASES) + "\n")
