"""Principal axes of rows that come in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from scipy import linalg

from coterie.arrays import Floats, Rows

WIDE = 2048
"""Columns up to which products of all pairs are kept; beyond, a random range of a few more than the axes wanted."""
SPARE, PASSES = 12, 5
"""Columns of the range beyond the axes, and how often rows are looked at to turn it into theirs."""


class Axes(NamedTuple):
    """The leading right singular vectors of rows as columns, the squares of their singular values, and the squares of
    all the rows' numbers."""

    values: Floats
    vectors: Floats
    squares: float

    @property
    def missed(self) -> float:
        """Squared distances of the rows from the subspace in all: Delta."""
        return max(0.0, self.squares - float(self.values.sum()))


def principal_axes(blocks: Callable[[], Iterable[tuple[Rows, Floats]]], d: int, count: int, *, seed: int) -> Axes:
    """The top ``count`` axes of weighted rows, seen block by block: never an SVD of all rows.

    By the d x d matrix of products, exactly; of wide rows by subspace iteration in a random range (Halko, Martinsson
    & Tropp 2011), exact where the rows' rank is at most ``count`` + 12.
    """
    count = min(count, d)
    if d <= WIDE:
        gram = np.zeros((d, d))
        for rows, counts in blocks():
            add_products(gram, rows, counts)
        values, vectors = linalg.eigh(gram, subset_by_index=[d - count, d - 1])
        return Axes(np.maximum(values[::-1], 0.0), vectors[:, ::-1], float(np.trace(gram)))
    width = min(d, count + SPARE)
    turned = linalg.qr(np.random.default_rng([seed, d, width]).normal(size=(d, width)), mode="economic")[0]
    for _ in range(PASSES - 1):
        turned = linalg.qr(_products(blocks(), turned, d)[0], mode="economic")[0]
    _, inner, squares = _products(blocks(), turned, d)
    values, small = linalg.eigh(inner)
    kept = slice(None, -count - 1, -1)
    return Axes(np.maximum(values[kept], 0.0), turned @ small[:, kept], squares)


def add_products(gram: Floats, rows: Rows, counts: Floats) -> None:
    """Add the products of all pairs of columns of weighted rows; a matrix times itself costs half of another one."""
    exact = rows.astype(np.float64, copy=False)
    weighed = exact if (counts == 1).all() else exact * np.sqrt(counts)[:, None]
    gram += weighed.T @ weighed


def _products(blocks: Iterable[tuple[Rows, Floats]], turned: Floats, d: int) -> tuple[Floats, Floats, float]:
    """A'AQ, Q'A'AQ and the squares of A's numbers, for rows A and a range Q."""
    outer, inner, squares = np.zeros((d, turned.shape[1])), np.zeros((turned.shape[1],) * 2), 0.0
    for rows, counts in blocks:
        exact = rows.astype(np.float64, copy=False)
        seen = exact @ turned
        weighed = seen * counts[:, None]
        outer += exact.T @ weighed
        inner += seen.T @ weighed
        squares += float(counts @ np.vecdot(exact, exact))
    return outer, inner, squares
