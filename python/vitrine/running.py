"""Runs of a prompt: logits, losses, values by hook name, predictions and their attribution."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, Literal, SupportsIndex, overload

import numpy as np

from ._vitrine import Past
from .arrays import Doubles, Floats
from .batches import Batch, OnePrompt, Prompt, Prompts, SeveralPrompts
from .cache import ActivationCache
from .errors import InputError, ShapeError, UsageError
from .hook_functions import Hook
from .hook_requests import NamesFilter, Slice, apart_from, sliced
from .hooking import HookSet, calls_of, hooks
from .input_hooks import apart_from_inputs
from .opened import OpenedModel
from .results import Attribution, NextToken, Prediction, Predictions, TokenLosses
from .whole_numbers import INT64, within

ReturnType = Literal["logits", "loss", "both"] | None


class KeyValueCache:
    """Keys and values of the tokens that ran with past_kv_cache, of one prompt. Made by Model.kv_cache()."""

    def __init__(self, model: OpenedModel) -> None:
        self._past: Past = model._session.past()

    def __len__(self) -> int:
        return self._past.length

    def truncate(self, length: int) -> None:
        """Removes all but the first `length` tokens. Raises UsageError if that is not possible for a layer with a window or a
        state."""
        self._past.truncate(within("length", length, 0, len(self)))

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError("keys and values cannot be copied or pickled; run their tokens again with another kv_cache(), or go back with "
                         "truncate()")

    def __repr__(self) -> str:
        return f"<KeyValueCache of {len(self)} tokens>"


@overload
def call(
    model: OpenedModel, prompt: Prompts, return_type: Literal["logits"] = "logits", *, loss_per_token: bool = False,
    start_at_layer: int | None = None, stop_at_layer: int | None = None, tokens: Prompts | None = None,
    past_kv_cache: KeyValueCache | None = None, prepend_bos: bool | None = None,
) -> Floats: ...


@overload
def call(
    model: OpenedModel, prompt: Prompts, return_type: Literal["loss"], *, loss_per_token: Literal[False] = False,
    start_at_layer: int | None = None, stop_at_layer: int | None = None, tokens: Prompts | None = None,
    past_kv_cache: KeyValueCache | None = None, prepend_bos: bool | None = None,
) -> float: ...


@overload
def call(
    model: OpenedModel, prompt: Prompts, return_type: Literal["loss"], *, loss_per_token: Literal[True],
    start_at_layer: int | None = None, stop_at_layer: int | None = None, tokens: Prompts | None = None,
    past_kv_cache: KeyValueCache | None = None, prepend_bos: bool | None = None,
) -> Doubles: ...


@overload
def call(
    model: OpenedModel, prompt: Prompts, return_type: Literal["both"], *, loss_per_token: bool = False,
    start_at_layer: int | None = None, stop_at_layer: int | None = None, tokens: Prompts | None = None,
    past_kv_cache: KeyValueCache | None = None, prepend_bos: bool | None = None,
) -> tuple[Floats, Any]: ...


@overload
def call(
    model: OpenedModel, prompt: Prompts, return_type: ReturnType = "logits", *, loss_per_token: bool = False,
    start_at_layer: int | None = None, stop_at_layer: int | None = None, tokens: Prompts | None = None,
    past_kv_cache: KeyValueCache | None = None, prepend_bos: bool | None = None,
) -> Any: ...


def call(
    model: OpenedModel, prompt: Prompts, return_type: ReturnType = "logits", *, loss_per_token: bool = False,
    start_at_layer: int | None = None, stop_at_layer: int | None = None, tokens: Prompts | None = None,
    past_kv_cache: KeyValueCache | None = None, prepend_bos: bool | None = None,
    **unknown: Any,
) -> Any:
    """The logits after every position, float32 [batch, position, vocab_size], after the model's soft cap if it has one.

    "loss": the mean cross-entropy in nats of each token given those before it, a scalar over all prompts; with loss_per_token all
    of them, [batch, position - 1]. The output head is computed in chunks: no table of logits is made. "both": (logits, loss).
    None: nothing, for hook functions; the run stops after the last of them.
    start_at_layer  prompt is the residual stream before this layer, [batch, position, d_model], and the layers before it do not
                    run. tokens: its ids, which are needed for a loss, for prompts of different length and for models with
                    per-layer embeddings
    stop_at_layer   the result is the residual stream before this layer (n_layers: after the last), and the run stops there
    past_kv_cache   from kv_cache(): the tokens follow those in it, and are added to it
    prepend_bos     of texts, as to_tokens() has it; None: as in the tokenizer's file
    """
    _answer("A run", unknown)
    _check_return_type(return_type)
    stream = None
    if start_at_layer is not None:
        stream, start_at_layer = _stream(model, prompt), _a_layer(model, "start_at_layer", start_at_layer, model.config.n_layers - 1)
        ended = np.isnan(stream[:, -1]).all(axis=-1)
        if tokens is None and ended.any() and not ended.all():
            raise UsageError("a run of rows of different length that starts at a layer needs tokens=")
        batch = model._batch(np.zeros(stream.shape[:2], np.int64) if tokens is None else tokens, prepend_bos)
        if (len(batch), batch.longest) != stream.shape[:2]:
            raise ShapeError(f"tokens are {[len(batch), batch.longest]} and the stream is {list(stream.shape)}; expected a row for "
                             "every token")
        if tokens is None and (return_type in ("loss", "both") or model._facts(0)["per_layer"]):
            raise UsageError("a run that starts at a layer needs tokens= for a loss, and in models with per-layer embeddings")
    elif tokens is not None:
        raise UsageError("tokens= goes with start_at_layer=; the tokens of a usual run are the prompt")
    else:
        batch = model._batch(prompt, prepend_bos)
    options: dict[str, Any] = {"start": start_at_layer or 0, "stream": stream, "past": past_kv_cache}
    if stop_at_layer is not None:
        layer = _a_layer(model, "stop_at_layer", stop_at_layer, model.config.n_layers)
        if layer == (start_at_layer or 0) and stream is not None:
            return stream
        name = "blocks.0.hook_resid_pre" if layer == 0 else f"blocks.{layer - 1}.hook_resid_post"
        return run(model, batch, [name], **options)[0][name]
    scored = return_type in ("loss", "both") and _can_be_scored(batch)
    values, losses = run(model, batch, ["hook_logits"] if return_type in ("logits", "both") else [], losses=scored, **options)
    if not scored:
        return values["hook_logits"] if return_type else None
    loss = _loss(batch, losses, loss_per_token)
    return loss if return_type == "loss" else (values["hook_logits"], loss)


# Options of TransformerLens's calls, and what has their place.
_ELSEWHERE = {
    "pos_slice": "use positions=, which keeps the axis of positions also for one index",
    "incl_bwd": "use gradients(), which gives the gradient at every hook",
    "return_cache_object": "use dict(cache)",
    "attention_mask": "leave it out: prompts may differ in length, and nothing is padded",
    "padding_side": "leave it out: nothing is padded",
    "past_left_attention_mask": "leave it out: nothing is padded",
    "shortformer_pos_embed": "use embed() and start_at_layer=",
    "device": "leave it out: it runs on the processor",
    "clear_contexts": "leave it out: contexts end with their hooks",
}


def _answer(what: str, unknown: dict[str, Any]) -> None:
    for name in unknown:
        if name in _ELSEWHERE:
            raise TypeError(f"{what} has no {name}=; {_ELSEWHERE[name]}")
        raise TypeError(f"{what} got an unexpected keyword argument {name!r}")


def _before(model: OpenedModel, layer: int, requests: list[str]) -> tuple[str, list[str]]:
    """The hook at which a run before this layer ends, and the requests of hooks up to there, by their names."""
    order = model._session.hook_names
    end = "blocks.0.hook_resid_pre" if layer == 0 else f"blocks.{layer - 1}.hook_resid_post"
    reached = set(order[: order.index(end) + 1])
    parts = [request.partition("[") for request in requests]
    return end, [name + bracket + slices for glob, bracket, slices in parts for name in model._session.find_hooks(glob) if name in reached]


def _stream(model: OpenedModel, given: object) -> Floats:
    stream = np.ascontiguousarray(given, dtype=np.float32)
    if stream.ndim == 2:
        stream = stream[None]
    if stream.ndim != 3 or stream.shape[2] != model.config.d_model or stream.shape[1] == 0:
        raise ShapeError(f"the residual stream is {list(stream.shape)}; expected [batch, position, {model.config.d_model}]")
    return stream


def _a_layer(model: OpenedModel, what: str, layer: SupportsIndex, last: int) -> int:
    number = operator.index(layer)
    return within(what, number + model.config.n_layers if number < 0 else number, 0, last)


def kv_cache(model: OpenedModel) -> KeyValueCache:
    """An empty cache of keys and values, for past_kv_cache of the model's call."""
    return KeyValueCache(model)


