#!/usr/bin/env python3
"""Writes transformer_lens_cells_<model>.npz: what further cells of TransformerLens's demo notebooks (Main Demo, Head Detector Demo, Grokking
Demo, Othello GPT, Patchscopes Generation Demo, Attribution Patching Demo) give for tests/golden/models/<model>.
transformer-lens 4.3.0, torch 2.x, CPU, float32.

usage: make_cells.py [MODEL …]   (in an environment with transformer-lens)

Texts are generated without cached keys: with transformers 5.24 this version's cached steps give other tokens than whole runs.
"""
import functools, importlib.metadata, os, pathlib, sys, types

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from transformer_lens import utilities as utils
from transformer_lens.head_detector import detect_head

from make_calls import boot

here = pathlib.Path(__file__).resolve().parent
P = 11  # of the additions


def main_demo(model, gold):
    vocab, n_layers = model.cfg.d_vocab, model.cfg.n_layers
    once = torch.tensor([[(i * 7919 + row * 104729 + 13) % vocab for i in range(7)] for row in range(3)])
    tokens = torch.cat([torch.full((3, 1), 5), once, once], dim=1)
    clean, corrupted = tokens[:1, :6], tokens[:1, :6].clone()
    corrupted[0, 2] = (int(clean[0, 2]) + 31) % vocab
    gold |= {"repeated": tokens, "clean": clean, "corrupted": corrupted}

    def switch_off(value, hook):
        value[:, :, 0, :] = 0.0
        return value

    gold["main/loss"] = model(tokens, return_type="loss")
    gold["main/without_values"] = model.run_with_hooks(tokens, return_type="loss", fwd_hooks=[(utils.get_act_name("v", 1), switch_off)])
    model.add_hook(utils.get_act_name("z", 1), switch_off)
    gold["main/hook_that_stays"] = model(tokens, return_type="loss")
    model.reset_hooks()

    def patch(resid, hook, position, cache):
        resid[:, position, :] = cache[hook.name][:, position, :]
        return resid

    _, cache = model.run_with_cache(clean)
    found = torch.zeros(n_layers, clean.shape[1])
    for layer in range(n_layers):
        for position in range(clean.shape[1]):
            logits = model.run_with_hooks(corrupted, fwd_hooks=[
                (utils.get_act_name("resid_pre", layer), functools.partial(patch, position=position, cache=cache))])
            found[layer, position] = logits[0, -1, 7] - logits[0, -1, 11]
    gold["main/patched"] = found
    gold["main/losses"] = model(tokens, return_type="loss", loss_per_token=True).mean(0)
    scores = torch.zeros(n_layers, model.cfg.n_heads)

    def induction(pattern, hook):
        scores[hook.layer(), :] = pattern.diagonal(dim1=-2, dim2=-1, offset=1 - 7).mean(-1).mean(0)

    model.run_with_hooks(tokens, return_type=None, fwd_hooks=[(lambda name: name.endswith("pattern"), induction)])
    gold["main/induction"] = scores
    eigenvalues = (model.W_E @ model.OV @ model.W_U).eigenvalues
    gold["main/copying"] = eigenvalues.sum(dim=-1).real / eigenvalues.abs().sum(dim=-1)
    _, cache = model.run_with_cache(clean, remove_batch_dim=True)
    gold["main/neuron"] = cache["post", 1][:, 9]
    gold["main/pattern"] = cache["pattern", 0]
    if model.cfg.positional_embedding_type == "standard":
        unit = model.W_pos / model.W_pos.norm(dim=-1, keepdim=True)
        gold["main/positions"] = (unit @ unit.T)[:24, :24]

    def switch_off_z(value, hook):
        value[:, :, 2, :] = 0.0
        return value

    with model.hooks(fwd_hooks=[("blocks.1.attn.hook_z", switch_off_z)]):
        gold["main/written"] = model.generate(clean, max_new_tokens=6, do_sample=False, stop_at_eos=False, return_type="tokens",
                                              use_past_kv_cache=False, verbose=False)[0, clean.shape[1]:]


