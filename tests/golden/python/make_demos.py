#!/usr/bin/env python3
"""Writes transformer_lens_demos_<model>.npz: the main results of TransformerLens' demo notebooks (exploratory analysis, activation
patching, attribution patching, SVD of circuits) for tests/golden/models/<model>, and of a few more calls.
transformer-lens 4.3.0, torch 2.x, CPU, float32.

usage: make_demos.py [MODEL …]   (in an environment with transformer-lens)

Weights are not processed, except where a norm's weight must be in the next matrix: for direct logit attribution, as in make_calls.py.
"""
import importlib.metadata, os, pathlib, sys

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from transformer_lens import SVDInterpreter, patching

from make_calls import boot

here = pathlib.Path(__file__).resolve().parent


def write(name):
    model = boot(name, no_processing=True)
    vocab, n_layers, n_heads = model.cfg.d_vocab, model.cfg.n_layers, model.cfg.n_heads
    tokens = torch.tensor([[(i * 7919 + row * 104729 + 13) % vocab for i in range(5)] for row in range(4)])
    tokens[1::2] = tokens[::2]  # pairs that differ in one token
    tokens[1::2, 2] = (tokens[::2, 2] + 31) % vocab
    corrupted = tokens.reshape(2, 2, 5).flip(1).reshape(4, 5)
    answers = torch.tensor([[7, 11], [11, 7], [40, 23], [23, 40]])
    out = {"tokens": tokens, "corrupted": corrupted, "answers": answers}

    def differences(logits):
        return (logits[:, -1].gather(1, answers) * torch.tensor([1.0, -1.0])).sum(-1)

    with torch.no_grad():
        # Exploratory analysis.
        folded = boot(name, fold_ln=True, center_writing_weights=False, center_unembed=False, fold_value_biases=False)
        logits, cache = folded.run_with_cache(tokens)
        directions = folded.tokens_to_residual_directions(answers[:, 0]) - folded.tokens_to_residual_directions(answers[:, 1])

        def mean(stack):
            scaled = cache.apply_ln_to_stack(stack, layer=-1, pos_slice=-1)
            return torch.einsum("...bd,bd->...", scaled, directions) / len(tokens)

        out["explore/difference"] = differences(logits)
        stack, labels = cache.accumulated_resid(layer=-1, incl_mid=True, pos_slice=-1, return_labels=True)
        out["explore/lens"], out["explore/lens_labels"] = mean(stack), np.array(labels)
        stack, labels = cache.decompose_resid(layer=-1, pos_slice=-1, return_labels=True)
        out["explore/layers"], out["explore/layer_labels"] = mean(stack), np.array(labels)
        out["explore/heads"] = mean(cache.stack_head_results(layer=-1, pos_slice=-1)).reshape(n_layers, n_heads)

        logits, cache = model.run_with_cache(tokens)
        low = differences(model(corrupted)).mean()
        span = differences(logits).mean() - low
        out["explore/low"], out["explore/span"] = low, span

        def restored(z):
            return (differences(z).mean() - low) / span

        for key, sweep in (("resid_pre", "resid_pre"), ("attn_out", "attn_out"), ("mlp_out", "mlp_out"), ("z", "attn_head_out_all_pos")):
            out["explore/patched/" + key] = getattr(patching, "get_act_patch_" + sweep)(model, corrupted, cache, restored)
        out["explore/pattern"] = cache["pattern", 1][:, 2].mean(0)

        # Activation patching: one pair, every sweep.
        clean, other = tokens[:1], corrupted[:1]
        logits, cache = model.run_with_cache(clean)
        low1 = differences_of_one(model(other), answers)
        span1 = differences_of_one(logits, answers) - low1
        shared = getattr(model.cfg, "n_key_value_heads", None) not in (None, n_heads)
        for sweep in ("resid_pre", "resid_mid", "attn_out", "mlp_out", "attn_head_out_by_pos", "attn_head_q_by_pos", "attn_head_k_by_pos",
                      "attn_head_v_by_pos", "attn_head_pattern_by_pos", "attn_head_out_all_pos", "attn_head_q_all_pos",
                      "attn_head_k_all_pos", "attn_head_v_all_pos", "attn_head_pattern_all_pos"):
            if shared and ("_k_" in sweep or "_v_" in sweep):
                continue
            out["sweeps/" + sweep] = getattr(patching, "get_act_patch_" + sweep)(
                model, other, cache, lambda z: (differences_of_one(z, answers) - low1) / span1)
        _, corrupted_cache = model.run_with_cache(other)
        out["direct_path"] = patching.get_act_patch_direct_path(
            model, other, cache, corrupted_cache, lambda z: differences_of_one(z, answers), 0, 1, "q", verbose=False)

        # SVD of circuits.
        interpreter = SVDInterpreter(model)
        out["svd/head"] = interpreter.get_singular_vectors("OV", 1, 6, head_index=2)[:, 0]
        out["svd/head_S"] = model.OV[1, 2].S[:6]
        out["svd/mlp"] = interpreter.get_singular_vectors("w_out", 1, 6)[:, 0]

        for mode in "QKV":
            out["composition/" + mode] = model.all_composition_scores(mode).scores
        out["head_labels"] = np.array(model.all_head_labels)
        out["loss_per_token"] = model.loss_fn(model(tokens), tokens, per_token=True)
        _, cache = model.run_with_cache(tokens)
        out["neurons"] = cache.get_neuron_results(1, neuron_slice=[0, 5, 9], pos_slice=-1)
        cache.compute_head_results()
        out["head_results"] = cache["result", 1][:, -1]
        out["corner"] = model.OV[1].get_corner(2)

    # Attribution patching: (clean - corrupted) * gradient of the metric in the corrupted run, summed over d_model.
    kept, gradients = {}, {}
    names = [f"blocks.{i}.{hook}" for i in range(n_layers) for hook in ("hook_resid_pre", "hook_attn_out", "hook_mlp_out", "attn.hook_z")]
    with model.hooks(fwd_hooks=[(n, lambda x, hook, n=n: kept.__setitem__(n, x.detach())) for n in names],
                     bwd_hooks=[(n, lambda g, hook, n=n: gradients.__setitem__(n, g.detach())) for n in names]):
        ((differences(model(corrupted)).mean() - float(low)) / float(span)).backward()
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
        for hook in ("hook_resid_pre", "hook_attn_out", "hook_mlp_out", "attn.hook_z"):
            each = [((cache[n] - kept[n]) * gradients[n]).sum(-1).sum(0) for n in names if n.endswith(hook)]
            out["attribution/" + hook.split("hook_")[1]] = torch.stack(each)  # [layer, position] or [layer, position, head]

    saved = {key: value.detach().numpy() if isinstance(value, torch.Tensor) else value for key, value in out.items()}
    saved = {key: value.astype(np.float32) if value.dtype == np.float64 else value for key, value in saved.items()}
    saved["versions"] = np.array([f"{p} {importlib.metadata.version(p)}" for p in ("transformer-lens", "torch", "transformers")])
    path = here / f"transformer_lens_demos_{name}.npz"
    np.savez_compressed(path, **saved)
    print(path.name, path.stat().st_size)


def differences_of_one(logits, answers):
    right, wrong = answers[0]
    return logits[0, -1, right] - logits[0, -1, wrong]


for name in sys.argv[1:] or ["gpt2_a", "gemma"]:
    write(name)