@overload
def run_with_cache(
    model: OpenedModel, prompt: Prompts, names_filter: NamesFilter = None, *, heads: Slice = None, positions: Slice = None,
    return_type: Literal["logits"] = "logits", loss_per_token: bool = False, remove_batch_dim: bool = False, allow_nan: bool = False,
    stop_at_layer: int | None = None, prepend_bos: bool | None = None,
) -> tuple[Floats, ActivationCache]: ...


@overload
def run_with_cache(
    model: OpenedModel, prompt: Prompts, names_filter: NamesFilter = None, *, heads: Slice = None, positions: Slice = None,
    return_type: None, loss_per_token: bool = False, remove_batch_dim: bool = False, allow_nan: bool = False,
    stop_at_layer: int | None = None, prepend_bos: bool | None = None,
) -> tuple[None, ActivationCache]: ...


@overload
def run_with_cache(
    model: OpenedModel, prompt: Prompts, names_filter: NamesFilter = None, *, heads: Slice = None, positions: Slice = None,
    return_type: ReturnType = "logits", loss_per_token: bool = False, remove_batch_dim: bool = False, allow_nan: bool = False,
    stop_at_layer: int | None = None, prepend_bos: bool | None = None,
) -> tuple[Any, ActivationCache]: ...


def run_with_cache(
    model: OpenedModel, prompt: Prompts, names_filter: NamesFilter = None, *, heads: Slice = None, positions: Slice = None,
    return_type: ReturnType = "logits", loss_per_token: bool = False, remove_batch_dim: bool = False, allow_nan: bool = False,
    stop_at_layer: int | None = None, prepend_bos: bool | None = None, **unknown: Any,
) -> tuple[Any, ActivationCache]:
    """Runs the prompt and keeps values by hook name: (logits, cache). They are passed to NumPy without a copy.

    names_filter  a hook name, a pattern in which * matches any characters, an alias ("resid_post", "pattern.3"), each optionally
                  with slices ("blocks.*.attn.hook_pattern[heads=0:2,positions=-1]"), a list of these, or a function of the name.
                  None: every hook but attn.hook_result, which is n_heads times as large as the others
    heads, positions  slices for all of them: an index, or a slice without a step. Values without heads are not sliced by head
    return_type   as in the model's call; None: no logits, and the run stops after the last requested hook
    allow_nan     NaN and infinity are returned instead of an error
    stop_at_layer the run stops before this layer (n_layers: after the last). The result is the residual stream there instead of
                  logits, and the cache has only hooks that were reached
    prepend_bos   of texts, as to_tokens() has it

    Raises InputError for a request that matches no hook, with the nearest names, and for more than fits in memory, before
    running; RunError naming the hook and the position where NaN or infinity first appears.
    """
    _answer("run_with_cache", unknown)
    _check_return_type(return_type)
    asked, inputs = apart_from_inputs(model, names_filter)  # inputs stay whole: no slices
    requests = sliced(model._session, asked, heads, positions) if asked or not inputs else []
    batch = model._batch(prompt, prepend_bos)
    result: Any = None
    returned = "hook_logits" if return_type in ("logits", "both") else None
    if stop_at_layer is not None:
        returned, requests = _before(model, _a_layer(model, "stop_at_layer", stop_at_layer, model.config.n_layers), requests)
    scored = stop_at_layer is None and return_type in ("loss", "both") and _can_be_scored(batch)
    # A run holds a hook once: all of what is returned, of which the cache gets what was asked for.
    of_length = {length: apart_from(model._session, returned, requests, length) for length in set(batch.lengths)}
    others = next(iter(of_length.values()))[0] if of_length else []
    values, losses = run(model, batch, [*others, *inputs, *([returned] if returned else [])], allow_nan=allow_nan, losses=scored)
    if returned is not None:
        result = values.pop(returned)
        slices = [cut for cut in (of_length[length][1] for length in batch.lengths) if cut is not None]
        if slices:  # of every row, or of none
            whole = all(cut == slice(0, length) for cut, length in zip(slices, batch.lengths, strict=True))
            values[returned] = result if whole else _cut(result, slices)
    if scored:
        loss = _loss(batch, losses, loss_per_token)
        result = loss if return_type == "loss" else (result, loss)
    cache = ActivationCache(values, model, lengths=batch.lengths, tokens=batch.rows)
    return result, cache.remove_batch_dim() if remove_batch_dim else cache


