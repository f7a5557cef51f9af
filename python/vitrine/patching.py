"""Activation patching: values of a clean run patched into a corrupted one, one at a time, and their effect on a metric.

    clean_logits, clean_cache = model.run_with_cache(clean_tokens)
    effect = vitrine.patching.get_act_patch_resid_pre(model, corrupted_tokens, clean_cache, metric)   # [layer, position]

A metric takes logits [batch, position, vocab_size] and returns a number; those of vitrine.metrics can be used, too. Whatever no
patch changes runs once: the layers before the patched one, and in the sweeps by position the positions before the patched one,
whose keys and values are reused. Many runs of a sweep are batched. Names, axes and results are TransformerLens's. Meng et al.,
arXiv:2202.05262 (causal tracing); Wang et al., arXiv:2211.00593 (patching heads and paths).
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, SupportsIndex, TypeVar

import numpy as np

from . import metrics
from .arrays import Floats, Ids
from .batches import Prompts
from .cache import ActivationCache
from .direct_paths import Metric, get_act_patch_direct_path, get_act_patch_direct_path_all_sources
from .errors import InputError, ShapeError
from .model import Model

Item = TypeVar("Item")
Setter = Callable[[Floats, Sequence[int], Floats], Floats]

__all__ = [
    "generic_activation_patch", "get_act_patch_attn_head_all_pos_every", "get_act_patch_attn_head_by_pos_every",
    "get_act_patch_attn_head_k_all_pos", "get_act_patch_attn_head_k_by_pos", "get_act_patch_attn_head_out_all_pos",
    "get_act_patch_attn_head_out_by_pos", "get_act_patch_attn_head_pattern_all_pos", "get_act_patch_attn_head_pattern_by_pos",
    "get_act_patch_attn_head_pattern_dest_src_pos", "get_act_patch_attn_head_q_all_pos", "get_act_patch_attn_head_q_by_pos",
    "get_act_patch_attn_head_v_all_pos", "get_act_patch_attn_head_v_by_pos", "get_act_patch_attn_out",
    "get_act_patch_block_every", "get_act_patch_direct_path", "get_act_patch_direct_path_all_sources", "get_act_patch_mlp_out",
    "get_act_patch_resid_mid", "get_act_patch_resid_pre", "layer_head_dest_src_pos_pattern_patch_setter",
    "layer_head_pattern_patch_setter", "layer_head_pos_pattern_patch_setter", "layer_head_vector_patch_setter",
    "layer_pos_head_vector_patch_setter", "layer_pos_patch_setter",
]


class Sweep(Protocol):
    """A value patched everywhere, one place at a time."""

    def __call__(
        self, model: Model, corrupted_tokens: Prompts, clean_cache: ActivationCache, patching_metric: Metric,
        indices: Sequence[Sequence[int]] | None = None,
    ) -> Floats: ...


def generic_activation_patch(
    model: Model, corrupted_tokens: Prompts, clean_cache: ActivationCache, patching_metric: Metric, patch_setter: Setter,
    activation_name: str, index_axis_names: Sequence[str] | None = None, indices: Sequence[Sequence[int]] | None = None,
) -> Floats:
    """Runs the corrupted prompt once for every index, with the activation at it patched.

    patch_setter      (corrupted value, index, clean value) -> patched value, of one prompt at a time: [1, …]
    activation_name   short: "resid_pre", "z", "pattern"; the layer is the first number of an index
    index_axis_names  of "layer", "pos", "head_index", "head", "src_pos", "dest_pos": every combination; the result has these axes
    indices           or these indices; the result is as long as they are

    Raises InputError for names, indices and a cache that do not fit, ShapeError for a metric that gives no single number.
    """
    rows = model._rows(corrupted_tokens)
    if not clean_cache.has_batch_dim:
        raise InputError("the clean cache has no batch axis; run_with_cache without remove_batch_dim gives one")
    shape: tuple[int, ...]
    if index_axis_names is not None and indices is None:
        shape = tuple(_sizes(model, activation_name, rows.shape[1], axis) for axis in index_axis_names)
        indices = list(itertools.product(*map(range, shape)))
    elif indices is not None and index_axis_names is None:
        indices, shape = [list(index) for index in indices], (len(indices),)
    else:
        raise InputError("give index_axis_names or indices, one of them")
    clean = _Clean(clean_cache, activation_name, len(rows))
    place_of = _PLACES.get(patch_setter)
    names = {clean.of(layer)[0] for layer in {index[0] for index in indices}}
    if place_of is not None and not model._hooks and all(model._session.can_patch_in_parts(name, rows.shape[1]) for name in names):
        every = _in_parts(model, rows, clean, place_of, indices)
    else:
        every = _whole(model, rows, clean, patch_setter, indices)
    results = np.zeros(len(indices), np.float32)
    for i, logits in enumerate(every):
        found = np.asarray(metrics.value_of(patching_metric, logits))
        if found.size != 1:
            raise ShapeError(f"the metric gave {list(found.shape)}; expected one number")
        results[i] = found.reshape(())
    return results.reshape(shape)


def _sizes(model: Model, activation: str, positions: int, axis: str) -> int:
    heads = model.config.n_kv_heads if activation in ("k", "v") else model.config.n_heads
    sizes = {"layer": model.config.n_layers, "pos": positions, "src_pos": positions, "dest_pos": positions, "head_index": heads,
             "head": heads}
    if axis not in sizes:
        raise InputError(f"{axis!r} is no axis of indices; expected one of {', '.join(sizes)}")
    return sizes[axis]


class _Clean:
    """The clean run's values of one activation."""

    def __init__(self, cache: ActivationCache, activation: str, batch: int) -> None:
        self._cache, self._activation, self._batch = cache, activation, batch

    def of(self, layer: int) -> tuple[str, Floats]:
        """The hook's full name and its value, [1 or batch, …]."""
        layers = self._cache._n_layers
        if not -layers <= layer < layers:
            raise InputError(f"an index has layer {layer}; there are {layers}, 0 to {layers - 1}")
        name = self._cache.name_of((self._activation, layer))
        value = self._cache[name]
        if len(value) not in (1, self._batch):
            raise ShapeError(f"the clean run has a batch of {len(value)}, the corrupted one of {self._batch}; expected the same")
        return name, value

    def check(self, clean: Sequence[int], corrupted: Sequence[int]) -> None:
        if list(clean) != list(corrupted):
            raise ShapeError(f"{self._activation} of the clean run is {list(clean)}, of the corrupted one {list(corrupted)}; "
                             "expected prompts of the same length")


