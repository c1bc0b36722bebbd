"""Leading eigenpairs of a large symmetric matrix that exists only as products with a few vectors at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from scipy import linalg

from coterie.arrays import Floats
from coterie.maths.spectra import TOLERANCE, Ritz

SMALL = 1200
"""Up to so many rows the matrix is solved whole."""
WRITTEN = 5000
"""Up to so many rows it may be written down and solved whole, where a few passes do not do."""
SPARE = 10
"""Vectors of a block beyond the pairs wanted."""
MOST_PASSES = 14
"""Passes until the basis is cut back to the best vectors in it."""
MOST_RESTARTS = 6


def leading_pairs(
    multiply: Callable[[Floats], Floats], size: int, count: int, *, seed: int, spare: int = SPARE
) -> Ritz:
    """The ``count`` largest eigenvalues and their vectors, in few passes over the matrix.

    Block Lanczos with full reorthogonalisation: all blocks and their products are kept, so that the Rayleigh-Ritz
    step and true residuals need no pass of their own. A pass multiplies the matrix with one block. Ends when every
    residual is below ``TOLERANCE`` times the largest eigenvalue. After ``MOST_PASSES`` the basis is cut back to its
    best vectors and grows again, a few times; where eigenvalues lie so close that this does not do, a matrix of up to
    ``WRITTEN`` rows is solved whole, and of a larger one what was found is returned with a warning in the log. Small
    matrices, and requests for a good part of all pairs, are solved whole at once. A block has ``spare`` vectors
    beyond the pairs wanted: many make fewer passes, which pays where rows of the matrix cost more to write down than
    to multiply.
    """
    count, spare = min(count, size), min(spare, size // 4)
    if size <= SMALL or 3 * (count + spare) >= size or (size <= WRITTEN and 20 * (count + spare) >= size):
        return _whole(multiply, size, count)
    rng, width = np.random.default_rng([seed, size, count]), count + spare
    block = linalg.qr(rng.normal(size=(size, width)), mode="economic")[0]
    basis, products = np.zeros((size, 0)), np.zeros((size, 0))
    pairs, left = Ritz(np.zeros(0), np.zeros((size, 0))), np.inf
    restarts = 1 if size <= WRITTEN else MOST_RESTARTS
    for _ in range(restarts):
        for _ in range(MOST_PASSES):
            product = multiply(block)
            basis, products = np.hstack([basis, block]), np.hstack([products, product])
            pairs, left, turn = _ritz(basis, products, count, width)
            if left <= TOLERANCE * max(float(pairs.values[0]), 1e-300):
                return pairs
            block = _orthogonal(product, basis, rng)
            if not block.shape[1]:
                return pairs
        basis, products = basis @ turn, products @ turn
        inner = np.sum(basis * products, axis=0)
        block = _orthogonal(products - basis * inner, basis, rng)
    if size <= WRITTEN:
        return _whole(multiply, size, count)
    share = left / max(float(pairs.values[0]), 1e-300)
    logging.getLogger("coterie").warning(
        "eigenpairs of %d rows are known to %.1g of the largest only: eigenvalues lie too close to each other",
        size,
        share,
    )
    return pairs


def _whole(multiply: Callable[[Floats], Floats], size: int, count: int) -> Ritz:
    """The matrix written down and solved."""
    whole = multiply(np.eye(size))
    values, vectors = linalg.eigh((whole + whole.T) / 2, subset_by_index=[size - count, size - 1])
    return Ritz(values[::-1], vectors[:, ::-1])


def _ritz(basis: Floats, products: Floats, count: int, width: int) -> tuple[Ritz, float, Floats]:
    """The best pairs within the basis, the longest of their residuals, and what makes its best vectors."""
    inner = basis.T @ products
    values, turn = linalg.eigh((inner + inner.T) / 2)
    values, turn = values[::-1][:count], turn[:, ::-1][:, : 2 * width]
    vectors = basis @ turn[:, :count]
    left = float(np.linalg.norm(products @ turn[:, :count] - vectors * values, axis=0).max())
    return Ritz(values, vectors), left, turn


def _orthogonal(product: Floats, basis: Floats, rng: np.random.Generator) -> Floats:
    """The next block: what of the product is new, twice freed of the basis; random where nothing is."""
    room = basis.shape[0] - basis.shape[1]
    wanted = min(product.shape[1], room)
    scale = float(np.linalg.norm(product, axis=0).max(initial=0.0))
    new = _freed(product, basis)
    lengths = np.linalg.norm(new, axis=0)
    lost = lengths <= 1e-12 * max(scale, 1e-300)
    if lost.any():  # the space is exhausted in these directions
        new[:, lost] = _freed(rng.normal(size=(len(new), int(lost.sum()))), basis)
    block = linalg.qr(new / np.maximum(np.linalg.norm(new, axis=0), 1e-300), mode="economic")[0]
    block = block - basis @ (basis.T @ block)
    return np.asarray(linalg.qr(block, mode="economic")[0][:, :wanted])


def _freed(block: Floats, basis: Floats) -> Floats:
    """What of a block is orthogonal to the basis; done twice, as rounding leaves something the first time."""
    for _ in range(2):
        block = block - basis @ (basis.T @ block)
    return block
