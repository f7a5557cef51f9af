"""Activation patching: values of a clean run put into a corrupted one, place by place, and what each does to a metric.

    clean_logits, clean_cache = model.run_with_cache(clean_tokens)
    effect = vitrine.patching.get_act_patch_resid_pre(model, corrupted_tokens, clean_cache, metric)   # [layer, position]

A metric takes logits [batch, position, vocab_size] and returns a number. Every run starts at the patched layer with the corrupted
run's own residual stream, so that layers below it, which nothing changes, run once. Names, axes and results are TransformerLens'.
Meng et al., arXiv:2202.05262 (causal tracing); Wang et al., arXiv:2211.00593 (patching heads and paths).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .cache import ActivationCache
from .direct_paths import get_act_patch_direct_path, get_act_patch_direct_path_all_sources
from .errors import InputError, ShapeError

if TYPE_CHECKING:
    from .model import Model, Prompt

Metric = Callable[[np.ndarray], Any]
Setter = Callable[[np.ndarray, Sequence[int], np.ndarray], np.ndarray]

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


def generic_activation_patch(
    model: Model, corrupted_tokens: Prompt, clean_cache: ActivationCache, patching_metric: Metric, patch_setter: Setter,
    activation_name: str, index_axis_names: Sequence[str] | None = None, indices: Sequence[Sequence[int]] | None = None,
) -> np.ndarray:
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
    runs = _Runs(model, rows)
    results = np.zeros(len(indices), np.float32)
    for place, index in enumerate(indices):
        name = clean_cache.name_of((activation_name, index[0]))
        clean = clean_cache[name]
        if len(clean) not in (1, len(rows)):
            raise ShapeError(f"the clean run has a batch of {len(clean)}, the corrupted one of {len(rows)}; expected the same")

        def patch(value: np.ndarray, row: int, index: Sequence[int] = index, clean: np.ndarray = clean) -> np.ndarray:
            mine = clean[row : row + 1] if len(clean) > 1 else clean
            if mine.shape != value.shape:
                raise ShapeError(f"{activation_name} of the clean run is {list(mine.shape)}, of the corrupted one {list(value.shape)}; "
                                 "expected prompts of the same length")
            return patch_setter(value, index, mine)

        found = np.asarray(patching_metric(runs.logits(index[0], name, patch)))
        if found.size != 1:
            raise ShapeError(f"the metric gave {list(found.shape)}; expected one number")
        results[place] = found.reshape(())
    return results.reshape(shape)


def _sizes(model: Model, activation: str, positions: int, axis: str) -> int:
    heads = model.config.n_kv_heads if activation in ("k", "v") else model.config.n_heads
    sizes = {"layer": model.config.n_layers, "pos": positions, "src_pos": positions, "dest_pos": positions, "head_index": heads,
             "head": heads}
    if axis not in sizes:
        raise InputError(f"{axis!r} is no axis of indices; expected one of {', '.join(sizes)}")
    return sizes[axis]


class _Runs:
    """Runs of the corrupted prompt with one value patched."""

    def __init__(self, model: Model, rows: np.ndarray) -> None:
        self._model, self._rows = model, rows
        layers = range(model.config.n_layers)
        shared = any(model._session.describe_layer(i)["keys_of"] >= 0 for i in layers)
        # Functions that are set at hooks of early layers are to be called in every run.
        self._streams = None if shared or model._hooks else model.run_with_cache(rows, "resid_pre", return_type=None)[1]

    def logits(self, layer: int, name: str, patch: Callable[[np.ndarray, int], np.ndarray]) -> np.ndarray:
        found = []
        for i in range(len(self._rows)):
            row = self._rows[i : i + 1]
            hooks = [(name, lambda value, hook, i=i: patch(value, i))]
            if self._streams is None:
                found.append(self._model.run_with_hooks(row, hooks))
            else:
                stream = self._streams["resid_pre", layer][i : i + 1]
                found.append(self._model.run_with_hooks(stream, hooks, start_at_layer=layer, tokens=row))
        return np.concatenate(found)


def layer_pos_patch_setter(
    corrupted: np.ndarray, index: Sequence[int], clean: np.ndarray,
) -> np.ndarray:
    """The clean value at index [layer, position]."""
    _, position = index
    corrupted[:, position] = clean[:, position]
    return corrupted


def layer_pos_head_vector_patch_setter(
    corrupted: np.ndarray, index: Sequence[int], clean: np.ndarray,
) -> np.ndarray:
    """The clean value of one head at index [layer, position, head]."""
    _, position, head = index
    corrupted[:, position, head] = clean[:, position, head]
    return corrupted


def layer_head_vector_patch_setter(
    corrupted: np.ndarray, index: Sequence[int], clean: np.ndarray,
) -> np.ndarray:
    """The clean value of one head at all positions, index [layer, head]."""
    _, head = index
    corrupted[:, :, head] = clean[:, :, head]
    return corrupted


def layer_head_pattern_patch_setter(
    corrupted: np.ndarray, index: Sequence[int], clean: np.ndarray,
) -> np.ndarray:
    """The clean scores or pattern of one head, index [layer, head]."""
    _, head = index
    corrupted[:, head] = clean[:, head]
    return corrupted


def layer_head_pos_pattern_patch_setter(
    corrupted: np.ndarray, index: Sequence[int], clean: np.ndarray,
) -> np.ndarray:
    """The clean row of one query, index [layer, head, query]."""
    _, head, query = index
    corrupted[:, head, query] = clean[:, head, query]
    return corrupted


def layer_head_dest_src_pos_pattern_patch_setter(
    corrupted: np.ndarray, index: Sequence[int], clean: np.ndarray,
) -> np.ndarray:
    """One number of a pattern, index [layer, head, query, key]."""
    _, head, query, key = index
    corrupted[:, head, query, key] = clean[:, head, query, key]
    return corrupted


def _patch(name: str, activation: str, setter: Setter, axes: tuple[str, ...], what: str) -> Callable[..., np.ndarray]:
    def patch(
        model: Model, corrupted_tokens: Prompt, clean_cache: ActivationCache, patching_metric: Metric,
        indices: Sequence[Sequence[int]] | None = None,
    ) -> np.ndarray:
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
    model: Model, corrupted_tokens: Prompt, clean_cache: ActivationCache, metric: Metric,
) -> np.ndarray:
    """The sweeps of z, q, k, v and pattern at all positions: [5, layer, head]. Of models whose heads have keys of their own."""
    sweeps = [get_act_patch_attn_head_out_all_pos, get_act_patch_attn_head_q_all_pos, get_act_patch_attn_head_k_all_pos,
              get_act_patch_attn_head_v_all_pos, get_act_patch_attn_head_pattern_all_pos]
    return _every(model, sweeps, corrupted_tokens, clean_cache, metric)


def get_act_patch_attn_head_by_pos_every(
    model: Model, corrupted_tokens: Prompt, clean_cache: ActivationCache, metric: Metric,
) -> np.ndarray:
    """The sweeps of z, q, k, v and pattern by position: [5, layer, pos, head]."""
    pattern = get_act_patch_attn_head_pattern_by_pos

    def turned(*arguments: Any) -> np.ndarray:
        return np.swapaxes(pattern(*arguments), 1, 2)

    sweeps = [get_act_patch_attn_head_out_by_pos, get_act_patch_attn_head_q_by_pos, get_act_patch_attn_head_k_by_pos,
              get_act_patch_attn_head_v_by_pos, turned]
    return _every(model, sweeps, corrupted_tokens, clean_cache, metric)


def get_act_patch_block_every(
    model: Model, corrupted_tokens: Prompt, clean_cache: ActivationCache, metric: Metric,
) -> np.ndarray:
    """The sweeps of resid_pre, attn_out and mlp_out: [3, layer, pos]."""
    sweeps = [get_act_patch_resid_pre, get_act_patch_attn_out, get_act_patch_mlp_out]
    return _every(None, sweeps, model, corrupted_tokens, clean_cache, metric)


def _every(of_heads: Model | None, sweeps: Sequence[Callable[..., np.ndarray]], *arguments: Any) -> np.ndarray:
    if of_heads is not None:
        if of_heads.config.n_kv_heads != of_heads.config.n_heads:
            raise InputError("this model's heads share keys and values, so the sweeps have different sizes; run them one by one")
        arguments = (of_heads, *arguments)
    return np.stack([sweep(*arguments) for sweep in sweeps])
