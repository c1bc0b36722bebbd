"""DPCA (Schizas & Aduroja 2015) for columns split between sites, reconstructed.

It follows He et al. 2020, section V.B (coordinate descent with an inner ADMM cycle, rho = 4, at most 12 inner steps,
neighbours only), not the original code. Site j holds X_j, T rows of m_j columns. PCA is the minimum
of sum_j |X_j - Y B_j'|^2 over B_j (m_j x D) and Y (T x D), and every site has a copy Y_j of Y. An outer step solves
for the B_j, each at its site, given orthonormal copies; then ADMM brings the copies towards the one minimiser given
the B_j. Nothing is centered.

Our choices: copies are made orthonormal after every outer step by Y (Y'Y)^(-1/2), so that equal copies stay equal
and rho is relative to B_j'B_j, a site's share of the leading eigenvalues of X X'. Multipliers are kept between outer
steps: twelve steps from zero would not reach the minimum. Neighbours form a ring and include the site itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.arrays import Floats
from coterie.errors import InputError


def ring(n_sites: int, neighbours: int) -> tuple[tuple[int, ...], ...]:
    """Each site's neighbours, without itself: ``neighbours - 1`` sites, half on either side."""
    if not 2 <= neighbours <= n_sites:
        raise InputError(f"neighbours={neighbours} (with the site itself) of {n_sites} sites; use 2 to {n_sites}.")
    if neighbours < n_sites and neighbours % 2 == 0:
        raise InputError(f"neighbours={neighbours} is even; use an odd number, or {n_sites} for all sites.")
    reach = n_sites if neighbours == n_sites else neighbours // 2
    return tuple(
        tuple(i for i in range(n_sites) if i != j and min((i - j) % n_sites, (j - i) % n_sites) <= reach)
        for j in range(n_sites)
    )


def start_copy(n_rows: int, n_components: int, seed: int) -> Floats:
    """The initial copy of every site, drawn from a public seed."""
    if not 1 <= n_components <= n_rows:
        raise InputError(f"n_components={n_components} of {n_rows} rows; use 1 to {n_rows}.")
    return orthonormal(np.random.default_rng([seed, 41]).normal(size=(n_rows, n_components)))


def orthonormal(copy: Floats) -> Floats:
    """Y (Y'Y)^(-1/2): the nearest orthonormal columns."""
    left, _, right = np.linalg.svd(copy, full_matrices=False)
    return np.asarray(left @ right)


def loadings(rows: Floats, copy: Floats) -> Floats:
    """B_j: the least-squares loadings of a site's columns on its copy."""
    return np.asarray(np.linalg.lstsq(copy, rows, rcond=None)[0].T, np.float64)


def next_copy(rows: Floats, components: Floats, pull: Floats, weight: float) -> Floats:
    """(X_j B_j + pull) (B_j'B_j + weight I)^-1: the copy after an inner step of ADMM."""
    matrix = components.T @ components + weight * np.eye(components.shape[1])
    return np.asarray(np.linalg.solve(matrix, (rows @ components + pull).T).T, np.float64)


def pulled(
    multipliers: Sequence[Floats], copies: Sequence[Floats], near: Sequence[Sequence[int]], rho: float
) -> tuple[list[Floats], list[Floats]]:
    """Every site's multipliers P_j for the new copies, and its pull rho sum_i (Y_j + Y_i) - P_j."""
    own = [len(neighbours) * copy for neighbours, copy in zip(near, copies, strict=True)]
    around = [sum((copies[i] for i in neighbours), np.zeros_like(copies[0])) for neighbours in near]
    moved = [p + rho * (mine - theirs) for p, mine, theirs in zip(multipliers, own, around, strict=True)]
    pulls = [rho * (mine + theirs) - p for p, mine, theirs in zip(moved, own, around, strict=True)]
    return moved, pulls
