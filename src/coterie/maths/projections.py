"""Linear maps onto fewer columns, and back: random ones that are a seed (Johnson-Lindenstrauss), and given bases."""

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
"""Entries beyond which a sparse matrix is used as one: below, a dense product is faster."""
MOST_DRAWS = 20
"""A sparse matrix may miss a column; it is drawn again until none is missed."""


@dataclass(frozen=True)
class Projection:
    """A random projection, the same wherever it is drawn: p' = p Pi, of expected length 1 for a row of length 1.

    ``gaussian``: independent normal entries; ``sparse``: one in sqrt(d) entries, signs only (Li, Hastie & Church
    2006), small even for millions of columns; ``orthogonal``: orthonormal columns times sqrt(d / p), which
    turns rows and changes nothing where p = d.
    """

    form: str
    d: int
    p: int
    seed: int

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise InputError(f"a projection of form {self.form!r}; there are {', '.join(FORMS)}.")
        if not 1 <= self.p <= self.d:
            raise InputError(f"{self.d} columns cannot be projected onto {self.p}; 1 to {self.d} are possible.")

    @cached_property
    def matrix(self) -> Any:
        """Pi: d rows, p columns; sparse where its form is."""
        rng = np.random.default_rng([self.seed, self.d, self.p])
        for _ in range(MOST_DRAWS):
            drawn = self._drawn(int(rng.integers(2**31 - 1)))
            if self.form != "sparse" or np.linalg.matrix_rank(drawn.toarray()) == self.p:
                return drawn
        return self._gaussian(int(rng.integers(2**31 - 1)))  # so sparse that columns are missed: d and p are small

    def _drawn(self, seed: int) -> Any:
        if self.form == "sparse":
            from sklearn.random_projection import SparseRandomProjection

            projection = SparseRandomProjection(self.p, random_state=seed).fit(np.zeros((1, self.d)))
            return sparse.csc_array(projection.components_.T)
        drawn = self._gaussian(seed)
        return drawn if self.form == "gaussian" else linalg.qr(drawn, mode="economic")[0] * np.sqrt(self.d / self.p)

    def _gaussian(self, seed: int) -> Floats:
        from sklearn.random_projection import GaussianRandomProjection

        matrix: Floats = GaussianRandomProjection(self.p, random_state=seed).fit(np.zeros((1, self.d))).components_.T
        return matrix

    @property
    def dense(self) -> Floats:
        """The same, never sparse."""
        return np.asarray(self.matrix.toarray() if sparse.issparse(self.matrix) else self.matrix)

    @cached_property
    def inverse(self) -> Floats:
        """Pi^+, Moore and Penrose's: p rows, d columns."""
        return np.asarray(np.linalg.pinv(self.dense))

    @cached_property
    def _quick(self) -> Any:
        """The matrix as products with it are fastest: dense unless that is large."""
        return self.dense if self.d * self.p <= LARGE else self.matrix

    def apply(self, rows: Rows) -> Rows:
        """Rows mapped, in their own precision."""
        projected: Rows = np.asarray(rows @ self._quick.astype(rows.dtype, copy=False))
        return projected

    def lift(self, points: Floats) -> Floats:
        """X = X' Pi^+ (line 7 of Algorithms 2 and 4, 6 of 5, 8 of 6)."""
        return np.asarray(points @ self.inverse)


@dataclass(frozen=True)
class Basis:
    """Coordinates in a subspace: p = p~ V, with orthonormal columns of V."""

    vectors: Floats

    @property
    def d(self) -> int:
        """Columns before."""
        return len(self.vectors)

    @property
    def p(self) -> int:
        """Columns after."""
        return int(self.vectors.shape[1])

    @property
    def dense(self) -> Floats:
        """V itself."""
        return self.vectors

    def apply(self, rows: Rows) -> Rows:
        """Coordinates of rows."""
        coordinates: Rows = rows @ self.vectors.astype(rows.dtype)
        return coordinates

    def lift(self, points: Floats) -> Floats:
        """The point of the subspace that has these coordinates."""
        return np.asarray(points @ self.vectors.T)


LinearMap = Projection | Basis
"""Rows of ``d`` columns to rows of ``p``, and points back: to the shortest one that is mapped onto each."""


def mapped(rows: Rows, shift: Floats | None, maps: Sequence[LinearMap]) -> Rows:
    """Rows less a shift, in its full precision, through maps one after the other; in the rows' own precision."""
    seen: Rows = rows if shift is None else (rows - shift).astype(rows.dtype)
    for step in maps:
        seen = step.apply(seen)
    return seen


def product(maps: Sequence[LinearMap]) -> Floats:
    """The matrix of maps, at least one, applied one after the other."""
    matrix = maps[0].dense
    for step in maps[1:]:
        matrix = np.asarray(step.apply(matrix), np.float64)
    return matrix


def lifted(points: Floats, maps: Sequence[LinearMap]) -> Floats:
    """Points taken back through maps, the last one first: maps applied to the result give the points again."""
    for step in reversed(maps):
        points = step.lift(points)
    return points
