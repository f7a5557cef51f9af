"""Integers in the range of the engine's types."""

from __future__ import annotations

import operator
from typing import SupportsIndex

import numpy as np

from .errors import InputError, UsageError

INT32, INT64 = 2**31 - 1, 2**63 - 1


def within(what: str, value: SupportsIndex, first: int, last: int) -> int:
    """`value` as an integer of the engine. Raises UsageError outside of first to last, TypeError if it is not an integer."""
    number = operator.index(value)
    if not first <= number <= last:
        raise UsageError(f"{what} is {number}; expected a whole number from {first} to {last}")
    return number


def refuse_beyond_int64(prompt: object, ids: np.ndarray) -> None:
    """Names what int64 cannot hold in an array of uint64, or in a list that NumPy made floats or objects of for its sake."""
    numbers = np.atleast_1d(ids if ids.dtype.kind == "u" else np.asarray(prompt, dtype=object))
    for place, id in enumerate(numbers.flat):
        if isinstance(id, (int, np.integer)) and not -INT64 - 1 <= id <= INT64:
            raise InputError(f"token {id} at place {place % numbers.shape[-1]} is no token id; "
                             "ids are numbers from 0 to the vocabulary's end")