@overload
def run_with_hooks(
    model: OpenedModel, prompt: Prompts, fwd_hooks: Iterable[Hook] = (), return_type: Literal["logits"] = "logits", **options: Any,
) -> Floats: ...


@overload
def run_with_hooks(
    model: OpenedModel, prompt: Prompts, fwd_hooks: Iterable[Hook] = (), return_type: ReturnType = "logits", **options: Any,
) -> Any: ...


def run_with_hooks(
    model: OpenedModel, prompt: Prompts, fwd_hooks: Iterable[Hook] = (), return_type: ReturnType = "logits", **options: Any,
) -> Any:
    """The model's call, with functions at hooks; see hooks()."""
    with hooks(model, fwd_hooks):
        return call(model, prompt, return_type, **options)


def run(
    model: OpenedModel, batch: Batch, requests: list[str], *, allow_nan: bool = False, losses: bool = False, start: int = 0,
    stream: Floats | None = None, past: KeyValueCache | None = None,
) -> tuple[dict[str, Floats], Floats]:
    """Values by hook name, and the losses of all rows' tokens but the first of each, one behind the other."""
    requests, inputs = apart_from_inputs(model, requests)
    kept: dict[str, Floats] = {}
    keep = [(name, lambda value, hook: kept.__setitem__(hook.name, value.copy())) for name in inputs]
    calls = HookSet(model, [*model._hooks, *keep]).calls()
    values, scores = model._session.run(
        batch.ids, batch.lengths, requests, calls, allow_nan=allow_nan, losses=losses, start_layer=start,
        stream=None if stream is None else batch.joined(stream), past=None if past is None else past._past)
    return {**values, **kept}, scores


