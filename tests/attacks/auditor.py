"""By linear algebra: which rows can be told from sums over sets of them, whatever the sums are combined to?

A release is a sum over a set of rows. Everything that follows from releases by adding and subtracting is the row
space of their matrix of memberships. A combination over few rows exists where leaving these rows' columns out of
the matrix lowers its rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

__all__ = ["few_rows_told", "memberships"]

Matrix = npt.NDArray[np.float64]


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
    columns = columns[columns.any(axis=1)]
    rank = np.linalg.matrix_rank(columns)
    small = [place for place, size in enumerate(sizes) if size < fewer_than]
    for n in range(1, fewer_than):
        for chosen in combinations(small, n):
            if sizes[list(chosen)].sum() >= fewer_than:
                continue
            rest = np.delete(columns, chosen, axis=1)
            if not rest.size or np.linalg.matrix_rank(rest) < rank:
                return chosen
    return None
