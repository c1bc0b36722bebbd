"""Eigenpairs of symmetric matrices, from products with vectors or from the matrix itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from coterie.arrays import Floats

TOLERANCE = 1e-10
"""A residual below this share of the largest eigenvalue counts as none."""


class Ritz(NamedTuple):
    """Eigenvalues from the largest down, and their vectors as columns."""

    values: Floats
    vectors: Floats

    def top(self, count: int) -> Ritz:
        """The first few."""
        return Ritz(self.values[:count], self.vectors[:, :count])

    def signed(self) -> Ritz:
        """The same with every vector's largest entry positive: eigenvectors leave their sign open.

        Of entries that differ by rounding only the first counts as the largest.
        """
        if not len(self.values):
            return self
        sizes = np.abs(self.vectors)
        largest = (sizes >= (1 - 1e-6) * sizes.max(axis=0)).argmax(axis=0)
        signs = np.where(self.vectors[largest, np.arange(len(self.values))] < 0, -1.0, 1.0)
        return Ritz(self.values, self.vectors * signs)

    def above(self, threshold: float) -> Ritz:
        """Those above a threshold."""
        return self.top(int((self.values > threshold).sum()))


class Krylov:
    """The Lanczos algorithm (Algorithm 2 of the paper) as a basis that grows by one product at a time.

    Line 7 is replaced by full reorthogonalisation, called twice (equation 3). Products are kept, so that residuals
    are true ones and no recurrence has to be trusted. Where the space is exhausted before the matrix is (beta = 0,
    lines 9 to 11), it goes on with a fresh direction orthogonal to all: an eigenvalue that is there twice is found
    twice.
    """

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self._rng = size, rng
        self._basis = np.zeros((size, 0))
        self._products = np.zeros((size, 0))
        self._fresh_at = [0]
        self.newest = self._fresh_direction()

    @property
    def n_products(self) -> int:
        """How many products were taken in: Q."""
        return self._products.shape[1]

    def extend(self, product: Floats) -> None:
        """Take in the product with :attr:`newest` and find the next direction."""
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
        """Whether every Ritz value that is or may still come above ``threshold``, and the first ``at_least``, have no
        residual left. After a breakdown, only once a fresh direction leads to nothing above the threshold.
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
        """All Ritz pairs found so far."""
        return self._pairs()[0]

    def _pairs(self, start: int = 0) -> tuple[Ritz, Floats]:
        """Ritz pairs of the basis from a direction on, and the length of their residuals."""
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
    packed: Floats = matrix[np.triu_indices(len(matrix))]
    return packed


def full_matrix(packed: Floats, size: int) -> Floats:
    """The symmetric matrix of a triangle."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = packed
    return matrix + np.triu(matrix, 1).T


def eigenpairs_above(matrix: Floats, threshold: float = -np.inf) -> Ritz:
    """Eigenpairs of a symmetric matrix, from the largest down to the threshold."""
    values, vectors = linalg.eigh(matrix)
    return Ritz(values[::-1], vectors[:, ::-1]).above(threshold)


def inverse_root(matrix: Floats, threshold: float = 1e-12) -> Floats:
    """R with R' M R = I on the range of a positive semidefinite M: eigenvalues below ``threshold`` times the largest
    count as zero, so a matrix without full rank gives fewer columns. Signs are those of ``Ritz.signed``."""
    pairs = eigenpairs_above(matrix).signed()
    kept = pairs.above(threshold * max(float(pairs.values[0]), 1e-300)) if len(pairs.values) else pairs
    scaled: Floats = kept.vectors / np.sqrt(kept.values)
    return scaled
