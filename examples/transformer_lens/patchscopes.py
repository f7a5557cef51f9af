#!/usr/bin/env python3
"""What a hidden state says when another prompt reads it, as in TransformerLens's notebook "Patchscopes Generation Demo".

usage: patchscopes.py [MODEL]

The residual stream of a source prompt is put into a target prompt, and the model goes on from there: "cat -> cat; dog -> dog; x ->" makes it
name what x became (Ghandeharioun et al., "Patchscopes: A Unifying Framework for Inspecting Hidden Representations of Language Models", 2024).
"""
import argparse

import numpy as np

import vitrine


def representation(model, source, layer, position=-1):
    """[d_model]: the residual stream of the source after a layer, at a position."""
    _, cache = model.run_with_cache(source, f"resid_post.{layer}", return_type=None)
    return cache["resid_post", layer][0, position]


def feed(vector, layer, position):
    """The hook that puts a vector into the target after a layer. A hook of generate sees the prompt first and then each new token:
    hook.position says where its first row stands.
    """
    def put(resid, hook):  # [batch, position, d_model]
        if 0 <= position - hook.position < resid.shape[1]:
            resid[:, position - hook.position] = vector

    return (f"blocks.{layer}.hook_resid_post", put)


def read(model, vector, target, layer, position, count):
    """The ids that the model writes after the target with the vector in it."""
    return model.generate(target[0], count, ignore_eos=True, fwd_hooks=[feed(vector, layer, position)]).tokens


def precision_and_surprisal(model, source, target, position, target_layer=None):
    """By source layer: whether the target names the source's next token, and what that token costs there in nats.

    target_layer: where the vector goes; None: the layer that it comes from.
    """
    _, cache = model.run_with_cache(source)
    answer = int(cache["hook_logits"][0, -1].argmax())
    found = []
    for layer in range(model.cfg.n_layers):
        vector = cache["resid_post", layer][0, -1]
        logits = model.run_with_hooks(target, fwd_hooks=[feed(vector, layer if target_layer is None else target_layer, position)])[0, -1]
        exact = logits.astype(np.float64) - logits.max()
        found.append((int(logits.argmax()) == answer, np.log(np.exp(exact).sum()) - exact[answer]))
    named, surprisal = zip(*found)
    return np.array(named), np.array(surprisal)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    model = vitrine.load(parser.parse_args().model)
    source, target = model.to_tokens("The king gave his daughter to the prince, and they lived"), model.to_tokens("king king, girl girl, tree")
    position = target.shape[1] - 1
    named, surprisal = precision_and_surprisal(model, source, target, position)
    print("layer  the target names the source's next token  surprisal")
    for layer, (right, cost) in enumerate(zip(named, surprisal)):
        print(f"{layer:5}  {'yes' if right else 'no':41}  {cost:9.2f}")
    layer = int(surprisal.argmin())
    written = read(model, representation(model, source, layer), target, layer, position, 6)
    print(f"from layer {layer} the model goes on with {model.to_string(written)!r}")


if __name__ == "__main__":
    main()
