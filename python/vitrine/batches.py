"""Prompts as rows of ids that may differ in length, and the results of their runs as arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np

from .arrays import Doubles, Floats, Ids
from .errors import InputError
from .whole_numbers import refuse_beyond_int64

Prompt = str | Sequence[int] | np.ndarray
Prompts = Prompt | Sequence[Prompt]
# By the form alone, never by the number of rows: the types of results that are one, or a list with one for each prompt.
OnePrompt = str | Sequence[int] | np.ndarray[tuple[int], np.dtype[Any]]
SeveralPrompts = list[str] | tuple[str, ...] | Sequence[Sequence[int]] | Sequence[np.ndarray] | np.ndarray[tuple[int, int], np.dtype[Any]]


class Batch:
    """Rows of ids, each int64 [position], and the padding of their arrays: NaN after each row's end."""

    def __init__(self, rows: list[Ids], listed: bool = False) -> None:
        self.rows = rows
        self.listed = listed  # given as several: a list, or ids [batch, position], even of one row
        self.lengths = [len(row) for row in rows]
        self.longest = max(self.lengths, default=0)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ragged(self) -> bool:
        return any(length != self.longest for length in self.lengths)

    @property
    def ids(self) -> Ids:
        """All rows, concatenated."""
        return np.concatenate(self.rows) if self.rows else np.zeros(0, np.int64)

    def array(self) -> Ids:
        """[batch, position]. Raises InputError for rows that differ in length."""
        if self.ragged:
            raise InputError(f"the rows of a batch differ in length, {min(self.lengths)} to {self.longest} tokens; this takes rows of "
                             "one length, or one at a time")
        return np.stack(self.rows) if self.rows else np.zeros((0, 0), np.int64)

    def padded(self, values: Doubles, shorter: int = 0) -> Doubles:
        """Concatenated numbers of all rows' tokens, without the last `shorter` of each, as [batch, position - shorter]."""
        whole = np.full((len(self), max(self.longest - shorter, 0)), np.nan, values.dtype)
        first = 0
        for i, length in enumerate(self.lengths):
            whole[i, : length - shorter] = values[first : first + length - shorter]
            first += length - shorter
        return whole

    def joined(self, stream: Floats) -> Floats:
        """The rows' own positions of [batch, position, d_model], concatenated: [all positions, d_model]."""
        if not self.ragged:
            return stream.reshape(-1, stream.shape[-1])
        return np.concatenate([stream[i, :length] for i, length in enumerate(self.lengths)])


def batch_of(prompt: Prompts, to_ids: Callable[[str], Ids]) -> Batch:
    """A text, ids [position] or [batch, position], or a list of texts and of rows of ids.

    Raises InputError for anything else.
    """
    if isinstance(prompt, str):
        return Batch([to_ids(prompt)])
    if not isinstance(prompt, np.ndarray) and isinstance(prompt, Sequence) and len(prompt) > 0 and _is_list_of_rows(prompt):
        return Batch([_row(row, i, to_ids) for i, row in enumerate(prompt)], listed=True)
    try:
        ids = np.asarray(prompt)
    except ValueError as error:
        raise InputError("a prompt is a text, ids [position] or [batch, position], or a list of texts and of rows of ids") from error
    if ids.dtype.kind != "i":
        refuse_beyond_int64(prompt, ids)
    if ids.size > 0 and ids.dtype.kind not in "iu":
        raise InputError(f"a prompt is a text or whole numbers; got {ids.dtype}")
    if ids.ndim not in (1, 2):
        raise InputError(f"token ids have shape {list(ids.shape)}; expected [position] or [batch, position]")
    return Batch(list(np.ascontiguousarray(np.atleast_2d(ids), dtype=np.int64)), listed=ids.ndim == 2)


def _is_list_of_rows(prompt: Sequence[object]) -> TypeGuard[Sequence[Prompt]]:
    return any(isinstance(row, Sequence) or getattr(row, "ndim", 0) > 0 for row in prompt)


def _row(given: Prompt, place: int, to_ids: Callable[[str], Ids]) -> Ids:
    if isinstance(given, str):
        return to_ids(given)
    ids = np.asarray(given)
    if ids.dtype.kind != "i":
        refuse_beyond_int64(given, ids)
    if ids.ndim != 1 or (ids.size > 0 and ids.dtype.kind not in "iu"):
        found = f"{ids.dtype} {list(ids.shape)}" if ids.ndim else repr(given)
        raise InputError(f"row {place} of the batch is {found}; expected a text or ids [position]")
    return np.ascontiguousarray(ids, dtype=np.int64)
