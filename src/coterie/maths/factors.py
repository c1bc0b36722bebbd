"""The kernel matrix of a joined table from eigenpairs of every part's kernel matrix (He et al. 2020, eqs. 4 to 8)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.maths.block_krylov import leading_pairs
from coterie.maths.kernels import Kernel
from coterie.maths.spectra import Ritz

__all__ = ["JOINS", "Joined", "kernel_pairs", "products_with_kernel"]

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.floating]

JOINS = ("linear", "rbf")
"""Kernels of a joined table that follow from its parts': a sum of theirs, or their product entry by entry."""
BLOCK_ENTRIES = 1 << 23
"""Entries of a matrix that are written down at a time."""


@dataclass(frozen=True)
class Joined:
    """K_hat: the sum (linear) or the Hadamard product (rbf) of V_j diag(lambda_j) V_j' over the parts."""

    kernel: str
    parts: tuple[Ritz, ...]

    def __post_init__(self) -> None:
        if self.kernel not in JOINS:
            raise InputError(f"kernel={self.kernel!r}; of columns split between sites it is 'rbf' or 'linear'.")
        if not self.parts or len({len(part.vectors) for part in self.parts}) != 1:
            raise InputError("every part of a joined table has the same rows.")

    @property
    def size(self) -> int:
        """How many rows there are, T."""
        return len(self.parts[0].vectors)

    @cached_property
    def roots(self) -> tuple[Floats, ...]:
        """V_j sqrt(lambda_j): their products are the parts' matrices."""
        return tuple(part.vectors.astype(np.float64) * np.sqrt(np.maximum(part.values, 0.0)) for part in self.parts)

    def rows(self, start: int, stop: int) -> Floats:
        """Some rows of K_hat."""
        if self.kernel == "linear":
            return sum((root[start:stop] @ root.T for root in self.roots), np.zeros((stop - start, self.size)))
        made = np.ones((stop - start, self.size))
        for root in self.roots:
            made *= root[start:stop] @ root.T
        return made

    def times(self, block: Floats) -> Floats:
        """K_hat times a few vectors; never more of K_hat at once than a few rows."""
        if self.kernel == "linear":
            return sum((root @ (root.T @ block) for root in self.roots), np.zeros_like(block))
        step = max(1, BLOCK_ENTRIES // self.size)
        return np.concatenate([self.rows(i, min(i + step, self.size)) @ block for i in range(0, self.size, step)])

    @cached_property
    def means(self) -> Floats:
        """The mean of every row of K_hat."""
        return np.asarray(self.times(np.full((self.size, 1), 1.0 / self.size))[:, 0])

    def leading(self, count: int, *, center: bool, seed: int, tolerance: float = 1e-10) -> Ritz:
        """The leading eigenpairs of K_hat, or of K_hat with the features' mean taken off."""

        def centered(block: Floats) -> Floats:
            if not center:
                return self.times(block)
            made = self.times(block - block.mean(axis=0))
            return np.asarray(made - made.mean(axis=0))

        return leading_pairs(centered, self.size, count, seed=seed, tolerance=tolerance).signed()


def products_with_kernel(kernel: Kernel, rows: Rows, block: Floats) -> Floats:
    """K times a few vectors, K the kernel matrix of rows, a few rows of it at a time."""
    step = max(1, BLOCK_ENTRIES // max(1, len(rows)))
    near = rows.astype(np.float64, copy=False)
    made = [kernel.quick(near[i : i + step], near) @ block for i in range(0, len(rows), step)]
    return np.concatenate([np.zeros((0, block.shape[1])), *made])


def kernel_pairs(kernel: str, gamma: float, rows: Rows, count: int, *, seed: int, tolerance: float = 1e-10) -> Ritz:
    """The leading eigenpairs of one part's kernel matrix; linear ones by the smaller of its two Grams."""
    exact, (n, d) = rows.astype(np.float64, copy=False), rows.shape
    count = min(count, n)
    if kernel == "linear":
        if d > n:
            return _filled(leading_pairs(lambda block: exact @ (exact.T @ block), n, count, seed=seed), n, count)
        values, vectors = np.linalg.eigh(exact.T @ exact)
        values, vectors = np.maximum(values[::-1][:count], 0.0), vectors[:, ::-1][:, :count]
        kept = values > 1e-13 * max(float(values[0]), 1e-300) if len(values) else values > 0
        turned = exact @ vectors[:, kept] / np.sqrt(values[kept])
        return _filled(Ritz(values[kept], turned), n, count)
    if kernel != "rbf":
        raise InputError(f"kernel={kernel!r}; of columns split between sites it is 'rbf' or 'linear'.")
    rbf = Kernel("rbf", gamma)
    return leading_pairs(
        lambda block: products_with_kernel(rbf, exact, block), n, count, seed=seed, tolerance=tolerance
    )


def _filled(found: Ritz, n: int, count: int) -> Ritz:
    """As many pairs as asked for, zeros where there are no more."""
    missing = count - len(found.values)
    if missing <= 0:
        return found.top(count)
    return Ritz(np.r_[found.values, np.zeros(missing)], np.hstack([found.vectors, np.zeros((n, missing))]))
