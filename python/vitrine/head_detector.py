"""Heads by what they attend to, as TransformerLens's head_detector finds them.

    scores = vitrine.head_detector.detect_head(model, "the cat and the cat", "induction_head")  # [layer, head]
    vitrine.head_detector.detect_head(model, text, my_pattern, error_measure="abs")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from .arrays import ArrayLike, Doubles
from .batches import Prompts
from .cache import ActivationCache
from .errors import InputError, ShapeError, UsageError
from .model import Model
from .running import run_with_cache

__all__ = [
    "detect_head", "get_duplicate_token_head_detection_pattern", "get_induction_head_detection_pattern",
    "get_previous_token_head_detection_pattern",
]

Heads = Iterable[tuple[int, int]] | Mapping[int, Iterable[int]]


def get_previous_token_head_detection_pattern(tokens: ArrayLike) -> Doubles:
    """[query, key]: 1 from each token of ids [position] or [1, position] to the one before it."""
    return np.eye(_row(tokens).size, k=-1)


def get_duplicate_token_head_detection_pattern(tokens: ArrayLike) -> Doubles:
    """[query, key]: 1 from each token to the same token earlier."""
    row = _row(tokens)
    same: Doubles = np.tril(row[:, None] == row, -1).astype(np.float64)
    return same


def get_induction_head_detection_pattern(tokens: ArrayLike) -> Doubles:
    """[query, key]: 1 from each token to what followed the same token earlier."""
    pattern: Doubles = np.zeros((_row(tokens).size,) * 2)
    pattern[:, 1:] = get_duplicate_token_head_detection_pattern(tokens)[:, :-1]
    return pattern


_PATTERNS: dict[str, Callable[[ArrayLike], Doubles]] = {
    "previous_token_head": get_previous_token_head_detection_pattern,
    "duplicate_token_head": get_duplicate_token_head_detection_pattern,
    "induction_head": get_induction_head_detection_pattern,
}


def detect_head(
    model: Model, seq: Prompts, detection_pattern: str | ArrayLike, heads: Heads | None = None, cache: ActivationCache | None = None, *,
    exclude_bos: bool = False, exclude_current_token: bool = False, error_measure: Literal["mul", "abs"] = "mul",
) -> Doubles:
    """How well the attention of each head fits a pattern: [layer, head]; -1 for heads that are not asked for.

    seq      a prompt, or several, of which the scores are the mean
    detection_pattern
             "previous_token_head", "duplicate_token_head", "induction_head", or a lower triangular array [query, key]
    heads    (layer, head) pairs, or the heads by layer; None: all
    cache    the patterns of a run of the prompt; None: it is run
    exclude_bos, exclude_current_token
             attention to the first token, of a token to itself, is not counted
    error_measure
             "mul": the share of all attention that is where the pattern is 1; "abs": 1 - the mean over queries of the summed
             absolute differences
    """
    if error_measure not in ("mul", "abs"):
        raise UsageError(f"error_measure is {error_measure!r}; expected 'mul' or 'abs'")
    if isinstance(detection_pattern, str) and detection_pattern not in _PATTERNS:
        raise InputError(f"detection_pattern is {detection_pattern!r}; expected an array [query, key] or one of {', '.join(_PATTERNS)}")
    batch = model._batch(seq)
    if cache is not None and len(batch) != 1:
        raise UsageError(f"a cache holds one run; of {len(batch)} prompts omit cache=, or give one prompt")
    asked = _asked(model, heads)
    scores = np.zeros((len(batch), model.config.n_layers, model.config.n_heads))
    for scores_of_row, row in zip(scores, batch.rows, strict=True):
        wanted = _wanted(detection_pattern, row)
        names = [f"blocks.{layer}.attn.hook_pattern" for layer in sorted({layer for layer, _ in asked})]
        run = cache if cache is not None else run_with_cache(model, row, names, return_type=None)[1]
        patterns = {layer: run["pattern", layer].reshape(-1, row.size, row.size) for layer, _ in asked}
        scores_of_row[...] = -1
        for layer, head in asked:
            scores_of_row[layer, head] = _score(patterns[layer][head].astype(np.float64), wanted, exclude_bos, exclude_current_token,
                                                error_measure)
    mean: Doubles = scores.mean(0)
    return mean


def _score(pattern: Doubles, wanted: Doubles, exclude_bos: bool, exclude_current_token: bool, error_measure: str) -> float:
    counted = np.ones_like(pattern)
    if exclude_bos:
        counted[:, 0] = 0
    if exclude_current_token:
        np.fill_diagonal(counted, 0)
    if error_measure == "mul":
        attention = pattern * counted
        return float((attention * wanted).sum() / attention.sum()) if attention.any() else 0.0
    return float(1 - (np.abs(pattern - wanted) * counted).sum() / len(pattern))


def _wanted(detection_pattern: str | ArrayLike, row: np.ndarray) -> Doubles:
    if isinstance(detection_pattern, str):
        return _PATTERNS[detection_pattern](row)
    wanted = np.asarray(detection_pattern, np.float64)
    if wanted.shape != (row.size, row.size):
        raise ShapeError(f"the detection pattern is {list(wanted.shape)} and the prompt has {row.size} tokens; expected [{row.size}, {row.size}]")
    if np.triu(wanted, 1).any():
        raise InputError("the detection pattern is not lower triangular; a token attends to no later one")
    return wanted


def _asked(model: Model, heads: Heads | None) -> Sequence[tuple[int, int]]:
    c = model.config
    if heads is None:
        return [(layer, head) for layer in model.composition_layer_indices() for head in range(c.n_heads)]
    pairs = [(layer, head) for layer, of_layer in heads.items() for head in of_layer] if isinstance(heads, Mapping) else list(heads)
    for layer, head in pairs:
        if not (0 <= layer < c.n_layers and 0 <= head < c.n_heads):
            raise InputError(f"heads names L{layer}H{head}; the model has layers 0 to {c.n_layers - 1} and heads 0 to {c.n_heads - 1}")
    return pairs


def _row(tokens: ArrayLike) -> np.ndarray:
    ids = np.asarray(tokens)
    if ids.ndim == 2 and len(ids) == 1:
        ids = ids[0]
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ShapeError(f"tokens are {ids.dtype} {list(ids.shape)}; expected ids [position] or [1, position]")
    return ids
