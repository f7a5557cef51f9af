"""The keyword arguments that choose tokens, as generate() and stream() take them."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

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


# Options of TransformerLens's and transformers' generate, and what has their place.
_ELSEWHERE = {
    "max_new_tokens": "use max_tokens=",
    "max_length": "use max_tokens=, which counts new tokens only",
    "freq_penalty": "use frequency_penalty=",
    "eos_token_id": "use eos=, a list of ids",
    "stop_at_eos": "use ignore_eos=, the opposite",
    "stop_strings": "use stop=",
    "do_sample": "leave it out: the text is greedy unless an option of sampling such as temperature= is given",
    "num_beams": "use beams(), with n_beams=",
    "num_return_sequences": "give a list of prompts, with another seed for each call",
    "prepend_bos": "use to_tokens(text, prepend_bos=)[0], which is a prompt, too",
    "return_type": "leave it out: the result has text and tokens",
    "past_kv_cache": "leave it out: it always decodes with a cache of its own",
    "use_past_kv_cache": "leave it out: it always decodes with a cache",
    "padding_side": "leave it out: there is no padding",
    "verbose": "leave it out: nothing is printed",
}
_IS_WHOLE = {name: whole for name, whole, _ in sampling_options()}
HELP = "\n".join(f"    {name}: {text}." for name, _, text in sampling_options())


def numbers_of(sampling: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among the arguments. Errors: TypeError for an unknown argument, UsageError for a count that is not whole."""
    for name in sampling:
        if name in _ELSEWHERE:
            raise TypeError(f"generate has no {name}=; {_ELSEWHERE[name]}")
        if name not in Sampling.__annotations__:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
        if name in _IS_WHOLE and not isinstance(sampling[name], (numbers.Real, np.number, type(None))):
            raise TypeError(f"{name} is {sampling[name]!r}; expected a number")
    return {name: within(name, value, -1, INT64) if _IS_WHOLE[name] else value
            for name, value in sampling.items() if name in _IS_WHOLE and value is not None}
