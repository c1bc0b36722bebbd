"""Linear maps onto fewer columns, and back: random projections (Johnson-Lindenstrauss) and bases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg, sparse

from coterie.arrays import Floats, Rows
from coterie.errors import InputError

FORMS = ("gaussian", "sparse", "orthogonal")
"""Of random projections."""
LARGE = 1 << 24
"""Entries beyond which a sparse product is used; below, a dense one is faster."""
MOST_DRAWS = 20
"""A sparse matrix without full rank is drawn again, at most so often."""


@dataclass(frozen=True)
class Projection:
    """A random projection p' = p Pi, determined by its seed, that preserves squared lengths in expectation.

    ``gaussian``: independent normal entries; ``sparse``: one in sqrt(d) entries is nonzero (Li, Hastie & Church
    2006), for many columns; ``orthogonal``: orthonormal columns times sqrt(d / p), a rotation if p = d.
    """

    form: str
    d: int
    p: int
    seed: int

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise InputError(f"the form {self.form!r} of a projection is unknown; use {', '.join(FORMS)}.")
        if not 1 <= self.p <= self.d:
            raise InputError(f"{self.d} columns cannot be projected onto {self.p}; use 1 to {self.d}.")

    @cached_property
    def matrix(self) -> Any:
        """Pi, d x p; sparse if the form is."""
        rng = np.random.default_rng([self.seed, self.d, self.p])
        for _ in range(MOST_DRAWS):
            drawn = self._drawn(int(rng.integers(2**31 - 1)))
            if self.form != "sparse" or np.linalg.matrix_rank(drawn.toarray()) == self.p:
                return drawn
        return self._gaussian(int(rng.integers(2**31 - 1)))  # d and p are small

    def _drawn(self, seed: int) -> Any:
        if self.form == "sparse":
            from sklearn.random_projection import SparseRandomProjection

            projection = SparseRandomProjection(self.p, random_state=seed).fit(np.zeros((1, self.d)))
            return sparse.csc_array(projection.components_.T)
        drawn = self._gaussian(seed)
        return drawn if self.form == "gaussian" else linalg.qr(drawn, mode="economic")[0] * np.sqrt(self.d / self.p)

    def _gaussian(self, seed: int) -> Floats:
        from sklearn.random_projection import GaussianRandomProjection

        return np.asarray(
            GaussianRandomProjection(self.p, random_state=seed).fit(np.zeros((1, self.d))).components_.T
        )

    @property
    def dense(self) -> Floats:
        return np.asarray(self.matrix.toarray() if sparse.issparse(self.matrix) else self.matrix)

    @cached_property
    def inverse(self) -> Floats:
        """Pi^+, the pseudoinverse, p x d."""
        return np.asarray(np.linalg.pinv(self.dense))

    @cached_property
    def _quick(self) -> Any:
        """Pi for products: dense unless it is large."""
        return self.dense if self.d * self.p <= LARGE else self.matrix

    def apply(self, rows: Rows) -> Rows:
        return np.asarray(rows @ self._quick.astype(rows.dtype, copy=False))

    def lift(self, points: Floats) -> Floats:
        """X = X' Pi^+ (line 7 of Algorithms 2 and 4, 6 of 5, 8 of 6)."""
        return np.asarray(points @ self.inverse)


@dataclass(frozen=True)
class Basis:
    """Coordinates in a subspace: p = p~ V, with orthonormal columns of V."""

    vectors: Floats

    @property
    def d(self) -> int:
        return len(self.vectors)

    @property
    def p(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def dense(self) -> Floats:
        return self.vectors

    def apply(self, rows: Rows) -> Rows:
        return np.asarray(rows @ self.vectors.astype(rows.dtype))

    def lift(self, points: Floats) -> Floats:
        return np.asarray(points @ self.vectors.T)


LinearMap = Projection | Basis
"""Maps rows of ``d`` columns to rows of ``p``, and points back to their shortest preimage."""


def mapped(rows: Rows, shift: Floats | None, maps: Sequence[LinearMap]) -> Rows:
    """Rows minus a shift, mapped by all maps in order; in the rows' precision."""
    seen: Rows = rows if shift is None else (rows - shift).astype(rows.dtype)
    for step in maps:
        seen = step.apply(seen)
    return seen


def product(maps: Sequence[LinearMap]) -> Floats:
    """The product of the matrices of at least one map."""
    matrix = maps[0].dense
    for step in maps[1:]:
        matrix = np.asarray(step.apply(matrix), np.float64)
    return matrix


def lifted(points: Floats, maps: Sequence[LinearMap]) -> Floats:
    """Preimages of points under all maps, the last map first."""
    for step in reversed(maps):
        points = step.lift(points)
    return points
