"""Linear k-means: assignment, moments, means."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from coterie.arrays import Array, Floats, Indices, Rows
from coterie.extents import sized
from coterie.maths import exact_kmeans
from coterie.maths.arithmetic import fixed_threads

if TYPE_CHECKING:
    from sklearn.cluster import KMeans


SMALL = 1 << 17
"""Multiplications below which a dense product is faster than a sparse one."""
HAIR = 1e-9
"""Distance of a cut above the mean of its cell, relative to the root of the squared error."""
HASHED = 2048
"""Rows hashed at a time."""
ROUNDING = 10 * np.finfo(float).eps
"""Of a mean: what rounding alone may add to a deviation."""


class Moments(NamedTuple):
    """Sums, counts and cost of rows at given centers."""

    sums: Floats
    counts: Floats
    cost: Floats


def nearest(rows: Rows, centers: Floats) -> tuple[Indices, Floats]:
    """The nearest center of each row and the squared distance to it.

    Computed in the rows' precision by |x|^2 - 2<x, c> + |c|^2. Centers far from the origin are shifted first, since
    the formula would otherwise lose significant digits.
    """
    offset = centers.mean(axis=0)
    spread = np.abs(centers - offset).max(initial=0.0)
    if np.abs(offset).max(initial=0.0) > 8 * spread:
        rows, centers = rows - offset.astype(rows.dtype), centers - offset
    scores = rows @ (-2 * centers.T).astype(rows.dtype)
    scores += np.einsum("kd,kd->k", centers, centers).astype(rows.dtype)
    labels = scores.argmin(axis=1)
    best = scores[np.arange(len(rows)), labels].astype(np.float64)
    best += np.vecdot(rows, rows)
    return labels, np.maximum(best, 0.0, out=best)


def nearest_of_each(rows: Rows, starts: Floats) -> Floats:
    """For every row the squared distance to the nearest center of each of several sets, by one matrix product."""
    n_starts, k, d = starts.shape
    centers = starts.reshape(n_starts * k, d)
    scores = rows @ (-2 * centers.T).astype(rows.dtype)
    scores += np.vecdot(centers, centers).astype(rows.dtype)
    best: Floats = scores.reshape(len(rows), n_starts, k).min(axis=2).astype(np.float64)
    best += np.vecdot(rows, rows)[:, None]
    return np.maximum(best, 0.0, out=best)


def moments(rows: Rows, centers: Floats, weights: Floats | None = None) -> Moments:
    """Per nearest center the weighted sum and count of rows, in float64, and the cost."""
    return moments_of(rows, *nearest(rows, centers), len(centers), weights)


def moments_of(rows: Rows, labels: Indices, squared: Floats, n_cells: int, weights: Floats | None = None) -> Moments:
    """The moments of rows with known cells and squared distances from the centers."""
    each = np.ones(len(rows)) if weights is None else weights
    sums = sums_by_cell(rows, labels, each, n_cells)
    return Moments(sums, counts_by_cell(labels, each, n_cells), np.asarray(squared @ each))


def counts_by_cell(labels: Array, weights: Floats, n_cells: int) -> Floats:
    """The weight of each cell's rows, as floats even without labels."""
    return np.asarray(np.bincount(labels, weights, n_cells), np.float64)


def sums_by_cell(rows: Rows, labels: Indices, weights: Floats, n_cells: int) -> Floats:
    """The weighted sum of each cell's rows, in float64."""
    n = len(labels)
    if n_cells * rows.size <= SMALL:
        return np.where(labels == np.arange(n_cells)[:, None], weights, 0.0) @ rows
    member = sparse.csc_array((weights, labels, np.arange(n + 1)), shape=(n_cells, n))
    return np.asarray(member @ rows)


def cells_of(rows: Rows, parent: Array, column: Array, threshold: Array) -> Indices:
    """The cell of each row: cut ``i`` moves rows above the threshold from the parent cell to cell ``i + 1``."""
    cells = np.zeros(len(rows), np.intp)
    for i, (cell, where, cut) in enumerate(zip(parent, column, threshold, strict=True)):
        cells[(cells == cell) & (rows[:, where] > cut)] = i + 1
    return cells


