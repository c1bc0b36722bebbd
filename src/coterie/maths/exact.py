"""Arithmetic with the same last bits on every machine, for what a site computes to check a server.

A sum, a product, a quotient and a root of two numbers are rounded in the same way everywhere. What differs is the
order in which BLAS adds up a matrix product, and how a library computes functions. Here products are sums of whole
numbers, which no order changes, and functions are made of the operations above. Decisions that follow, however close,
are then the same everywhere; so are eigenvectors whose eigenvalues are close or equal.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from coterie.arrays import Floats, Rows

SLICES = 3
"""Parts of a number in a product: with at least 18 bits each they hold all of its digits."""
LOG2_E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
"""The logarithm of 2 as a number of few bits, and the rest."""
SMALLEST = -700.0
"""The exponential of anything below is zero."""
SMALL, SPARE, STEPS = 128, 8, 30
"""Up to how many rows all eigenpairs are computed; columns more than wanted, and steps, where not."""
TERMS = 14
"""Of the series of the exponential, up to half the logarithm of 2, and of the logarithm, up to the root of 2."""


def product(a: Rows, b: Rows) -> Floats:
    """``a @ b`` in double precision, of matrices or vectors.

    Rows of ``a`` and columns of ``b`` are cut into slices of so few bits that sums of products of slices are exact,
    in whatever order they are added up (Ozaki et al. 2012).
    """
    left, right = np.atleast_2d(np.asarray(a, np.float64)), np.asarray(b, np.float64)
    right = right[:, None] if right.ndim == 1 else right
    bits = (53 - max(left.shape[1], 1).bit_length()) // 2
    lefts, rights = _slices(left, 1, bits), _slices(right, 0, bits)
    total = np.zeros((len(left), right.shape[1]))
    for place in reversed(range(SLICES)):  # small ones first
        for i in range(place + 1):
            total += lefts[i] @ rights[place - i]
    return total.reshape(np.shape(a)[:-1] + np.shape(b)[1:])


def _slices(matrix: Floats, axis: int, bits: int) -> list[Floats]:
    """Parts that add up to the matrix: whole multiples, of ``bits`` bits, of one power of two a row or column."""
    largest = np.abs(matrix).max(axis=axis, keepdims=True, initial=0.0)
    unit = np.ldexp(1.0, np.frexp(largest)[1] - bits)
    parts = []
    for _ in range(SLICES):
        part = np.rint(matrix / unit) * unit
        parts.append(part)
        matrix, unit = matrix - part, unit * 2.0**-bits
    return parts


def length(vector: Floats) -> float:
    """The Euclidean length."""
    return float(np.sqrt((vector * vector).sum()))


def squared_distances(rows: Rows, others: Rows) -> Floats:
    """The squared distances between two sets of rows."""
    middle = others.mean(axis=0)
    near, far = rows.astype(np.float64) - middle, others.astype(np.float64) - middle
    apart = (near * near).sum(axis=1)[:, None] + (far * far).sum(axis=1) - 2 * product(near, far.T)
    return np.asarray(np.maximum(apart, 0.0))


def exponential(values: Floats) -> Floats:
    """``exp(values)``."""
    kept = np.maximum(values, SMALLEST)
    powers = np.rint(kept * LOG2_E)
    rest = (kept - powers * LN2_HIGH) - powers * LN2_LOW
    series = np.ones_like(rest)
    for n in range(TERMS, 0, -1):
        series = series * rest / n + 1.0
    return np.where(values < SMALLEST, 0.0, np.ldexp(series, powers.astype(np.int64)))


def logarithm(values: Floats) -> Floats:
    """The natural logarithm of numbers above zero; NaN of others."""
    parts, powers = np.frexp(np.where(values > 0, values, np.nan))
    is_low = parts < np.sqrt(0.5)
    parts, powers = np.where(is_low, 2 * parts, parts), powers - is_low
    ratio = (parts - 1.0) / (parts + 1.0)
    square, series = ratio * ratio, np.zeros_like(ratio)
    for n in range(TERMS, 0, -1):  # of the series of the inverse hyperbolic tangent
        series = series * square + 1.0 / (2 * n - 1)
    logarithms = powers * LN2_HIGH + (2 * ratio * series + powers * LN2_LOW)
    return np.where(np.isposinf(values), np.inf, logarithms)


def leading_eigenpairs(matrix: Floats, count: int, seed: int = 0) -> tuple[Floats, Floats]:
    """The largest eigenvalues of a symmetric matrix, from the largest down, and their vectors as columns.

    Of a large matrix they are found by subspace iteration, whose products are exact: eigenvalues that are close to
    each other, as those of noise are, may be mixed.
    """
    n, width = len(matrix), count + SPARE
    if n <= max(SMALL, width):
        values, vectors = eigenpairs(matrix)
        return values[::-1][:count], vectors[:, ::-1][:, :count]
    basis = _orthonormal(np.random.default_rng(seed).normal(size=(n, width)))
    for _ in range(STEPS):
        basis = _orthonormal(product(matrix, basis))
    values, vectors = eigenpairs(product(basis.T, product(matrix, basis)))
    return values[::-1][:count], product(basis, vectors[:, ::-1][:, :count])


def _orthonormal(columns: Floats) -> Floats:
    """Columns made orthonormal one after the other, twice."""
    rows = columns.T.copy()
    for _ in range(2):
        for i, row in enumerate(rows):
            if i:
                row -= ((rows[:i] * row).sum(axis=1)[:, None] * rows[:i]).sum(axis=0)
            row /= max(length(row), 1e-300)
    return np.asarray(rows.T)


def eigenpairs(matrix: Floats) -> tuple[Floats, Floats]:
    """All eigenvalues of a symmetric matrix, from the smallest up, and their vectors as columns.

    Householder's reflections make the matrix tridiagonal (Golub & Van Loan, 8.3); the QL algorithm that follows
    (LAPACK's ``stev``) uses no BLAS. For up to some hundred rows: it takes several times as long as ``eigh``.
    """
    n, scale = len(matrix), np.ldexp(1.0, int(np.frexp(np.abs(matrix).max(initial=0.0))[1]))
    if n < 2:
        return np.diag(matrix).astype(np.float64), np.eye(n)
    left, reflections = np.ascontiguousarray(matrix, np.float64) / scale, []
    for i in range(n - 2):
        axis = left[i + 1 :, i].copy()
        size = length(axis)
        axis[0] += np.copysign(size, axis[0])
        size = length(axis)
        axis = axis / size if size > 0 else axis
        reflections.append(axis)
        left[i + 1 :, i] -= 2 * axis * (axis * left[i + 1 :, i]).sum()
        rest = left[i + 1 :, i + 1 :]
        image = (rest * axis).sum(axis=1)
        image -= axis * (axis * image).sum()
        rest -= 2 * (np.multiply.outer(axis, image) + np.multiply.outer(image, axis))
    values, vectors = linalg.eigh_tridiagonal(
        np.diag(left).copy(), np.diag(left, -1).copy(), lapack_driver="stev", check_finite=False
    )
    vectors = np.ascontiguousarray(vectors)
    for i, axis in reversed(list(enumerate(reflections))):
        below = vectors[i + 1 :]
        below -= np.multiply.outer(2 * axis, (axis[:, None] * below).sum(axis=0))
    return np.asarray(values * scale), vectors
