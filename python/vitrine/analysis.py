"""What `vitrine circuits`, `vitrine compare` and `vitrine intervene` compute, from Python."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ._vitrine import Session
from .errors import FileError, InputError, UsageError
from .whole_numbers import INT64, within

if TYPE_CHECKING:
    from .model import Model, Prompt


class Analysis:
    """The part of a Model that takes it apart as a whole."""

    _session: Session

    def circuits(
        self, layer: int | None = None, head: int | None = None, *, offset: int = 0, composition: bool = True,
    ) -> dict[str, Any]:
        """Every head's circuits with what is linear in the norms folded in, as docs/circuits.md defines them: a dict of

        heads        one dict for each head (of this layer, of this number): layer, head, copying, eigenvalues of the full OV circuit,
                     qk and ov with singular_values, rank and frobenius
        composition  how much of what one head writes a later one reads: from_layer, from_head, to_layer, to_head, q, k, v
        offset       positions from key to query, for models with RoPE
        """
        found = self._session.circuits(None if layer is None else within("layer", layer, 0, INT64),
                                       None if head is None else within("head", head, 0, INT64),
                                       within("offset", offset, 0, INT64), composition)
        for one in found["heads"]:
            one["eigenvalues"] = np.array(one["eigenvalues"])
            for circuit in ("qk", "ov"):
                one[circuit]["singular_values"] = np.array(one[circuit]["singular_values"])
        return found

    def compare(self, other: Model, prompt: Prompt, *, threshold: float = 1e-3) -> dict[str, Any]:
        """This model and another file of it on one prompt: a dict of

        layers       how far apart the streams are: point, layer, cosine, distance, worst_at, relative, and what moved of the patterns
        predictions  after each position: kl in nats, top (this one's and the other's), logprobs
        kl_mean, kl_most, same_top, dtypes; first_beyond: the first of layers whose distance exceeds threshold, -1: none
        """
        model: Any = self
        for one in (model, other):
            if one._hooks:
                raise UsageError("compare runs without hook functions")
        return self._session.compare(other._session, model._one(prompt), float(threshold))

    def intervene(
        self, recipe: str | os.PathLike[str] | Mapping[str, Any], *, top: int = 10, all_positions: bool = False,
    ) -> dict[str, Any]:
        """Ablation, patching and steering by a recipe (docs/intervene.md): the document of `vitrine intervene --json`.

        recipe  the path of one, or the recipe as a dict or as YAML of more than one line; without model and adapter, which are this
        """
        model: Any = self
        if model._hooks:
            raise UsageError("intervene runs without hook functions")
        number = within("top", top, 1, 1 << 20)
        if isinstance(recipe, Mapping) or (isinstance(recipe, str) and "\n" in recipe):
            text = recipe if isinstance(recipe, str) else _yaml(recipe)
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "recipe")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                try:
                    document = self._session.intervene(os.fsencode(path), number, all_positions)
                except FileError as error:  # there is no file
                    raise InputError(str(error).replace(path, "the recipe")) from None
        else:
            document = self._session.intervene(os.fsencode(recipe), number, all_positions)
        found: dict[str, Any] = json.loads(document)
        return found


def _yaml(recipe: Mapping[str, Any]) -> str:
    """JSON is YAML."""
    try:
        return json.dumps(recipe, default=lambda x: x.item() if isinstance(x, np.generic) else x.tolist())
    except (TypeError, AttributeError) as error:
        raise InputError(f"the recipe holds what YAML has no word for: {error}") from error
