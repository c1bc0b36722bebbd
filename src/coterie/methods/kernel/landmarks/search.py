"""Landmarks by sums alone: means of cells of all sites' rows, of which no per-site result is ever seen.

Cells are found where that is cheap: sites look at their rows through a public random projection onto a few columns,
and Lloyd's algorithm by sums moves the cells there, a few hundred numbers a round. Only then are means of whole rows
asked for, once, in a ring of a few bits: counts are summed up first, so that a site can send its part of a mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.errors import RosterChanged
from coterie.extents import sized
from coterie.maths.landmarks import Landmarks
from coterie.messages.schema import Floats
from coterie.messages.verbs import Protocol, present, total
from coterie.methods.kernel.landmarks import summed
from coterie.methods.shared.counts import check_rows

FINE_BITS = 10
"""Of means of projected rows."""
COUNT_BITS = 32
ROUGHNESS = 1e-5
"""Of all rows: what a sum in so many bits may be off."""
ROWS_A_CELL = 10
"""Cells are as many as leave about so many rows in each."""
WINDOW = 6.0
"""Means of projected rows lie within so many deviations of the mean of all."""


@dataclass(frozen=True)
class Survey:
    """What is known of all rows before cells are looked for."""

    n_rows: float
    mean: Floats
    """Of the projected columns, as the others."""
    deviation: Floats
    rows_range: tuple[Floats, Floats] | None
    """Where means of the rows' own columns lie: lowest, and how far up from there; None where nobody asked."""


class Searched(NamedTuple):
    """Landmarks, and what was known of all rows where they were looked for by sums."""

    landmarks: Landmarks
    survey: Survey | None = None


def summed_landmarks(
    n_landmarks: int,
    n_columns: int,
    *,
    bits: int,
    seed: int,
    n_projected: int = 32,
    n_rounds: int = 4,
    limits: tuple[float, float] | None = None,
    before: Searched | None = None,
) -> Protocol[Searched]:
    """Means of cells over all sites' rows.

    ``limits`` are the smallest and largest value of any row where they are known; else means are coded within a few
    deviations of the mean, which takes the sums of the whole rows as well. Costs 2 p + 1 numbers, and 2 d without
    limits, n_rounds times m in 32 bits and m p in 10, then m and m d in ``bits``, and 2 more, each a masked sum of
    its own. With landmarks found ``before`` the cells start elsewhere, and what is known of all rows is not asked
    again.
    """
    d, p = n_columns, min(n_projected, n_columns)
    yield from total(summed.UseProjection(seed, p, False))
    survey = before.survey if before is not None and before.survey else (yield from _survey(d, p, seed, limits))
    number = min(n_landmarks, max(2, int(survey.n_rows) // ROWS_A_CELL))
    rng = np.random.default_rng([seed, 3, 0 if before is None else 1])
    start = survey.mean + survey.deviation * rng.normal(size=(number, p))
    points, weights = yield from _cell_means(start, survey, d, bits, n_rounds, seed)
    points, weights = (sized(part[weights > 0], 1, number) for part in (points, weights))
    check_rows(len(points))
    if before is None:  # squared distances from a point close to the mean, which keeps their digits
        middle = (weights[:, None] * points).sum(axis=0) / weights.sum()
        scatter = float((yield from total(summed.SumSquaredDistances(middle))).squares)
    else:
        scatter = before.landmarks.scatter
    return Searched(Landmarks(points, weights * (survey.n_rows / weights.sum()), scatter), survey)


def _survey(d: int, p: int, seed: int, limits: tuple[float, float] | None) -> Protocol[Survey]:
    """Sums of all rows, as they are and projected: in the large ring, since variances are small beside the limits'
    square."""
    reach = float(np.abs(summed.projection_of(d, p, seed)).sum(axis=0).max())
    reply = yield from total(summed.SumProjected(p, reach, d if limits is None and p < d else 0))
    n_rows = float(reply.rows)
    check_rows(n_rows)
    mean, deviation = _moments(n_rows, reply.sums, reply.squares)
    own, apart = (mean, deviation) if p == d else _moments(n_rows, reply.own_sums, reply.own_squares)
    rows_range = (own - 3 * apart, 6 * apart) if len(own) else None
    if limits is not None:
        rows_range = np.array([limits[0]], float), np.array([limits[1] - limits[0]], float)
    return Survey(n_rows, mean, deviation, rows_range)


def _moments(n_rows: float, sums: Floats, squares: Floats) -> tuple[Floats, Floats]:
    mean = sums / n_rows
    return mean, np.sqrt(np.maximum(squares / n_rows - mean**2, 0.0))


def _cell_means(
    centers: Floats, survey: Survey, d: int, bits: int, n_rounds: int, seed: int
) -> Protocol[tuple[Floats, Floats]]:
    """Means of whole rows over cells that Lloyd's algorithm moved among the projected ones, and the rows in each."""
    p, away = centers.shape[1], WINDOW * survey.deviation
    for _ in range(n_rounds):
        means, counts = yield from _means(centers, (survey.mean - away, 2 * away), FINE_BITS, p)
        centers = np.where((counts > 0)[:, None], means, centers)
    if p == d:
        return means, counts
    assert survey.rows_range is not None
    yield from total(summed.UseProjection(seed, p, True))
    return (yield from _means(centers, survey.rows_range, bits, d))


def nearest_counts(points: Floats) -> Protocol[Floats]:
    """How many rows are nearest to each point, over all sites: m numbers."""
    yield from total(summed.UseProjection(0, points.shape[1], False))
    reply = yield from total(summed.CountCells(points), bits=COUNT_BITS)
    return _counts(reply.counts)


def _counts(sums: Floats) -> Floats:
    """Counts as they were before a masked sum rounded them: whole where rows count once, none below its precision."""
    whole = np.rint(sums)
    if whole.any() and np.abs(sums - whole).max() < 0.05:
        return whole
    return np.where(sums > ROUGHNESS * sums.sum(), sums, 0.0)


def _means(centers: Floats, window: tuple[Floats, Floats], bits: int, width: int) -> Protocol[tuple[Floats, Floats]]:
    """The means of the cells around centers, and how many rows each holds; again where a site is lost between."""
    low, span = window
    while True:
        names = yield from present()
        try:
            counted = yield from total(summed.CountCells(centers), to=names, complete=True, bits=COUNT_BITS)
            counts = _counts(counted.counts)
            fine = max(bits, (2 * len(names) + 1).bit_length())
            ask = summed.ShareCells(fine, width, len(names), centers, counts, low, span)
            shares = yield from total(ask, to=names, complete=True)
            return shares.codes / ask.steps * span + low, counts
        except RosterChanged:
            continue
