"""Coresets and summaries: a few weighted points that approximate the k-means cost of many rows at any centers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import Floats, Integers
from coterie.errors import InputError
from coterie.maths.clustering import counts_by_cell, nearest, weighted_kmeans

Labels = npt.NDArray[np.integer[Any]]


def allotted(n_points: int, costs: Floats) -> tuple[int, ...]:
    """``n_points`` allotted in proportion to ``costs`` by largest remainder; evenly if all costs are zero."""
    if n_points < 0:
        raise InputError(f"n_points={n_points} is negative; use n_points >= 0.")
    if not len(costs):
        return ()
    shares = costs if costs.sum() > 0 else np.ones(len(costs))
    exact = n_points * (shares / shares.sum())
    whole = np.floor(exact).astype(int)
    first = np.argsort(whole - exact, kind="stable")[: n_points - int(whole.sum())]
    whole[first] += 1
    return tuple(int(size) for size in whole)


def importance_sample(
    squared: Floats, counts: Floats, size: int, rng: np.random.Generator
) -> tuple[Integers, Floats]:
    """Sorted positions drawn with probability ~ count * squared distance, with replacement, and their weights.

    A row of squared distance m in t draws gets the weight sum(m) / (t m), so that weighted sums are unbiased. Nothing
    is drawn if every row is a center.
    """
    chances = counts * squared
    mass = float(chances.sum())
    if not (mass > 0 and size):
        return np.zeros(0, np.int64), np.zeros(0)
    drawn = np.sort(rng.choice(len(chances), size, p=chances / mass))
    return drawn, mass / (size * squared[drawn])


def drawn_by_weight(counts: Floats, size: int, seed: int) -> Integers:
    """Sorted positions of ``size`` rows, drawn without replacement, a row of weight w as w copies."""
    ends = np.cumsum(counts)
    copies = max(int((counts > 0).sum()), int(np.ceil(ends[-1])))  # of weight 1 at most
    rng = np.random.default_rng([seed, copies])
    drawn = rng.choice(copies, min(size, copies), replace=False) + rng.random(min(size, copies))
    places: Integers = np.searchsorted(ends, np.sort(drawn) * (ends[-1] / max(copies, 1)), "right")
    return np.minimum(places, len(counts) - 1)


def cell_remainders(labels: Labels, counts: Floats, drawn: Integers, weights: Floats, k: int) -> Floats:
    """The weight of each cell minus the weights of its sampled rows, for its center; may be negative."""
    return counts_by_cell(labels, counts, k) - counts_by_cell(labels[drawn], weights, k)


def solvable_weights(weights: Floats) -> Floats:
    """Nonnegative weights of the same sum, for a k-means solver."""
    clipped = np.maximum(weights, 0.0)
    scale = weights.sum() / clipped.sum() if clipped.any() else 1.0
    return clipped * scale


@dataclass(frozen=True)
class Summary:
    """(S, Delta, w) of Definition II.2, with points as coordinates if there is a basis.

    Weights add up to the number of rows. Those of local centers may be negative; for the solver these are set to 0
    and the others scaled to the same sum.
    """

    coordinates: Floats
    """One row of t coordinates per point."""
    weights: Floats
    delta: float = 0.0
    basis: Floats | None = None
    """t orthonormal rows; None: the coordinates are the points."""

    @property
    def points(self) -> Floats:
        return self.coordinates if self.basis is None else self.coordinates @ self.basis

    @property
    def n_rows(self) -> float:
        return float(self.weights.sum())

    def cost(self, centers: Floats) -> float:
        """cost(S, X) of equation (4): an estimate of the rows' cost at centers that do not depend on it."""
        return float(nearest(self.points, centers)[1] @ self.weights) + self.delta

    def centers(self, n_clusters: int, *, seed: int) -> Floats:
        """X' = kmeans(S, w, k), by weighted k-means of the coordinates."""
        solved = weighted_kmeans(self.coordinates, solvable_weights(self.weights), n_clusters, seed=seed)
        return solved if self.basis is None else solved @ self.basis

    @classmethod
    def union(cls, parts: Sequence[Summary]) -> Summary:
        """The summary of the rows of all parts, without points of weight 0."""
        if len(parts) == 1:
            only = parts[0]
            return cls(only.coordinates[only.weights != 0], only.weights[only.weights != 0], only.delta, only.basis)
        points = np.concatenate([part.points for part in parts])
        weights = np.concatenate([part.weights for part in parts])
        return cls(points[weights != 0], weights[weights != 0], sum(part.delta for part in parts))
