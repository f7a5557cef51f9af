#!/usr/bin/env python3
"""What the singular vectors of OV circuits and of W_out write, as in TransformerLens's notebook "SVD Interpreter Demo".

usage: svd_of_circuits.py [MODEL] [--layer N] [--head 0]

A head's OV circuit is U diag(S) Vᵀ: what lies along a column of U is written along the same column of V, which the unembedding turns
into a score for every token. The sign of a pair (U, V) is free, so both ends of a direction are shown.
(Millidge and Black, "The Singular Value Decompositions of Transformer Weight Matrices are Highly Interpretable", 2022.)
"""
import argparse

import numpy as np

import vitrine


def written_by_head(model, layer, head, count=10):
    """Scores [vocab, count] of the first singular directions that a head writes, and their singular values [count]."""
    circuit = model.OV[layer, head]
    return model.W_U.T @ circuit.V[:, :count], circuit.S[:count]


def written_by_mlp(model, layer, count=10):
    """The same of an MLP's W_out [d_ff, d_model]."""
    _, S, Vt = np.linalg.svd(model.blocks[layer].mlp.W_out, full_matrices=False)
    return model.W_U.T @ Vt[:count].T, S[:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--layer", type=int, help="default: the last")
    parser.add_argument("--head", type=int, default=0)
    a = parser.parse_args()
    model = vitrine.load(a.model)
    layer = model.cfg.n_layers - 1 if a.layer is None else a.layer
    for title, (scores, S) in ((f"L{layer}H{a.head}", written_by_head(model, layer, a.head, 5)),
                               (f"MLP of layer {layer}", written_by_mlp(model, layer, 5))):
        print(f"{title}: singular value, the tokens at one end of the direction, at the other")
        for s, column in zip(S, scores.T):
            order = np.argsort(column)
            ends = [" ".join(repr(model.to_single_str_token(int(token)))[1:-1] for token in end) for end in (order[:-6:-1], order[:5])]
            print(f"  {s:6.2f}  {ends[0]}   |   {ends[1]}")


if __name__ == "__main__":
    main()