def cell_sums(
    rows: Rows, cells: Indices, n_cells: int, origin: Floats, weights: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Per cell the weight of its rows, and by column their sums and sums of squares about ``origin``."""
    each, about = np.ones(len(rows)) if weights is None else weights, rows - origin
    sums = sums_by_cell(about, cells, each, n_cells)
    return counts_by_cell(cells, each, n_cells), sums, sums_by_cell(about * about, cells, each, n_cells)


def means(sums: Floats, counts: Floats, *, fallback: Floats) -> Floats:
    """The mean of each cell; the fallback for a cell without rows."""
    filled = counts > 0
    divisor = np.where(filled, counts, 1.0)[:, None]
    return np.where(filled[:, None], sums / divisor, fallback)


def squared_shift(before: Floats, after: Floats) -> float:
    """The sum of squared shifts of the centers, as in scikit-learn's ``tol``."""
    return float(((after - before) ** 2).sum())


def random_in_box(low: Floats, high: Floats, n_centers: int, rng: np.random.Generator) -> Floats:
    """Centers drawn uniformly from a public box."""
    return rng.uniform(low, high, size=(n_centers, len(low)))


def largest_first(values: Floats) -> list[int]:
    """Positions from the largest value down. Values equal up to rounding keep their order: scaled columns all have
    the same variance, and the last digits depend on how rows are split among sites."""
    return [int(i) for i in np.argsort(-_steps(values), kind="stable")]


def beyond_rounding(deviations: Floats, means_: Floats) -> Floats:
    """Deviations, 0 where they are so small beside the mean that rounding alone may be behind them."""
    return np.where(deviations > ROUNDING * np.maximum(np.abs(means_), 1e-300), deviations, 0.0)


def smallest_first(values: Floats) -> list[int]:
    """Positions from the smallest value up, values equal up to rounding in their order."""
    return [int(i) for i in np.argsort(_steps(values), kind="stable")]


def distinct_first(values: Floats) -> list[int]:
    """The same without those that are at most a millionth above the one before."""
    kept: list[int] = []
    for i in smallest_first(values):
        if not kept or values[i] > values[kept[-1]] * (1 + 1e-6):
            kept.append(i)
    distinct: list[int] = sized(kept, 1, len(values))
    return distinct


def _steps(values: Floats) -> Floats:
    """Logarithms of shares of the largest value, rounded."""
    shares = np.maximum(values / max(float(values.max()), 1e-300), 1e-300)
    return np.asarray(np.round(np.log(shares), 9))


def var_part_cuts(means_: Floats, errors: Floats, room: int) -> list[tuple[int, int, float]]:
    """Cells to split, with column and threshold: the cells of largest squared error at their mean along the column of
    largest error (Su & Dy 2007), at most ``room``.

    The cut is slightly above the mean, so that rows at the mean (filled-in missing values) are below it in spite of
    rounding.
    """
    order = [cell for cell in largest_first(errors.sum(axis=1)) if errors[cell].max() > 0]
    cuts = []
    for cell in order[: min(room, len(means_))]:
        widest = largest_first(errors[cell])[0]
        cuts.append((cell, widest, float(means_[cell, widest] + HAIR * np.sqrt(errors[cell, widest]))))
    return cuts


def mean_and_error(counts: Floats, sums: Floats, squares: Floats) -> tuple[Floats, Floats]:
    """Each cell's mean and squared error by column; errors of the size of rounding count as 0."""
    middle = means(sums, counts, fallback=np.zeros_like(sums))
    error = squares - counts[:, None] * middle**2
    noise = np.maximum(1e-12 * np.abs(squares), 1e-11 * squares.sum())
    return middle, np.where(error > noise, error, 0.0)


def var_part_centers(points: Floats, weights: Floats, n_clusters: int) -> Floats:
    """Centers by the var-part rule; a point of weight 2 is equivalent to two points."""
    origin = weights @ points / weights.sum()
    cells, n_cells = np.zeros(len(points), np.intp), 1
    while True:
        middle, error = mean_and_error(*cell_sums(points, cells, n_cells, origin, weights))
        cuts = var_part_cuts(middle, error, n_clusters - n_cells)
        if not cuts:
            return np.resize(middle + origin, (n_clusters, points.shape[1]))
        for cell, column, cut in cuts:
            cells[(cells == cell) & (points[:, column] > cut + origin[column])] = n_cells
            n_cells += 1


def rough_centers(points: Floats, weights: Floats, n_clusters: int, *, seed: int, max_iter: int = 15) -> Floats:
    """Approximate k-means centers: a few steps from one start, in single precision."""
    from sklearn.cluster import KMeans

    points, weights = points[weights > 0], weights[weights > 0]
    if n_fingerprints(points) <= n_clusters:
        return weighted_kmeans(points, weights, n_clusters, seed=seed)
    middle = np.average(points, axis=0, weights=weights)
    near = (points - middle).astype(np.float32)
    tol = _tolerance(points, weights)
    solver = KMeans(n_clusters, n_init=1, max_iter=max_iter, tol=tol, random_state=seed % 2**32)
    return np.asarray(_solved(solver, near, weights) + middle)


def several_starts(points: Floats, weights: Floats, n_clusters: int, most: int, *, seed: int) -> list[Floats]:
    """The best few distinct solutions of a weighted k-means problem, best first."""
    n_init = max(20, 3 * most)
    solutions: dict[float, Floats] = {}
    for cost, centers in _all_solutions(points, weights, n_clusters, seed=seed, n_init=n_init):
        if not any(abs(cost - other) <= 1e-6 * other for other in solutions):
            solutions[cost] = centers
    ranked: list[Floats] = sized([solutions[cost] for cost in sorted(solutions)[:most]], 1, most)
    return ranked


def n_fingerprints(points: Floats) -> int:
    """The number of distinct points, by 64-bit hashes: almost never too small, and faster than sorting the points."""
    return len(np.unique(row_hashes(points)))


def row_hashes(rows: Floats) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each row's values."""
    factors = np.random.default_rng(0).integers(1, 1 << 63, rows.shape[1], np.uint64) | np.uint64(1)
    hashes = np.empty(len(rows), np.uint64)
    for first in range(0, len(rows), HASHED):
        bits = np.ascontiguousarray(rows[first : first + HASHED] + 0.0).view(np.uint64)  # turns -0.0 into 0.0
        bits ^= bits >> np.uint64(32)
        hashes[first : first + HASHED] = bits @ factors
    return hashes


def _tolerance(points: Floats, weights: Floats) -> float:
    """scikit-learn's default ``tol``, corrected from the unweighted to the weighted variance of the points."""
    variance = float(points.var(axis=0).mean())
    middle = np.average(points, axis=0, weights=weights)
    weighted = float(np.average((points - middle) ** 2, axis=0, weights=weights).mean())
    return 1e-4 * weighted / variance if variance > 0 else 0.0


def weighted_kmeans(
    points: Floats, weights: Floats, n_clusters: int, *, seed: int | None, n_init: int = 10
) -> Floats:
    """Centers of weighted points; with fewer distinct points than clusters, the points, repeated.

    Without a seed the start is that of the var-part rule, which is deterministic.
    """
    from sklearn.cluster import KMeans

    points, weights = points[weights > 0], weights[weights > 0]
    if n_fingerprints(points) <= n_clusters:
        distinct = np.unique(points, axis=0)
        if len(distinct) <= n_clusters:
            return np.resize(distinct, (n_clusters, points.shape[1]))
    if seed is None:
        start = var_part_centers(points, weights, n_clusters)
        solver = KMeans(n_clusters, init=start, n_init=1, tol=0.0)
    else:
        solver = KMeans(n_clusters, n_init=n_init, tol=_tolerance(points, weights), random_state=seed)
    return _solved(solver, points, weights)


def best_centers(
    points: Floats, weights: Floats, n_clusters: int, *, seed: int, n_init: int = 10
) -> exact_kmeans.Solution:
    """The same for few points, with the same bits on every machine: for what the server does with sums."""
    return exact_kmeans.best(_all_solutions(points, weights, n_clusters, seed=seed, n_init=n_init))


def _all_solutions(
    points: Floats, weights: Floats, n_clusters: int, *, seed: int, n_init: int
) -> list[exact_kmeans.Solution]:
    """The solution from each start; the points themselves, repeated, where they are as few as clusters."""
    points, weights = points[weights > 0], weights[weights > 0]
    distinct = np.unique(points, axis=0)
    if len(distinct) <= n_clusters:
        return [exact_kmeans.Solution(0.0, np.resize(distinct, (n_clusters, points.shape[1])))]
    return exact_kmeans.solutions(points, weights, n_clusters, seed=seed, n_init=n_init)


def _solved(solver: KMeans, points: Rows, weights: Floats) -> Floats:
    """The centers of a fitted solver, on a fixed number of threads: its import may just have loaded OpenMP."""
    with fixed_threads():
        centers: Floats = solver.fit(points, sample_weight=weights).cluster_centers_
    return centers.astype(np.float64)
