"""Python functions at a model's hooks, and their results."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ._vitrine import Session
from .arrays import Floats
from .errors import InputError, ShapeError


class HookPoint:
    """The place in the model that a hook function is called for."""

    def __init__(self, name: str) -> None:
        self.name = name  # in full: "blocks.3.attn.hook_pattern"
        self.position = 0  # of the value's first row (of scores and patterns: the first query) in its sequence
        self.ctx: dict[str, Any] = {}  # the functions' own, as long as the hooks are set

    def layer(self) -> int:
        """Its layer. Raises ValueError outside the layers."""
        parts = self.name.split(".")
        if parts[0] != "blocks":
            raise InputError(f"{self.name} lies in no layer")
        return int(parts[1])

    def __repr__(self) -> str:
        return f"HookPoint({self.name!r})"


_LAYERS_PART = {"a": "attn", "attention": "attn", "m": "mlp", "b": "", "block": "", "blocks": ""}
_LONGER = {"attn": "pattern", "attn_logits": "attn_scores", "key": "k", "query": "q", "value": "v", "mlp_pre": "pre", "mlp_mid": "mid",
           "mlp_post": "post"}
_PART_OF = dict.fromkeys(("k", "v", "q", "z", "rot_k", "rot_q", "result", "pattern", "attn_scores"), "attn") | dict.fromkeys(
    ("pre", "post", "mid", "pre_linear"), "mlp")


def get_act_name(name: str, layer: int | str | None = None, layer_type: str | None = None) -> str:
    """TransformerLens's full name of a short one: get_act_name("z", 3) is "blocks.3.attn.hook_z", and so is get_act_name("z3");
    get_act_name("normalized", 3, "ln2") is "blocks.3.ln2.hook_normalized". Here every call takes the short names, too: "z.3".
    """
    if layer is None and layer_type is None and ("." in name or name.startswith("hook_")):
        return name
    if short := re.match(r"([a-z]+)(\d+)([a-z]?.*)", name):
        name, layer, layer_type = short[1], int(short[2]), short[3] or layer_type
    name = _LONGER.get(name, name)
    part = _PART_OF.get(name, _LAYERS_PART.get(layer_type or "", layer_type or ""))
    if layer is None and name in ("scale", "normalized"):
        part = "ln_final"
    return ".".join([*([] if layer is None else [f"blocks.{layer}"]), *([part] if part else []), f"hook_{name}"])


HookFunction = Callable[[Floats, HookPoint], Any]


class DerivedFunction(Protocol):
    """A hook function with its derivative; see hook_backward.py."""

    def forward(self, value: Floats, hook: HookPoint, /) -> Any:
        """What a hook function does."""

    def backward(self, gradient: Floats, hook: HookPoint, /) -> Floats:
        """The gradient with respect to forward's result -> with respect to its input."""
        ...


AnyFunction = HookFunction | DerivedFunction
Which = str | Callable[[str], bool]  # a name, pattern or alias, or a function of the name
Hook = tuple[Which, AnyFunction]


def names_of(session: Session, which: Which, may_be_none: bool = False) -> list[str]:
    """The full names that match a name, pattern, alias or predicate. Raises InputError with the nearest names if there are
    none."""
    if callable(which):
        names = [name for name in session.hook_names if which(name)]
        if not names and not may_be_none:
            raise InputError("the function that chooses hooks chose none; hook_names lists every one")
        return names
    if "[" in which:
        raise InputError(f"{which!r} has slices; a hook function sees the whole value and changes what it wants")
    return session.find_hooks(which)


def pair_of(hook: Hook) -> Hook:
    """(which hooks, function). Raises InputError for anything else."""
    if isinstance(hook, str) or not isinstance(hook, Sequence) or len(hook) != 2:
        raise InputError(f"a hook is a pair of a name and a function, (\"resid_pre.3\", f); got {hook!r}")
    which, function = hook
    return which, function


def forward_of(function: AnyFunction) -> HookFunction:
    """The function itself, or that of an object with its derivative (hook_backward.py), to be called with (value, hook).

    A parameter named hook gets the hook by that name, as in TransformerLens, wherever it stands.
    """
    given: HookFunction = function if callable(function) else function.forward
    code = getattr(given, "__code__", None)
    if code is not None and code.co_argcount >= 2 and code.co_varnames[1] == "hook":
        return given
    try:
        named = inspect.signature(given).parameters.get("hook")
    except (TypeError, ValueError):  # of what is not written in Python
        return given
    if named is None or named.kind is named.POSITIONAL_ONLY:
        return given
    return lambda value, hook: given(value, hook=hook)  # type: ignore[call-arg]


def replacement_of(name: str, value: Floats, returned: Any) -> Floats:
    """The new value: what a function returned, or the value that it may have changed."""
    if returned is None:
        return value
    replacement = np.asarray(returned)
    if replacement.dtype.kind not in "biuf":
        raise InputError(f"the replacement for {name} is an array of {replacement.dtype}; expected real numbers")
    if replacement.shape != value.shape:
        raise ShapeError(f"the replacement for {name} has shape {list(replacement.shape)}; expected {list(value.shape)}")
    return np.ascontiguousarray(replacement, dtype=np.float32)
