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
from typing import NamedTuple

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
    own = [len(some) * copy for some, copy in zip(near, copies, strict=True)]
    around = [sum((copies[i] for i in some), np.zeros_like(copies[0])) for some in near]
    moved = [p + rho * (mine - theirs) for p, mine, theirs in zip(multipliers, own, around, strict=True)]
    pulls = [rho * (mine + theirs) - p for p, mine, theirs in zip(moved, own, around, strict=True)]
    return moved, pulls


class Descent(NamedTuple):
    """The copies by site after every outer step, and the components of the last ones."""

    history: list[list[Floats]]
    components: list[Floats]


def dpca(
    parts: Sequence[Floats],
    n_components: int,
    *,
    neighbours: int,
    n_iter: int,
    inner: int = 12,
    rho: float = 4.0,
    seed: int,
) -> Descent:
    """DPCA of parts that are all here, slowly and as it is written down."""
    near, identity = ring(len(parts), neighbours), np.eye(n_components)
    copies = [start_copy(len(part), n_components, seed) for part in parts]
    multipliers = [np.zeros_like(copy) for copy in copies]
    history = []
    for _ in range(n_iter):
        components = [part.T @ copy for part, copy in zip(parts, copies, strict=True)]
        for _ in range(inner):
            found = []
            for j, part in enumerate(parts):
                target = part @ components[j]
                for i in near[j]:
                    multipliers[j] = multipliers[j] + rho * (copies[j] - copies[i])
                    target = target + rho * (copies[j] + copies[i])
                curvature = components[j].T @ components[j] + 2 * rho * len(near[j]) * identity
                found.append((target - multipliers[j]) @ np.linalg.inv(curvature))
            copies = found
        copies = [orthonormal(copy) for copy in copies]
        history.append(copies)
    return Descent(history, [part.T @ copy for part, copy in zip(parts, copies, strict=True)])
