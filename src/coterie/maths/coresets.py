"""Coresets: a few weighted points that approximate the k-means cost of many rows at any centers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import Floats, Integers
from coterie.errors import InputError
from coterie.maths.clustering import counts_by_cell

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
