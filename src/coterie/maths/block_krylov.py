"""Leading eigenpairs of a large symmetric matrix, given by its products with blocks of vectors."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from scipy import linalg

from coterie.arrays import Floats
from coterie.maths.spectra import TOLERANCE, Ritz

SMALL = 1200
"""Up to so many rows the dense matrix is solved directly."""
WRITTEN = 5000
"""Up to so many rows the dense matrix is solved if block Lanczos does not converge."""
SPARE = 10
"""Vectors of a block beyond the requested pairs."""
MOST_PASSES = 14
"""Passes before a restart with the best vectors of the basis."""
MOST_RESTARTS = 6


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
        "eigenpairs of %d rows have residuals of %.1g of the largest eigenvalue: eigenvalues are too close",
        size,
        share,
    )
    return pairs


def _whole(multiply: Callable[[Floats], Floats], size: int, count: int) -> Ritz:
    whole = multiply(np.eye(size))
    values, vectors = linalg.eigh((whole + whole.T) / 2, subset_by_index=[size - count, size - 1])
    return Ritz(values[::-1], vectors[:, ::-1])


def _ritz(basis: Floats, products: Floats, count: int, width: int) -> tuple[Ritz, float, Floats]:
    """The Ritz pairs of the basis, their largest residual norm, and the rotation to its best vectors."""
    inner = basis.T @ products
    values, turn = linalg.eigh((inner + inner.T) / 2)
    values, turn = values[::-1][:count], turn[:, ::-1][:, : 2 * width]
    vectors = basis @ turn[:, :count]
    left = float(np.linalg.norm(products @ turn[:, :count] - vectors * values, axis=0).max())
    return Ritz(values, vectors), left, turn


def _orthogonal(product: Floats, basis: Floats, rng: np.random.Generator) -> Floats:
    """The next block: the part of the product orthogonal to the basis, random where there is none."""
    room = basis.shape[0] - basis.shape[1]
    wanted = min(product.shape[1], room)
    scale = float(np.linalg.norm(product, axis=0).max(initial=0.0))
    new = _projected_out(product, basis)
    lengths = np.linalg.norm(new, axis=0)
    lost = lengths <= 1e-12 * max(scale, 1e-300)
    if lost.any():  # the Krylov space is exhausted in these directions
        new[:, lost] = _projected_out(rng.normal(size=(len(new), int(lost.sum()))), basis)
    block = linalg.qr(new / np.maximum(np.linalg.norm(new, axis=0), 1e-300), mode="economic")[0]
    block = block - basis @ (basis.T @ block)
    return np.asarray(linalg.qr(block, mode="economic")[0][:, :wanted])


def _projected_out(block: Floats, basis: Floats) -> Floats:
    """The part of a block orthogonal to the basis; projected twice because of rounding."""
    for _ in range(2):
        block = block - basis @ (basis.T @ block)
    return block
