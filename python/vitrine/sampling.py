"""The keyword arguments that choose tokens, as generate() and stream() take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ._vitrine import sampling_options
from .opened import OpenedModel
from .whole_numbers import INT64, within


class Sampling(TypedDict, total=False):
    """help(vitrine.Model.generate) describes each; None is the default."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    top_n_sigma: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: Sequence[str] | None
    logit_bias: dict[int, float] | None
    seed: int


class Generating(Sampling, total=False):
    """All keyword arguments of generate() but fwd_hooks."""

    stop: str | Sequence[str]
    eos: Sequence[int] | None
    ignore_eos: bool
    lookup: int
    draft: OpenedModel | None
    draft_tokens: int
    json_schema: dict[str, Any] | bool | str | None
    regex: str | None
    grammar: str | None
    lark: str | None


_IS_WHOLE = {name: whole for name, whole, _ in sampling_options()}
HELP = "\n".join(f"    {name}: {text}." for name, _, text in sampling_options())


def numbers_of(sampling: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among the arguments. Errors: TypeError for an unknown argument, UsageError for a count that is not whole."""
    for name in sampling:
        if name not in Sampling.__annotations__:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    return {name: within(name, value, -1, INT64) if _IS_WHOLE[name] else value
            for name, value in sampling.items() if name in _IS_WHOLE and value is not None}
