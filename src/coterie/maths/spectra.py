"""Eigenpairs of symmetric matrices, from products with vectors or from the matrix itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from coterie.arrays import Floats

TOLERANCE = 1e-10
"""A residual below this share of the largest eigenvalue counts as zero."""


class Ritz(NamedTuple):
    """Eigenvalues from the largest down, and their vectors as columns."""

    values: Floats
    vectors: Floats

    def top(self, count: int) -> Ritz:
        return Ritz(self.values[:count], self.vectors[:, :count])

    def signed(self) -> Ritz:
        """The same pairs with the sign that makes each vector's largest entry positive.

        Of entries equal up to rounding the first counts as the largest.
        """
        if not len(self.values):
            return self
        sizes = np.abs(self.vectors)
        largest = (sizes >= (1 - 1e-6) * sizes.max(axis=0)).argmax(axis=0)
        signs = np.where(self.vectors[largest, np.arange(len(self.values))] < 0, -1.0, 1.0)
        return Ritz(self.values, self.vectors * signs)

    def above(self, threshold: float) -> Ritz:
        return self.top(int((self.values > threshold).sum()))


class Krylov:
    """The Lanczos algorithm (Algorithm 2 of the paper) as a basis that grows with every product.

    Line 7 is replaced by full reorthogonalisation, applied twice (equation 3). Products are kept, so residuals are
    computed, not estimated. At a breakdown (beta = 0, lines 9 to 11) it continues with a random direction orthogonal
    to the basis, so that multiple eigenvalues are found.
    """

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self._rng = size, rng
        self._basis = np.zeros((size, 0))
        self._products = np.zeros((size, 0))
        self._fresh_at = [0]
        self.newest = self._fresh_direction()

    @property
    def n_products(self) -> int:
        """Q, the number of products so far."""
        return self._products.shape[1]

    def extend(self, product: Floats) -> None:
        """Add the product with :attr:`newest` and compute the next direction."""
        self._basis = np.column_stack([self._basis, self.newest])
        self._products = np.column_stack([self._products, product])
        if self.n_products == self.size:
            return
        left = self._orthogonal(product)
        beta, largest = float(np.linalg.norm(left)), float(np.abs(self._projected()).max())
        if beta <= 1e-13 * max(largest, float(np.linalg.norm(product))):  # a breakdown
            self._fresh_at.append(self.n_products)
            self.newest = self._fresh_direction()
        else:
            self.newest = self._orthogonal(left / beta)

    def has_converged(self, threshold: float, at_least: int = 1) -> bool:
        """Whether the first ``at_least`` Ritz values, and all that may be above ``threshold``, have converged.

        After a breakdown, only once a fresh direction has led to no value above the threshold.
        """
        start = self._fresh_at[-1]
        if self.n_products == self.size:
            return True
        if self.n_products == start and len(self._fresh_at) > 2:  # a fresh direction, too, led to a breakdown
            start = self._fresh_at[-2]
        if self.n_products <= start or self.n_products < at_least:
            return False
        pairs, residuals = self._pairs()
        smallest = TOLERANCE * max(float(np.abs(pairs.values).max()), 1e-300)
        threshold = min(threshold, float(pairs.values[max(at_least, 1) - 1]))
        is_wanted = pairs.values + residuals > threshold
        is_wanted[: max(at_least, 1)] = True
        if (residuals[is_wanted] > smallest).any():
            return False
        newest, left = self._pairs(start)  # of the last fresh direction alone
        return bool(left[0] <= smallest) and (start == 0 or bool(newest.values[0] <= threshold))

    def ritz(self) -> Ritz:
        return self._pairs()[0]

    def _pairs(self, start: int = 0) -> tuple[Ritz, Floats]:
        """Ritz pairs of the basis from direction ``start`` on, and the norms of their residuals."""
        values, small = linalg.eigh(self._projected(start))
        values, small = values[::-1], small[:, ::-1]
        vectors = self._basis[:, start:] @ small
        residuals = np.linalg.norm(self._products[:, start:] @ small - vectors * values, axis=0)
        return Ritz(values, vectors), residuals

    def _projected(self, start: int = 0) -> Floats:
        small = self._basis[:, start:].T @ self._products[:, start:]
        return (small + small.T) / 2

    def _orthogonal(self, vector: Floats) -> Floats:
        for _ in range(2):
            vector = vector - self._basis @ (self._basis.T @ vector)
        return vector

    def _fresh_direction(self) -> Floats:
        while True:
            vector = self._orthogonal(self._rng.normal(size=self.size))
            length = float(np.linalg.norm(vector))
            if length > 1e-8:
                return self._orthogonal(vector / length)


def triangle(matrix: Floats) -> Floats:
    """The upper triangle of a symmetric matrix, row by row."""
    return np.asarray(matrix[np.triu_indices(len(matrix))])


def full_matrix(packed: Floats, size: int) -> Floats:
    """The symmetric matrix with this upper triangle."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = packed
    return matrix + np.triu(matrix, 1).T


def eigenpairs_above(matrix: Floats, threshold: float = -np.inf) -> Ritz:
    """Eigenpairs of a symmetric matrix, from the largest down to the threshold."""
    values, vectors = linalg.eigh(matrix)
    return Ritz(values[::-1], vectors[:, ::-1]).above(threshold)


def inverse_root(matrix: Floats, threshold: float = 1e-12) -> Floats:
    """R with R' M R = I on the range of a positive semidefinite M; eigenvalues below ``threshold`` times the largest
    count as zero and give no column. Signs are those of ``Ritz.signed``."""
    pairs = eigenpairs_above(matrix).signed()
    kept = pairs.above(threshold * max(float(pairs.values[0]), 1e-300)) if len(pairs.values) else pairs
    return np.asarray(kept.vectors / np.sqrt(kept.values))
