#!/usr/bin/env python3
"""Writes transformer_lens_calls_<model>.npz: what TransformerLens' daily calls give for tests/golden/models/<model>: parts of the
residual stream, attributions, effective weights, circuits, patching sweeps, hooks on inputs and generation with hooks.
transformer-lens 4.3.0, torch 2.x, CPU, float32.

usage: make_calls.py [MODEL …]   (in an environment with transformer-lens)

Weights are not processed, except for "folded/…": there the norms' weights are folded into the next matrix, since TransformerLens'
logit_attrs leaves them out otherwise.
"""
import importlib.metadata, os, pathlib, sys

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from transformer_lens import patching
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM

here = pathlib.Path(__file__).resolve().parent


def boot(name, **options):
    path = str(here.parent / "models" / name / "model")
    hf = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    model = TransformerBridge.boot_transformers(path, hf_model=hf, dtype=torch.float32)
    model.enable_compatibility_mode(**options)
    return model


def write(name):
    model = boot(name, no_processing=True)
    vocab, n_layers, n_heads = model.cfg.d_vocab, model.cfg.n_layers, model.cfg.n_heads
    clean = torch.tensor([[(i * 7919 + 13) % vocab for i in range(6)]])
    corrupted = clean.clone()
    corrupted[0, 2] = (int(clean[0, 2]) + 31) % vocab
    answer, other = 7, 11
    d = model.cfg.d_model
    directions = torch.tensor([[((i * 31 + j * 17) % 23 - 11) / 23 for j in range(3)] for i in range(d)])
    out = {"clean": clean, "corrupted": corrupted, "answers": torch.tensor([answer, other]), "directions": directions}

    with torch.inference_mode():
        logits, cache = model.run_with_cache(clean)
        out["logits"] = logits
        for key, options in (("", {}), ("layer1_mid/", {"layer": 1, "mlp_input": True})):
            stack, labels = cache.decompose_resid(return_labels=True, **options)
            out[key + "decompose"], out[key + "decompose_labels"] = stack, np.array(labels)
            stack, labels = cache.accumulated_resid(return_labels=True, incl_mid=True, **options)
            out[key + "accumulated"], out[key + "accumulated_labels"] = stack, np.array(labels)
        out["accumulated_ln"] = cache.accumulated_resid(apply_ln=True)
        out["heads"], labels = cache.stack_head_results(return_labels=True, incl_remainder=True)
        out["heads_labels"] = np.array(labels)
        out["full"], labels = cache.get_full_resid_decomposition(return_labels=True, project_output_onto=directions)
        out["full_labels"] = np.array(labels)
        out["full_mid"] = cache.get_full_resid_decomposition(1, mlp_input=True, expand_neurons=False)
        out["ln_divided"] = cache.apply_ln_to_stack(cache.decompose_resid(pos_slice=-1), pos_slice=-1)
        out["directions_of_tokens"] = model.tokens_to_residual_directions(torch.tensor([answer, other]))
        for weight in ("W_Q", "W_K", "W_V", "W_O", "W_in", "W_out"):
            out["weights/" + weight] = getattr(model, weight)
        out["QK"], out["OV"] = model.QK[1, 0].AB, model.OV[1, n_heads - 1].AB
        out["QK_S"] = model.QK[1, 0].S
        out["OV_eigenvalues"] = np.sort(np.abs(model.OV[0, 0].eigenvalues.numpy()))

        def metric(z):
            return z[0, -1, answer] - z[0, -1, other]

        for sweep in ("resid_pre", "resid_mid", "attn_out", "mlp_out", "attn_head_out_by_pos", "attn_head_q_all_pos",
                      "attn_head_k_by_pos", "attn_head_v_all_pos", "attn_head_pattern_all_pos", "attn_head_pattern_by_pos"):
            out["patch/" + sweep] = getattr(patching, "get_act_patch_" + sweep)(model, corrupted, cache, metric)

        def louder(value, hook):
            value = value.clone()
            value[:, 1:, 1 % value.shape[2]] *= 1.5
            return value

        model.set_use_split_qkv_input(True)
        for kind in ("q_input", "k_input", "v_input"):
            out["input/" + kind] = model.run_with_hooks(clean, fwd_hooks=[(f"blocks.1.hook_{kind}", louder)])
        model.set_use_split_qkv_input(False)
        model.set_use_hook_mlp_in(True)
        out["input/mlp_in"] = model.run_with_hooks(clean, fwd_hooks=[("blocks.0.hook_mlp_in", lambda x, hook: x + 0.3)])
        model.set_use_hook_mlp_in(False)

        # Nothing is folded but what a norm's weight does to the matrix behind it, and the bias of the last one.
        folded = boot(name, fold_ln=True, center_writing_weights=False, center_unembed=False, fold_value_biases=False)
        _, cache = folded.run_with_cache(clean)
        stack = cache.decompose_resid()
        out["folded/attrs"] = cache.logit_attrs(stack, torch.tensor(answer))
        out["folded/differences"] = cache.logit_attrs(stack, torch.tensor(answer), torch.tensor(other))
        out["folded/heads"] = cache.logit_attrs(cache.stack_head_results(pos_slice=-1), torch.tensor(answer), pos_slice=-1)

    saved = {key: value.numpy() if isinstance(value, torch.Tensor) else value for key, value in out.items()}
    saved = {key: value.astype(np.float32) if value.dtype == np.float64 else value for key, value in saved.items()}
    saved["versions"] = np.array([f"{p} {importlib.metadata.version(p)}" for p in ("transformer-lens", "torch", "transformers")])
    path = here / f"transformer_lens_calls_{name}.npz"
    np.savez_compressed(path, **saved)
    print(path.name, path.stat().st_size)


if __name__ == "__main__":
    for name in sys.argv[1:] or ["gpt2_a", "gemma", "gemma2"]:
        write(name)
