"""Writes a small autoencoder of each architecture as SAELens saves it, and what SAELens computes with it:
<name>/{cfg.json,sae_weights.safetensors} and <name>/values.safetensors with x [rows, d_in], features [rows, d_sae], y [rows, d_out]
and, of autoencoders, edited [rows, d_in]: feature 3 set to 2.5 and what remains of x added, as HookedSAETransformer does.

    pip install sae-lens==6.54.12
    python tests/golden/sae/make.py
"""

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sae_lens import SAE

HERE = Path(__file__).parent
D_IN, D_SAE, D_OUT, ROWS = 12, 40, 8, 9


def config(architecture, **more):
    return {"architecture": architecture, "d_in": D_IN, "d_sae": D_SAE, "dtype": "float32", "device": "cpu",
            "metadata": {"hook_name": "blocks.1.hook_resid_post", "model_name": "tiny", "sae_lens_version": "6.54.12"}, **more}


TRANSCODER = {"d_out": D_OUT, "apply_b_dec_to_input": False,
              "metadata": {"hook_name": "blocks.1.ln2.hook_normalized", "hook_name_out": "blocks.1.hook_mlp_out",
                           "model_name": "tiny", "sae_lens_version": "6.54.12"}}
CASES = {
    "standard": config("standard"),
    "standard_no_b_dec": config("standard", apply_b_dec_to_input=False),
    "standard_layer_norm": config("standard", normalize_activations="layer_norm"),
    "standard_constant_norm": config("standard", normalize_activations="constant_norm_rescale"),
    "gated": config("gated"),
    "topk": config("topk", k=5),
    "topk_rescaled": config("topk", k=5, rescale_acts_by_decoder_norm=True, normalize_activations="layer_norm"),
    "abstopk": config("abstopk", k=5),
    "jumprelu": config("jumprelu"),
    "transcoder": config("transcoder", **TRANSCODER),
    "skip_transcoder": config("skip_transcoder", **TRANSCODER),
    "jumprelu_transcoder": config("jumprelu_transcoder", **TRANSCODER),
    "jumprelu_skip_transcoder": config("jumprelu_skip_transcoder", **TRANSCODER),
}


def main():
    for number, (name, cfg) in enumerate(CASES.items()):
        torch.manual_seed(number)
        sae = SAE.from_dict(cfg)
        with torch.no_grad():
            for key, parameter in sae.named_parameters():
                parameter.copy_(torch.randn_like(parameter) * (0.3 if key.startswith(("b_", "r_")) else 0.4))
            if "threshold" in dict(sae.named_parameters()):
                sae.threshold.copy_(torch.rand_like(sae.threshold) * 0.8)
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        sae.save_model(folder)
        x = torch.randn(ROWS, D_IN) * 1.5 + 0.2
        with torch.no_grad():
            features = sae.encode(x)
            sae.encode(x)
            y = sae(x)
            values = {"x": x, "features": features, "y": y}
            if not name.endswith("transcoder"):
                sae.encode(x)
                changed = features.clone()
                changed[:, 3] = 2.5
                values["edited"] = sae.decode(changed) + (x - y)
        save_file({k: v.contiguous().float() for k, v in values.items()}, folder / "values.safetensors")
    old()
    gemma_scope()


def old():
    """A configuration as SAELens wrote it before version 6: k among activation_fn_kwargs, the hook beside the other keys."""
    folder = HERE / "before_version_6"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "topk", folder)
    (folder / "cfg.json").write_text(json.dumps({
        "architecture": "standard", "d_in": D_IN, "d_sae": D_SAE, "activation_fn_str": "topk", "activation_fn_kwargs": {"k": 5},
        "apply_b_dec_to_input": True, "normalize_activations": False, "hook_point": "blocks.1.hook_resid_post",
        "model_name": "tiny", "dtype": "float32", "finetuning_scaling_factor": False}))
    x = torch.from_numpy(np.float32(np.random.default_rng(7).standard_normal((ROWS, D_IN))))
    sae = SAE.load_from_disk(folder)
    with torch.no_grad():
        save_file({"x": x, "features": sae.encode(x), "y": sae(x)}, folder / "values.safetensors")


def gemma_scope():
    """params.npz, as Gemma Scope is published; its values come from SAELens's JumpReLU."""
    folder = HERE / "gemma-scope-2b-pt-res" / "layer_1" / "width_16k"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sae = SAE.from_dict({**config("jumprelu"), "apply_b_dec_to_input": False})
    torch.manual_seed(99)
    with torch.no_grad():
        for parameter in sae.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
        sae.threshold.abs_()
    np.savez(folder / "params.npz", **{k: v.detach().numpy() for k, v in sae.named_parameters()})
    x = torch.randn(ROWS, D_IN)
    with torch.no_grad():
        save_file({"x": x, "features": sae.encode(x), "y": sae(x)}, folder / "values.safetensors")


main()
