"""Quantiles of values that are only counted in bins, and where they lie whatever the distribution is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from coterie.arrays import Array, Floats

QUARTILES = (0.25, 0.5, 0.75)
CLOSE = 0.1
"""How far a quantile from bins is from that of the values at most, in standard deviations."""
SPARE = 1.3
"""So many times as many bins as would do if every quantile were the middle of its bin."""
STEPS = 40
"""Of a bisection."""
OUTWARDS = 1e-6
"""Of a deviation: rounding does not push a quantile out of its span."""


def spans(levels: Sequence[float]) -> tuple[float, float]:
    """How many deviations below and above the mean these quantiles of any distribution lie at most (Cantelli)."""
    below = max(math.sqrt((1 - level) / level) for level in levels)
    above = max(math.sqrt(level / (1 - level)) for level in levels)
    return below + OUTWARDS, above + OUTWARDS


def bins_for(levels: Sequence[float]) -> int:
    """How many bins of the span give these quantiles within ``CLOSE`` deviations."""
    return math.ceil(SPARE * sum(spans(levels)) / (2 * CLOSE))


def from_bins(
    counts: Array, first: Floats, last: Floats, levels: Sequence[float], hidden: Floats | None = None
) -> Floats:
    """Quantiles, along a last axis, of values counted in equal bins along the last axis of ``counts``.

    ``first`` and ``last`` are the ends of the bins, which span as many deviations as ``spans`` says. Within a bin
    values count as evenly spread, as far as every quantile is within ``CLOSE`` deviations wherever they are: it stays
    so near to the middle of its bin. Where nothing was counted it is not a number. With ``hidden`` deviations what is
    counted are means, each of values that are spread normally about it.
    """
    width = (last - first) / counts.shape[-1]
    reach = max(0.0, CLOSE * counts.shape[-1] / sum(spans(levels)) - 0.5)
    below = np.cumsum(counts, axis=-1)
    whole = np.maximum(below[..., -1:], 1.0) - 1
    quantiles = []
    for level in levels:
        rank = np.floor(level * whole)
        lower, upper = (_at(counts, below, r, reach) for r in (rank, np.minimum(rank + 1, whole)))
        share = level * whole - rank
        place = ((1 - share) * lower + share * upper)[..., 0]
        quantiles.append(
            first + place * width if hidden is None else _moved(place, level, counts, width, hidden, first)
        )
    return np.stack(quantiles, axis=-1)


def _moved(place: Floats, level: float, counts: Array, width: Floats, hidden: Floats, first: Floats) -> Floats:
    """The quantile of the values whose means are counted: by bisection, from that of the means."""
    middles = np.arange(counts.shape[-1]) + 0.5
    spread = np.divide(hidden, width, out=np.zeros_like(width), where=width > 0)[..., None]
    is_spread, goal = spread[..., 0] > 0, level * counts.sum(axis=-1)
    low, high = place - 4 * spread[..., 0], place + 4 * spread[..., 0]
    for _ in range(STEPS):
        middle = (low + high) / 2
        away = np.divide(middle[..., None] - middles, spread, out=np.zeros_like(counts, float), where=spread > 0)
        is_below = (counts * special.ndtr(away)).sum(axis=-1) < goal
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return np.asarray(first + np.where(is_spread, (low + high) / 2, place) * width)


def _at(counts: Array, below: Floats, rank: Floats, reach: float) -> Floats:
    """Where the value of a rank lies, counted in bins: as near to the middle of its bin as ``reach``."""
    goal = np.minimum(rank + 0.5, below[..., -1:])
    place = np.minimum((below < goal).sum(axis=-1, keepdims=True), counts.shape[-1] - 1)
    inside = np.take_along_axis(counts, place, -1)
    short = goal - (np.take_along_axis(below, place, -1) - inside)
    part = np.divide(short, inside, out=np.full(short.shape, np.nan), where=inside > 0)
    return np.asarray(place + 0.5 + np.clip(part - 0.5, -reach, reach))
