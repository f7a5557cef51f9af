"""Hooks at the input of a sub-layer, before its norm: hook_q_input, hook_k_input, hook_v_input, hook_attn_in and hook_mlp_in.

The first four show the residual stream before the layer once for every head, [batch, position, head, d_model]. That head's query,
key, value (or all three) is computed from what a function writes there; the residual stream itself is unchanged. hook_mlp_in is
the MLP's input from the residual stream, [batch, position, d_model]. The model has no such values, since all heads read one row:
changes are computed here, in f32, and replace hook_q, hook_k, hook_v or ln2.hook_normalized.
"""

from __future__ import annotations

import re

import numpy as np

from .arrays import Doubles, Floats
from .errors import InputError
from .hook_functions import names_of
from .hook_requests import NamesFilter, requests_of
from .opened import OpenedModel
from .weights import weight

_SHORT = ("q_input", "k_input", "v_input", "attn_in", "mlp_in")
_REQUEST = re.compile(r"(?:blocks\.(\*|\d+)\.)?(?:attn\.)?(?:hook_)?(q_input|k_input|v_input|attn_in|mlp_in)(?:\.?(\d+))?")


def input_hooks(model: OpenedModel, request: str) -> list[str]:
    """The full names that a request matches: "blocks.3.hook_q_input", "blocks.*.hook_mlp_in", "q_input.3"; nothing for others."""
    found = _REQUEST.fullmatch(request)
    if found is None or (found[1] is None and found[3] is None and request.startswith("blocks.")):
        return []
    layer = found[1] if found[1] is not None else found[3]
    n = model.config.n_layers
    if layer in (None, "*"):
        return [f"blocks.{i}.hook_{found[2]}" for i in range(n)]
    if int(layer) >= n:
        raise InputError(f"{request!r}: the model has {n} layers, 0 to {n - 1}")
    return [f"blocks.{int(layer)}.hook_{found[2]}"]


class InputHook:
    """One of them in one layer."""

    def __init__(self, model: OpenedModel, name: str) -> None:
        self.name = name
        self.layer, self.kind = int(name.split(".")[1]), name.split("hook_")[1]
        self._model = model
        self._facts = model._facts(self.layer)
        self._changed: Floats | None = None
        prefix = f"blocks.{self.layer}."
        mid = prefix + "hook_resid_mid"  # not there where the MLP reads what attention reads
        self.source = mid if self.kind == "mlp_in" and mid in model.hook_names else prefix + "hook_resid_pre"
        self.norm = prefix + ("ln2" if self.kind == "mlp_in" else "ln1")
        shared = self.source != mid and self.norm + ".w" not in model._names  # GPT-J: the weights of ln1
        self._weights = prefix + "ln1" if shared else self.norm
        roles = {"mlp_in": "", "attn_in": "qkv"}.get(self.kind, self.kind[0])
        self.sinks = [f"{prefix}attn.hook_{role}" for role in roles] or [self.norm + ".hook_normalized"]
        missing = [sink for sink in self.sinks if sink not in model.hook_names]
        if missing or (self.kind == "mlp_in" and self._facts["norms_after"]):
            place = missing[0] if missing else self.norm
            raise InputError(f"layer {self.layer} of this model has no {place}, so {name} is nowhere in it")
        if self.kind == "attn_in" and self._facts["n_kv_heads"] != model.config.n_heads:
            raise InputError(f"{name}: this model's heads share keys and values, so one input for all three is not defined; use "
                             "hook_q_input, hook_k_input and hook_v_input")

    def shown(self, stream: Floats) -> Floats:
        """What a function sees of the stream [batch, position, d_model]."""
        if self.kind == "mlp_in":
            return stream.copy()
        heads = self._facts["n_kv_heads"] if self.kind in ("k_input", "v_input") else self._model.config.n_heads
        return np.repeat(stream[:, :, None], heads, axis=2)

    def put(self, before: Floats, after: Floats) -> None:
        """Keeps what functions made of it, until the run reaches where it is read."""
        self._changed = None if np.array_equal(before, after, equal_nan=True) else after

    def replaced(self, sink: str, value: Floats) -> Floats:
        """The value at a sink, made anew if the input was changed."""
        if self._changed is None:
            return value
        x = self._normalized(self._changed)
        if self.kind == "mlp_in":
            return x
        role = sink[-1].upper()
        prefix = f"blocks.{self.layer}.attn."
        made: Floats = np.einsum("bphd,hdi->bphi", x, weight(self._model, f"{prefix}W_{role}"), optimize=True)
        if any(f"{prefix}b_{stored}" in self._model._names for stored in (role, role + "G", "QKV")):
            made = made + weight(self._model, f"{prefix}b_{role}")
        return made.astype(np.float32)

    def _normalized(self, x: Floats) -> Floats:
        names = self._model._names
        if self._weights + ".w" not in names or self._facts["norms_after"]:
            return x
        y = x.astype(np.float64)
        if not self._facts["rms"]:
            y -= y.mean(-1, keepdims=True)
        y = y / np.sqrt((y**2).mean(-1, keepdims=True) + self._facts["norm_eps"]) * weight(self._model, self._weights + ".w")
        if self._weights + ".b" in names:
            y += weight(self._model, self._weights + ".b")
        normalized: Floats = y.astype(np.float32)
        return normalized

    def normalized_backward(self, x: Doubles, gradient: Doubles) -> Doubles:
        """The gradient at x from that at the norm's result, both in double."""
        names = self._model._names
        if self._weights + ".w" not in names or self._facts["norms_after"]:
            return gradient
        if not self._facts["rms"]:
            x = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((x**2).mean(-1, keepdims=True) + self._facts["norm_eps"])
        g = gradient * weight(self._model, self._weights + ".w")
        back = g / scale - x * ((g * x).mean(-1, keepdims=True) / scale**3)
        result: Doubles = back if self._facts["rms"] else back - back.mean(-1, keepdims=True)
        return result


def input_names(model: OpenedModel) -> list[str]:
    """Every such hook that the model's switches turn on for predicates, as TransformerLens' do."""
    kinds = [kind for kind in _SHORT if kind in model._input_hooks_on]
    return [f"blocks.{i}.hook_{kind}" for i in range(model.config.n_layers) for kind in kinds]


def apart_from_inputs(model: OpenedModel, names_filter: NamesFilter) -> tuple[list[str], list[str]]:
    """Requests of hooks that the model has, and the full names of inputs that are asked for."""
    if callable(names_filter):
        inputs = [name for name in input_names(model) if names_filter(name)]
        return names_of(model._session, names_filter, bool(inputs)), inputs
    requests = requests_of(model._session, names_filter)
    inputs = [name for request in requests for name in input_hooks(model, request)]
    return [request for request in requests if not input_hooks(model, request)], inputs
