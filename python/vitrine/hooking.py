"""The interface between the engine and hook functions, and how they are set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ._vitrine import HookCalls
from .arrays import Floats
from .errors import InputError
from .hook_functions import AnyFunction, Hook, HookPoint, Which, forward_of, names_of, pair_of, replacement_of
from .hook_requests import NamesFilter, requests_of
from .input_hooks import InputHook, input_hooks, input_names
from .opened import OpenedModel

Opened = TypeVar("Opened", bound=OpenedModel)


class HookSet:
    """Functions by hook, in the order in which they were set, and what the engine calls for them."""

    def __init__(self, model: OpenedModel, hooks: Iterable[Hook]) -> None:
        self._points: dict[str, tuple[HookPoint, list[AnyFunction]]] = {}
        self._inputs: dict[str, InputHook] = {}
        for hook in hooks:
            which, function = pair_of(hook)
            if not callable(function) and not callable(getattr(function, "forward", None)):
                raise InputError(f"the hook of {which!r} is {function!r}; expected a function of (value, hook)")
            for name in self._names(model, which):
                self._points.setdefault(name, (HookPoint(name), []))[1].append(function)

    def _names(self, model: OpenedModel, which: Which) -> list[str]:
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

    def _call(self, name: str, value: Floats, position: int) -> Floats:
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

    def _apply(self, name: str, value: Floats, position: int) -> Floats:
        hook, functions = self._points[name]
        hook.position = position
        for function in functions:
            value = replacement_of(name, value, forward_of(function)(value, hook))
        return value


@contextmanager
def hooks(model: Opened, fwd_hooks: Iterable[Hook]) -> Iterator[Opened]:
    """Inside this context, every run of this model by this thread calls function(value, hook) at each matching hook.

    fwd_hooks  (name, pattern, alias or predicate; function). value is float32, with the batch axis, for all prompts of a batch in
               one call; the run continues with what the function leaves in it, or returns instead. The function may keep it.
               hook.name, hook.layer(), hook.position. After the end of a shorter prompt value is NaN, and changes there are
               ignored
    A long prompt in predict and generate is several steps, and so is each new token: a function sees the tokens of one step.
    """
    before = model._of_thread.hooks
    added = list(fwd_hooks)
    HookSet(model, added)  # raises for names that fit nothing
    model._of_thread.hooks = [*before, *added]
    try:
        yield model
    finally:
        model._of_thread.hooks = before


def add_hook(model: OpenedModel, name: Which, hook: AnyFunction, *, prepend: bool = False) -> None:
    """Sets a function at hooks until reset_hooks(), for every run of this model by this thread. See hooks()."""
    HookSet(model, [(name, hook)])
    added = model._of_thread.added
    model._of_thread.added = [(name, hook), *added] if prepend else [*added, (name, hook)]


def reset_hooks(model: OpenedModel) -> None:
    """Removes the functions that add_hook() has set in this thread."""
    model._of_thread.added = []


def get_caching_hooks(
    model: OpenedModel, names_filter: NamesFilter = None, incl_bwd: bool = False,
) -> tuple[dict[str, Floats], list[Hook], list[Hook]]:
    """(values, fwd_hooks, bwd_hooks): the functions store the values at the hooks in the dict, by name. For hooks(), generate()
    and gradients(). names_filter: as in run_with_cache, without slices. incl_bwd: also gradients, under the name with the suffix
    "_grad".

    >>> values, forward, backward = model.get_caching_hooks("resid_post", incl_bwd=True)         # doctest: +SKIP
    >>> model.gradients(tokens, "hook_embed", metric=f, fwd_hooks=forward, bwd_hooks=backward)   # doctest: +SKIP
    """
    values: dict[str, Floats] = {}

    def keep(value: Floats, hook: HookPoint) -> None:
        values[hook.name] = value.copy()

    def keep_gradient(gradient: Floats, hook: HookPoint) -> None:
        values[hook.name + "_grad"] = gradient.copy()

    names = dict.fromkeys(name for which in requests_of(model._session, names_filter) for name in names_of(model._session, which))
    return values, [(name, keep) for name in names], [(name, keep_gradient) for name in names if incl_bwd]


def add_caching_hooks(model: OpenedModel, names_filter: NamesFilter = None) -> dict[str, Floats]:
    """The same with functions that stay until reset_hooks(): the dict contains the values of the last run."""
    values, forward, _ = get_caching_hooks(model, names_filter)
    for name, function in forward:
        add_hook(model, name, function)
    return values


def set_use_split_qkv_input(model: OpenedModel, on: bool) -> None:
    """Whether predicates see hook_q_input, hook_k_input and hook_v_input, which names always match."""
    _switch(model, on, {"q_input", "k_input", "v_input"})


def set_use_attn_in(model: OpenedModel, on: bool) -> None:
    """The same for hook_attn_in."""
    _switch(model, on, {"attn_in"})


def set_use_hook_mlp_in(model: OpenedModel, on: bool) -> None:
    """The same for hook_mlp_in."""
    _switch(model, on, {"mlp_in"})


def _switch(model: OpenedModel, on: bool, kinds: set[str]) -> None:
    model._input_hooks_on = model._input_hooks_on | kinds if on else model._input_hooks_on - kinds


def calls_of(model: OpenedModel) -> HookCalls:
    """Those of the functions that are set."""
    return HookSet(model, model._hooks).calls()
