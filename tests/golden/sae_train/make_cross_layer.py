"""A hundred steps of PyTorch on a cross-layer transcoder, from a start that is given, with SAELens's JumpReLU and its gradient.

Needs torch and sae-lens (6.54.12 was used). Writes cross_layer.safetensors for L layers, batches of B rows, D numbers read, O written, F
features a layer: x [10, L, B, D] and target [10, B, L, O], which come again after ten steps; start.<parameter>_<layer> and
end.<parameter>_<layer> in circuit-tracer's forms (W_enc [F, D], W_dec [F, L - layer, O], b_enc [F], b_dec [O], threshold [F]); losses
[steps, 2] (reconstruction, sparsity), l0 [steps]. The seed is one with which no h comes nearer than 3e-5 to where JumpReLU or its
estimator jumps, so that rounding does not decide. tests/lab/sae/cross_layer_trainer_test.cpp reads them.
"""

import json
import os

import torch
from safetensors.torch import save_file
from sae_lens.saes.jumprelu_sae import JumpReLU

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = 30
STEPS, BATCHES, L, B, D, O, F = 100, 10, 3, 16, 9, 7, 10
OPTIONS = {"architecture": "jumprelu", "sparsity": "tanh", "sparsity_coefficient": 0.15, "tanh_scale": 3.0, "threshold": 0.05,
           "bandwidth": 0.2, "lr": 0.003, "steps": STEPS, "features": F}

torch.manual_seed(SEED)
amounts = (torch.rand(BATCHES, B, 20) < 0.15).float() * (0.5 + torch.rand(BATCHES, B, 20))
x = torch.stack([amounts @ torch.randn(20, D) for _ in range(L)], dim=1) + 0.1 * torch.randn(BATCHES, L, B, D)
target = torch.stack([torch.tanh(amounts @ torch.randn(20, 16)) @ torch.randn(16, O) / 2 + 0.3 for _ in range(L)], dim=2)

parameters = {}
for i in range(L):
    parameters[f"W_enc_{i}"] = 0.2 * torch.randn(F, D)
    parameters[f"W_dec_{i}"] = 0.1 * torch.randn(F, L - i, O)
    parameters[f"b_enc_{i}"] = 0.05 * torch.randn(F)
    parameters[f"b_dec_{i}"] = 0.1 * torch.randn(O)
    parameters[f"threshold_{i}"] = torch.full((F,), OPTIONS["threshold"])
tensors = {"x": x.contiguous(), "target": target.contiguous()}
tensors.update({f"start.{name}": value.clone() for name, value in parameters.items()})
parameters = {name: torch.nn.Parameter(value) for name, value in parameters.items()}
adam = torch.optim.Adam(parameters.values(), lr=OPTIONS["lr"])

losses, l0, margin = [], [], 1.0
for step in range(STEPS):
    batch = step % BATCHES
    for i in range(L):
        parameters[f"threshold_{i}"].data.clamp_(min=0)
    written = [parameters[f"b_dec_{i}"].expand(B, O) for i in range(L)]
    sparsity, active = 0, 0
    for i in range(L):
        h = x[batch, i] @ parameters[f"W_enc_{i}"].T + parameters[f"b_enc_{i}"]
        for edge in (-0.5, 0, 0.5):
            margin = min(margin, float((h - parameters[f"threshold_{i}"] - edge * OPTIONS["bandwidth"]).detach().abs().min()))
        features = JumpReLU.apply(h, parameters[f"threshold_{i}"], OPTIONS["bandwidth"], False)
        for later in range(i, L):
            written[later] = written[later] + features @ parameters[f"W_dec_{i}"][:, later - i]
        norms = parameters[f"W_dec_{i}"].flatten(1).norm(dim=1)
        sparsity = sparsity + torch.tanh(OPTIONS["tanh_scale"] * features * norms).sum(-1).mean()
        active = active + (features != 0).float().sum(-1).mean()
    error = (torch.stack(written, dim=1) - target[batch]).pow(2).sum((1, 2)).mean()
    sparsity = OPTIONS["sparsity_coefficient"] * sparsity
    adam.zero_grad()
    (error + sparsity).backward()
    torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
    adam.step()
    losses.append([error.item(), sparsity.item()])
    l0.append(active.item())

tensors.update({f"end.{name}": value.detach().clone() for name, value in parameters.items()})
tensors["losses"], tensors["l0"] = torch.tensor(losses), torch.tensor(l0)
path = os.path.join(HERE, "cross_layer.safetensors")
save_file(tensors, path, metadata={"options": json.dumps(OPTIONS)})
os.chmod(path, 0o644)
print("margin", margin, losses[0], losses[-1], "l0", l0[0], l0[-1])
