"""How gradients flow back through hook functions.

This depends on what a function does with (value, hook):

    a plain function      where it keeps a number or adds a constant to it, the gradient passes through; where it writes a
                          constant, it is zero. A function that computes something else is refused. To find out which it is, a
                          function that writes or returns something is called again with another value
    torch_hook(function)  a function of torch tensors, which PyTorch differentiates
    an object             with forward(value, hook) and backward(gradient, hook): gradient is with respect to forward's result,
                          and backward returns the gradient with respect to its input
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ._vitrine import HookCalls
from .arrays import Bools, Floats
from .errors import InputError, RunError, ShapeError, UsageError
from .hook_functions import AnyFunction, Hook, HookFunction, HookPoint, forward_of, replacement_of
from .hooking import HookSet
from .opened import OpenedModel

Pullback = Callable[[Floats], Floats]
_EVEN = 1e-3  # a slope this close to 1 is that of a constant which was added


class torch_hook:
    """A hook function of torch tensors: function(value, hook) may change the tensor in place or return another, and gradients
    flow back through it as computed by PyTorch. It works in every run of a model; needs PyTorch.
    """

    def __init__(self, function: Callable[[Any, HookPoint], Any]) -> None:
        if not callable(function):
            raise InputError(f"torch_hook takes a function of (value, hook); got {function!r}")
        self._function = forward_of(function)

    def __call__(self, value: Floats, hook: HookPoint) -> Floats:
        import torch

        with torch.no_grad():
            tensor = torch.from_numpy(value)
            returned = self._function(tensor, hook)
            result: Floats = (tensor if returned is None else returned).numpy(force=True)
            return result

    def derived(self, value: Floats, hook: HookPoint) -> tuple[Floats, Pullback]:
        """What it makes of the value, and how a gradient flows back through it."""
        import torch

        with torch.enable_grad():
            before = torch.from_numpy(value.copy()).requires_grad_(True)
            tensor = before.clone()  # a leaf cannot be changed in place
            returned = self._function(tensor, hook)
            after = tensor if returned is None else returned

        def pullback(gradient: Floats) -> Floats:
            if not after.requires_grad:
                return np.zeros_like(value)
            (back,) = torch.autograd.grad(after, before, torch.from_numpy(gradient).to(after.dtype), allow_unused=True)
            return np.zeros_like(value) if back is None else back.numpy()
        return after.numpy(force=True).copy(), pullback  # what comes next may change it in place


class DerivedHooks(HookSet):
    """Functions by hook for one sequence of a run with gradients, and functions that see or change gradients.

    several  whether the same functions serve other sequences of the run as well
    """

    def __init__(self, model: OpenedModel, hooks: Iterable[Hook], backward: Iterable[Hook], several: bool) -> None:
        super().__init__(model, hooks)
        if self._inputs:
            raise UsageError(f"gradients do not flow back through functions at {next(iter(self._inputs))}, which lies beside the model; "
                             "set the functions at hook_q, hook_k, hook_v or hook_resid_mid")
        self._seeing = HookSet(model, backward)
        if self._seeing._inputs:
            raise UsageError(f"{next(iter(self._seeing._inputs))} lies beside the model, which has no gradient there")
        self._several = several
        self._pullbacks: dict[str, list[Pullback]] = {}

    def calls(self) -> HookCalls:
        names = set(self._points) | set(self._seeing._points)
        return HookCalls(names, self._call if names else None, self._backward if names else None)

    def _apply(self, name: str, value: Floats, position: int) -> Floats:
        hook, functions = self._points[name]
        hook.position = position
        pullbacks = self._pullbacks[name] = []
        for function in functions:
            value, pullback = self._derived(name, function, value, hook)
            if pullback is not None:
                pullbacks.append(pullback)
        return value

    def _derived(self, name: str, function: AnyFunction, value: Floats, hook: HookPoint) -> tuple[Floats, Pullback | None]:
        if isinstance(function, torch_hook):
            after, pullback = function.derived(value, hook)
            return replacement_of(name, value, after), _checked(name, pullback, value.shape)
        before = value.copy()
        backward = getattr(function, "backward", None)
        if callable(backward):
            after = replacement_of(name, value, forward_of(function)(value, hook))

            def back(gradient: Floats) -> Floats:
                if self._serves_others(function):  # whatever it keeps of forward shall be of this place
                    forward_of(function)(before.copy(), hook)
                result: Floats = backward(gradient, hook)
                return result
            return after, _checked(name, back, value.shape)
        plain, looked_at = forward_of(function), value.copy()
        looked_at.flags.writeable = False  # to tell who writes from who only looks
        try:
            returned = plain(looked_at, hook)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            after = replacement_of(name, value, plain(value, hook))
        else:
            looked_at.flags.writeable = True  # it is the function's to keep
            after = replacement_of(name, looked_at, returned)
            if returned is None and np.array_equal(before, after, equal_nan=True):
                return value, None
        if np.isnan(after).any():
            return after, None  # the run refuses it
        kept = _kept(name, plain, before, after, hook)
        return after, None if kept.all() else lambda gradient: np.where(kept, gradient, np.float32(0))

    def _serves_others(self, function: AnyFunction) -> bool:
        return self._several or sum(other is function for _, functions in self._points.values() for other in functions) > 1

    def _backward(self, name: str, gradient: Floats) -> Floats:
        if name in self._seeing._points:
            hook, functions = self._seeing._points[name]
            for function in functions:
                given = gradient.copy()  # which it may write to
                gradient = _finite(name, gradient, replacement_of(name, given, forward_of(function)(given, hook)))
        for pullback in reversed(self._pullbacks.get(name, [])):
            gradient = _finite(name, gradient, pullback(gradient))
        return np.ascontiguousarray(gradient, np.float32)


def _finite(name: str, before: Floats, after: Floats) -> Floats:
    """after. Raises RunError if it holds NaN or infinity, unless a gradient without any never came here."""
    if not np.isfinite(after).all() and np.isfinite(before).all():
        raise RunError(f"the gradient that a function at {name} gives back holds NaN or infinity, and the one that it was given does not; "
                       "mend the function")
    return after


def _checked(name: str, pullback: Pullback, shape: Sequence[int]) -> Pullback:
    def checked(gradient: Floats) -> Floats:
        back = np.asarray(pullback(gradient))
        if back.shape != tuple(shape) or back.dtype.kind not in "biuf":
            raise ShapeError(f"the gradient that a function at {name} returns is {back.dtype} {list(back.shape)}; expected real numbers "
                             f"{list(shape)}, as the value's")
        return back
    return checked


def _kept(name: str, function: HookFunction, before: Floats, after: Floats, hook: HookPoint) -> Bools:
    """Where a plain function keeps a number or adds a constant to it (1), and where it puts a constant (0)."""
    after = after.copy()  # a function may return what it keeps
    finite = np.where(np.isfinite(before), np.abs(before), 0).astype(np.float64)
    size = finite + np.sqrt((finite**2).mean()) + (0.0 if finite.any() else 1.0)
    random = np.random.default_rng(0)
    shift = size * random.uniform(0.5, 1, before.shape) * random.choice([-1.0, 1.0], before.shape)
    other = (before + shift).astype(np.float32)
    given = other.copy()
    found = replacement_of(name, given, function(given, hook))
    constant: Bools = found == after
    with np.errstate(invalid="ignore"):
        moved, shifted = found.astype(np.float64) - after, other.astype(np.float64) - before
        rounding = 2 * np.finfo(np.float32).eps * (np.abs(found) + np.abs(after))
        even = (np.abs(moved - shifted) < _EVEN * np.abs(shifted) + rounding) | ((found == other) & (after == before))
    if not (constant | even).all():
        raise UsageError(
            f"the function at {name} computes what it puts there from the value, or differs from call to call, so that no gradient can "
            "flow back through it. A plain function may keep numbers, put constants or add constants; wrap one of torch tensors in "
            "vitrine.torch_hook, or give an object with forward(value, hook) and backward(gradient, hook)")
    return ~constant
