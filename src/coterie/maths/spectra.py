"""Eigenpairs of symmetric matrices, from products with vectors or from the matrix itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import linalg

from coterie.arrays import Floats
from coterie.extents import is_over, padded, sized
from coterie.maths import exact

TOLERANCE = 1e-10
"""A residual below this share of the largest eigenvalue counts as zero."""
CLOSE = 1e-9
"""Values within this share of a threshold count as equal to it: what LAPACK finds differs in its last digits."""
SMALL = 1200
"""Up to so many rows the dense matrix is solved directly."""
WRITTEN = 5000
"""Up to so many rows the dense matrix is solved if block Lanczos does not converge."""
SPARE = 10
"""Vectors of a block beyond the requested pairs."""
MOST_PASSES = 14
"""Passes before a restart with the best vectors of the basis."""
MOST_RESTARTS = 6


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

    def sized(self, least: int, most: int) -> Ritz:
        """The same pairs; in a rehearsal as few or as many as there can be."""
        return Ritz(sized(self.values, least, most), padded(self.vectors.T, least, most).T)

    def above(self, threshold: float) -> Ritz:
        return self.top(int((self.values > threshold).sum()))


class Krylov:
    """The Lanczos algorithm (Algorithm 2 of the paper) as a basis that grows with every product.

    Line 7 is replaced by full reorthogonalisation, applied twice (equation 3). Products are kept, so residuals are
    computed, not estimated. At a breakdown (beta = 0, lines 9 to 11) it continues with a random direction orthogonal
    to the basis, so that multiple eigenvalues are found.

    Close to a breakdown a direction is what rounding leaves, so directions and pairs have the same bits on every
    machine.
    """

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self._rng = size, rng
        self._basis = np.zeros((size, 0))
        self._products = np.zeros((size, 0))
        self._fresh_at, self._largest = [0], 0.0
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
        beta, largest = exact.length(left), float(np.abs(exact.product(self._basis.T, product)).max())
        self._largest = max(self._largest, largest)
        if beta <= 1e-13 * max(self._largest, exact.length(product)):  # a breakdown
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
        is_wanted = clearly_above(pairs.values + residuals, threshold)
        is_wanted[: max(at_least, 1)] = True
        newest, left = self._pairs(start)  # of the last fresh direction alone
        is_last = start == 0 or not clearly_above(newest.values[:1], threshold)[0]
        return is_over(not (residuals[is_wanted] > smallest).any() and left[0] <= smallest and is_last)

    def ritz(self) -> Ritz:
        inner = exact.product(self._basis.T, self._products)
        values, turn = exact_eigenpairs((inner + inner.T) / 2)
        return Ritz(values, exact.product(self._basis, turn))

    def _pairs(self, start: int = 0) -> tuple[Ritz, Floats]:
        """Ritz pairs of the basis from direction ``start`` on, and the norms of their residuals."""
        return _ritz(self._basis[:, start:], self._products[:, start:])[:2]

    def _fresh_direction(self) -> Floats:
        while True:
            vector = self._orthogonal(self._rng.normal(size=self.size))
            length = exact.length(vector)
            if length > 1e-8:
                return self._orthogonal(vector / length)

    def _orthogonal(self, vector: Floats) -> Floats:
        """The part orthogonal to the basis; projected twice because of rounding."""
        for _ in range(2):
            vector = vector - exact.product(self._basis, exact.product(self._basis.T, vector))
        return vector


def leading_pairs(
    multiply: Callable[[Floats], Floats], size: int, count: int, *, seed: int, spare: int = SPARE
) -> Ritz:
    """The ``count`` largest eigenvalues and their vectors, in few passes over the matrix.

    Block Lanczos with full reorthogonalisation. All blocks and products are kept, so the Rayleigh-Ritz step and the
    true residuals need no further pass. Ends when every residual is below ``TOLERANCE`` times the largest eigenvalue;
    restarts every ``MOST_PASSES``. If clustered eigenvalues prevent convergence, a matrix of up to ``WRITTEN`` rows
    is solved directly; of a larger one the pairs so far are returned, with a warning in the log. Small matrices, and
    requests for many of the pairs, are solved directly. A larger ``spare`` means fewer, more costly passes.
    """
    count, spare = min(count, size), min(spare, size // 4)
    if size <= SMALL or 3 * (count + spare) >= size or (size <= WRITTEN and 20 * (count + spare) >= size):
        return _direct(multiply, size, count)
    rng, width = np.random.default_rng([seed, size, count]), count + spare
    block = linalg.qr(rng.normal(size=(size, width)), mode="economic")[0]
    basis = products = np.zeros((size, 0))
    for _ in range(1 if size <= WRITTEN else MOST_RESTARTS):
        for _ in range(MOST_PASSES):
            product = multiply(block)
            basis, products = np.hstack([basis, block]), np.hstack([products, product])
            pairs, residuals, turn = _ritz(basis, products, count)
            share = float(residuals.max()) / max(float(pairs.values[0]), 1e-300)
            if share <= TOLERANCE or basis.shape[1] == size:
                return pairs
            block = _next_block(product, basis, rng)
        basis, products = basis @ turn[:, : 2 * width], products @ turn[:, : 2 * width]
        block = _next_block(products - basis * np.sum(basis * products, axis=0), basis, rng)
    if size <= WRITTEN:
        return _direct(multiply, size, count)
    logging.getLogger("coterie").warning(
        "eigenpairs of %d rows have residuals of %.1g of the largest eigenvalue: eigenvalues are too close",
        size,
        share,
    )
    return pairs


def _direct(multiply: Callable[[Floats], Floats], size: int, count: int) -> Ritz:
    matrix = multiply(np.eye(size))
    return largest_pairs((matrix + matrix.T) / 2, count)


def _ritz(basis: Floats, products: Floats, count: int | None = None) -> tuple[Ritz, Floats, Floats]:
    """The largest Ritz pairs of a basis (all without ``count``), the norms of their residuals, and the rotation
    to all Ritz vectors."""
    inner = basis.T @ products
    values, turn = linalg.eigh((inner + inner.T) / 2)
    values, turn = values[::-1][:count], turn[:, ::-1]
    vectors = basis @ turn[:, :count]
    residuals = np.linalg.norm(products @ turn[:, :count] - vectors * values, axis=0)
    return Ritz(values, vectors), residuals, turn


def _next_block(product: Floats, basis: Floats, rng: np.random.Generator) -> Floats:
    """The part of the product orthogonal to the basis, random where there is none."""
    wanted = min(product.shape[1], basis.shape[0] - basis.shape[1])
    scale = float(np.linalg.norm(product, axis=0).max(initial=0.0))
    new = _projected_out(product, basis)
    lost = np.linalg.norm(new, axis=0) <= 1e-12 * max(scale, 1e-300)  # the Krylov space is exhausted there
    new[:, lost] = _projected_out(rng.normal(size=(len(new), int(lost.sum()))), basis)
    block = linalg.qr(new / np.maximum(np.linalg.norm(new, axis=0), 1e-300), mode="economic")[0]
    return np.asarray(linalg.qr(_projected_out(block, basis), mode="economic")[0][:, :wanted])


def _projected_out(block: Floats, basis: Floats) -> Floats:
    """The part of a block orthogonal to the basis; projected twice because of rounding."""
    for _ in range(2):
        block = block - basis @ (basis.T @ block)
    return block


def largest_pairs(matrix: Floats, count: int) -> Ritz:
    """The ``count`` largest eigenvalues of a symmetric matrix and their vectors."""
    size = len(matrix)
    values, vectors = linalg.eigh(matrix, subset_by_index=[size - count, size - 1])
    return Ritz(values[::-1], vectors[:, ::-1])


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


def exact_eigenpairs(matrix: Floats) -> Ritz:
    """All eigenpairs of a symmetric matrix, from the largest down, with the same bits on every machine."""
    values, vectors = exact.eigenpairs(matrix)
    return Ritz(values[::-1], vectors[:, ::-1])


def clearly_above(values: Floats, threshold: float) -> npt.NDArray[np.bool_]:
    """Which values are above a threshold by more than rounding: equal ones are not, whatever their last digits."""
    return np.asarray(values > threshold + CLOSE * abs(threshold))


def inverse_root(
    matrix: Floats, threshold: float = 1e-12, *, pairs_of: Callable[[Floats], Ritz] = eigenpairs_above
) -> Floats:
    """R with R' M R = I on the range of a positive semidefinite M; eigenvalues below ``threshold`` times the largest
    count as zero and give no column. Signs are those of ``Ritz.signed``."""
    pairs = pairs_of(matrix).signed()
    kept = pairs.above(threshold * max(float(pairs.values[0]), 1e-300)) if len(pairs.values) else pairs
    return np.asarray(kept.vectors / np.sqrt(kept.values))
