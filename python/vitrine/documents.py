"""Results that are dicts, with a short text for terminals and tables or pictures for notebooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .drawing import Cell, grids, table

_LONGEST = 1000  # characters of a dict that is printed whole


class Document(dict[str, Any]):
    """A dict that prints what it has in short where that is long; dict(document) prints all of it."""

    def __repr__(self) -> str:
        text = f"{{{', '.join(f'{key!r}: {_short(value)}' for key, value in self.items())}}}"
        whole = super().__repr__() if _count(self) < _LONGEST // 4 else ""
        return whole if 0 < len(whole) <= _LONGEST else text if len(text) <= 4 * _LONGEST else f"<{len(self)} entries>"


class Picture(Document):
    """The data of a picture. A notebook shows the picture itself."""

    def __init__(self, data: Mapping[str, Any], name: str, draw: Callable[[], str]) -> None:
        super().__init__(data)
        self._name, self._draw, self._drawn = name, draw, ""

    @property
    def svg(self) -> str:
        """The picture as SVG; drawn when it is first asked for."""
        self._drawn = self._drawn or self._draw()
        return self._drawn

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<picture {self._name!r}: {', '.join(self)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Picture, (dict(self), self._name, str), {"_name": self._name, "_draw": str, "_drawn": self.svg}


class Circuits(Document):
    """Every head's circuits. A notebook shows how much each copies and how large its QK and OV are."""

    def _repr_html_(self) -> str:
        heads = self["heads"]
        layers, numbers = sorted({h["layer"] for h in heads}), sorted({h["head"] for h in heads})
        shown = np.full((3, len(layers), len(numbers)), np.nan)
        for h in heads:
            place = layers.index(h["layer"]), numbers.index(h["head"])
            sizes = [h["copying"], h["qk"]["frobenius"], h["ov"]["frobenius"]]
            shown[(slice(None), *place)] = sizes
        for i in (1, 2):
            shown[i] /= np.nanmax(np.abs(shown[i])) or 1
        titles = ["copying (OV)", "|QK|, of the largest", "|OV|, of the largest"]
        picture = grids(shown, titles, [f"L{layer}" for layer in layers], [f"H{head}" for head in numbers], largest=1.0, side=18)
        pairs = [(max((c["q"], "Q"), (c["k"], "K"), (c["v"], "V")), c) for c in self["composition"]]
        strongest = sorted(pairs, key=lambda pair: -pair[0][0])[:8]
        if not strongest:
            return picture
        most = strongest[0][0][0] or 1.0
        rows: list[list[Cell | str]] = [
            [f"L{c['from_layer']}H{c['from_head']} → L{c['to_layer']}H{c['to_head']}", mode, Cell(f"{score:.3f}", 0.6 * score / most)]
            for (score, mode), c in strongest]
        return picture + table(["heads", "by", "score"], rows, "strongest composition")


class Comparison(Document):
    """How much two files of a model differ."""

    def _repr_html_(self) -> str:
        most = max((layer["relative"] for layer in self["layers"]), default=0) or 1.0
        rows: list[list[Cell | str]] = [
            [layer["point"], f"{layer['cosine']:.5f}", Cell(f"{layer['relative']:.2e}", 0.6 * layer["relative"] / most)]
            for layer in self["layers"]]
        names = [os.path.basename(self[which]["model"]) for which in "ab"]
        caption = (f"{names[0]} and {names[1]}: KL {self['kl_mean']:.2e} nats, same most likely token "
                   f"{self['same_top']:.1%}")
        return table(["residual stream", "cosine", "relative distance"], rows, caption)


def _count(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, Mapping):
        return 1 + sum(map(_count, value.values()))
    if isinstance(value, list | tuple):
        return 1 + sum(map(_count, value))
    return 1 + len(value) // 20 if isinstance(value, str) else 1


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {list(value.shape)}>"
    if isinstance(value, list | tuple | Mapping) and _count(value) > 8:
        return f"<{'dict' if isinstance(value, Mapping) else 'list'} of {len(value)}>"
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "…" + text[-1:]
