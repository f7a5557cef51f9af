"""Requests for hooks as the engine reads them, from what run_with_cache and gradients take."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence

from ._vitrine import Session
from .errors import InputError
from .hook_functions import names_of

NamesFilter = None | str | Sequence[str] | Callable[[str], bool]
Slice = None | int | slice

_ONE_SLICE = r"(?:-?\d+|(?:-?\d+)?:(?:-?\d+)?)"
_POSITIONS = re.compile(rf"[^\[]+\[(?:(?P<before>heads={_ONE_SLICE}),)?positions=(?P<positions>{_ONE_SLICE})"
                        rf"(?:,(?P<after>heads={_ONE_SLICE}))?\]")


def has_heads(name: str) -> bool:
    """Whether values of the hook have an axis of heads."""
    return (".attn.hook_" in name and not name.endswith("hook_out")) or name.endswith(".attn.o.hook_in")  # an alias of two hooks


def _slice_text(s: int | slice) -> str:
    if not isinstance(s, slice):
        return str(operator.index(s))
    if s.step not in (None, 1):
        raise InputError(f"the slice {s} has a step; expected a range without one")
    return f"{'' if s.start is None else s.start}:{'' if s.stop is None else s.stop}"


def _slices(request: str, heads: Slice, positions: Slice) -> str:
    """The slices of all requests in the words of one: "[heads=0:2,positions=-1]"."""
    parts = [f"{axis}={_slice_text(s)}" for axis, s in (("heads", heads), ("positions", positions)) if s is not None]
    if not parts:
        return ""
    if "[" in request:
        raise InputError(f"{request!r} has slices of its own; give them there, or as heads= and positions=, not both")
    return f"[{','.join(parts)}]"


def _range(request: str, hook: str, text: str, size: int) -> slice:
    """The positions of `text` ("-1", "2:", "0:-3") among the `size` of a hook, as the engine takes them."""
    def fail(problem: str) -> InputError:
        there = f", 0 to {size - 1}" if size else ""
        return InputError(f'the hook request "{request}" {problem}: {hook} has {size} positions{there}')

    if ":" not in text:
        i = int(text) + (size if int(text) < 0 else 0)
        if not 0 <= i < size:
            raise fail("selects one that does not exist")
        return slice(i, i + 1)
    first, end, _ = slice(*(int(part) if part else None for part in text.split(":"))).indices(size)
    if first >= end:
        raise fail("selects nothing")
    return slice(first, end)


def requests_of(session: Session, names_filter: NamesFilter) -> list[str]:
    if names_filter is None:
        every = (re.sub(r"^blocks\.\d+\.", "blocks.*.", name) for name in session.hook_names)
        return [pattern for pattern in dict.fromkeys(every) if not pattern.endswith("attn.hook_result")]
    if isinstance(names_filter, str):
        return [names_filter]
    if callable(names_filter):
        return names_of(session, names_filter)
    return list(names_filter)


def sliced(session: Session, requests: list[str], heads: Slice, positions: Slice) -> list[str]:
    """The requests with the slices of all; heads only where a hook has some, for the others are to stay whole."""
    if heads is None:
        return [request + _slices(request, None, positions) for request in requests]
    every, any_heads = [], False
    for request in requests:
        cut = _slices(request, heads, positions)
        if any(map(has_heads, session.find_hooks(request))):
            any_heads = True
        else:
            cut = _slices(request, None, positions)
        every.append(request + cut)
    if not any_heads:
        raise InputError(f"heads={_slice_text(heads)} is of no use: no hook that is asked for has heads")
    return every


def apart_from(session: Session, hook: str | None, requests: list[str], rows: int) -> tuple[list[str], slice | None]:
    """The requests without slices of one hook, which has no heads, and the positions of it that they ask for."""
    if hook is None:
        return requests, None
    others: list[str] = []
    kept: tuple[str, slice] | None = None
    for request in requests:
        pattern = request.split("[")[0]
        names = session.find_hooks(pattern) if pattern else []
        cut = _POSITIONS.fullmatch(request)
        asked = slice(0, rows)
        if hook not in names or cut is None:
            others.append(request)  # what is malformed, the run refuses
        else:
            asked = _range(request, hook, cut["positions"], rows)
            others += _names_without(hook, request, names, cut)
        if hook not in names:
            continue
        if kept is not None and kept[1] != asked:
            raise InputError(f'"{kept[0]}" and "{request}" ask for different slices of {hook}; a cache holds a hook '
                             "once. Ask for the larger slice, or run twice")
        kept = kept or (request, asked)
    return others, kept[1] if kept else None


def _names_without(hook: str, request: str, names: list[str], cut: re.Match[str]) -> list[str]:
    heads = cut["before"] or cut["after"]
    if heads and not any(map(has_heads, names)):
        return [request]  # the run refuses it
    positions = f"positions={cut['positions']}"
    return [f"{name}[{heads},{positions}]" if heads and has_heads(name) else f"{name}[{positions}]"
            for name in names if name != hook]
