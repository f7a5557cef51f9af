#!/usr/bin/env python3
"""Finds the induction head of a model, shows what makes it one, and patches it (docs/induction.md).

usage: find.py [MODEL] [--seed 0]     MODEL: default: induction-model/last, which train.yaml makes

An induction head is two heads. The first, in an early layer, writes at each position what stood before it. The second looks for
positions whose predecessor is the token it stands on, and copies what is there (Elhage et al. 2021; Olsson et al. 2022).
"""
import argparse

import numpy as np

import vitrine
from vitrine import patching


def prompts(model, count=16, length=16, seed=0):
    """Tokens [prompt, 2 · length] that repeat themselves once, and the same with another first half: nothing to repeat."""
    rng = np.random.default_rng(seed)
    first, other = rng.integers(0, model.cfg.d_vocab, (2, count, length))
    return np.concatenate([first, first], 1), np.concatenate([other, first], 1)


def head_scores(model, tokens):
    """[layer, head] each: attention to the token before; from the second half, to what followed the same token before."""
    length = tokens.shape[1] // 2
    _, cache = model.run_with_cache(tokens, "pattern", return_type=None)
    patterns = cache.stack_activation("pattern").mean(1)  # [layer, head, query, key]
    later = np.arange(1, 2 * length)
    queries = np.arange(length, 2 * length)
    return patterns[:, :, later, later - 1].mean(-1), patterns[:, :, queries, queries - length + 1].mean(-1)


def second_half(model, tokens, hooks=()):
    """The mean loss, in nats, of the tokens that have stood before: those after the first of the second half."""
    length = tokens.shape[1] // 2
    return np.mean([model.run_with_hooks(row, list(hooks), "loss", loss_per_token=True)[:, length:].mean() for row in tokens])


def ablations(model, tokens):
    """[layer, head]: what the loss of the second half becomes without each head."""
    found = np.zeros((model.cfg.n_layers, model.cfg.n_heads))
    for layer, head in np.ndindex(found.shape):
        def off(z, hook, head=head):
            z[:, :, head] = 0
        found[layer, head] = second_half(model, tokens, [(f"blocks.{layer}.attn.hook_z", off)])
    return found


def without_mlps(model, tokens):
    """The same loss without any MLP."""
    return second_half(model, tokens, [("blocks.*.hook_mlp_out", lambda value, hook: value * 0)])


def copying(model, layer, head):
    """How much a head raises what it looks at: the share of the eigenvalues of its full OV circuit that are positive, from -1 to 1."""
    (circuit,) = model.circuits(layer, head, composition=False)["heads"]
    return circuit["copying"]


def paths(model, repeated, other, layer):
    """[head before, head]: each path from a head of the layer before to the keys of a head of `layer`, when that path alone carries what
    it carries in the prompt with nothing to repeat: the share that is lost of what the repetition gives to the right letters'
    log-probability. 0 nothing, 1 all of it.
    """
    length = repeated.shape[1] // 2
    places = np.arange(length, 2 * length - 1)

    def score(logits):
        z = logits[:, places] - logits[:, places].max(-1, keepdims=True)
        rows = np.arange(len(z))[:, None]
        return (z - np.log(np.exp(z).sum(-1, keepdims=True)))[rows, places - length, repeated[rows, places + 1]].mean()

    (logits, clean), (low, corrupted) = model.run_with_cache(repeated), model.run_with_cache(other)
    # The other prompt's values go into the repeated one, so the two have exchanged their usual roles.
    found = [patching.get_act_patch_direct_path(model, repeated, corrupted, clean, score, layer - 1, head, component="k")[layer]
             for head in range(model.cfg.n_heads)]
    return (score(logits) - np.stack(found)) / (score(logits) - score(low))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="induction-model/last")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    model = vitrine.load(a.model)
    repeated, other = prompts(model, seed=a.seed)
    print(f"Loss of letters that have stood before: {second_half(model, repeated):.3f}; with nothing to repeat: "
          f"{second_half(model, other):.3f}; without MLPs: {without_mlps(model, repeated):.3f}")
    before, induction = head_scores(model, repeated)
    off = ablations(model, repeated)
    print("\nhead   to the token before   to what followed   loss without it")
    for layer, head in np.ndindex(before.shape):
        print(f"L{layer}H{head}{before[layer, head]:22.2f}{induction[layer, head]:19.2f}{off[layer, head]:18.3f}")
    layer, head = np.unravel_index(induction.argmax(), induction.shape)
    print(f"\nL{layer}H{head} is the induction head: its copying score is {copying(model, layer, head):+.2f}")
    if layer == 0:
        print("no layer lies before it, so it cannot know what stood before a position")
        return
    composition = model.all_composition_scores("K").scores[layer - 1, :, layer]
    lost = paths(model, repeated, other, layer)
    print(f"\nFrom the heads of layer {layer - 1} to the keys of those of layer {layer}: composition, and what is lost when that path alone is "
          "spoilt")
    for source, reader in np.ndindex(lost.shape):
        print(f"L{layer - 1}H{source} -> L{layer}H{reader}{composition[source, reader]:8.2f}{lost[source, reader]:8.0%}")


if __name__ == "__main__":
    main()
