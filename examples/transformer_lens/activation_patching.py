#!/usr/bin/env python3
"""Every sweep of the patching module, as in TransformerLens's notebook "Activation Patching in TL Demo".

usage: activation_patching.py [MODEL]

Two prompts differ in one word, and so does the pronoun that follows. Values of the clean run are put into the corrupted one, place by
place; the metric is 0 for the corrupted run and 1 for the clean one.
"""
import argparse

import numpy as np

import vitrine
from vitrine import patching

SWEEPS = ["resid_pre", "resid_mid", "attn_out", "mlp_out", "attn_head_out_by_pos", "attn_head_q_by_pos", "attn_head_k_by_pos",
          "attn_head_v_by_pos", "attn_head_pattern_by_pos", "attn_head_out_all_pos", "attn_head_q_all_pos", "attn_head_k_all_pos",
          "attn_head_v_all_pos", "attn_head_pattern_all_pos"]


def sweeps(model, clean, corrupted, right, wrong, names=SWEEPS):
    """The effect of each sweep by its name. The axes are those of vitrine.patching.get_act_patch_<name>."""
    logits, cache = model.run_with_cache(clean)

    def difference(z):
        return z[0, -1, right] - z[0, -1, wrong]

    high, low = difference(logits), difference(model(corrupted))

    def restored(z):
        return (difference(z) - low) / (high - low)

    return {name: getattr(patching, "get_act_patch_" + name)(model, corrupted, cache, restored) for name in names}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    model = vitrine.load(parser.parse_args().model)
    clean, corrupted = model.to_tokens("The king went home to"), model.to_tokens("The queen went home to")
    found = sweeps(model, clean, corrupted, model.to_single_token(" his"), model.to_single_token(" her"))
    pieces = model.to_str_tokens(clean)
    for name, effect in found.items():
        place = np.unravel_index(np.abs(effect).argmax(), effect.shape)
        words = [f"layer {place[0]}", *(f"head {i}" for i in place[1:] if "all_pos" in name)]
        if "by_pos" in name:  # patterns have the head before the query
            head, position = place[1:] if "pattern" in name else place[:0:-1]
            words += [f"head {head}", f"at {pieces[position]!r}"]
        elif "all_pos" not in name:
            words.append(f"at {pieces[place[1]]!r}")
        print(f"{name:26}{str(list(effect.shape)):14} most: {effect[place]:6.2f}  {', '.join(words)}")


if __name__ == "__main__":
    main()
