"""Functions of the logits, with their derivatives, for gradients and patching.

    metric = vitrine.metrics.logit_difference(answer, other)
    value, at = model.gradients(tokens, "resid_post", metric=metric)
    effect = vitrine.patching.get_act_patch_resid_pre(model, corrupted, clean_cache, metric.value)

A metric is a function of the logits [batch, position, vocab_size] that returns (value, derivative): a number, and an array of the
logits' shape. A function of torch tensors that returns a scalar tensor is one as well, if PyTorch is installed. The metrics of
this module compute in double; a token or a position may be given for each prompt, and the value is the mean over the prompts.
Prompts may differ in length: logits after the end of a shorter one are NaN, the derivative there is ignored, and position -1 is
the last one of each prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .arrays import Doubles, Floats, Ids
from .errors import InputError, RunError, ShapeError

__all__ = ["Metric", "cross_entropy", "evaluate", "kl_divergence", "log_probability", "logit_difference"]

Tokens = int | Sequence[int] | np.ndarray
Labels = Sequence[int] | Sequence[Sequence[int] | np.ndarray] | np.ndarray


class Metric:
    """A function of logits that returns (value, derivative). value(logits) is only the number, for patching."""

    def __init__(self, function: Callable[[np.ndarray], tuple[float, np.ndarray]], name: str) -> None:
        self._function = function
        self.__name__ = name

    def __call__(self, logits: np.ndarray) -> tuple[float, np.ndarray]:
        z = np.asarray(logits)
        if z.ndim != 3:
            raise ShapeError(f"logits are {list(z.shape)}; expected [batch, position, vocab_size]")
        return self._function(z)

    def value(self, logits: np.ndarray) -> float:
        """The number without its derivative."""
        return self(logits)[0]

    def __repr__(self) -> str:
        return f"<vitrine.metrics.{self.__name__}>"


def logit_difference(answer: Tokens, other: Tokens, position: Tokens = -1) -> Metric:
    """logits[answer] - logits[other] after that position."""
    def function(z: np.ndarray) -> tuple[float, np.ndarray]:
        rows, at = _places(z, position)
        right, wrong = _tokens("answer", answer, z), _tokens("other", other, z)
        d = np.zeros(z.shape, np.result_type(z, np.float32))
        np.add.at(d, (rows, at, right), 1 / len(z))
        np.add.at(d, (rows, at, wrong), -1 / len(z))
        return float((z[rows, at, right].astype(np.float64) - z[rows, at, wrong]).mean()), d
    return Metric(function, "logit_difference")


def log_probability(token: Tokens, position: Tokens = -1) -> Metric:
    """log softmax(logits)[token] after that position, in nats."""
    def function(z: np.ndarray) -> tuple[float, np.ndarray]:
        rows, at = _places(z, position)
        of = _tokens("token", token, z)
        log_p = _log_softmax(z[rows, at])
        d = np.zeros(z.shape, np.result_type(z, np.float32))
        d[rows, at] = -np.exp(log_p) / len(z)
        d[rows, at, of] += 1 / len(z)
        return float(log_p[rows, of].mean()), d
    return Metric(function, "log_probability")


def cross_entropy(labels: Labels) -> Metric:
    """The mean of -log softmax(logits at t)[label t + 1] in nats over all that are scored: labels [position] or [batch, position], or
    a list of rows; -100 is not scored.
    """
    wanted, own = _labels(labels)

    def function(z: np.ndarray) -> tuple[float, np.ndarray]:
        lengths = _lengths(z)
        if wanted.shape != z.shape[:2] or (own != lengths).any():
            raise ShapeError(f"labels are {_shape(own)} and the logits {_shape(lengths)}; expected a label for each token")
        rows, at = np.nonzero(wanted[:, 1:] != -100)
        if len(rows) == 0:
            raise InputError("no position is scored: every label from the second on is -100, or there is one token")
        of = wanted[rows, at + 1]
        _check_tokens("label", of, z)
        log_p = _log_softmax(z[rows, at])
        d = np.zeros(z.shape, np.result_type(z, np.float32))
        d[rows, at] = np.exp(log_p) / len(rows)
        d[rows, at, of] -= 1 / len(rows)
        return float(-log_p[np.arange(len(rows)), of].mean()), d
    return Metric(function, "cross_entropy")


def kl_divergence(logits: np.ndarray, position: Tokens | None = None) -> Metric:
    """KL(p || q) in nats: p from these logits [batch, position, vocab_size] (another run's), q from the measured run. The mean
    over prompts and positions, or after one position of each prompt.
    """
    reference = np.asarray(logits)

    def function(z: np.ndarray) -> tuple[float, np.ndarray]:
        if reference.shape != z.shape:
            raise ShapeError(f"the logits to compare with are {list(reference.shape)}; expected {list(z.shape)}, as this run's")
        lengths = _lengths(z)
        if (_lengths(reference) != lengths).any():
            raise ShapeError(f"the logits to compare with are of {_lengths(reference).tolist()} tokens; expected {lengths.tolist()}, as "
                             "this run's")
        where = np.nonzero(np.arange(z.shape[1]) < lengths[:, None]) if position is None else _places(z, position)
        log_p, log_q = _log_softmax(reference[where]), _log_softmax(z[where])
        p = np.exp(log_p)
        places = p[..., 0].size
        d = np.zeros(z.shape, np.result_type(z, np.float32))
        d[where] = (np.exp(log_q) - p) / places
        return float((p * (np.where(p > 0, log_p, 0) - log_q)).sum() / places), d
    return Metric(function, "kl_divergence")


def evaluate(metric: Callable[..., Any], logits: np.ndarray) -> tuple[float, Floats]:
    """The value of a metric and its derivative, float32 of the logits' shape, computed by PyTorch if the metric returns none.

    Raises ShapeError for a derivative of another shape or a value that is no single number, InputError where there is no derivative.
    """
    refused: Exception | None = None
    found: Any = None
    try:
        found = metric(logits)
    except (AttributeError, TypeError) as error:  # what functions of tensors say of an array
        if "torch" not in sys.modules:
            raise
        refused = error
    if not isinstance(found, tuple):
        found = _through_torch(metric, logits, refused)
    if len(found) != 2:
        raise ShapeError(f"the metric gave {len(found)} things; expected (value, derivative)")
    value, derivative = _number(found[0], bool(np.isnan(logits[:, -1, 0]).any())), np.asarray(found[1])
    if derivative.shape != logits.shape or derivative.dtype.kind not in "biuf":
        raise ShapeError(f"the metric's derivative is {derivative.dtype} {list(derivative.shape)}; expected real numbers "
                         f"{list(logits.shape)}, as the logits")
    return value, np.ascontiguousarray(derivative, np.float32)


def value_of(metric: Callable[..., Any], logits: np.ndarray) -> Any:
    """What a metric without derivative gives: a function, or one of those made here."""
    return metric.value(logits) if isinstance(metric, Metric) else metric(logits)


def number_of(metric: Callable[..., Any], logits: np.ndarray) -> float:
    """The value alone."""
    return metric.value(logits) if isinstance(metric, Metric) else evaluate(metric, logits)[0]


def _through_torch(metric: Callable[..., Any], logits: np.ndarray, refused: Exception | None) -> tuple[float, np.ndarray]:
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise InputError("the metric gave a number without its derivative; return (value, derivative), take one of vitrine.metrics, "
                         "or install PyTorch, which derives a function of tensors")
    import torch

    z = torch.from_numpy(np.array(logits, np.float32)).requires_grad_(True)
    try:
        found = metric(z)
    except Exception as error:
        raise error from refused
    if not isinstance(found, torch.Tensor):
        raise InputError(f"the metric gave {type(found).__name__} for an array and for a tensor of logits; expected (value, derivative) "
                         "or a scalar tensor")
    if found.numel() != 1:
        raise ShapeError(f"the metric gave {list(found.shape)}; expected one number")
    if not found.requires_grad:
        raise InputError("the metric's tensor does not depend on the logits, or was taken out of autograd; it has no derivative")
    (gradient,) = torch.autograd.grad(found.reshape(()), z)
    return float(found.detach()), gradient.numpy()


def _number(value: Any, ragged: bool) -> float:
    if np.size(value) != 1:
        raise ShapeError(f"the metric gave {list(np.shape(value))}; expected one number")
    number = float(np.asarray(value).reshape(()))
    if not np.isfinite(number):
        raise RunError(f"the metric is {number}. Logits behind the end of a shorter row are NaN" if ragged else f"the metric is {number}")
    return number


def _log_softmax(z: np.ndarray) -> Doubles:
    z = z.astype(np.float64)
    z -= z.max(axis=-1, keepdims=True)
    logs: Doubles = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    return logs


def _places(z: np.ndarray, position: Tokens) -> tuple[Ids, Ids]:
    """(row, position) for each row."""
    at, lengths = _of_each_row("position", position, z), _lengths(z)
    wrong = np.flatnonzero((at < -lengths) | (at >= lengths))
    if len(wrong):
        of_row = f" of row {wrong[0]}" if len(set(lengths.tolist())) > 1 else ""
        raise InputError(f"position {at.tolist()} is outside the prompt{of_row}, whose positions are 0 to {lengths[wrong[0]] - 1}")
    return np.arange(len(z)), at % lengths


def _lengths(z: np.ndarray) -> Ids:
    """The tokens of each row: logits behind a row's end are NaN."""
    lengths: Ids = z.shape[1] - np.isnan(z[:, ::-1, 0]).cumprod(axis=1).sum(axis=1)
    return lengths


def _labels(labels: Labels) -> tuple[Ids, Ids]:
    """[batch, position], filled up with -100, and the length of each row."""
    several = not isinstance(labels, np.ndarray) and len(labels) > 0 and np.ndim(labels[0]) > 0
    rows = [np.asarray(row) for row in (labels if several else np.atleast_2d(np.asarray(labels)))]
    for row in rows:
        if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
            raise InputError(f"labels are {row.dtype} {list(row.shape)}; expected whole numbers [position] or [batch, position]")
    own = np.array([len(row) for row in rows], np.int64)
    wanted = np.full((len(rows), own.max(initial=0)), -100, np.int64)
    for padded, row in zip(wanted, rows, strict=True):
        padded[: len(row)] = row
    return wanted, own


def _shape(lengths: Ids) -> str:
    same = len(set(lengths.tolist())) == 1
    return str([len(lengths), int(lengths[0])]) if same else f"{len(lengths)} rows of {lengths.tolist()}"


def _tokens(what: str, tokens: Tokens, z: np.ndarray) -> Ids:
    found = _of_each_row(what, tokens, z)
    _check_tokens(what, found, z)
    return found


def _check_tokens(what: str, tokens: Ids, z: np.ndarray) -> None:
    wrong = tokens[(tokens < 0) | (tokens >= z.shape[2])]
    if len(wrong):
        raise InputError(f"{what} {wrong[0]} is outside the vocabulary, 0 to {z.shape[2] - 1}")


def _of_each_row(what: str, given: Tokens, z: np.ndarray) -> Ids:
    numbers = np.asarray(given)
    if numbers.dtype.kind not in "iu" or numbers.ndim > 1 or numbers.size not in (1, len(z)):
        raise InputError(f"{what} is {given!r}; expected a whole number, or one for each of the {len(z)} rows")
    return np.broadcast_to(numbers.reshape(-1), len(z)).astype(np.int64)
