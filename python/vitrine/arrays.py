"""Types of arrays. A plain np.ndarray is an array of any numbers, as passed by callers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike as ArrayLike

Floats = np.ndarray[tuple[Any, ...], np.dtype[np.float32]]  # what the engine computes
Doubles = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]
Complexes = np.ndarray[tuple[Any, ...], np.dtype[np.complex128]]
Bools = np.ndarray[tuple[Any, ...], np.dtype[np.bool_]]
Ids = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]  # token ids, positions, lengths
RowsOfIds = np.ndarray[tuple[int, int], np.dtype[np.int64]]  # [batch, position]
