"""Gradients of any function of the logits, at any hooks, and methods based on them: attribution patching and integrated
gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from . import metrics
from .arrays import Floats, Ids
from .batches import Batch, Prompts, batch_of
from .cache import ActivationCache
from .errors import InputError, ShapeError, UsageError
from .hook_backward import DerivedHooks
from .hook_functions import Hook, HookPoint
from .hook_requests import NamesFilter, Slice, requests_of, sliced
from .hooking import hooks
from .input_gradients import InputGradients
from .input_hooks import apart_from_inputs
from .opened import OpenedModel
from .results import Effects
from .running import run_with_cache
from .whole_numbers import INT32, within

Per = Literal["value", "head", "position", "layer"]


def gradients(
    model: OpenedModel, prompt: Prompts, names_filter: NamesFilter, *, metric: Callable[..., Any] | None = None,
    labels: Sequence[int] | Sequence[Sequence[int]] | np.ndarray | None = None, fwd_hooks: Iterable[Hook] = (),
    bwd_hooks: Iterable[Hook] = (), heads: Slice = None, positions: Slice = None,
) -> tuple[float, ActivationCache]:
    """A metric of the prompt, and its gradient at the hooks that names_filter matches, as in run_with_cache: (value, gradients).

    prompt     one, or several: the metric sees all of their logits, with NaN after the end of a shorter prompt
    names_filter
               includes inputs of heads and MLPs: hook_q_input, hook_k_input, hook_v_input, hook_attn_in, hook_mlp_in
    metric     a function of logits [batch, position, vocab_size] that returns (value, derivative), as in vitrine.metrics, or a
               function of a torch tensor that returns a scalar tensor. None: the mean cross-entropy of the labels
    labels     of the prompt's shape; label t + 1 is scored against the logits at t, -100 is not scored. None: the prompt itself
    fwd_hooks  functions at hooks, in addition to those of hooks() and add_hook(). The metric and its gradient are those of the
               changed run; docs/gradients.md describes how gradients flow back through them. The prompts of a batch run one after
               the other here
    bwd_hooks  functions of (gradient, hook) at hooks: what one returns, or leaves in the array, replaces the gradient. The
               returned gradients are those before
    """
    batch = model._batch(prompt)
    if len(batch) == 0:
        raise InputError("there are no tokens to run; give at least one")
    asked, inputs = apart_from_inputs(model, names_filter)
    requests = sliced(model._session, asked, heads, positions) if asked or not inputs else []
    if metric is not None and labels is not None:
        raise UsageError("metric and labels are both given; labels are those of the cross-entropy, metrics.cross_entropy(labels)")
    forward, backward = [*model._hooks, *fwd_hooks], list(bwd_hooks)
    if metric is not None:
        return _gradients(model, batch, requests, metric, [forward] * len(batch), backward, inputs)
    wanted = batch if labels is None else _labels(batch, labels)
    if forward or backward or inputs:
        return _gradients(model, batch, requests, metrics.cross_entropy(wanted.rows), [forward] * len(batch), backward, inputs)
    value, of_rows = model._session.loss_gradients(batch.ids, batch.lengths, requests, wanted.ids)
    return value, _joined(of_rows, model, batch)


def _gradients(
    model: OpenedModel, batch: Batch, requests: list[str], metric: Callable[..., Any], forward: Sequence[Sequence[Hook]],
    backward: Sequence[Hook] = (), inputs: Sequence[str] = (),
) -> tuple[float, ActivationCache]:
    """forward: the functions of each row."""
    derived = InputGradients(model, inputs)
    # Without any function, they still handle Ctrl-C.
    calls = [DerivedHooks(model, [*mine, *derived.watching()], backward, len(batch) > 1).calls() for mine in forward]
    value, of_rows = model._session.metric_gradients(
        batch.ids, batch.lengths, requests + derived.sinks, lambda z: metrics.evaluate(metric, z), calls)
    if inputs:
        wanted = {name for request in requests for name in model._session.find_hooks(request.split("[")[0])}
        of_rows = [{**{name: g for name, g in found.items() if name in wanted}, **derived.at(found, i)} for i, found in enumerate(of_rows)]
    return value, _joined(of_rows, model, batch)


def attribution_patching(
    model: OpenedModel, clean: Prompts, corrupted: Prompts, metric: Callable[..., Any], names_filter: NamesFilter, *,
    per: Per = "position", fwd_hooks: Iterable[Hook] = (), heads: Slice = None, positions: Slice = None,
) -> Effects:
    """How much the metric of the corrupted prompt would change, to first order, if a value were replaced by that of the clean
    one: (clean value - corrupted value) · gradient in the corrupted run, for all requested hooks at once, with two runs and one
    backward pass. Nanda 2023 (attribution patching); Syed et al., arXiv:2310.10348.

    clean, corrupted  a prompt and another of the same length, or several with as many others; prompts may differ in length, and
                      after the end of a shorter one effects are 0
    metric            as in gradients(); with a mean over prompts each prompt has its share, so that sums over prompts are those
                      of the mean
    per               "position": the sum over all else, [batch, position]; "head": [batch, position, head]; "layer": [batch];
                      "value": every number, of the value's shape. Patterns and scores count at their query
    """
    with hooks(model, fwd_hooks):
        rows = _pair(model, clean, corrupted)
        asked, inputs = apart_from_inputs(model, names_filter)
        requests = [*(sliced(model._session, asked, heads, positions) if asked or not inputs else []), *inputs]
        logits, at_clean = run_with_cache(model, rows[0].rows, requests)
        _, at_corrupted = run_with_cache(model, rows[1].rows, requests)
        value, slope = gradients(model, rows[1].rows, requests, metric=metric)
        effects = {}
        for name, g in slope.items():
            g = np.where(np.isnan(g), np.float32(0), g) if rows[1].ragged else g
            effects[name] = _per(name, per, _difference(at_clean[name], at_corrupted[name]) * g)
        return Effects(metrics.number_of(metric, logits), value, effects)


def integrated_gradients(
    model: OpenedModel, clean: Prompts, corrupted: Prompts, metric: Callable[..., Any], names_filter: NamesFilter, *, steps: int = 16,
    per: Per = "position", fwd_hooks: Iterable[Hook] = (), heads: Slice = None, positions: Slice = None,
) -> Effects:
    """The same with the gradient's mean along the straight line from the corrupted value to the clean one, by Gauss-Legendre
    quadrature over `steps` points, with the rest of the run corrupted. At each hook the sum of the effects is then the effect of
    patching the whole hook, except for the quadrature error. One run and one backward pass for every hook and step. Sundararajan
    et al., arXiv:1703.01365; at hooks: Hanna et al., arXiv:2403.17806 (EAP-IG).
    """
    roots, factors = np.polynomial.legendre.leggauss(within("steps", steps, 1, 4096))
    points, weights = (roots + 1) / 2, factors / 2
    with hooks(model, fwd_hooks):
        rows = _pair(model, clean, corrupted)
        names = requests_of(model._session, names_filter)
        if any("[" in name for name in names):
            raise InputError("names with slices are not integrated along; give the slices as heads= and positions=")
        requests = sliced(model._session, names, heads, positions)
        if rows[1].ragged:
            raise InputError("integrated_gradients takes rows of one length; give those of another length in a call of their own")
        logits, at_clean = run_with_cache(model, rows[0].rows, requests)
        corrupted_logits, at_corrupted = run_with_cache(model, rows[1].rows, requests)
        effects: dict[str, Floats] = {}
        for name, begin in at_corrupted.items():
            difference = _difference(at_clean[name], begin)
            where = _where(name, begin, heads, positions)
            total = np.zeros(difference.shape)
            for point, weight in zip(points, weights):
                here = begin + np.float32(point) * difference
                walk = [[*model._hooks, (name, _Put(here[i : i + 1], where))] for i in range(len(here))]
                _, slope = _gradients(model, rows[1], [name], metric, walk)
                total += weight * slope[name][where]
            effects[name] = _per(name, per, difference * total.astype(np.float32))
        return Effects(metrics.number_of(metric, logits), metrics.number_of(metric, corrupted_logits), effects)


class _Put:
    """Puts a constant in a part of a value."""

    def __init__(self, constant: Floats, where: tuple[slice, ...]) -> None:
        self._constant, self._where = constant, where

    def forward(self, value: Floats, hook: HookPoint) -> None:
        value[self._where] = self._constant

    def backward(self, gradient: Floats, hook: HookPoint) -> Floats:
        gradient[self._where] = 0
        return gradient


def _labels(batch: Batch, labels: Sequence[int] | Sequence[Sequence[int]] | np.ndarray) -> Batch:
    def refuse(text: str) -> Ids:
        raise InputError(f"labels are whole numbers; got {text!r}")

    rows = batch_of(labels, refuse)
    if rows.lengths != batch.lengths:
        raise InputError(f"labels are of {rows.lengths} tokens, and the prompts of {batch.lengths}; expected a label for each token")
    for label in (rows.ids.min(initial=0), rows.ids.max(initial=0)):
        within("a label", label, -INT32, INT32)
    return rows


def _joined(of_rows: list[dict[str, Floats]], model: OpenedModel, batch: Batch) -> ActivationCache:
    values = of_rows[0] if len(of_rows) == 1 else {name: _together(name, [row[name] for row in of_rows]) for name in of_rows[0]}
    return ActivationCache(values, model, lengths=batch.lengths)


def _together(name: str, rows: list[Floats]) -> Floats:
    """Rows [1, …] as one array; behind the end of a shorter one NaN, of patterns and scores behind its keys 0."""
    most = np.max([row.shape for row in rows], axis=0)
    if all(row.shape == tuple(most) for row in rows):
        return np.concatenate(rows)
    made = np.full((len(rows), *most[1:]), np.nan, np.float32)
    of_positions, _ = _axes(name, rows[0])
    for to, row in zip(made, rows, strict=True):
        here = [slice(None)] * to.ndim
        here[of_positions - 1] = slice(row.shape[of_positions])
        to[tuple(here)] = 0
        to[tuple(slice(n) for n in row.shape[1:])] = row[0]
    return made


def _pair(model: OpenedModel, clean: Prompts, corrupted: Prompts) -> tuple[Batch, Batch]:
    pair = model._batch(clean), model._batch(corrupted)
    if pair[0].lengths != pair[1].lengths or len(pair[0]) == 0:
        raise ShapeError(f"the clean prompt is {_tokens(pair[0])} and the corrupted one {_tokens(pair[1])}; expected as many")
    return pair


def _tokens(batch: Batch) -> str:
    return f"{batch.lengths if batch.ragged else [len(batch), batch.longest]} tokens"


def _difference(clean: Floats, corrupted: Floats) -> Floats:
    """Without what a mask makes infinite in both."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(clean) & np.isfinite(corrupted), clean - corrupted, np.float32(0))


