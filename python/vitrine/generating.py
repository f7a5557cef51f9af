"""New text: at once, piece by piece, and by beam search."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from ._vitrine import BeamOptions, CompiledGrammar, GenerateOptions, TextStream
from .batches import OnePrompt, Prompt, Prompts, SeveralPrompts
from .errors import UsageError
from .hook_functions import Hook
from .hooking import calls_of, hooks
from .opened import OpenedModel
from .results import Generation, Generations, Hypothesis
from .sampling import HELP, Generating, Sampling, numbers_of
from .whole_numbers import INT32, INT64, within

if TYPE_CHECKING:
    from typing_extensions import Unpack


@overload
def generate(
    model: OpenedModel, prompt: OnePrompt, max_tokens: int = 128, *, fwd_hooks: Iterable[Hook] = (), **options: Unpack[Generating],
) -> Generation: ...


@overload
def generate(
    model: OpenedModel, prompt: SeveralPrompts, max_tokens: int = 128, *, fwd_hooks: Iterable[Hook] = (), **options: Unpack[Generating],
) -> Generations: ...


@overload
def generate(
    model: OpenedModel, prompt: Prompts, max_tokens: int = 128, *, fwd_hooks: Iterable[Hook] = (), **options: Unpack[Generating],
) -> Any: ...


def generate(
    model: OpenedModel, prompt: Prompts, max_tokens: int = 128, *, stop: str | Sequence[str] = (), eos: Sequence[int] | None = None,
    ignore_eos: bool = False, lookup: int = 0, draft: OpenedModel | None = None, draft_tokens: int = 4,
    json_schema: dict[str, Any] | bool | str | None = None, regex: str | None = None, grammar: str | None = None,
    lark: str | None = None, fwd_hooks: Iterable[Hook] = (), **sampling: Unpack[Sampling],
) -> Any:
    """Continues the prompt: a Generation. For a list of prompts, or ids [batch, position], also of one row, Generations: a list of
    them, each the same as alone (with load(exact=True) bit for bit); they are decoded together, but with a draft, lookup or hook
    functions one after the other. Greedy unless one of temperature, top_k, top_p, min_p, typical_p, top_n_sigma, xtc_probability, mirostat is given; the
    same seed and options give the same text. stop: strings that end the text and are not part of it. eos: default, the model's own.

    lookup and draft make it faster without changing the tokens (speculative decoding). lookup: number of tokens to draft, 1 to 7,
    that followed the last tokens earlier in the text. draft: a smaller model of the same vocabulary, which drafts draft_tokens
    tokens at a time. json_schema (as a dict or its text), regex, grammar (GBNF) and lark: what the text must conform to, one of
    them; a text that is truncated by max_tokens or stop is the beginning of one that conforms. fwd_hooks: functions at hooks, as
    in hooks(); they see the prompt's tokens, then each new token.
    """
    options = _options(**{k: v for k, v in locals().items() if k not in ("prompt", "fwd_hooks")})
    batch = model._batch(prompt)
    with hooks(model, fwd_hooks):
        if batch.listed and not model._hooks and lookup == 0 and draft is None:
            return Generations(Generation(*made) for made in model._session.generate_together(batch.ids, batch.lengths, options))
        made = Generations(Generation(*model._session.generate(row, options, calls_of(model))) for row in batch.rows)
    return made if batch.listed else made[0]


def stream(
    model: OpenedModel, prompt: Prompt, max_tokens: int = 128, *, stop: str | Sequence[str] = (), eos: Sequence[int] | None = None,
    ignore_eos: bool = False, lookup: int = 0, draft: OpenedModel | None = None, draft_tokens: int = 4,
    json_schema: dict[str, Any] | bool | str | None = None, regex: str | None = None, grammar: str | None = None,
    lark: str | None = None, fwd_hooks: Iterable[Hook] = (), **sampling: Unpack[Sampling],
) -> TextStream:
    """generate() as an iterator over final text: whole characters, never part of a stop string. Tokens are generated only as the
    iterator is read. The hooks are those set when the iterator is created.
    """
    options = _options(**{k: v for k, v in locals().items() if k not in ("prompt", "fwd_hooks")})
    with hooks(model, fwd_hooks):
        return model._session.stream(model._one(prompt), options, calls_of(model))


for _function in (generate, stream):
    _function.__doc__ = f"{_function.__doc__}\n    What chooses tokens:\n\n{HELP}\n"


def _options(
    *, model: OpenedModel, max_tokens: int, stop: str | Sequence[str], eos: Sequence[int] | None, ignore_eos: bool, lookup: int,
    draft: OpenedModel | None, draft_tokens: int, json_schema: dict[str, Any] | bool | str | None, regex: str | None,
    grammar: str | None, lark: str | None, sampling: Sampling,
) -> GenerateOptions:
    if lookup != 0 and draft is not None:
        raise UsageError("lookup and draft are both given; give one of them")
    drafter = None
    if lookup != 0:
        drafter = model._session.lookup_drafter(within("lookup", lookup, 0, INT64))
    elif draft is not None:
        drafter = model._session.model_drafter(draft._session, within("draft_tokens", draft_tokens, 0, INT64))
    return GenerateOptions(
        max_tokens=within("max_tokens", max_tokens, 0, INT64),
        numbers=numbers_of(sampling),
        breakers=sampling.get("dry_sequence_breakers"),
        logit_bias=[(model._in_vocabulary("a token of logit_bias", token), bias)
                    for token, bias in (sampling.get("logit_bias") or {}).items()],
        seed=within("seed", sampling.get("seed", 0), 0, 2**64 - 1),
        stops=[stop] if isinstance(stop, str) else list(stop),
        eos=_ends(model, eos),
        ignore_eos=ignore_eos,
        drafter=drafter,
        grammar=_grammar(model, {"json_schema": json_schema, "regex": regex, "gbnf": grammar, "lark": lark}),
    )


def _grammar(model: OpenedModel, texts: dict[str, Any]) -> CompiledGrammar | None:
    given = {kind: text for kind, text in texts.items() if text is not None}
    if len(given) > 1:
        raise UsageError("json_schema, regex, grammar and lark: give one of them")
    for kind, text in given.items():
        return model._session.compile_grammar(kind, text if isinstance(text, str) else json.dumps(text))
    return None


def beams(
    model: OpenedModel, prompt: Prompt, n_beams: int = 4, max_tokens: int = 128, *, n_return: int = 1, length_penalty: float = 1.0,
    early_stopping: bool | None = False, eos: Sequence[int] | None = None,
) -> list[Hypothesis]:
    """Continues the prompt by beam search as in Hugging Face, best first. early_stopping None is its "never"."""
    model._without_hooks("beam search")
    options = BeamOptions(n_beams=within("n_beams", n_beams, 1, INT32), n_return=within("n_return", n_return, 1, INT32),
                          max_tokens=within("max_tokens", max_tokens, 0, INT64), length_penalty=length_penalty,
                          early_stopping=early_stopping, eos=_ends(model, eos))
    found = model._session.beams(model._one(prompt), options)
    return [Hypothesis(text, tokens, score) for text, tokens, score in found]


def _ends(model: OpenedModel, eos: Sequence[int] | None) -> list[int]:
    return model._session.end_tokens if eos is None else [model._in_vocabulary("an end token", token) for token in eos]
