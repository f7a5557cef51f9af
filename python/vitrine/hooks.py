"""Python functions at a model's hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ._vitrine import HookCalls, Session
from .errors import InputError, ShapeError


class HookPoint:
    """The place in the model that a hook function is called for."""

    def __init__(self, name: str) -> None:
        self.name = name  # in full: "blocks.3.attn.hook_pattern"
        self.position = 0  # of the value's first row (of scores and patterns: the first query) in its sequence
        self.ctx: dict[str, Any] = {}  # the functions' own, as long as the hooks are set

    def layer(self) -> int:
        """The layer it lies in. Raises ValueError outside the layers."""
        parts = self.name.split(".")
        if parts[0] != "blocks":
            raise InputError(f"{self.name} lies in no layer")
        return int(parts[1])

    def __repr__(self) -> str:
        return f"HookPoint({self.name!r})"


HookFunction = Callable[[np.ndarray, HookPoint], Any]
Hook = tuple[str | Callable[[str], bool], HookFunction]


def names_of(session: Session, which: str | Callable[[str], bool]) -> list[str]:
    """The full names that a name, pattern, alias or predicate fits. Raises InputError with the nearest names if it fits none."""
    if callable(which):
        names = [name for name in session.hook_names if which(name)]
        if not names:
            raise InputError("the function that chooses hooks chose none; hook_names lists every one")
        return names
    if "[" in which:
        raise InputError(f"{which!r} has slices; a hook function sees the whole value and changes what it wants")
    return session.find_hooks(which)


class HookSet:
    """Functions by hook, in the order in which they were set, and what the engine calls for them."""

    def __init__(self, session: Session, hooks: Iterable[Hook]) -> None:
        self._points: dict[str, tuple[HookPoint, list[HookFunction]]] = {}
        for which, function in hooks:
            if not callable(function):
                raise InputError(f"the hook of {which!r} is {function!r}; expected a function of (value, hook)")
            for name in names_of(session, which):
                self._points.setdefault(name, (HookPoint(name), []))[1].append(function)

    def calls(self) -> HookCalls:
        return HookCalls(set(self._points), self._call if self._points else None)

    def _call(self, name: str, value: np.ndarray, position: int) -> np.ndarray:
        hook, functions = self._points[name]
        hook.position = position
        for function in functions:
            returned = function(value, hook)
            if returned is None:
                continue
            replacement = np.asarray(returned)
            if replacement.dtype.kind not in "biuf":
                raise InputError(f"the replacement for {name} is an array of {replacement.dtype}; expected real numbers")
            if replacement.shape != value.shape:
                raise ShapeError(
                    f"the replacement for {name} has shape {list(replacement.shape)}; expected {list(value.shape)}")
            value = np.ascontiguousarray(replacement, dtype=np.float32)
        return value
