#!/usr/bin/env python3
"""What patching each value would do, told by gradients, as in TransformerLens's notebook "Attribution Patching Demo".

usage: attribution_patching.py [MODEL]

(clean value - corrupted value) · gradient of the metric in the corrupted run is the effect of a patch to first order. Two runs and one
backward give it for every place at once, where patching takes a run for each. The program shows both.
"""
import argparse

import numpy as np

import vitrine
from vitrine import patching

HOOKS = ["resid_pre", "attn_out", "mlp_out", "z"]


def restored(answers, low, span):
    """The metric (mean difference of the logits of answers [prompt, 2] after the last position - low) / span, with its derivative."""
    def metric(logits):
        rows = np.arange(len(logits))
        derivative = np.zeros_like(logits)
        derivative[rows, -1, answers[:, 0]] = 1 / (len(logits) * span)
        derivative[rows, -1, answers[:, 1]] = -1 / (len(logits) * span)
        mean = (logits[rows, -1, answers[:, 0]] - logits[rows, -1, answers[:, 1]]).mean()
        return (mean - low) / span, derivative

    return metric


def attributions(model, clean, corrupted, metric):
    """By hook: [layer, position], and [layer, position, head] for z, summed over the prompts."""
    found = {}
    for hook in HOOKS:
        result = model.attribution_patching(clean, corrupted, metric, hook, per="head" if hook == "z" else "position")
        found[hook] = np.stack([effect.sum(0) for effect in result.effects.values()])
    return found


def attention_attribution(model, tokens, metric):
    """[layer, head, query, key]: each weight of the attention times the metric's gradient there, for one prompt."""
    _, cache = model.run_with_cache(tokens, "pattern", return_type=None)
    _, gradients = model.gradients(tokens, "pattern", metric=metric)
    return (cache.stack_activation("pattern") * gradients.stack_activation("pattern"))[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    model = vitrine.load(parser.parse_args().model)
    clean, corrupted = model.to_tokens("The king went home to"), model.to_tokens("The queen went home to")
    answers = np.array([[model.to_single_token(" his"), model.to_single_token(" her")]])
    raw = restored(answers, 0.0, 1.0)
    (high, _), (low, _) = raw(model(clean)), raw(model(corrupted))
    metric = restored(answers, low, high - low)
    found = attributions(model, clean, corrupted, metric)
    _, cache = model.run_with_cache(clean)
    for hook, sweep in (("resid_pre", patching.get_act_patch_resid_pre), ("attn_out", patching.get_act_patch_attn_out),
                        ("mlp_out", patching.get_act_patch_mlp_out)):
        exact = sweep(model, corrupted, cache, lambda z: metric(z)[0])
        place = np.unravel_index(np.abs(exact).argmax(), exact.shape)
        print(f"{hook:10} most at layer {place[0]}, {model.to_str_tokens(clean)[place[1]]!r}: {exact[place]:.2f} by patching, "
              f"{found[hook][place]:.2f} by gradients; correlation over all places {np.corrcoef(exact.ravel(), found[hook].ravel())[0, 1]:.2f}")
    heads = found["z"].sum(1)
    exact = patching.get_act_patch_attn_head_out_all_pos(model, corrupted, cache, lambda z: metric(z)[0])
    for layer, head in list(zip(*np.unravel_index(np.argsort(-exact, axis=None), exact.shape)))[:4]:
        print(f"L{layer}H{head}: {exact[layer, head]:.2f} by patching, {heads[layer, head]:.2f} by gradients")
    weights = attention_attribution(model, clean, raw)
    layer, head, query, key = np.unravel_index(np.abs(weights).argmax(), weights.shape)
    pieces = model.to_str_tokens(clean)
    print(f"of single weights of attention, L{layer}H{head} from {pieces[query]!r} to {pieces[key]!r} counts most: {weights[layer, head, query, key]:+.2f}")


if __name__ == "__main__":
    main()