def _axes(name: str, value: Floats) -> tuple[int, int | None]:
    """The axes of positions (of scores and patterns: of queries) and heads of a value with its batch axis."""
    if name.endswith((".attn.hook_attn_scores", ".attn.hook_pattern")):
        return 2, 1
    return 1, 2 if value.ndim > 3 and (".attn." in name or name.endswith(("_input", "attn_in"))) else None


def _where(name: str, value: Floats, heads: Slice, positions: Slice) -> tuple[slice, ...]:
    """The part of a value that slices of a request select."""
    where = [slice(None)] * value.ndim
    of_positions, of_heads = _axes(name, value)
    for axis, part in ((of_positions, positions), (of_heads, heads)):
        if axis is not None and part is not None:
            where[axis] = part if isinstance(part, slice) else slice(part, part + 1 or None)
    return tuple(where)


def _per(name: str, per: Per, effects: Floats) -> Floats:
    of_positions, of_heads = _axes(name, effects)
    if per == "value":
        return effects
    if per == "layer":
        kept = [0]
    elif per == "position":
        kept = [0, of_positions]
    elif per != "head":
        raise UsageError(f"per is {per!r}; expected 'value', 'head', 'position' or 'layer'")
    elif of_heads is None:
        raise InputError(f"{name} has no heads; ask for hooks that do, or for per='position'")
    else:
        kept = [0, of_positions, of_heads]
    summed = effects.sum(axis=tuple(axis for axis in range(effects.ndim) if axis not in kept), dtype=np.float64)
    swapped = of_heads is not None and per == "head" and of_heads < of_positions
    result: Floats = (summed.swapaxes(1, 2) if swapped else summed).astype(np.float32)
    return result
