"""Gradients at hook_q_input, hook_k_input, hook_v_input, hook_attn_in and hook_mlp_in (input_hooks.py).

The model has no such values: they are computed from the gradient at the values computed from them (hook_q, hook_k, hook_v,
ln2.hook_normalized), back through that head's matrix and the norm. Edge attribution patching needs them: the input of a single
head or MLP, separate from everything else that reads the residual stream. Syed et al., arXiv:2310.10348.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .arrays import Floats
from .hook_functions import Hook, HookPoint
from .input_hooks import InputHook
from .opened import OpenedModel
from .weights import weight


class InputGradients:
    """Of these inputs, for rows that run one after the other."""

    def __init__(self, model: OpenedModel, names: Sequence[str]) -> None:
        self._model = model
        self._inputs = [InputHook(model, name) for name in dict.fromkeys(names)]
        self.sinks = list(dict.fromkeys(sink for made in self._inputs for sink in made.sinks))  # whose gradients are needed
        self._streams: dict[str, list[Floats]] = {made.source: [] for made in self._inputs}

    def watching(self) -> list[Hook]:
        """Functions for each row's run, after all others."""
        def keep(value: Floats, hook: HookPoint) -> None:
            self._streams[hook.name].append(value.copy())
        return [(source, keep) for source in self._streams]

    def at(self, of_sinks: dict[str, Floats], row: int) -> dict[str, Floats]:
        """The gradients at the inputs of one row from those at the sinks."""
        found = {}
        for made in self._inputs:
            stream = self._streams[made.source][row].astype(np.float64)
            if made.kind == "mlp_in":
                back = of_sinks[made.sinks[0]].astype(np.float64)
            else:
                back, stream = np.zeros(1), stream[:, :, None]
                for sink in made.sinks:
                    W = weight(self._model, f"blocks.{made.layer}.attn.W_{sink[-1].upper()}")
                    back = back + np.einsum("bphi,hdi->bphd", of_sinks[sink], W, dtype=np.float64, optimize=True)
            found[made.name] = made.normalized_backward(stream, back).astype(np.float32)
        return found
