"""By linear algebra: which rows can be told from sums over sets of them, whatever the sums are combined to?

A release is a sum over a set of rows. Everything that follows from releases by adding and subtracting is the row
space of their matrix of memberships. A combination over few rows exists where leaving these rows' columns out of
the matrix lowers its rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

__all__ = ["few_rows_told", "memberships"]

Matrix = npt.NDArray[np.float64]
NOTHING = 1e-9
"""A length, of 1, that is rounding."""
PARALLEL = 1e-12
"""What the cosine of an angle of rounding lacks to 1."""
SHADOW = 16
"""Dimensions in which few vectors are still dependent only where they were: those of a random projection."""


def memberships(releases: Iterable[Iterable[int]], n_rows: int) -> Matrix:
    """A row for each release, a column for each row of data."""
    sets = [np.fromiter(release, int) for release in releases]
    found = np.zeros((len(sets), n_rows))
    for place, members in enumerate(sets):
        np.add.at(found[place], members, 1.0)
    return found


def few_rows_told(matrix: Matrix, fewer_than: int) -> tuple[int, ...] | None:
    """The rows of a combination of releases over fewer than so many rows, or None where there is none. Exact."""
    columns, first, sizes = np.unique(matrix, axis=1, return_index=True, return_counts=True)
    used = np.flatnonzero(columns.any(axis=0))  # rows with the same memberships cannot be told apart
    for part in _parts(columns[:, used]):
        atoms = used[part]
        found = _search(columns[:, atoms], sizes[atoms], fewer_than)
        if found is not None:
            return tuple(int(first[atoms[place]]) for place in found)
    return None


def _parts(columns: Matrix) -> list[npt.NDArray[np.intp]]:
    """Columns that share releases, directly or over others."""
    releases, atoms = columns.shape
    members = np.nonzero(columns)
    edges = (np.ones(len(members[0])), (members[0], members[1] + releases))
    joined = csr_matrix(edges, (releases + atoms,) * 2)
    labels = connected_components(joined, directed=False)[1][releases:]
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _search(columns: Matrix, sizes: npt.NDArray[np.int64], fewer_than: int) -> Sequence[int] | None:
    """A combination of releases is orthogonal to all that no release tells, so over few rows these are dependent in
    it: there it is looked for, and what is found is checked by ranks."""
    columns = columns[columns.any(axis=1)]
    small = np.flatnonzero(sizes < fewer_than)
    if not len(small):
        return None
    _, values, vectors = np.linalg.svd(np.linalg.qr(columns, mode="r"), full_matrices=True)
    hidden = vectors[int((values > NOTHING * values[0]).sum()) :].T
    if hidden.shape[1] > SHADOW:
        hidden = hidden @ np.random.default_rng(0).normal(size=(hidden.shape[1], SHADOW))
    largest = np.linalg.norm(hidden, axis=1).max(initial=1e-300)
    found = _dependent(hidden[small] / largest, sizes[small], fewer_than - 1)
    if found is None:
        return None
    chosen = small[found].tolist()
    rest = np.delete(columns, chosen, axis=1)
    assert not rest.size or np.linalg.matrix_rank(rest) < np.linalg.matrix_rank(columns)
    return [int(place) for place in chosen]


def _dependent(vectors: Matrix, sizes: npt.NDArray[np.int64], most: int) -> list[int] | None:
    """Places of vectors that are dependent, and whose sizes are ``most`` together or less."""
    lengths = np.linalg.norm(vectors, axis=1)
    zero = (lengths < NOTHING) & (sizes <= most)
    if zero.any():
        return [int(np.argmax(zero))]
    if most < 2 or len(vectors) < 2:
        return None
    units = vectors / np.maximum(lengths, NOTHING)[:, None]
    parallel = (np.abs(units @ units.T) > 1 - PARALLEL) & (sizes[:, None] + sizes <= most)
    pairs = np.argwhere(np.triu(parallel, 1))
    if len(pairs):
        return [int(place) for place in pairs[0]]
    for place in np.flatnonzero(sizes <= most - 2) if most > 2 else ():  # with this one, and without those before
        later = vectors[place + 1 :]
        left = later - np.outer(later @ units[place], units[place])
        found = _dependent(left, sizes[place + 1 :], most - int(sizes[place]))
        if found is not None:
            return [int(place), *(int(place) + 1 + one for one in found)]
    return None
