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


def patched(model, repeated, other, source, reader):
    """The path from the head before to the keys of the induction head: how much of the right letters' log-probability is lost when
    that path alone carries what it carried in the prompt with nothing to repeat. 0 nothing, 1 as much as without the repetition.
    """
    length = repeated.shape[1] // 2
    places = np.arange(length, 2 * length - 1)

    def score(logits):
        rows = np.arange(len(logits))[:, None]
        z = logits[:, places] - logits[:, places].max(-1, keepdims=True)
        return (z - np.log(np.exp(z).sum(-1, keepdims=True)))[rows, places - length, repeated[rows, places + 1]].mean()

    (logits, clean), (low, corrupted) = model.run_with_cache(repeated), model.run_with_cache(other)
    # What is patched in comes from `other`, so the roles are exchanged: the repeated prompt is the one that is spoilt.
    effect = patching.get_act_patch_direct_path(model, repeated, corrupted, clean, score, *source, component="k")
    return (score(logits) - effect[reader]) / (score(logits) - score(low))


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
    source, reader = (np.unravel_index(scores.argmax(), scores.shape) for scores in (before, induction))
    print(f"\nL{reader[0]}H{reader[1]} is the induction head: its copying score is {copying(model, *reader):+.2f}")
    if source[0] >= reader[0]:
        print("no head in an earlier layer looks at the token before")
        return
    scores = model.all_composition_scores("K").scores[source[0], :, reader[0], reader[1]]
    print(f"L{source[0]}H{source[1]} writes what stood before. Composition of the heads of layer {source[0]} with its keys: "
          + "  ".join(f"H{head} {score:.2f}" for head, score in enumerate(scores)))
    print(f"that path alone spoilt: {patched(model, repeated, other, source, reader):.0%} of what the repetition gives is lost")


if __name__ == "__main__":
    main()
