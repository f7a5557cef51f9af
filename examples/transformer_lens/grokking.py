#!/usr/bin/env python3
"""Modular addition in the Fourier basis, as in TransformerLens's notebook "Grokking Demo".

usage: grokking.py [MODEL] [--p 23]

A model that learned a + b mod p writes a and b as waves of a few frequencies and multiplies them (Nanda et al., "Progress measures for
grokking via mechanistic interpretability", 2023). The functions show the waves: in the embedding, in the neurons, and in the logits. Token
n is the number n, and token p is the equals sign. The shipped model did not learn this, so its waves are faint.
"""
import argparse

import numpy as np

import vitrine


def fourier_basis(p):
    """[p, p]: orthonormal rows: the constant, then cosine and sine of each frequency."""
    angle = 2 * np.pi * np.outer(np.arange(1, p // 2 + 1), np.arange(p)) / p
    rows = [np.ones(p), *(wave for pair in zip(np.cos(angle), np.sin(angle)) for wave in pair)]
    return np.stack([row / np.linalg.norm(row) for row in rows[:p]])


def problems(p):
    """ids [p * p, 3]: "a b =" of every a and b."""
    a, b = np.divmod(np.arange(p * p), p)
    return np.stack([a, b, np.full(p * p, p)], axis=1)


def embedding_waves(model, p):
    """[p]: how much of the embedding of the numbers lies along each wave."""
    return np.linalg.norm(fourier_basis(p) @ model.W_E[:p], axis=-1)


def neurons(model, p, layer):
    """[a, b, neuron]: each neuron of an MLP at the equals sign."""
    _, cache = model.run_with_cache(problems(p), f"post.{layer}", positions=-1, return_type=None)
    return cache["post", layer][:, -1].reshape(p, p, -1)


def neuron_frequencies(activations):
    """The frequency of each neuron, and the share of its variance that waves of this frequency in a, in b and in both explain."""
    p = len(activations)
    basis = fourier_basis(p)
    centered = activations - activations.mean((0, 1))
    power = np.einsum("ia,jb,abn->ijn", basis, basis, centered, optimize=True) ** 2
    explained = np.stack([power[np.ix_(terms, terms)].sum((0, 1)) for terms in ([0, 2 * k - 1, 2 * k] for k in range(1, (p + 1) // 2))])
    share = explained / power.sum((0, 1))
    return share.argmax(0) + 1, share.max(0)


def logits_of(model, p):
    """[p * p, p]: the logits of the numbers after the equals sign."""
    return model(problems(p))[:, -1, :p].astype(np.float64)


def loss(logits):
    """The mean cross-entropy of (a + b) mod p."""
    p = logits.shape[1]
    answers = np.arange(p * p) // p + np.arange(p * p) % p
    exact = logits - logits.max(-1, keepdims=True)
    return float((np.log(np.exp(exact).sum(-1)) - exact[np.arange(p * p), answers % p]).mean())


def waves_of_the_sum(p, frequencies):
    """[2 * frequency, p * p]: cosine and sine of a + b, of length 1."""
    total = np.add.outer(np.arange(p), np.arange(p)).ravel()
    waves = [wave(2 * np.pi * k * total / p) for k in frequencies for wave in (np.cos, np.sin)]
    return np.stack([wave / np.linalg.norm(wave) for wave in waves])


def excluded_and_restricted(logits, frequencies):
    """The loss without the waves of these frequencies of a + b, and the loss of those waves and the mean alone."""
    waves = waves_of_the_sum(logits.shape[1], frequencies)
    along = waves.T @ (waves @ logits)
    return loss(logits - along), loss(along + logits.mean(0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--p", type=int, default=23, help="an odd number; the vocabulary has at least p + 1 tokens")
    a = parser.parse_args()
    model = vitrine.load(a.model)
    waves = embedding_waves(model, a.p)
    most = np.argsort(-waves[1:])[:3] + 1
    print("strongest waves of the embedding: " + ", ".join(f"{'sin' if i % 2 == 0 else 'cos'} {(i + 1) // 2}: {waves[i]:.2f}" for i in most))
    frequency, share = neuron_frequencies(neurons(model, a.p, model.cfg.n_layers - 1))
    counts = np.bincount(frequency, minlength=a.p // 2 + 1)
    key = np.argsort(-counts)[:3]
    print(f"neurons of the last layer of which one frequency explains 85 %: {(share > 0.85).mean():.0%}; most have the frequencies "
          + ", ".join(str(k) for k in key))
    logits = logits_of(model, a.p)
    excluded, restricted = excluded_and_restricted(logits, key)
    print(f"loss {loss(logits):.3f}; without these frequencies {excluded:.3f}; with them alone {restricted:.3f}")


if __name__ == "__main__":
    main()
