"""Leading eigenpairs of a large symmetric matrix that exists only as products with a few vectors at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import linalg

from coterie.maths.spectra import Ritz

__all__ = ["leading_pairs"]

Floats = npt.NDArray[np.float64]

SMALL = 1200
"""Up to so many rows the matrix is written down."""
SPARE = 10
"""Vectors of a block beyond the pairs wanted."""
MOST_PASSES = 14


def leading_pairs(
    multiply: Callable[[Floats], Floats],
    size: int,
    count: int,
    *,
    seed: int,
    tolerance: float = 1e-10,
    spare: int = SPARE,
) -> Ritz:
    """The ``count`` largest eigenvalues and their vectors, in few passes over the matrix.

    Block Lanczos with full reorthogonalisation: all blocks and their products are kept, so that the Rayleigh-Ritz
    step and true residuals need no pass of their own. A pass multiplies the matrix with one block. Ends when every
    residual is below ``tolerance`` times the largest eigenvalue, or after ``MOST_PASSES``. Small matrices, and
    requests for a good part of all pairs, are solved whole. A block has ``spare`` vectors beyond the pairs wanted:
    many make fewer passes, which pays where rows of the matrix cost more to write down than to multiply.
    """
    count = min(count, size)
    if size <= SMALL or 3 * (count + SPARE) >= size:
        whole = multiply(np.eye(size))
        values, vectors = linalg.eigh((whole + whole.T) / 2, subset_by_index=[size - count, size - 1])
        return Ritz(values[::-1], vectors[:, ::-1])
    rng, width = np.random.default_rng([seed, size, count]), count + min(spare, size // 4)
    block = linalg.qr(rng.normal(size=(size, width)), mode="economic")[0]
    basis, products = np.zeros((size, 0)), np.zeros((size, 0))
    found = Ritz(np.zeros(0), np.zeros((size, 0)))
    for _ in range(MOST_PASSES):
        product = multiply(block)
        basis, products = np.hstack([basis, block]), np.hstack([products, product])
        found, left = _ritz(basis, products, count)
        if left <= tolerance * max(float(found.values[0]), 1e-300):
            break
        block = _orthogonal(product, basis, rng)
        if not block.shape[1]:
            break
    return found


def _ritz(basis: Floats, products: Floats, count: int) -> tuple[Ritz, float]:
    """The best pairs within the basis, and the longest of their residuals."""
    inner = basis.T @ products
    values, turn = linalg.eigh((inner + inner.T) / 2)
    values, turn = values[::-1][:count], turn[:, ::-1][:, :count]
    vectors = basis @ turn
    left = float(np.linalg.norm(products @ turn - vectors * values, axis=0).max())
    return Ritz(values, vectors), left


def _orthogonal(product: Floats, basis: Floats, rng: np.random.Generator) -> Floats:
    """The next block: what of the product is new, twice freed of the basis; random where nothing is."""
    room = basis.shape[0] - basis.shape[1]
    wanted = min(product.shape[1], room)
    scale = float(np.linalg.norm(product, axis=0).max(initial=0.0))
    new = product
    for _ in range(2):
        new = new - basis @ (basis.T @ new)
    lengths = np.linalg.norm(new, axis=0)
    lost = lengths <= 1e-12 * max(scale, 1e-300)
    if lost.any():  # the space is exhausted in these directions
        fresh = rng.normal(size=(len(new), int(lost.sum())))
        for _ in range(2):
            fresh = fresh - basis @ (basis.T @ fresh)
        new[:, lost] = fresh
    block = linalg.qr(new / np.maximum(np.linalg.norm(new, axis=0), 1e-300), mode="economic")[0]
    block = block - basis @ (basis.T @ block)
    return np.asarray(linalg.qr(block, mode="economic")[0][:, :wanted])
