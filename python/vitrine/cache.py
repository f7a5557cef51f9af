"""What a run left behind: values by hook name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ._vitrine import hook_alias
from .errors import InputError

Key = str | tuple[str, int] | tuple[str, int, str]


class ActivationCache(Mapping[str, np.ndarray]):
    """Values by hook name, in the order of the run. Each begins with a batch axis, as in TransformerLens.

    A key is a name ("blocks.0.attn.hook_pattern"), a short name with a layer (("pattern", 0), or -1 for the last; "pattern.0"),
    with a part of the layer where several have it (("normalized", 0, "ln1")), or an alias ("embed").
    """

    def __init__(self, values: dict[str, np.ndarray], n_layers: int) -> None:
        self._values = values
        self._n_layers = n_layers

    def name_of(self, key: Key) -> str:
        """The full hook name that a key stands for. Raises KeyError for what is not here, saying what is."""
        name = key if isinstance(key, str) else self._layer_name(*key)
        if name in self._values:
            return name
        alias = hook_alias(name)
        if alias is not None and "*" not in alias and alias in self._values:
            return alias
        if alias is not None and "*" in alias:
            raise KeyError(f"{name!r} is in every layer; name one, as in cache[{name!r}, 0]")
        raise KeyError(f"{alias or name!r} was not kept by this run, which kept {self._kept()}")

    def _layer_name(self, name: str, layer: int, part: str | None = None) -> str:
        if not -self._n_layers <= layer < self._n_layers:
            raise KeyError(f"layer {layer} of {name!r}: the model has {self._n_layers} layers, 0 to {self._n_layers - 1}")
        layer %= self._n_layers
        return f"{name}.{layer}" if part is None else f"blocks.{layer}.{part}.hook_{name}"

    def _kept(self) -> str:
        names = list(self._values)
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") if names else "nothing"

    def __getitem__(self, key: Any) -> np.ndarray:
        return self._values[self.name_of(key)]

    def __contains__(self, key: object) -> bool:
        try:
            self.name_of(key)  # type: ignore[arg-type]
        except (KeyError, TypeError):
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"ActivationCache({self._kept()})"

    def stack_activation(self, name: str) -> np.ndarray:
        """One hook of all layers as [layer, batch, …]: stack_activation("pattern"). A copy."""
        if self._n_layers == 0:
            raise InputError("the model has no layers")
        return np.stack([self[name, layer] for layer in range(self._n_layers)])

    def remove_batch_dim(self) -> ActivationCache:
        """The same values without their batch axis, which must be 1. Views of the same numbers."""
        for name, value in self._values.items():
            if value.shape[0] != 1:
                raise InputError(f"{name} has a batch of {value.shape[0]}; only a batch of 1 can be removed")
        return ActivationCache({name: value[0] for name, value in self._values.items()}, self._n_layers)
