"""The parts of a model's layers, and the circuits of those with attention. Names are those of TransformerLens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np

from .arrays import Floats
from .errors import InputError
from .factored_matrix import FactoredMatrix
from .opened import OpenedModel
from .weights import Module, ov_of, qk_of, unwritable


class CompositionScores(NamedTuple):
    """Composition scores of heads with later heads (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits")."""

    scores: Floats  # [from, head, to, head]; 0 unless the first layer lies before the second
    layer_indices: list[int]  # the layers that `from` and `to` count
    head_labels: list[str]  # "L0H0", …: of those layers, head by head


def block_hooks(model: OpenedModel, layer: int) -> list[str]:
    """The hooks of one layer without "blocks.<layer>.", in order of their names."""
    prefix = f"blocks.{_layer_of(model, layer)}."
    return sorted(name.removeprefix(prefix) for name in model._session.hook_names if name.startswith(prefix))


def block_submodules(model: OpenedModel, layer: int) -> list[str]:
    """The parts of one layer, as in blocks[layer]: "attn", "ln1", "ln2", "mlp"; "conv", "delta", "experts" in hybrids."""
    return dir(Module(model, f"blocks.{_layer_of(model, layer)}."))


def blocks_with(model: OpenedModel, submodule: str) -> list[tuple[int, Module]]:
    """The layers that have a part of this name, with their numbers: blocks_with("attn")."""
    return [(layer, Module(model, f"blocks.{layer}.")) for layer in range(model.config.n_layers)
            if submodule in block_submodules(model, layer)]


def layer_types(model: OpenedModel) -> list[str]:
    """The parts of each layer besides norms: "attn+mlp", "delta+mlp"."""
    return ["+".join(part for part in block_submodules(model, layer) if not part.startswith("ln"))
            for layer in range(model.config.n_layers)]


def stack_params_for(model: OpenedModel, submodule: str, name: str) -> tuple[list[int], Floats]:
    """One parameter of all layers that have a part: stack_params_for("attn", "attn.W_V") gives the layers and [layer, …].

    Raises InputError for an unknown layer or parameter, or if its size differs between layers.
    """
    layers = [layer for layer, _ in blocks_with(model, submodule)]
    if not layers:
        raise InputError(f"no layer of this model has a part {submodule!r}; layer_types() says what they are made of")
    found = [_parameter(model, layer, name) for layer in layers]
    if len({w.shape for w in found}) != 1:
        raise InputError(f"{name} differs in size from layer to layer; take the layers one by one")
    return layers, unwritable(np.stack(found))


def _parameter(model: OpenedModel, layer: int, name: str) -> Floats:
    part: Any = Module(model, f"blocks.{layer}.")
    for step in name.split("."):
        part = getattr(part, step, None)
    if not isinstance(part, np.ndarray):
        raise InputError(f"layer {layer} has no parameter {name!r}")
    return part


def QK_for_attn_layers(model: OpenedModel) -> tuple[list[int], FactoredMatrix]:
    """QK of the layers that have attention, with their numbers; of a model in which all have, QK."""
    layers, W_Q = stack_params_for(model, "attn", "attn.W_Q")
    return layers, qk_of(model, W_Q, stack_params_for(model, "attn", "attn.W_K")[1])


def OV_for_attn_layers(model: OpenedModel) -> tuple[list[int], FactoredMatrix]:
    """OV of the layers that have attention, with their numbers."""
    layers, W_O = stack_params_for(model, "attn", "attn.W_O")
    return layers, ov_of(model, stack_params_for(model, "attn", "attn.W_V")[1], W_O)


def composition_layer_indices(model: OpenedModel) -> list[int]:
    """The layers that have attention."""
    return [layer for layer, _ in blocks_with(model, "attn")]


def all_composition_scores(model: OpenedModel, mode: Literal["Q", "K", "V"]) -> CompositionScores:
    """|OV₁ M₂| / (|OV₁| |M₂|) in Frobenius norms for every head and every head of a later layer. M is QK for "Q", its transpose
    for "K" and OV for "V". Norms are not folded in, as in weights; circuits() folds them.
    """
    if mode not in ("Q", "K", "V"):
        raise InputError(f"mode is {mode!r}; expected 'Q', 'K' or 'V'")
    layers, left = OV_for_attn_layers(model)
    right = left if mode == "V" else QK_for_attn_layers(model)[1]
    if mode == "K":
        right = right.T
    scores = np.zeros((*left.shape[:2], *right.shape[:2]), np.float32)
    # A factor that is orthogonal at the outer side changes no norm, so only the triangles of the outer factors take part.
    writes = np.linalg.qr(left.A, mode="r") @ left.B
    reads = right.A @ np.swapaxes(np.linalg.qr(np.swapaxes(right.B, -1, -2), mode="r"), -1, -2)
    written, sizes = np.linalg.norm(writes, axis=(-2, -1)), np.linalg.norm(reads, axis=(-2, -1))
    for first in range(len(layers) - 1):
        for head in range(left.shape[1]):
            product = writes[first, head] @ reads[first + 1:]
            scores[first, head, first + 1:] = np.linalg.norm(product, axis=(-2, -1)) / (written[first, head] * sizes[first + 1:])
    return CompositionScores(scores, layers, head_labels(model, layers))


def _layer_of(model: OpenedModel, layer: int) -> int:
    n = model.config.n_layers
    if not -n <= layer < n:
        raise InputError(f"layer is {layer}; the model has {n} layers, 0 to {n - 1}")
    return layer % n


def head_labels(model: OpenedModel, layers: Iterable[int]) -> list[str]:
    """ "L0H0", "L0H1", …: every head of these layers."""
    return [f"L{layer}H{head}" for layer in layers for head in range(model.config.n_heads)]
