"""Principal axes of rows in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from scipy import linalg

from coterie.arrays import Floats, Rows
from coterie.maths.spectra import largest_pairs

WIDE = 2048
"""Up to so many columns the d x d Gram matrix is formed; beyond, a random range of a few more columns than axes."""
SPARE, PASSES = 12, 5
"""Columns of the range beyond the axes, and passes of subspace iteration over the rows."""


class Axes(NamedTuple):
    """The leading right singular vectors of rows, their squared singular values, and the rows' squared norm."""

    values: Floats
    vectors: Floats
    squares: float

    @property
    def missed(self) -> float:
        """Delta: the sum of squared distances of the rows from the subspace."""
        return max(0.0, self.squares - float(self.values.sum()))


def principal_axes(blocks: Callable[[], Iterable[tuple[Rows, Floats]]], d: int, count: int, *, seed: int) -> Axes:
    """The top ``count`` axes of weighted rows in blocks.

    Exact, by the Gram matrix; for wide rows by subspace iteration in a random range (Halko, Martinsson & Tropp 2011),
    which is exact if the rank of the rows is at most ``count`` + 12.
    """
    count = min(count, d)
    if d <= WIDE:
        gram = np.zeros((d, d))
        for rows, counts in blocks():
            add_products(gram, rows, counts)
        pairs = largest_pairs(gram, count)
        return Axes(np.maximum(pairs.values, 0.0), pairs.vectors, float(np.trace(gram)))
    width = min(d, count + SPARE)
    basis = linalg.qr(np.random.default_rng([seed, d, width]).normal(size=(d, width)), mode="economic")[0]
    for _ in range(PASSES - 1):
        basis = linalg.qr(_products(blocks(), basis, d)[0], mode="economic")[0]
    _, inner, squares = _products(blocks(), basis, d)
    pairs = largest_pairs(inner, count)
    return Axes(np.maximum(pairs.values, 0.0), basis @ pairs.vectors, squares)


def add_products(gram: Floats, rows: Rows, counts: Floats) -> None:
    """Add the Gram matrix of weighted rows to ``gram``; BLAS multiplies a matrix with itself at half the cost."""
    exact = rows.astype(np.float64, copy=False)
    weighed = exact if (counts == 1).all() else exact * np.sqrt(counts)[:, None]
    gram += weighed.T @ weighed


def _products(blocks: Iterable[tuple[Rows, Floats]], basis: Floats, d: int) -> tuple[Floats, Floats, float]:
    """A'AQ, Q'A'AQ and the squared norm of A, for rows A and a range Q."""
    outer, inner, squares = np.zeros((d, basis.shape[1])), np.zeros((basis.shape[1],) * 2), 0.0
    for rows, counts in blocks:
        exact = rows.astype(np.float64, copy=False)
        seen = exact @ basis
        weighed = seen * counts[:, None]
        outer += exact.T @ weighed
        inner += seen.T @ weighed
        squares += float(counts @ np.vecdot(exact, exact))
    return outer, inner, squares
