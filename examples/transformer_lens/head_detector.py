#!/usr/bin/env python3
"""Heads found by what they attend to, as in TransformerLens's notebook "Head Detector Demo".

usage: head_detector.py [MODEL]
"""
import argparse

import numpy as np

import vitrine
from vitrine.head_detector import detect_head


def half_to_the_token_before(length):
    """A pattern of one's own, [query, key]: half of the attention to the token before, the rest to the first token."""
    pattern = np.zeros((length, length))
    pattern[:, 0] = 0.5
    pattern[0, 0] = 1
    pattern[np.arange(1, length), np.arange(length - 1)] += 0.5
    return pattern


def best(scores, count=3):
    """The heads with the highest scores: [(layer, head), …]."""
    order = np.argsort(-scores, axis=None)[:count]
    return [(int(layer), int(head)) for layer, head in zip(*np.unravel_index(order, scores.shape))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    model = vitrine.load(parser.parse_args().model)
    text = "The old king had a dog and the dog had a bone, and the old king had a cat and the cat had a fish."
    for kind in ("previous_token_head", "duplicate_token_head", "induction_head"):
        scores = detect_head(model, text, kind, exclude_bos=True)
        print(f"{kind:24}" + "   ".join(f"L{layer}H{head} {scores[layer, head]:.2f}" for layer, head in best(scores)))
    mine = half_to_the_token_before(model.to_tokens(text).shape[1])
    scores = detect_head(model, text, mine, error_measure="abs")
    print(f"{'half to the one before':24}" + "   ".join(f"L{layer}H{head} {scores[layer, head]:.2f}" for layer, head in best(scores)))


if __name__ == "__main__":
    main()
