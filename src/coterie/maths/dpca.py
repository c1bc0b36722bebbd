"""DPCA (Schizas & Aduroja 2015) for columns split between sites: a reconstruction.

Made after the text of He et al. 2020, section V.B (coordinate descent, an ADMM cycle inside, rho = 4, at most 12
inner steps, neighbours only); the source is not at hand. Site j holds X_j, T rows of m_j columns. PCA is the minimum
of sum_j |X_j - Y B_j'|^2 over B_j (m_j x D) and Y (T x D), and every site has a copy Y_j of Y. An outer step solves
for the B_j, each at its site, given orthonormal copies; then ADMM brings the copies towards the one minimiser given
the B_j. Nothing is centered.

Settled: copies are made orthonormal after every outer step by Y (Y'Y)^(-1/2), so that copies that agree go on to
agree, and rho counts against B_j'B_j, a site's share of the leading eigenvalues of X X'. Multipliers are kept from
one outer step to the next: were they zero every time, twelve steps would not reach the minimum, and an error would
stay for ever. Neighbours are a ring, the site itself counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.arrays import Floats
from coterie.errors import InputError


def ring(n_sites: int, neighbours: int) -> tuple[tuple[int, ...], ...]:
    """Each site's neighbours without itself; with itself they number ``neighbours``, half on either side, or all."""
    if not 2 <= neighbours <= n_sites:
        raise InputError(f"neighbours={neighbours} of {n_sites} sites, itself counted; 2 to {n_sites} are possible.")
    if neighbours < n_sites and neighbours % 2 == 0:
        raise InputError(f"neighbours={neighbours}; half are on either side, so it is odd, or {n_sites}: all sites.")
    reach = n_sites if neighbours == n_sites else neighbours // 2
    return tuple(
        tuple(i for i in range(n_sites) if i != j and min((i - j) % n_sites, (j - i) % n_sites) <= reach)
        for j in range(n_sites)
    )


def start_copy(n_rows: int, n_components: int, seed: int) -> Floats:
    """The copy every site starts with, drawn from a public seed."""
    if not 1 <= n_components <= n_rows:
        raise InputError(f"n_components={n_components} of {n_rows} rows; 1 to {n_rows} are possible.")
    return orthonormal(np.random.default_rng([seed, 41]).normal(size=(n_rows, n_components)))


def orthonormal(copy: Floats) -> Floats:
    """Y (Y'Y)^(-1/2): the nearest orthonormal columns."""
    left, _, right = np.linalg.svd(copy, full_matrices=False)
    nearest: Floats = left @ right
    return nearest


def loadings(rows: Floats, copy: Floats) -> Floats:
    """B_j: a site's columns as combinations of its copy's, by least squares."""
    return np.asarray(np.linalg.lstsq(copy, rows, rcond=None)[0].T, np.float64)


def next_copy(rows: Floats, components: Floats, pull: Floats, weight: float) -> Floats:
    """(X_j B_j + pull) (B_j'B_j + weight I)^-1: the copy an inner step of ADMM leads to."""
    matrix = components.T @ components + weight * np.eye(components.shape[1])
    return np.asarray(np.linalg.solve(matrix, (rows @ components + pull).T).T, np.float64)


def pulled(
    multipliers: Sequence[Floats], copies: Sequence[Floats], near: Sequence[Sequence[int]], rho: float
) -> tuple[list[Floats], list[Floats]]:
    """Every site's multipliers P_j once the copies are known, and its pull: rho sum_i (Y_j + Y_i) - P_j."""
    own = [len(neighbours) * copy for neighbours, copy in zip(near, copies, strict=True)]
    around = [sum((copies[i] for i in neighbours), np.zeros_like(copies[0])) for neighbours in near]
    moved = [p + rho * (mine - theirs) for p, mine, theirs in zip(multipliers, own, around, strict=True)]
    pulls = [rho * (mine + theirs) - p for p, mine, theirs in zip(moved, own, around, strict=True)]
    return moved, pulls