def head_detector(model, gold):
    one, two = ([5, 17, 30, 17, 30, 44, 5, 17, 99], [5, 60, 60, 8, 60, 8, 5, 70, 60])
    gold["detector/prompts"] = torch.tensor([one, two])
    mine = torch.zeros(9, 9)
    mine[:, 0] = 0.5
    mine[0, 0] = 1
    mine[torch.arange(1, 9), torch.arange(8)] += 0.5
    texts = {"one": one, "two": two}  # its sequences are texts
    lookup = types.SimpleNamespace(cfg=model.cfg, run_with_cache=model.run_with_cache,
                                   to_tokens=lambda seq: torch.tensor([texts[text] for text in ([seq] if isinstance(seq, str) else seq)]))
    for kind in ("previous_token_head", "duplicate_token_head", "induction_head"):
        gold["detector/" + kind] = detect_head(lookup, "one", kind)
        gold["detector/both/" + kind] = detect_head(lookup, ["one", "two"], kind, exclude_bos=True)
        gold["detector/abs/" + kind] = detect_head(lookup, "one", kind, exclude_current_token=True, error_measure="abs")
    gold["detector/some"] = detect_head(lookup, "one", "induction_head", heads=[(0, 1), (2, 3)], exclude_current_token=True)
    gold["detector/mine"] = detect_head(lookup, "one", mine, error_measure="abs")


