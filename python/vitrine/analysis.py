"""What `vitrine circuits`, `vitrine compare` and `vitrine intervene` compute, from Python."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, cast

from .batches import Prompt
from .documents import Circuits, Comparison, Document
from .opened import OpenedModel
from .program import written
from .result_types import CircuitTable, ModelComparison
from .whole_numbers import INT64, within


def circuits(
    model: OpenedModel, layer: int | None = None, head: int | None = None, *, offset: int = 0, composition: bool = True,
) -> CircuitTable:
    """Every head's circuits with what is linear in the norms folded in, as docs/circuits.md defines them, for keys `offset` positions
    before their query in models with RoPE: a dict of

    heads        one dict for each head (of this layer, of this number): layer, head, copying, eigenvalues of the full OV circuit,
                 qk and ov with singular_values, rank and frobenius
    composition  composition scores of each head with later heads: from_layer, from_head, to_layer, to_head, q, k, v
    """
    return cast(CircuitTable, Circuits(model._session.circuits(
        None if layer is None else within("layer", layer, 0, INT64), None if head is None else within("head", head, 0, INT64),
        within("offset", offset, 0, INT64), composition)))


def compare(model: OpenedModel, other: OpenedModel, prompt: Prompt, *, threshold: float = 1e-3) -> ModelComparison:
    """This model and another file of it on one prompt: a dict of

    a, b         model and dtypes of this one and of the other
    layers       how much the residual streams differ: point, layer, cosine, distance, worst_position, relative, and how much the
                 patterns differ
    predictions  after each position: kl in nats, and token, piece, logprob and prob of the most likely token of a and of b
    kl_mean, kl_most, same_top; threshold; first_beyond: the point of the first of layers whose distance exceeds it, or None
    """
    for one in (model, other):
        one._without_hooks("compare")
    return cast(ModelComparison, Comparison(model._session.compare(other._session, model._one(prompt), float(threshold))))


def intervene(
    model: OpenedModel, recipe: str | os.PathLike[str] | Mapping[str, Any], *, top: int = 10, all_positions: bool = False,
) -> dict[str, Any]:
    """Ablation, patching and steering by a recipe (docs/intervene.md): the document of `vitrine intervene --json`.

    recipe  the path of one, or the recipe as a dict or as YAML of more than one line; without model and adapter, which are this
    """
    model._without_hooks("intervene")
    number = within("top", top, 1, 1 << 20)
    with written(recipe, "the recipe") as path:
        document = model._session.intervene(os.fsencode(path), number, all_positions)
    return Document(json.loads(document))
