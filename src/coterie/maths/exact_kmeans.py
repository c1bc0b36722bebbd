"""k-means of a few weighted points, the same on every machine: ties are met by exact arithmetic, not by rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.arrays import Floats, Indices
from coterie.maths.exact import squared_distances

TOLERANCE = 1e-4
"""Steps end when the centers' squared shift is at most this share of the points' variance, as in scikit-learn."""
MOST_STEPS = 300
SAME = 1e-9
"""Costs that differ by less than this share are the same."""


class Solution(NamedTuple):
    """Centers, and the weighted squared distances of the points from the nearest one."""

    cost: float
    centers: Floats


def solve(points: Floats, weights: Floats, n_clusters: int, *, seed: int, n_init: int = 10) -> Solution:
    """The first of the best of some solutions."""
    return best(solutions(points, weights, n_clusters, seed=seed, n_init=n_init))


def solutions(points: Floats, weights: Floats, n_clusters: int, *, seed: int, n_init: int) -> list[Solution]:
    """Solutions by Lloyd's algorithm, each from a start by greedy k-means++."""
    rng = np.random.default_rng(seed)
    middle = (weights[:, None] * points).sum(axis=0) / weights.sum()
    near = points - middle
    tol = TOLERANCE * float((weights[:, None] * near * near).sum() / weights.sum() / points.shape[1])
    apart = squared_distances(near, near)
    starts = [near[_start(apart, weights, n_clusters, rng)] for _ in range(n_init)]
    ends = [_improved(near, weights, start, tol) for start in starts]
    return [Solution(end.cost, end.centers + middle) for end in ends]


def best(each: Sequence[Solution]) -> Solution:
    """The first of the best."""
    return each[_first_least([solution.cost for solution in each])]


def _start(apart: Floats, weights: Floats, n_clusters: int, rng: np.random.Generator) -> list[int]:
    """Places of points drawn by their squared distance from those before, each the best of a few."""
    n_trials = 2 + n_clusters.bit_length()
    chosen = [int(_drawn(weights, 1, rng)[0])]
    closest = apart[:, chosen[0]]
    for _ in range(1, n_clusters):
        tried = _drawn(weights * closest, n_trials, rng)
        left = np.minimum(closest[:, None], apart[:, tried])
        best = _first_least((weights[:, None] * left).sum(axis=0))
        chosen.append(int(tried[best]))
        closest = left[:, best]
    return chosen


def _first_least(costs: npt.ArrayLike) -> int:
    """The first place whose cost is the least up to rounding: of sums taken in another order, too."""
    values = np.asarray(costs, float)
    return int(np.flatnonzero(values <= values.min() * (1 + SAME))[0])


def _drawn(weights: Floats, count: int, rng: np.random.Generator) -> Indices:
    """Places drawn by weight."""
    ends = np.cumsum(weights)
    places = np.searchsorted(ends, rng.random(count) * ends[-1], "right")
    return np.asarray(np.minimum(places, len(weights) - 1))


def _improved(points: Floats, weights: Floats, centers: Floats, tol: float) -> Solution:
    """Lloyd's algorithm; a center without points moves to the point that is farthest from its own."""
    for _ in range(MOST_STEPS):
        squared = squared_distances(points, centers)
        labels = squared.argmin(axis=1)
        counts, sums = np.zeros(len(centers)), np.zeros_like(centers)
        np.add.at(counts, labels, weights)
        np.add.at(sums, labels, weights[:, None] * points)
        empty = np.flatnonzero(counts == 0)
        moved = sums / np.where(counts > 0, counts, 1.0)[:, None]
        farthest = np.argsort(-squared.min(axis=1), kind="stable")
        moved[empty] = points[farthest[: len(empty)]]
        shift, centers = float(((moved - centers) ** 2).sum()), moved
        if shift <= tol:
            break
    return Solution(float((weights * squared_distances(points, centers).min(axis=1)).sum()), centers)