def grokking(model, gold):
    waves = [torch.ones(P)]
    for k in range(1, P // 2 + 1):
        waves += [torch.cos(2 * torch.pi * torch.arange(P) * k / P), torch.sin(2 * torch.pi * torch.arange(P) * k / P)]
    basis = torch.stack([wave / wave.norm() for wave in waves])
    a, b = torch.arange(P).repeat_interleave(P), torch.arange(P).repeat(P)
    tokens = torch.stack([a, b, torch.full_like(a, P)], dim=1)
    gold["grokking/embedding"] = (basis @ model.W_E[:P]).norm(dim=-1)
    logits, cache = model.run_with_cache(tokens)
    acts = cache["post", 1][:, -1].reshape(P, P, -1)
    gold["grokking/neurons"] = acts[:, :, :4]
    acts = acts.double() - acts.double().mean((0, 1), keepdim=True)
    basis = basis.double()
    power = torch.einsum("ia,abn,jb->ijn", basis, acts, basis).pow(2)
    share = []
    for k in range(1, P // 2 + 1):
        share.append(sum(power[i, j] for i in (0, 2 * k - 1, 2 * k) for j in (0, 2 * k - 1, 2 * k)) / power.sum((0, 1)))
    best = torch.stack(share).max(0)
    gold["grokking/frequency"], gold["grokking/share"] = best.indices + 1, best.values
    logits = logits[:, -1, :P].double()
    labels = (a + b) % P

    def loss(z):
        return torch.nn.functional.cross_entropy(z, labels)

    along = torch.zeros_like(logits)
    for k in (2, 5):
        for wave in (torch.cos, torch.sin):
            v = wave(2 * torch.pi * k * (a + b).double() / P)
            v = v / v.norm()
            along += v[:, None] * (v @ logits)
    gold["grokking/losses"] = torch.stack([loss(logits), loss(logits - along), loss(along + logits.mean(0))])


def othello(model, gold):
    d = model.cfg.d_model
    probe = torch.tensor([[((i * 31 + j * 17) % 23 - 11) / 23 for j in range(3)] for i in range(d)])
    tokens = gold["clean"]
    _, cache = model.run_with_cache(tokens)
    gold["othello/probe"] = probe
    gold["othello/read"] = torch.einsum("bpd,do->bpo", cache["resid_post", 1], probe)
    direction = probe[:, 0]
    gold["othello/written"] = torch.stack([cache[part, layer][0] @ direction for layer in range(model.cfg.n_layers)
                                           for part in ("attn_out", "mlp_out")])
    W_in, W_out = model.W_in[1], model.W_out[1]
    unit = direction / direction.norm()
    gold["othello/reads"] = unit @ (W_in / W_in.norm(dim=0, keepdim=True))
    gold["othello/writes"] = (W_out / W_out.norm(dim=1, keepdim=True)) @ unit

    def flip(resid, hook):
        resid[0, 3] -= (1 + 2.0) * (resid[0, 3] @ unit) * unit
        return resid

    gold["othello/flipped"] = model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.hook_resid_post", flip)])[:, -1]


def patchscopes(model, gold):
    source, target = gold["repeated"][1:2, :9], gold["repeated"][2:3, :7]
    logits, cache = model.run_with_cache(source)
    answer = logits[0, -1].argmax()
    gold["scopes/source"], gold["scopes/target"] = source, target
    for key, to in (("same", None), ("first", 0)):
        named, surprisal = [], []
        for layer in range(model.cfg.n_layers):
            def put(resid, hook, vector=cache["resid_post", layer][0, -1]):
                resid[0, 4] = vector
                return resid

            place = utils.get_act_name("resid_post", layer if to is None else to)
            last = model.run_with_hooks(target, fwd_hooks=[(place, put)])[0, -1]
            named.append(last.argmax() == answer)
            surprisal.append(-last.log_softmax(-1)[answer])
        gold["scopes/named/" + key], gold["scopes/surprisal/" + key] = torch.stack(named), torch.stack(surprisal)

    def put_in_the_prompt(resid, hook, vector=cache["resid_post", 1][0, -1]):
        resid[0, 4] = vector
        return resid

    with model.hooks(fwd_hooks=[("blocks.0.hook_resid_post", put_in_the_prompt)]):
        gold["scopes/written"] = model.generate(target, max_new_tokens=6, do_sample=False, stop_at_eos=False, return_type="tokens",
                                                use_past_kv_cache=False, verbose=False)[0, target.shape[1]:]


def attention_attribution(model, gold):
    kept, gradients = {}, {}
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.cfg.n_layers)]
    with model.hooks(fwd_hooks=[(name, lambda x, hook, n=name: kept.__setitem__(n, x.detach())) for name in names],
                     bwd_hooks=[(name, lambda g, hook, n=name: gradients.__setitem__(n, g.detach())) for name in names]):
        logits = model(gold["clean"])
        (logits[0, -1, 7] - logits[0, -1, 11]).backward()
    gold["attribution/pattern"] = torch.stack([kept[name][0] * gradients[name][0] for name in names])


def centered(name, gold):
    """The residual stream of a model whose writing weights are centered, as autoencoders of gpt2-small-res-jb expect it."""
    model = boot(name, center_writing_weights=True, fold_ln=True, center_unembed=False, fold_value_biases=False)
    _, cache = model.run_with_cache(gold["clean"])
    gold["centered/resid_pre"] = cache["resid_pre", 1]


def write(name):
    model = boot(name, no_processing=True)
    gold = {}
    with torch.no_grad():
        for cells in (main_demo, head_detector, grokking, othello, patchscopes):
            cells(model, gold)
        if name == "gpt2_a":
            centered(name, gold)
    attention_attribution(model, gold)
    saved = {key: value.detach().numpy() for key, value in gold.items()}
    saved = {key: value.astype(np.float32) if value.dtype == np.float64 else value for key, value in saved.items()}
    saved["versions"] = np.array([f"{p} {importlib.metadata.version(p)}" for p in ("transformer-lens", "torch", "transformers")])
    path = here / f"transformer_lens_cells_{name}.npz"
    np.savez_compressed(path, **saved)
    print(path.name, path.stat().st_size)


for name in sys.argv[1:] or ["gpt2_a", "gemma"]:
    write(name)
