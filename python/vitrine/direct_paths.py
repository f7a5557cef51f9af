"""Path patching: one head's output, patched only into one later head's query, key or value (Wang et al., arXiv:2211.00593)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from . import metrics
from .arrays import Floats, Ids
from .batches import Prompts
from .cache import ActivationCache
from .errors import InputError, ShapeError
from .model import Model
from .whole_numbers import within

Metric = Callable[[Floats], Any]


def get_act_patch_direct_path(
    model: Model, corrupted_tokens: Prompts, clean_cache: ActivationCache, corrupted_cache: ActivationCache, patching_metric: Metric,
    src_layer: int, src_head: int, component: Literal["q", "k", "v"] = "q",
) -> Floats:
    """The metric when one head's clean output minus its corrupted one is added to the input of one later head's query, key or
    value, and to nothing else: [layer, head], 0 in the layers up to the source's. Both caches must contain that layer's hook_z.

    `vitrine intervene` has paths to logits and MLPs as well (docs/intervene.md). Raises InputError for "k" and "v" where heads share
    keys and values, and where a norm follows the head.
    """
    layers, heads = model.config.n_layers, model.config.n_heads
    source, head = within("src_layer", src_layer, 0, layers - 1), _head(model, src_head)
    if component not in ("q", "k", "v"):
        raise InputError(f"component is {component!r}; expected 'q', 'k' or 'v'")
    if component != "q" and model.config.n_kv_heads != heads:
        raise InputError(f"this model's heads share keys and values, so a path to the {component} of one of them is not defined")
    facts = model._facts(source)
    if not facts["attention"] or f"blocks.{source}.ln1_post.w" in model._names or facts["norms_after"] or facts["residual_scale"] != 1:
        raise InputError(f"layer {source} has no attention, or puts a norm or a factor behind its heads, so a head's write is not z W_O")
    name = f"blocks.{source}.attn." + ("hook_gated_z" if facts["gated_heads"] else "hook_z")
    before, after = corrupted_cache[name], clean_cache[name]
    if before.shape != after.shape or before.ndim != 4:
        raise ShapeError(f"{name} of the clean run is {list(after.shape)}, of the corrupted one {list(before.shape)}; expected prompts "
                         "of the same length, with a batch axis")
    change = (after[:, :, head] - before[:, :, head]) @ model.weight(f"blocks.{source}.attn.W_O")[head]
    rows = model._rows(corrupted_tokens)
    results = np.zeros((layers, heads), np.float32)
    for layer in range(source + 1, layers):
        for reader in range(heads):
            logits = [_with(model, rows[i : i + 1], f"blocks.{layer}.hook_{component}_input", reader, change[i : i + 1])
                      for i in range(len(rows))]
            found = np.asarray(metrics.value_of(patching_metric, np.concatenate(logits)))
            if found.size != 1:
                raise ShapeError(f"the metric gave {list(found.shape)}; expected one number")
            results[layer, reader] = found.reshape(())
    return results


def get_act_patch_direct_path_all_sources(
    model: Model, corrupted_tokens: Prompts, clean_cache: ActivationCache, corrupted_cache: ActivationCache, patching_metric: Metric,
    component: Literal["q", "k", "v"] = "q",
) -> Floats:
    """get_act_patch_direct_path from every head: [from layer, from head, layer, head]. One run for every pair, so for small models."""
    sources = np.ndindex(model.config.n_layers, model.config.n_heads)
    each = [get_act_patch_direct_path(model, corrupted_tokens, clean_cache, corrupted_cache, patching_metric, layer, head, component)
            for layer, head in sources]
    return np.stack(each).reshape(model.config.n_layers, model.config.n_heads, model.config.n_layers, model.config.n_heads)


def _head(model: Model, head: int) -> int:
    if not 0 <= head < model.config.n_heads:
        raise InputError(f"there is no head {head}; the model has {model.config.n_heads}, 0 to {model.config.n_heads - 1}")
    return head


def _with(model: Model, row: Ids, name: str, head: int, change: Floats) -> Floats:
    def add(value: Floats, hook: object) -> None:
        value[:, :, head] += change

    logits: Floats = model.run_with_hooks(row, [(name, add)])
    return logits
