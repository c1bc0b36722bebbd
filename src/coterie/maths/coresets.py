"""Coresets: a few weighted points whose k-means cost is that of many rows, at any centers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import Floats, Integers
from coterie.errors import InputError
from coterie.maths.clustering import counts_by_cell

Labels = npt.NDArray[np.integer[Any]]


def allotted(n_points: int, costs: Floats) -> tuple[int, ...]:
    """``n_points`` shared out in proportion to ``costs`` by largest remainder; evenly where all costs are zero."""
    if n_points < 0:
        raise InputError(f"n_points={n_points} cannot be negative.")
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
    """Places drawn with chance ~ count * squared distance, with replacement, in order, and what each stands for.

    A row of squared distance m drawn once in t draws stands for sum(m) / (t m) rows: sums over the rows off their
    center are then right on average. Nothing is drawn where every row is a center.
    """
    chances = counts * squared
    mass = float(chances.sum())
    if not (mass > 0 and size):
        return np.zeros(0, np.int64), np.zeros(0)
    drawn = np.sort(rng.choice(len(chances), size, p=chances / mass))
    return drawn, mass / (size * squared[drawn])


def drawn_by_weight(counts: Floats, size: int, seed: int) -> Integers:
    """Places of ``size`` rows, in order: drawn without replacement, each row being there as often as it counts."""
    ends = np.cumsum(counts)
    copies = max(int((counts > 0).sum()), int(np.ceil(ends[-1])))  # each as long as a row that counts once, at most
    rng = np.random.default_rng([seed, copies])
    drawn = rng.choice(copies, min(size, copies), replace=False) + rng.random(min(size, copies))
    places: Integers = np.searchsorted(ends, np.sort(drawn) * (ends[-1] / max(copies, 1)), "right")
    return np.minimum(places, len(counts) - 1)


def cell_remainders(labels: Labels, counts: Floats, drawn: Integers, weights: Floats, k: int) -> Floats:
    """What is left of every cell's rows for its center once its sampled rows have their weights; may be negative."""
    return counts_by_cell(labels, counts, k) - counts_by_cell(labels[drawn], weights, k)


def solvable_weights(weights: Floats) -> Floats:
    """Weights without negative ones, of the same sum: what a k-means solver can take."""
    clipped = np.maximum(weights, 0.0)
    scale = weights.sum() / clipped.sum() if clipped.any() else 1.0
    return clipped * scale