_ROWS_TOGETHER, _LOGITS_TOGETHER = 256, 1 << 24  # of one step: rows, and numbers of their logits


def _rows_together(model: Model) -> int:
    return max(1, min(_ROWS_TOGETHER, _LOGITS_TOGETHER // model.config.vocab_size))


def _whole(
    model: Model, rows: Ids, clean: _Clean, setter: Setter, indices: Sequence[Sequence[int]],
) -> Iterator[Floats]:
    """Logits for every index, each of a run of all positions from the patched layer on; as many of them together as fit."""
    shared = any(model._facts(i)["keys_of"] >= 0 for i in range(model.config.n_layers))
    # Functions that are set at hooks of early layers are to be called in every run, of a batch as it was given.
    streams = None if shared or model._hooks else model.run_with_cache(rows, "resid_pre", return_type=None)[1]
    at_once = 1 if model._hooks else max(1, _rows_together(model) // rows.size)
    for layer, group in itertools.groupby(indices, key=lambda index: index[0]):
        name, value = clean.of(layer)
        for cells in _chunks(list(group), at_once):
            def patch(seen: Floats, hook: object, cells: Sequence[Sequence[int]] = cells, value: Floats = value) -> Floats:
                clean.check(value.shape[1:], seen.shape[1:])
                for i, index in enumerate(cells):
                    for row in range(len(rows)):
                        at = slice(i * len(rows) + row, i * len(rows) + row + 1)
                        seen[at] = setter(seen[at], index, value[row : row + 1] if len(value) > 1 else value)
                return seen

            together = np.tile(rows, (len(cells), 1))
            if streams is None:
                logits = model.run_with_hooks(together, [(name, patch)])
            else:
                stream = np.tile(streams["resid_pre", layer], (len(cells), 1, 1))
                logits = model.run_with_hooks(stream, [(name, patch)], start_at_layer=layer, tokens=together)
            yield from np.split(logits, len(cells))


def _in_parts(
    model: Model, rows: Ids, clean: _Clean, place_of: Place, indices: Sequence[Sequence[int]],
) -> Iterator[Floats]:
    """The same for patches of one position: positions before it are the corrupted run's own."""
    runs = [model._session.patched_runs(row) for row in rows]
    base = model(rows)
    n, length, shape = len(rows), rows.shape[1], _Shape(model, rows)
    for layer, group in itertools.groupby(indices, key=lambda index: index[0]):
        name, value = clean.of(layer)
        clean.check(value.shape[1:], shape.of(name))
        cells = [place_of(index, value, shape.of(name), functools.partial(shape.values, name)) for index in group]
        for together in _by_rows(cells, length, _rows_together(model)):
            positions, heads = [cell[0] for cell in together], [cell[1] for cell in together]
            found = [one.run(name, positions, heads, np.stack([cell[2][i if n == len(cell[2]) else 0] for cell in together]))
                     for i, one in enumerate(runs)]
            first = 0
            for position in positions:
                logits = base.copy()
                for i, changed in enumerate(found):
                    logits[i, position:] = changed[first : first + length - position]
                first += length - position
                yield logits


class _Shape:
    """The shapes of the corrupted run's activations and, where a patch leaves a part of one as it is, their values."""

    def __init__(self, model: Model, rows: Ids) -> None:
        self._model, self._rows = model, rows
        self._values: dict[str, Floats] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}

    def of(self, name: str) -> tuple[int, ...]:
        """[position, …] or [head, query, key], without the batch axis."""
        if name not in self._shapes:
            self._shapes[name] = tuple(self._model._session.hook_shape(name, self._rows.shape[1]))
        return self._shapes[name]

    def values(self, name: str) -> Floats:
        if name not in self._values:
            self._values = {name: self._model.run_with_cache(self._rows, name, return_type=None)[1][name]}
        return self._values[name]


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def _by_rows(cells: Sequence[tuple[int, int, Floats]], length: int, most: int) -> Iterator[list[tuple[int, int, Floats]]]:
    """Groups of cells that have at most `most` rows together."""
    group: list[tuple[int, int, Floats]] = []
    rows = 0
    for cell in cells:
        if group and rows + length - cell[0] > most:
            yield group
            group, rows = [], 0
        group.append(cell)
        rows += length - cell[0]
    if group:
        yield group


def layer_pos_patch_setter(corrupted: Floats, index: Sequence[int], clean: Floats) -> Floats:
    """The clean value at index [layer, position]."""
    _, position = index
    corrupted[:, position] = clean[:, position]
    return corrupted


def layer_pos_head_vector_patch_setter(corrupted: Floats, index: Sequence[int], clean: Floats) -> Floats:
    """The clean value of one head at index [layer, position, head]."""
    _, position, head = index
    corrupted[:, position, head] = clean[:, position, head]
    return corrupted


def layer_head_vector_patch_setter(corrupted: Floats, index: Sequence[int], clean: Floats) -> Floats:
    """The clean value of one head at all positions, index [layer, head]."""
    _, head = index
    corrupted[:, :, head] = clean[:, :, head]
    return corrupted


def layer_head_pattern_patch_setter(corrupted: Floats, index: Sequence[int], clean: Floats) -> Floats:
    """The clean scores or pattern of one head, index [layer, head]."""
    _, head = index
    corrupted[:, head] = clean[:, head]
    return corrupted


def layer_head_pos_pattern_patch_setter(corrupted: Floats, index: Sequence[int], clean: Floats) -> Floats:
    """The clean row of one query, index [layer, head, query]."""
    _, head, query = index
    corrupted[:, head, query] = clean[:, head, query]
    return corrupted


def layer_head_dest_src_pos_pattern_patch_setter(corrupted: Floats, index: Sequence[int], clean: Floats) -> Floats:
    """One number of a pattern, index [layer, head, query, key]."""
    _, head, query, key = index
    corrupted[:, head, query, key] = clean[:, head, query, key]
    return corrupted


# Where a setter puts one position: (position, head or -1, clean values [1 or batch, numbers]).
Place = Callable[[Sequence[int], Floats, tuple[int, ...], Callable[[], Floats]], tuple[int, int, Floats]]


def _number(what: str, found: SupportsIndex, size: int) -> int:
    number = operator.index(found)
    if not -size <= number < size:
        raise InputError(f"an index has {what} {number}; there are {size}, 0 to {size - 1}")
    return number % size


def _place_at_position(index: Sequence[int], clean: Floats, shape: tuple[int, ...], _: object) -> tuple[int, int, Floats]:
    position = _number("position", index[1], shape[0])
    return position, -1, clean[:, position].reshape(len(clean), -1)


def _place_of_head(index: Sequence[int], clean: Floats, shape: tuple[int, ...], _: object) -> tuple[int, int, Floats]:
    position, head = _number("position", index[1], shape[0]), _number("head", index[2], shape[1])
    return position, head, clean[:, position, head]


def _place_of_query(index: Sequence[int], clean: Floats, shape: tuple[int, ...], _: object) -> tuple[int, int, Floats]:
    head, query = _number("head", index[1], shape[0]), _number("query", index[2], shape[1])
    return query, head, clean[:, head, query]


def _place_of_key(
    index: Sequence[int], clean: Floats, shape: tuple[int, ...], corrupted: Callable[[], Floats],
) -> tuple[int, int, Floats]:
    head, query, key = (_number(what, n, size) for what, n, size in zip(("head", "query", "key"), index[1:], shape, strict=True))
    row = corrupted()[:, head, query].copy()
    row[:, key] = clean[:, head, query, key]
    return query, head, row


_PLACES: dict[Setter, Place] = {
    layer_pos_patch_setter: _place_at_position, layer_pos_head_vector_patch_setter: _place_of_head,
    layer_head_pos_pattern_patch_setter: _place_of_query, layer_head_dest_src_pos_pattern_patch_setter: _place_of_key,
}


def _patch(name: str, activation: str, setter: Setter, axes: tuple[str, ...], what: str) -> Sweep:
    def patch(
        model: Model, corrupted_tokens: Prompts, clean_cache: ActivationCache, patching_metric: Metric,
        indices: Sequence[Sequence[int]] | None = None,
    ) -> Floats:
        all_of = axes if indices is None else None
        return generic_activation_patch(model, corrupted_tokens, clean_cache, patching_metric, setter, activation, all_of, indices)

    patch.__name__ = patch.__qualname__ = name
    patch.__doc__ = f"""The metric for {what} patched: float32 [{', '.join(axes)}]. indices: some of them only, as a list."""
    return patch


_BY_POSITION, _BY_HEAD = ("layer", "pos"), ("layer", "head")
_BY_BOTH = ("layer", "pos", "head")
get_act_patch_resid_pre = _patch(
    "get_act_patch_resid_pre", "resid_pre", layer_pos_patch_setter, _BY_POSITION, "the stream before each layer")
get_act_patch_resid_mid = _patch(
    "get_act_patch_resid_mid", "resid_mid", layer_pos_patch_setter, _BY_POSITION, "the stream between attention and MLP")
get_act_patch_attn_out = _patch(
    "get_act_patch_attn_out", "attn_out", layer_pos_patch_setter, _BY_POSITION, "what each attention adds")
get_act_patch_mlp_out = _patch(
    "get_act_patch_mlp_out", "mlp_out", layer_pos_patch_setter, _BY_POSITION, "what each MLP adds")
get_act_patch_attn_head_out_by_pos = _patch(
    "get_act_patch_attn_head_out_by_pos", "z", layer_pos_head_vector_patch_setter, _BY_BOTH, "each head's z at a position")
get_act_patch_attn_head_q_by_pos = _patch(
    "get_act_patch_attn_head_q_by_pos", "q", layer_pos_head_vector_patch_setter, _BY_BOTH, "each head's query at a position")
get_act_patch_attn_head_k_by_pos = _patch(
    "get_act_patch_attn_head_k_by_pos", "k", layer_pos_head_vector_patch_setter, _BY_BOTH, "each head's key at a position")
get_act_patch_attn_head_v_by_pos = _patch(
    "get_act_patch_attn_head_v_by_pos", "v", layer_pos_head_vector_patch_setter, _BY_BOTH, "each head's value at a position")
get_act_patch_attn_head_pattern_by_pos = _patch(
    "get_act_patch_attn_head_pattern_by_pos", "pattern", layer_head_pos_pattern_patch_setter, ("layer", "head_index", "dest_pos"), "each head's pattern at a query")
get_act_patch_attn_head_pattern_dest_src_pos = _patch(
    "get_act_patch_attn_head_pattern_dest_src_pos", "pattern", layer_head_dest_src_pos_pattern_patch_setter, ("layer", "head_index", "dest_pos", "src_pos"), "each head's pattern at a query and a key")
get_act_patch_attn_head_out_all_pos = _patch(
    "get_act_patch_attn_head_out_all_pos", "z", layer_head_vector_patch_setter, _BY_HEAD, "each head's z")
get_act_patch_attn_head_q_all_pos = _patch(
    "get_act_patch_attn_head_q_all_pos", "q", layer_head_vector_patch_setter, _BY_HEAD, "each head's queries")
get_act_patch_attn_head_k_all_pos = _patch(
    "get_act_patch_attn_head_k_all_pos", "k", layer_head_vector_patch_setter, _BY_HEAD, "each head's keys")
get_act_patch_attn_head_v_all_pos = _patch(
    "get_act_patch_attn_head_v_all_pos", "v", layer_head_vector_patch_setter, _BY_HEAD, "each head's values")
get_act_patch_attn_head_pattern_all_pos = _patch(
    "get_act_patch_attn_head_pattern_all_pos", "pattern", layer_head_pattern_patch_setter, ("layer", "head_index"), "each head's pattern")


def get_act_patch_attn_head_all_pos_every(
    model: Model, corrupted_tokens: Prompts, clean_cache: ActivationCache, metric: Metric,
) -> Floats:
    """The sweeps of z, q, k, v and pattern at all positions: [5, layer, head]. Only for models whose heads have their own
    keys."""
    sweeps: list[Sweep] = [
        get_act_patch_attn_head_out_all_pos, get_act_patch_attn_head_q_all_pos, get_act_patch_attn_head_k_all_pos,
        get_act_patch_attn_head_v_all_pos, get_act_patch_attn_head_pattern_all_pos]
    return _every(model, sweeps, corrupted_tokens, clean_cache, metric)


def get_act_patch_attn_head_by_pos_every(
    model: Model, corrupted_tokens: Prompts, clean_cache: ActivationCache, metric: Metric,
) -> Floats:
    """The sweeps of z, q, k, v and pattern by position: [5, layer, pos, head]."""
    pattern = get_act_patch_attn_head_pattern_by_pos

    def turned(*arguments: Any) -> Floats:
        return np.swapaxes(pattern(*arguments), 1, 2)

    sweeps: list[Callable[..., Floats]] = [
        get_act_patch_attn_head_out_by_pos, get_act_patch_attn_head_q_by_pos, get_act_patch_attn_head_k_by_pos,
        get_act_patch_attn_head_v_by_pos, turned]
    return _every(model, sweeps, corrupted_tokens, clean_cache, metric)


def get_act_patch_block_every(
    model: Model, corrupted_tokens: Prompts, clean_cache: ActivationCache, metric: Metric,
) -> Floats:
    """The sweeps of resid_pre, attn_out and mlp_out: [3, layer, pos]."""
    sweeps: list[Sweep] = [get_act_patch_resid_pre, get_act_patch_attn_out, get_act_patch_mlp_out]
    return _every(None, sweeps, model, corrupted_tokens, clean_cache, metric)


def _every(of_heads: Model | None, sweeps: Sequence[Callable[..., Floats]], *arguments: Any) -> Floats:
    if of_heads is not None:
        if of_heads.config.n_kv_heads != of_heads.config.n_heads:
            raise InputError("this model's heads share keys and values, so the sweeps have different sizes; run them one by one")
        arguments = (of_heads, *arguments)
    return np.stack([sweep(*arguments) for sweep in sweeps])
