#!/usr/bin/env python3
"""Which layers and heads choose between two tokens, as in TransformerLens's notebook "Exploratory Analysis Demo".

usage: exploratory_analysis.py [MODEL]

Every prompt has a right and a wrong next token; what is explained is the difference of their logits. The steps: the difference
itself, the logit lens, what each sub-layer and each head adds directly, and what is restored when values of the right prompts are
put into prompts whose answer is the other token.
"""
import argparse

import numpy as np

import vitrine
from vitrine import patching


def logit_differences(logits, answers):
    """[prompt]: the right token's logit less the wrong one's after the last position. answers: [prompt, 2]."""
    last = logits[:, -1]
    rows = np.arange(len(last))
    return last[rows, answers[:, 0]] - last[rows, answers[:, 1]]


def attributions(model, tokens, answers):
    """What the residual stream and its parts say at the last position, as means over the prompts.

    lens    [layer + 1/2 …]: the stream before and within each layer, read by the final norm
    layers  [part]: what each sub-layer adds;  heads [layer, head]: what each head adds
    """
    logits, cache = model.run_with_cache(tokens)
    right, wrong = answers.T

    def mean(stack):
        return cache.logit_attrs(stack, right, wrong, pos_slice=-1).mean(-1)

    streams, lens_labels = cache.accumulated_resid(incl_mid=True, pos_slice=-1, return_labels=True)
    parts, layer_labels = cache.decompose_resid(pos_slice=-1, return_labels=True)
    heads = mean(cache.stack_head_results(pos_slice=-1)).reshape(model.cfg.n_layers, model.cfg.n_heads)
    return {"difference": logit_differences(logits, answers), "lens": mean(streams), "lens_labels": lens_labels,
            "layers": mean(parts), "layer_labels": layer_labels, "heads": heads}


def patched(model, tokens, corrupted, answers):
    """How much of the difference each value of the clean run restores in the corrupted one: 0 nothing, 1 all of it.

    resid_pre, attn_out, mlp_out [layer, position]; z [layer, head]
    """
    logits, cache = model.run_with_cache(tokens)
    clean = logit_differences(logits, answers).mean()
    low = logit_differences(model(corrupted), answers).mean()

    def restored(z):
        return (logit_differences(z, answers).mean() - low) / (clean - low)

    return {"resid_pre": patching.get_act_patch_resid_pre(model, corrupted, cache, restored),
            "attn_out": patching.get_act_patch_attn_out(model, corrupted, cache, restored),
            "mlp_out": patching.get_act_patch_mlp_out(model, corrupted, cache, restored),
            "z": patching.get_act_patch_attn_head_out_all_pos(model, corrupted, cache, restored)}


def attention_of(model, tokens, layer, head):
    """[query, key]: one head's pattern, as a mean over the prompts."""
    _, cache = model.run_with_cache(tokens, f"pattern.{layer}", return_type=None)
    return cache["pattern", layer][:, head].mean(0)


def pronouns(model):
    """Prompts about a man or a woman, the same with the other one, and the pronouns to choose from: ids [prompt, …]."""
    his, her = model.to_single_token(" his"), model.to_single_token(" her")
    pairs = [("king", "queen"), ("man", "woman"), ("father", "mother"), ("brother", "sister")]
    texts = [f"The {one} went home to" for pair in pairs for one in pair]
    tokens = model.to_tokens(texts)  # an error if their lengths differ
    answers = np.array([[his, her], [her, his]] * len(pairs))
    return tokens, tokens.reshape(len(pairs), 2, -1)[:, ::-1].reshape(tokens.shape), answers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    model = vitrine.load(parser.parse_args().model)
    tokens, corrupted, answers = pronouns(model)
    found = attributions(model, tokens, answers)
    print(f"{len(tokens)} prompts, such as {model.to_string(tokens[0])!r}: the right pronoun's logit is higher by "
          f"{found['difference'].mean():.2f} on average, by {found['difference'].min():.2f} at least")
    print("\nLogit lens: the difference as the stream grows")
    for label, value in zip(found["lens_labels"], found["lens"]):
        print(f"  {label:12}{value:7.2f}")
    print("\nDirect attribution: the sub-layers that add most")
    for i in np.argsort(-np.abs(found["layers"]))[:5]:
        print(f"  {found['layer_labels'][i]:12}{found['layers'][i]:7.2f}")
    best = np.unravel_index(found["heads"].argmax(), found["heads"].shape)
    print(f"and the head that adds most is L{best[0]}H{best[1]}: {found['heads'][best]:.2f}; at the last position it looks at")
    pattern = attention_of(model, tokens, *best)[-1]
    for position in np.argsort(-pattern)[:3]:
        print(f"  {pattern[position]:5.0%}  {model.to_str_tokens(tokens[0])[position]}")
    effect = patched(model, tokens, corrupted, answers)
    print("\nPatching the stream: how much each layer and position restores")
    print("  " + "".join(f"{piece[:9]:>10}" for piece in model.to_str_tokens(tokens[0])))
    for layer, row in enumerate(effect["resid_pre"]):
        print(f"{layer:2}" + "".join(f"{value:10.2f}" for value in row))
    most = np.unravel_index(effect["z"].argmax(), effect["z"].shape)
    print(f"\nOf single heads, L{most[0]}H{most[1]} restores most: {effect['z'][most]:.0%}")


if __name__ == "__main__":
    main()