def predict(model: OpenedModel, prompt: Prompt, top: int = 10, *, all_positions: bool = False) -> Predictions:
    """The top most likely tokens after the prompt, or after each of its tokens."""
    ids = model._one(prompt)
    found = model._session.predict(ids, within("top", top, 1, INT64), all_positions, calls_of(model))
    pieces = model._pieces(ids)
    return Predictions((Prediction(position, [NextToken(*token) for token in most_likely]) for position, most_likely in found),
                       [pieces[position] for position, _ in found])


def token_losses(model: OpenedModel, prompt: Prompt) -> TokenLosses:
    """What each token of the prompt costs, in nats: model(prompt, "loss", loss_per_token=True) with the tokens, to be shown."""
    ids = model._one(prompt)
    return TokenLosses(model._pieces(ids), ids.tolist(), call(model, ids, "loss", loss_per_token=True)[0])


@overload
def attribute(
    model: OpenedModel, prompt: OnePrompt, token: int | str | None = None, against: int | str | None = None, *,
    baseline: Literal["mean", "zero"] = "mean", steps: int = 64,
) -> Attribution: ...


@overload
def attribute(
    model: OpenedModel, prompt: SeveralPrompts, token: int | str | None = None, against: int | str | None = None, *,
    baseline: Literal["mean", "zero"] = "mean", steps: int = 64,
) -> list[Attribution]: ...


