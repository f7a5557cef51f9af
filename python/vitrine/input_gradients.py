"""Gradients at hook_q_input, hook_k_input, hook_v_input, hook_attn_in and hook_mlp_in (input_hooks.py).

The model has no such places: they are computed from the gradient at what is made of them (hook_q, hook_k, hook_v,
ln2.hook_normalized), back through that head's matrix and the norm. What edge attribution patching asks for: what a single head or
MLP reads, apart from all else that reads the stream. Syed et al., arXiv:2310.10348.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .hook_requests import NamesFilter, requests_of
from .hooks import Hook, HookPoint, names_of
from .input_hooks import InputHook, input_hooks, input_names

if TYPE_CHECKING:
    from .model import Model


def apart_from_inputs(model: Model, names_filter: NamesFilter) -> tuple[list[str], list[str]]:
    """Requests of hooks that the model has, and the full names of inputs."""
    if callable(names_filter):
        inputs = [name for name in input_names(model) if names_filter(name)]
        return names_of(model._session, names_filter, bool(inputs)), inputs
    requests = requests_of(model._session, names_filter)
    inputs = [name for request in requests for name in input_hooks(model, request)]
    return [request for request in requests if not input_hooks(model, request)], inputs


class InputGradients:
    """Of these inputs, for rows that run one after the other."""

    def __init__(self, model: Model, names: Sequence[str]) -> None:
        self._model = model
        self._inputs = [InputHook(model, name) for name in dict.fromkeys(names)]
        self.sinks = list(dict.fromkeys(sink for made in self._inputs for sink in made.sinks))  # whose gradients are needed
        self._streams: dict[str, list[np.ndarray]] = {made.source: [] for made in self._inputs}

    def watching(self) -> list[Hook]:
        """Functions for each row's run, after all others."""
        def keep(value: np.ndarray, hook: HookPoint) -> None:
            self._streams[hook.name].append(value.copy())
        return [(source, keep) for source in self._streams]

    def at(self, of_sinks: dict[str, np.ndarray], row: int) -> dict[str, np.ndarray]:
        """The gradients at the inputs of one row from those at the sinks."""
        found = {}
        for made in self._inputs:
            stream = self._streams[made.source][row].astype(np.float64)
            if made.kind == "mlp_in":
                back = of_sinks[made.sinks[0]].astype(np.float64)
            else:
                back, stream = np.zeros(1), stream[:, :, None]
                for sink in made.sinks:
                    W = self._model.weight(f"blocks.{made.layer}.attn.W_{sink[-1].upper()}")
                    back = back + np.einsum("bphi,hdi->bphd", of_sinks[sink], W, dtype=np.float64, optimize=True)
            found[made.name] = made.normalised_backward(stream, back).astype(np.float32)
        return found
