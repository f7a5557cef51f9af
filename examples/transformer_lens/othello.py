#!/usr/bin/env python3
"""A linear probe of the residual stream and what follows from it, as in TransformerLens's notebook "Othello GPT".

usage: othello.py [MODEL]

A probe [d_model, n_options] reads a fact about the text from the residual stream: in the notebook whether a square of the board is empty,
mine or theirs. Nanda, Lee and Wattenberg, "Emergent Linear Representations in World Models of Self-Supervised Sequence Models", 2023. For
a model of text the program fits one by least squares to whether the text is about a woman or a man.
"""
import argparse

import numpy as np

import vitrine


def probe_values(model, tokens, probe, layer):
    """[batch, position, option]: what the probe reads after a layer."""
    _, cache = model.run_with_cache(tokens, f"resid_post.{layer}", return_type=None)
    return cache["resid_post", layer] @ probe


def written_along(model, tokens, direction):
    """[2 * layer, position]: what each attention and each MLP adds along a direction, in the order of the run."""
    _, cache = model.run_with_cache(tokens, ["attn_out", "mlp_out"], return_type=None)
    return np.stack([cache[part, layer][0] @ direction for layer in range(model.cfg.n_layers) for part in ("attn_out", "mlp_out")])


def neurons_along(model, layer, direction):
    """Cosines [neuron] of a direction with what each neuron reads (W_in) and with what it writes (W_out)."""
    unit = direction / np.linalg.norm(direction)
    W_in, W_out = model.W_in[layer], model.W_out[layer]
    return unit @ W_in / np.linalg.norm(W_in, axis=0), W_out @ unit / np.linalg.norm(W_out, axis=-1)


def flipped(model, tokens, layer, position, direction, scale=1.0):
    """The logits after the last token when the stream's part along a direction is turned round at one position."""
    unit = direction / np.linalg.norm(direction)

    def flip(resid, hook):  # [batch, position, d_model]
        along = resid[:, position] @ unit
        resid[:, position] -= (1 + scale) * along[:, None] * unit

    return model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.hook_resid_post", flip)])[:, -1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    model = vitrine.load(parser.parse_args().model)
    layer = model.cfg.n_layers // 2
    pairs = [("king", "queen"), ("man", "woman"), ("father", "mother"), ("brother", "sister"), ("prince", "princess")]
    texts = [f"The {word} went home to" for pair in pairs for word in pair]
    is_woman = np.array([-1.0, 1.0] * len(pairs))
    _, cache = model.run_with_cache(texts, f"resid_post.{layer}", return_type=None)
    last = cache["resid_post", layer][range(len(texts)), cache.lengths - 1]
    train, test = slice(2, None), slice(0, 2)
    direction = np.linalg.pinv(last[train] - last[train].mean(0)) @ is_woman[train]
    read = (last - last[train].mean(0)) @ direction
    print(f"after layer {layer} the probe reads {read[test][0]:+.2f} of {texts[0]!r} and {read[test][1]:+.2f} of {texts[1]!r}")
    tokens = model.to_tokens(texts[0])
    parts = written_along(model, tokens, direction)[:, -1]
    place = int(np.abs(parts).argmax())
    print(f"at the last token, {'MLP' if place % 2 else 'attention'} {place // 2} adds most along it: {parts[place]:+.2f}")
    reads, writes = neurons_along(model, layer, direction)
    print(f"neurons of layer {layer}: N{np.abs(reads).argmax()} reads it most ({reads[np.abs(reads).argmax()]:+.2f}), "
          f"N{np.abs(writes).argmax()} writes it most ({writes[np.abs(writes).argmax()]:+.2f})")
    his, her = model.to_single_token(" his"), model.to_single_token(" her")
    before, after = model(tokens)[0, -1], flipped(model, tokens, layer, -1, direction, 3.0)[0]
    print(f"' his' over ' her' in logits: {before[his] - before[her]:+.2f}; with the direction turned round {after[his] - after[her]:+.2f}")


if __name__ == "__main__":
    main()