@overload
def attribute(
    model: OpenedModel, prompt: Prompts, token: int | str | None = None, against: int | str | None = None, *,
    baseline: Literal["mean", "zero"] = "mean", steps: int = 64,
) -> Any: ...


def attribute(
    model: OpenedModel, prompt: Prompts, token: int | str | None = None, against: int | str | None = None, *,
    baseline: Literal["mean", "zero"] = "mean", steps: int = 64,
) -> Any:
    """An Attribution, or a list of them for a list of prompts and for ids [batch, position]: which tokens the log-probability of
    `token` after the prompt depends on. Saliency, gradient times input, and integrated gradients over `steps` points (0: none).

    token     an id, or a text that is one token; None: the most likely
    against   another one, whose log-probability is subtracted: why this and not that
    baseline  where the integral starts: every embedding the vocabulary's mean, or zero
    """
    model._without_hooks("attribution")
    if baseline not in ("mean", "zero"):
        raise UsageError(f"baseline is {baseline!r}; expected 'mean' or 'zero'")
    batch = model._batch(prompt)
    if batch.listed:
        return [attribute(model, row, token, against, baseline=baseline, steps=steps) for row in batch.rows]
    chosen, other = (None if one is None else model._token(one) for one in (token, against))
    ids = batch.rows[0]
    found = model._session.attribute(ids, chosen, other, baseline == "zero", within("steps", steps, 0, INT64))

    def spelled(one: int) -> str:
        piece = model._session.piece(one)
        return repr(piece) if piece else f"token {one}"

    explained = f"log-probability of {spelled(found['token'])}" + ("" if other is None else f" minus that of {spelled(other)}")
    return Attribution(found["token"], found["value"], found["baseline_value"] or 0.0, found["saliency"], found["gradient_input"],
                       found["integrated"], found["gap"] or 0.0, ids.tolist(), model._pieces(ids), explained)


def _check_return_type(return_type: str | None) -> None:
    if return_type not in ("logits", "loss", "both", None):
        raise UsageError(f"return_type is {return_type!r}; expected 'logits', 'loss', 'both' or None")


def _can_be_scored(batch: Batch) -> bool:
    if min(batch.lengths, default=0) < 2:
        raise InputError("a loss takes a prompt of two tokens or more: each is scored given those before it")
    return True


def _loss(batch: Batch, losses: Floats, per_token: bool) -> Any:
    exact = losses.astype(np.float64)
    return batch.padded(exact, shorter=1) if per_token else exact.mean()


def _cut(value: Floats, slices: list[slice]) -> Floats:
    """Positions of each row, its own: [batch, as many as the row with most has, …]; NaN behind a row's end."""
    most = max(cut.stop - cut.start for cut in slices)
    if all(cut == slices[0] for cut in slices):
        return value[:, slices[0]]
    made = np.full((len(value), most, value.shape[2]), np.nan, np.float32)
    for row, whole, cut in zip(made, value, slices, strict=True):
        row[: cut.stop - cut.start] = whole[cut]
    return made
