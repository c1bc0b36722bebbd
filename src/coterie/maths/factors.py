"""The kernel matrix of joined columns from eigenpairs of each part's kernel matrix (He et al. 2020, eqs. 4 to 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg

from coterie.arrays import Floats, Rows
from coterie.errors import InputError
from coterie.maths.kernels import Kernel
from coterie.maths.spectra import SMALL, WRITTEN, Ritz, leading_pairs

JOINS = ("linear", "rbf")
"""Kernels whose joined matrix is the sum, or the entrywise product, of the parts' matrices."""
TILE = 1024
"""Rows and columns of a tile."""


@dataclass(frozen=True)
class Joined:
    """K_hat: the sum (linear) or the Hadamard product (rbf) of V_j diag(lambda_j) V_j' over the parts."""

    kernel: str
    parts: tuple[Ritz, ...]

    def __post_init__(self) -> None:
        if self.kernel not in JOINS:
            raise InputError(f"kernel={self.kernel!r} is not for columns split between sites; use 'rbf' or 'linear'.")
        if not self.parts or len({len(part.vectors) for part in self.parts}) != 1:
            raise InputError("the parts of a joined table must have the same rows.")

    @property
    def size(self) -> int:
        """T, the number of rows."""
        return len(self.parts[0].vectors)

    @cached_property
    def roots(self) -> tuple[Floats, ...]:
        """V_j sqrt(lambda_j), roots of the parts' matrices."""
        return tuple(part.vectors.astype(np.float64) * np.sqrt(np.maximum(part.values, 0.0)) for part in self.parts)

    def tile(self, rows: slice, columns: slice) -> Floats:
        first, *others = self.roots
        entries: Floats = first[rows] @ first[columns].T
        combine = np.add if self.kernel == "linear" else np.multiply
        for root in others:
            combine(entries, root[rows] @ root[columns].T, out=entries)
        return entries

    def times(self, block: Floats) -> Floats:
        """K_hat times a block of vectors; K_hat is never formed as a whole."""
        if self.kernel == "linear":
            return sum((root @ (root.T @ block) for root in self.roots), np.zeros_like(block))
        return symmetric_times(self.tile, self.size, block)

    @cached_property
    def means(self) -> Floats:
        return np.asarray(self.times(np.full((self.size, 1), 1.0 / self.size))[:, 0])

    def error_bound(self) -> float:
        """A bound on the Frobenius norm of K_hat - K.

        For a part with D of T pairs it is sqrt(T - D) lambda_D (Lemma 2); for rbf, whose trace is known, also the
        root of lambda_D times the rest of the trace. The bounds of the parts add up, for rbf because no entry of a
        part exceeds 1.
        """
        bound = 0.0
        for part in self.parts:
            left, smallest = self.size - len(part.values), max(float(part.values[-1]), 0.0)
            rest = np.sqrt(left) * smallest
            if self.kernel == "rbf":
                rest = min(rest, np.sqrt(smallest * max(self.size - float(part.values.sum()), 0.0)))
            bound += float(rest)
        return bound

    def leading(self, count: int, *, center: bool, seed: int) -> Ritz:
        """The leading eigenpairs of K_hat, or of K_hat with centered features."""
        times = tiled_product(self.tile, self.size) if self.kernel == "rbf" else self.times

        def centered(block: Floats) -> Floats:
            if not center:
                return times(block)
            product = times(block - block.mean(axis=0))
            return np.asarray(product - product.mean(axis=0))

        spare = 2 * count + 40 if self.kernel == "rbf" else 10  # tiles of an entrywise product are costly
        return leading_pairs(centered, self.size, count, seed=seed, spare=spare).signed()


def symmetric_times(tile: Callable[[slice, slice], Floats], size: int, block: Floats) -> Floats:
    """A symmetric matrix times a block of vectors; every tile on or above the diagonal is computed once."""
    product = np.zeros((size, block.shape[1]))
    for i in range(0, size, TILE):
        for j in range(i, size, TILE):
            rows, columns = slice(i, i + TILE), slice(j, j + TILE)
            part = tile(rows, columns)
            product[rows] += part @ block[columns]
            if j > i:
                product[columns] += part.T @ block[rows]
    return product


def tiled_product(tile: Callable[[slice, slice], Floats], size: int) -> Callable[[Floats], Floats]:
    """The product of a symmetric matrix with blocks of vectors; a matrix of moderate size is formed once."""
    if SMALL < size <= WRITTEN:
        return tile(slice(None), slice(None)).__matmul__
    return lambda block: symmetric_times(tile, size, block)


