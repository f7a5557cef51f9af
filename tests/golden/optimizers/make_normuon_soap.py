"""NorMuon and SOAP of pytorch_optimizer, with torch.optim.AdamW for what lies outside the blocks: normuon_NAME.safetensors (the
attention of the second block and the norms), soap.safetensors and normuon_soap.json.

usage: make_normuon_soap.py   (pytorch_optimizer 4.1.0, torch 2.15.0, transformers 5.24.0, safetensors; float32, CPU)

NorMuon: ten steps on golden models. Its orthogonalization rounds to bf16 by default; here it is told to run in float32.
SOAP: twelve steps (the first changes nothing) with given gradients on two matrices of the golden llama. Where a gradient lacks rank,
some eigenvectors are arbitrary, and then two correct programs differ; so the gradients are noise of full rank, and of the matrix that
is not square only the shorter side is rotated.
"""
import functools, json, pathlib
import numpy as np
import torch
import pytorch_optimizer.optimizer.muon.normuon as module
from pytorch_optimizer import SOAP, NorMuon
from safetensors.torch import save_file

from ten_steps import DECAY, LR, load, ten_steps

HERE = pathlib.Path(__file__).parent
CASES = {"llama": dict(update_scale="match_rms"), "qwen3": dict(update_scale="preserve_norm", momentum=0.8, beta2=0.9, nesterov=False)}
module.zero_power_via_newton_schulz_5 = functools.partial(module.zero_power_via_newton_schulz_5, dtype=torch.float32)
SOAP_MATRICES = ["model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.gate_proj.weight"]
SOAP_OPTIONS = dict(lr=3e-3, betas=(0.9, 0.95), shampoo_beta=0.8, weight_decay=0.1, precondition_frequency=4, eps=1e-8)


def noise(n, step, which):
    """What tests/train/matrix_optimizers_test.cpp computes: numbers from -0.5 to 0.5."""
    x = (np.arange(n, dtype=np.uint64) + np.uint64(1000003 * step + 7919 * which)) * np.uint64(2654435761) % np.uint64(1 << 32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor) % np.uint64(1 << 32)
    x ^= x >> np.uint64(16)
    return (x.astype(np.float64) / 2.0**32 - 0.5).astype(np.float32)


def run_normuon(name, options):
    return ten_steps(name, lambda matrices: NorMuon([{"params": matrices, "use_muon": True}], lr=LR, weight_decay=DECAY, foreach=False,
                                                    **options))


told = {}
for name, options in CASES.items():
    losses, weights = run_normuon(name, options)
    save_file({n: w.contiguous() for n, w in weights.items() if ".1.self_attn." in n or "norm.weight" in n}, HERE / f"normuon_{name}.safetensors")
    told[name] = {"lr": LR, "adamw_lr": LR / 4, "losses_before_each_step": losses}

parameters = dict(load("llama")[0].named_parameters())
chosen = [parameters[n] for n in SOAP_MATRICES]
largest_side = min(chosen[1].shape)
soap = SOAP(chosen, max_precondition_dim=largest_side, **SOAP_OPTIONS)
for step in range(1, 13):
    for which, p in enumerate(chosen):
        p.grad = torch.from_numpy(noise(p.numel(), step, which)).reshape(p.shape) * 0.1 * step
    soap.step()
save_file({n: p.detach().clone().contiguous() for n, p in zip(SOAP_MATRICES, chosen)}, HERE / "soap.safetensors")
told["soap"] = {"steps": 12, "largest_side": largest_side, "shapes": [list(p.shape) for p in chosen], "matrices": SOAP_MATRICES}
(HERE / "normuon_soap.json").write_text(json.dumps(told, indent=1) + "\n")
