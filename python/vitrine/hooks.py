"""Python functions at a model's hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ._vitrine import HookCalls, Session
from .errors import InputError, ShapeError
from .input_hooks import InputHook, input_hooks, input_names

if TYPE_CHECKING:
    from .model import Model


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


class DerivedFunction(Protocol):
    """A hook function that knows its derivative; see hook_backward.py."""

    def forward(self, value: np.ndarray, hook: HookPoint, /) -> Any:
        """What a hook function does."""

    def backward(self, gradient: np.ndarray, hook: HookPoint, /) -> np.ndarray:
        """The gradient of what forward gave -> of the value that it was given."""
        ...


Hook = tuple[str | Callable[[str], bool], HookFunction | DerivedFunction]


def names_of(session: Session, which: str | Callable[[str], bool], may_be_none: bool = False) -> list[str]:
    """The full names that a name, pattern, alias or predicate fits. Raises InputError with the nearest names if it fits none."""
    if callable(which):
        names = [name for name in session.hook_names if which(name)]
        if not names and not may_be_none:
            raise InputError("the function that chooses hooks chose none; hook_names lists every one")
        return names
    if "[" in which:
        raise InputError(f"{which!r} has slices; a hook function sees the whole value and changes what it wants")
    return session.find_hooks(which)


class HookSet:
    """Functions by hook, in the order in which they were set, and what the engine calls for them."""

    def __init__(self, model: Model, hooks: Iterable[Hook]) -> None:
        self._points: dict[str, tuple[HookPoint, list[HookFunction | DerivedFunction]]] = {}
        self._inputs: dict[str, InputHook] = {}
        for hook in hooks:
            which, function = pair_of(hook)
            if not callable(forward_of(function)):
                raise InputError(f"the hook of {which!r} is {function!r}; expected a function of (value, hook)")
            for name in self._names(model, which):
                self._points.setdefault(name, (HookPoint(name), []))[1].append(function)

    def _names(self, model: Model, which: str | Callable[[str], bool]) -> list[str]:
        inputs = [n for n in input_names(model) if which(n)] if callable(which) else input_hooks(model, which)
        for name in inputs:
            if name not in self._inputs:
                self._inputs[name] = InputHook(model, name)
        return inputs if inputs and not callable(which) else inputs + names_of(model._session, which, bool(inputs))

    def calls(self) -> HookCalls:
        names = set(self._points) - set(self._inputs)
        for made in self._inputs.values():
            names |= {made.source, *made.sinks}
        return HookCalls(names, self._call if names else None)

    def _call(self, name: str, value: np.ndarray, position: int) -> np.ndarray:
        inputs = self._inputs.values()
        for made in inputs:
            if name in made.sinks:
                value = made.replaced(name, value)
        if name in self._points:
            value = self._apply(name, value, position)
        for made in inputs:
            if name == made.source:
                shown = made.shown(value)
                made.put(shown, self._apply(made.name, shown.copy(), position))
        return value

    def _apply(self, name: str, value: np.ndarray, position: int) -> np.ndarray:
        hook, functions = self._points[name]
        hook.position = position
        for function in functions:
            value = replacement_of(name, value, forward_of(function)(value, hook))
        return value


def pair_of(hook: Any) -> Hook:
    """(which hooks, function). Raises InputError for anything else."""
    if isinstance(hook, str) or not isinstance(hook, Sequence) or len(hook) != 2:
        raise InputError(f"a hook is a pair of a name and a function, (\"resid_pre.3\", f); got {hook!r}")
    which, function = hook
    return which, function


def forward_of(function: Any) -> HookFunction:
    """The function itself, or that of an object which knows its derivative as well (hook_backward.py)."""
    forward: Any = function if callable(function) else getattr(function, "forward", None)
    return forward  # type: ignore[no-any-return]


def replacement_of(name: str, value: np.ndarray, returned: Any) -> np.ndarray:
    """What flows on: what a function returned, or the value that it may have changed."""
    if returned is None:
        return value
    replacement = np.asarray(returned)
    if replacement.dtype.kind not in "biuf":
        raise InputError(f"the replacement for {name} is an array of {replacement.dtype}; expected real numbers")
    if replacement.shape != value.shape:
        raise ShapeError(f"the replacement for {name} has shape {list(replacement.shape)}; expected {list(value.shape)}")
    return np.ascontiguousarray(replacement, dtype=np.float32)
