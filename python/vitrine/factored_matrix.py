"""Low-rank matrices that are stored as their two factors."""

from __future__ import annotations

import operator
from functools import cached_property
from typing import Any

import numpy as np

from .arrays import ArrayLike, Floats
from .errors import ShapeError


class FactoredMatrix:
    """The product A @ B, which is not computed: A [..., ldim, mdim], B [..., mdim, rdim], float32, with mdim the small one.

    Raises ShapeError for factors whose shapes do not match.
    """

    __array_ufunc__ = None  # so that array @ factored asks us

    def __init__(self, A: np.ndarray, B: np.ndarray) -> None:
        A, B = np.asarray(A), np.asarray(B)
        if A.ndim < 2 or B.ndim < 2 or A.shape[-1] != B.shape[-2]:
            raise ShapeError(f"factors of shapes {list(A.shape)} and {list(B.shape)} do not fit; expected [..., l, m] and [..., m, r]")
        try:
            leading = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
        except ValueError as error:
            raise ShapeError(f"the leading axes of {list(A.shape)} and {list(B.shape)} do not fit together") from error
        self.A = np.broadcast_to(A, leading + A.shape[-2:])
        self.B = np.broadcast_to(B, leading + B.shape[-2:])
        self.ldim, self.mdim, self.rdim = A.shape[-2], A.shape[-1], B.shape[-1]
        self.shape = (*leading, self.ldim, self.rdim)

    def __repr__(self) -> str:
        return f"FactoredMatrix(shape {list(self.shape)}, inner dimension {self.mdim})"

    @property
    def ndim(self) -> int:
        """How many axes the product has."""
        return len(self.shape)

    @property
    def AB(self) -> Floats:
        """The product, [..., ldim, rdim]."""
        product: Floats = self.A @ self.B
        return product

    @property
    def BA(self) -> Floats:
        """The product in the other order, [..., mdim, mdim]. Raises ShapeError unless ldim is rdim."""
        if self.ldim != self.rdim:
            raise ShapeError(f"BA takes a square product; this one is {list(self.shape)}")
        product: Floats = self.B @ self.A
        return product

    @property
    def T(self) -> FactoredMatrix:
        """The transposed product."""
        return FactoredMatrix(np.swapaxes(self.B, -1, -2), np.swapaxes(self.A, -1, -2))

    @property
    def pair(self) -> tuple[Floats, Floats]:
        """(A, B)"""
        return self.A, self.B

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, FactoredMatrix):
            return (self @ other.A) @ other.B
        other = np.asarray(other)
        if other.ndim == 0 or other.shape[max(-2, -other.ndim)] != self.rdim:
            raise ShapeError(f"{self!r} @ {list(other.shape)}: expected {self.rdim} rows on the right")
        if other.ndim == 1:
            return (self.A @ (self.B @ other[..., None]))[..., 0]
        if self.rdim > self.mdim:
            return FactoredMatrix(self.A, self.B @ other)
        return FactoredMatrix(self.AB, other)

    def __rmatmul__(self, other: Any) -> Any:
        other = np.asarray(other)
        if other.ndim == 0 or other.shape[-1] != self.ldim:
            raise ShapeError(f"{list(other.shape)} @ {self!r}: expected {self.ldim} columns on the left")
        if other.ndim == 1:
            return ((other[..., None, :] @ self.A) @ self.B)[..., 0, :]
        if self.ldim > self.mdim:
            return FactoredMatrix(other @ self.A, self.B)
        return FactoredMatrix(other, self.AB)

    def __mul__(self, scalar: ArrayLike) -> FactoredMatrix:
        if np.size(scalar) != 1:
            raise ShapeError(f"* takes one number; for a product of matrices use @. Got shape {list(np.shape(scalar))}")
        return FactoredMatrix(self.A * scalar, self.B)

    __rmul__ = __mul__

    def __getitem__(self, index: Any) -> FactoredMatrix:
        """Leading axes, then rows and columns, as of the product. An indexed row or column keeps its axis, with length 1."""
        index = index if isinstance(index, tuple) else (index,)
        if sum(i is Ellipsis for i in index) > 1:
            raise IndexError("an index can have one ellipsis only")
        if any(i is None for i in index):
            raise IndexError("a FactoredMatrix takes no new axes; index A and B by themselves")
        if Ellipsis in [i for i in index if not isinstance(i, np.ndarray)]:
            place = next(i for i, item in enumerate(index) if item is Ellipsis)
            index = index[:place] + (slice(None),) * (self.ndim - len(index) + 1) + index[place + 1:]
        if len(index) > self.ndim:
            raise IndexError(f"{len(index)} indices for {self!r}")
        leading = index[: self.ndim - 2]
        rows, columns = (*index[self.ndim - 2:], slice(None), slice(None))[:2]
        A, B = self.A[leading], self.B[leading]
        return FactoredMatrix(A[..., _range(rows, self.ldim), :], B[..., :, _range(columns, self.rdim)])

    @cached_property
    def _svd(self) -> tuple[Floats, Floats, Floats]:
        # M = A B = Ua (Sa Vaᵀ Ub Sb) Vbᵀ: only matrices of the inner dimension are taken apart.
        Ua, Sa, Vah = np.linalg.svd(self.A, full_matrices=False)
        Ub, Sb, Vbh = np.linalg.svd(self.B, full_matrices=False)
        U, S, Vh = np.linalg.svd(Sa[..., :, None] * (Vah @ Ub) * Sb[..., None, :], full_matrices=False)
        return Ua @ U, S, np.swapaxes(Vh @ Vbh, -1, -2)

    def svd(self) -> tuple[Floats, Floats, Floats]:
        """U [..., ldim, m], S [..., m] and V [..., rdim, m] with M = U diag(S) Vᵀ."""
        return self._svd

    @property
    def U(self) -> Floats:
        """Left singular vectors, [..., ldim, m]."""
        return self._svd[0]

    @property
    def S(self) -> Floats:
        """Singular values, largest first, [..., m]."""
        return self._svd[1]

    @property
    def V(self) -> Floats:
        """Right singular vectors, [..., rdim, m]."""
        return self._svd[2]

    @property
    def Vh(self) -> Floats:
        """V, not its transpose, as in TransformerLens, where this name is deprecated."""
        return self.V

    @property
    def eigenvalues(self) -> np.ndarray:
        """Those of the square product that may differ from zero, complex [..., mdim]: AB and BA share them."""
        return np.linalg.eigvals(self.BA)

    def norm(self) -> Floats:
        """The Frobenius norm, [...]."""
        squares: Floats = (self.S**2).sum(-1)
        return np.sqrt(squares)

    def collapse_l(self) -> Floats:
        """diag(S) Vᵀ [..., m, rdim]: the product without an orthogonal factor on its left."""
        return self.S[..., :, None] * np.swapaxes(self.V, -1, -2)

    def collapse_r(self) -> Floats:
        """U diag(S) [..., ldim, m]: the product without an orthogonal factor on its right."""
        return self.U * self.S[..., None, :]

    def unsqueeze(self, axis: int) -> FactoredMatrix:
        """The same with an axis of length 1 before leading axis `axis`; -1 and -2 would separate rows from columns."""
        at = operator.index(axis)
        leading = self.ndim - 2
        if not -leading - 3 <= at <= leading or at in (-1, -2):
            raise ShapeError(f"unsqueeze at {at}: expected 0 to {leading}, or -3 to {-leading - 3}")
        return FactoredMatrix(np.expand_dims(self.A, at), np.expand_dims(self.B, at))

    def get_corner(self, k: int = 3) -> Floats:
        """The first k rows and columns of the first matrix's product, and the first k of each leading axis."""
        first = (slice(0, k),) * (self.ndim - 2)
        corner: Floats = self.A[first][..., :k, :] @ self.B[first][..., :, :k]
        return corner

    def make_even(self) -> FactoredMatrix:
        """The same product with half of each singular value in each factor."""
        root = np.sqrt(self.S)
        return FactoredMatrix(self.U * root[..., None, :], root[..., :, None] * np.swapaxes(self.V, -1, -2))


def _range(index: Any, size: int) -> Any:
    if isinstance(index, (slice, list, np.ndarray)):
        return index
    i = operator.index(index)
    if not -size <= i < size:
        raise IndexError(f"index {i} is out of range for {size} rows or columns")
    i %= size
    return slice(i, i + 1)
