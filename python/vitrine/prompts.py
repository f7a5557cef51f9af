"""Inspecting a prompt: the position of a token, how well an answer is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from .arrays import Doubles, Ids
from .batches import Prompt, Prompts
from .errors import InputError, ShapeError
from .opened import OpenedModel
from .running import call


class AnswerToken(NamedTuple):
    """One token of an answer and how well the model predicts it."""

    token: int
    piece: str
    rank: int  # 0: the most likely of all
    logit: float
    prob: float


def get_token_position(
    model: OpenedModel, single_token: str | int, prompt: Prompt, mode: Literal["first", "last"] = "first", prepend_bos: bool | None = None,
) -> int:
    """The position of a token in a text or in one row of ids. Raises InputError if it does not occur."""
    if mode not in ("first", "last"):
        raise InputError(f"mode is {mode!r}; expected 'first' or 'last'")
    token = model._token(single_token)
    ids = model._ids(prompt, prepend_bos)
    places = np.flatnonzero(ids == token)
    if places.size == 0:
        raise InputError(f"token {single_token!r} is not in the prompt, whose pieces are {model.tokenizer.pieces(ids)}")
    return int(places[0 if mode == "first" else -1])


def test_prompt(
    model: OpenedModel, prompt: str, answer: str | Sequence[str], prepend_space_to_answer: bool = True, print_details: bool = True,
    prepend_bos: bool | None = None, top_k: int = 10,
) -> list[AnswerToken]:
    """How well an answer is predicted after a prompt: prints the rank, logit and probability of each of its tokens and the top_k
    most likely tokens at each position, and returns the former. Several answers are compared by the first token of each.
    """
    answers = [answer] if isinstance(answer, str) else list(answer)
    if not answers or any(not a.strip() for a in answers):
        raise InputError("an answer is empty; give the text that is expected to follow")
    ids = model.to_tokens(prompt, prepend_bos)[0].tolist()
    if prepend_space_to_answer:
        answers = [a if a.startswith(" ") else " " + a for a in answers]
    tokens = [_continuation(model, a) for a in answers]
    several = len(answers) > 1
    logits = call(model, [*ids, *([] if several else tokens[0])])[0].astype(np.float64)
    asked = [(t[0], len(ids) - 1) for t in tokens] if several else [(t, len(ids) - 1 + i) for i, t in enumerate(tokens[0])]
    found = []
    for token, position in asked:
        row = logits[position]
        prob = np.exp(row - row.max())
        found.append(AnswerToken(token, model.to_single_str_token(token), int((row > row[token]).sum()), float(row[token]),
                                 float(prob[token] / prob.sum())))
    if print_details:
        print("Prompt:", model.to_str_tokens(ids))
        for place in dict.fromkeys(position for _, position in asked):
            for one, (_, position) in zip(found, asked, strict=True):
                if position == place:
                    print(f"Rank {one.rank:<6} logit {one.logit:6.2f}  prob {one.prob:7.2%}  {one.piece!r}: expected")
            order = np.argsort(-logits[place], kind="stable")[:top_k]
            probs = np.exp(logits[place] - logits[place].max())
            for rank, token in enumerate(order):
                print(f"Top {rank:<7} logit {logits[place, token]:6.2f}  prob {probs[token] / probs.sum():7.2%}  "
                      f"{model.to_single_str_token(int(token))!r}")
    return found


def _continuation(model: OpenedModel, text: str) -> list[int]:
    """The ids of a text that goes on behind another: a word with a space before it, without marks of a beginning."""
    try:
        return [model.tokenizer.single_token(text)]
    except InputError:
        return model.tokenizer.encode(text, add_special=False)


def loss_fn(model: OpenedModel, logits: np.ndarray, tokens: Prompts, per_token: bool = False) -> Any:
    """The mean cross-entropy in nats of each token given those before it, of logits [batch, position, vocab_size] that may come
    from anywhere; per_token: all of them, [batch, position - 1].
    """
    rows, z = model._rows(tokens), np.asarray(logits)
    if z.shape != (*rows.shape, model.config.vocab_size) or rows.shape[1] < 2:
        raise ShapeError(f"the logits are {list(z.shape)} and the tokens {list(rows.shape)}; expected "
                         f"[batch, position, {model.config.vocab_size}] for two tokens or more")
    losses = _cross_entropy(z, rows)
    return losses if per_token else losses.mean()


def _cross_entropy(logits: np.ndarray, rows: Ids) -> Doubles:
    """-log softmax(logits[t])[rows[t + 1]] in double, [batch, position - 1]."""
    z = logits[:, :-1].astype(np.float64)
    largest = z.max(axis=-1, keepdims=True)
    log_sum = np.log(np.exp(z - largest).sum(axis=-1)) + largest[..., 0]
    losses: Doubles = log_sum - np.take_along_axis(z, rows[:, 1:, None], axis=-1)[..., 0]
    return losses