def kernel_pairs(kernel: str, gamma: float, rows: Rows, count: int, *, seed: int) -> Ritz:
    """The leading eigenpairs of one part's kernel matrix; of a linear kernel by the smaller Gram matrix."""
    exact, (n, d) = rows.astype(np.float64, copy=False), rows.shape
    count = min(count, n)
    if kernel == "linear":
        if d > n:
            return _filled(leading_pairs(lambda block: exact @ (exact.T @ block), n, count, seed=seed), count)
        values, vectors = np.linalg.eigh(exact.T @ exact)
        values, vectors = np.maximum(values[::-1][:count], 0.0), vectors[:, ::-1][:, :count]
        kept = values > 1e-13 * max(float(values[0]), 1e-300) if len(values) else values > 0
        turned = exact @ vectors[:, kept] / np.sqrt(values[kept])
        return _filled(Ritz(values[kept], turned), count)
    if kernel != "rbf":
        raise InputError(f"kernel={kernel!r} is not for columns split between sites; use 'rbf' or 'linear'.")
    rbf = Kernel("rbf", gamma)
    multiply = tiled_product(lambda i, j: np.asarray(rbf.quick(exact[i], exact[j]), np.float64), n)
    return leading_pairs(multiply, n, count, seed=seed)


def rank_for(kernel: str, gamma: float, rows: Rows, share: float, *, most: int, seed: int) -> tuple[Ritz, int, float]:
    """Eigenpairs, the rank at which the Frobenius norm of the rest is at most ``share``, and that norm.

    The norm of the rest is the root of the sum of the other squared eigenvalues (eq. 18), bounded as in the proof of
    Lemma 2. The number of computed pairs is doubled until the rank is found or is ``most``.
    """
    n, norm = len(rows), _squared_norm(kernel, gamma, rows)
    count = found_for(n, 1)
    while True:
        pairs = kernel_pairs(kernel, gamma, rows, count, seed=seed)
        left = pairs_left_out(pairs.values, norm, n)
        enough = np.flatnonzero(left <= share)
        if len(enough) or count >= most:
            rank = min(most, int(enough[0]) + 1 if len(enough) else most)
            return pairs, rank, float(left[rank - 1])
        count = found_for(n, count + 1)


def found_for(n: int, rank: int) -> int:
    """The number of pairs to compute for ``rank`` of them: all of a small matrix, else 16, 32, 64, ..."""
    if n <= SMALL:
        return n
    return min(n, 16 << max(0, int(np.ceil(np.log2(rank / 16)))))


def pairs_left_out(values: Floats, norm: float, n: int) -> Floats:
    """For 1, 2, ... leading eigenvalues the Frobenius norm of the rest of a matrix of squared norm ``norm``.

    Exact if all n eigenvalues are given, else the smaller of what the norm leaves and the bound of Lemma 2.
    """
    squares = np.maximum(values, 0.0) ** 2
    if len(values) == n:
        after = np.cumsum(squares[::-1])[::-1] - squares
        return np.asarray(np.sqrt(np.maximum(after, 0.0)))
    by_norm = np.sqrt(np.maximum(norm - np.cumsum(squares), 0.0) + 1e-15 * norm)
    after_each = np.sqrt(n - np.arange(1, len(values) + 1)) * np.maximum(np.r_[values[1:], values[-1]], 0.0)
    return np.asarray(np.minimum(by_norm, after_each))


def _squared_norm(kernel: str, gamma: float, rows: Rows) -> float:
    """The squared Frobenius norm of a kernel matrix, computed by tiles."""
    exact = rows.astype(np.float64, copy=False)
    if kernel == "linear" and exact.shape[1] <= len(exact):
        gram = exact.T @ exact
        return float(np.vdot(gram, gram))
    rbf, total = Kernel("rbf", gamma), 0.0
    for i in range(0, len(rows), TILE):
        part = exact[i : i + TILE]
        block = part @ exact.T if kernel == "linear" else rbf.quick(part, exact)
        total += float(np.vdot(block, block))
    return total


def scaled_distances(new: Floats, rows: Floats, gamma: float) -> Floats:
    """gamma times the squared distances between two sets of rows, by one matrix product."""
    middle = rows.mean(axis=0)
    first, second = new - middle, rows - middle
    values = first @ (-2 * second.T)
    values += np.vecdot(second, second)
    values += np.vecdot(first, first)[:, None]
    return np.asarray(np.maximum(values, 0.0) * gamma)


def sin_theta(a: Floats, b: Floats) -> float:
    """The Frobenius norm of the sines of the principal angles between two column spaces (eq. 11)."""
    if a.shape != b.shape:
        raise InputError(f"angles between arrays of shapes {a.shape} and {b.shape}; give arrays of one shape.")
    return float(np.linalg.norm(np.sin(linalg.subspace_angles(a, b))))


def _filled(pairs: Ritz, count: int) -> Ritz:
    """Exactly ``count`` pairs, padded with zeros."""
    missing = max(0, count - len(pairs.values))
    return Ritz(np.pad(pairs.values, (0, missing)), np.pad(pairs.vectors, ((0, 0), (0, missing)))).top(count)
