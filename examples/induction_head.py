#!/usr/bin/env python3
"""Finds the head that does most of a model's induction, switches it off, and patches it into a run that has nothing to repeat.

usage: induction_head.py [MODEL] [--length 30] [--prompts 8] [--seed 0]

An induction head attends from a token to what came after the same token earlier, and so predicts that it comes again (Olsson et
al., "In-context Learning and Induction Heads", 2022). The prompts are BOS, random tokens, and the same tokens again; the tokens
are drawn from the model itself at temperature 1, so that a small model knows what to do with them. Losses are cross-entropies in
nats per token. MODEL: a Hugging Face directory, a .gguf file or an id in the local cache; without it, the shipped model.
"""
import argparse

import numpy as np

import vitrine


def prompts(model, length, count, seed):
    """Per prompt: [BOS, tokens, tokens again], and the same with other tokens in the place of the first time."""
    start = [model.tokenizer.bos] if model.tokenizer.bos is not None else model.to_tokens("\n")[0].tolist()
    halves = [model.generate(start, length, temperature=1.0, seed=seed + i, ignore_eos=True).tokens for i in range(count + 1)]
    repeated = [np.array([start + half + half]) for half in halves[1:]]
    fresh = [np.array([start + before + half]) for before, half in zip(halves, halves[1:])]
    return repeated, fresh


def losses(model, runs, length):
    """Mean loss on the first and on the second `length` tokens."""
    each = np.concatenate([model(tokens, "loss", loss_per_token=True) for tokens in runs])
    return each[:, -2 * length:-length].mean(), each[:, -length:].mean()


def induction_scores(model, repeated, length):
    """[layer, head]: attention from each token of the second half to what followed it in the first, as a mean."""
    scores = np.zeros((model.cfg.n_layers, model.cfg.n_heads))
    for tokens in repeated:
        queries = np.arange(tokens.shape[1] - length, tokens.shape[1])
        _, cache = model.run_with_cache(tokens, "pattern", return_type=None)
        scores += cache.stack_activation("pattern")[:, 0][:, :, queries, queries - length + 1].mean(-1)
    return scores / len(repeated)


def without(model, repeated, length, layer, head):
    """The losses with one head switched off."""
    def switch_off(z, hook):  # z: [batch, position, head, head_dim]
        z[:, :, head] = 0

    with model.hooks([(f"blocks.{layer}.attn.hook_z", switch_off)]):
        return losses(model, repeated, length)


def patched(model, repeated, fresh, length, layer, head):
    """The loss on the second half where nothing is repeated, if one head still behaves there as if it were."""
    name = f"blocks.{layer}.attn.hook_z"
    found = []
    for clean, corrupt in zip(repeated, fresh):
        _, cache = model.run_with_cache(clean, name, return_type=None)

        def patch(z, hook):
            z[:, -length:, head] = cache[hook.name][:, -length:, head]

        with model.hooks([(name, patch)]):
            found.append(losses(model, [corrupt], length)[1])
    return np.mean(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--length", type=int, default=30, help="random tokens before they come again")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()

    model = vitrine.load(a.model)
    repeated, fresh = prompts(model, a.length, a.prompts, a.seed)
    first, second = losses(model, repeated, a.length)
    print(f"{a.prompts} prompts of {a.length} random tokens twice: loss {first:.3f} the first time, {second:.3f} the second")

    scores = induction_scores(model, repeated, a.length)
    ranked = sorted(np.ndindex(scores.shape), key=lambda at: -scores[at])
    even = np.mean(1 / np.arange(repeated[0].shape[1] - a.length + 1, repeated[0].shape[1] + 1))
    print(f"\nAttention to what followed the same token (a head that looks everywhere alike: {even:.3f})")
    for layer, head in ranked[:5]:
        print(f"  L{layer}.H{head}  {scores[layer, head]:.3f}")

    layer, head = ranked[0]
    off_first, off_second = without(model, repeated, a.length, layer, head)
    control = np.median([without(model, repeated, a.length, *other)[1] for other in ranked[len(ranked) // 2:]])
    print(f"\nL{layer}.H{head} switched off: loss {off_first:.3f} the first time ({off_first - first:+.3f}), "
          f"{off_second:.3f} the second ({off_second - second:+.3f})")
    print(f"the half of the heads that look there least, one at a time: {control - second:+.3f} the second time (median)")

    _, alone = losses(model, fresh, a.length)
    with_head = patched(model, repeated, fresh, a.length, layer, head)
    print(f"\nThe same tokens after others, nothing repeated: loss {alone:.3f}; "
          f"with L{layer}.H{head} patched in from the repeated prompt: {with_head:.3f} ({with_head - alone:+.3f})")


if __name__ == "__main__":
    main()
