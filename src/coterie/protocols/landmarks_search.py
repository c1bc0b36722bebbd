"""Landmarks by sums alone: means of cells of all sites' rows, of which no single answer is ever seen.

Cells are found where that is cheap: sites look at their rows through a public random projection onto a few columns,
and Lloyd's algorithm by sums moves the cells there, a few hundred numbers a round. Only then are means of whole rows
asked for, once, in a ring of a few bits: counts are summed up first, so that a site can send its part of a mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.errors import InputError, Repeated, RosterChanged
from coterie.maths.landmarks import Landmarks
from coterie.messages.schema import Floats
from coterie.messages.verbs import Protocol, present, total
from coterie.protocols.landmarks_summed import CountCells, Regard, ShareCells, SumApart, SumRegarded, projection_of
from coterie.protocols.prepared import Spread

__all__ = ["Summed", "nearest_counts", "summed_landmarks"]

FINE_BITS = 10
"""Of means of projected rows."""
COUNT_BITS = 32
ROWS_A_CELL = 10
"""Cells are as many as leave each site about so many rows in each: sums over fewer may be held back."""
WINDOW = 6.0
"""Means of projected rows lie within so many deviations of the mean of all."""
MOST_SEARCHES = 4
"""How often cells are looked for from another start, where a site was lost and the others do not tell of the same
cells without it."""
CLOSE = 0.01
"""Of the deviations of all rows: how far apart the two centers are then that cut a cell in halves."""


@dataclass(frozen=True)
class Survey:
    """What is known of all rows before cells are looked for."""

    n_rows: float
    mean: Floats
    """Of the projected columns, as the others."""
    deviation: Floats
    low: Floats
    span: Floats
    """Where means of projected rows lie: from ``low`` to ``low + span``."""
    rows_range: tuple[Floats, Floats] | None
    """The same of the rows' own columns; None where nobody asked."""
    scatter: float | None
    """The rows' squared distances from their mean in all, where that is known."""


class Summed(NamedTuple):
    """Landmarks, and what was known of all rows when they were looked for."""

    landmarks: Landmarks
    survey: Survey


def summed_landmarks(
    n_landmarks: int,
    n_columns: int,
    *,
    bits: int,
    min_count: int,
    seed: int,
    n_projected: int = 32,
    n_rounds: int = 4,
    limits: tuple[float, float] | None = None,
    before: Summed | None = None,
    about: Spread | None = None,
) -> Protocol[Summed]:
    """Means of cells over all sites' rows, none over fewer than ``min_count``.

    ``limits`` are the smallest and largest value of any row where they are known; else means are coded within a few
    deviations of the mean, which takes the sums of the whole rows as well. Costs 2 p + 1 numbers, and 2 d without
    limits, n_rounds times m in 32 bits and m p in 10, then m and m d in ``bits``, and 2 more, each a masked sum of
    its own. With landmarks found ``before`` the cells start elsewhere, and what is known of all rows is not asked
    again; ``about`` is the rows' spread where it is known from elsewhere.
    """
    d, p = n_columns, min(n_projected, n_columns)
    yield from total(Regard(seed, p, False))
    survey = (yield from _survey(d, p, seed, limits, about)) if before is None else before.survey
    names = yield from present()
    number = min(n_landmarks, max(2, int(survey.n_rows) // (ROWS_A_CELL * len(names))))
    fewest = max(1, min_count)
    told: list[tuple[Floats, Floats]] = [(survey.mean[None], np.ones(1))]
    for search in range(MOST_SEARCHES):
        rng = np.random.default_rng([seed, 3, (0 if before is None else 1) + 2 * search])
        start = survey.mean + survey.deviation * rng.normal(size=(number, p))
        if search:
            start = _halves(*told[-1], number, CLOSE * survey.deviation, rng)
        is_last = search == MOST_SEARCHES - 1
        try:
            points, weights = yield from _cell_means(start, survey, d, bits, fewest, n_rounds, seed, told)
            kept = weights >= fewest
            if kept.any() or is_last or set((yield from present())) >= set(names):
                break
        except Repeated:
            if is_last:
                raise
        yield from total(Regard(seed, p, False))
    if not kept.any():
        raise InputError(f"no cell of the sites' rows holds {fewest} of them; ask for fewer landmarks.")
    points, weights = points[kept], weights[kept]
    scatter = (yield from _scatter(points, weights, survey)) if before is None else before.landmarks.scatter
    return Summed(Landmarks(points, weights * (survey.n_rows / weights.sum()), scatter), survey)


def _survey(d: int, p: int, seed: int, limits: tuple[float, float] | None, about: Spread | None) -> Protocol[Survey]:
    """Sums of all rows, as they are and projected: in the large ring, since variances are small beside the limits'
    square. What is known ``about`` them takes their place where sites do not tell it again."""
    seen = projection_of(d, p, seed)
    reach = float(np.abs(seen).sum(axis=0).max())
    try:
        found = yield from total(SumRegarded(p, reach, d if limits is None and p < d else 0))
    except Repeated:
        if about is None:
            raise
        return _supposed(about, seen, limits)
    n_rows = float(found.rows)
    if not n_rows > 0:
        raise InputError("the sites hold 0 rows in all, or too few to tell of.")
    mean, deviation = _moments(n_rows, found.sums, found.squares)
    own, apart = (mean, deviation) if p == d else _moments(n_rows, found.own_sums, found.own_squares)
    scatter = n_rows * float((apart**2).sum()) if len(own) else None
    return Survey(n_rows, mean, deviation, *_window(mean, deviation), _rows_range(own, apart, limits), scatter)


def _supposed(about: Spread, seen: Floats, limits: tuple[float, float] | None) -> Survey:
    """A survey from the columns' spread alone: projected columns spread as if these had nothing to do with each
    other, and their window is as wide as if they all went together."""
    mean, deviation = about.mean @ seen, np.sqrt(about.deviation**2 @ seen**2)
    window = _window(mean, about.deviation @ np.abs(seen))
    scatter = about.rows * float((about.deviation**2).sum())
    return Survey(about.rows, mean, deviation, *window, _rows_range(about.mean, about.deviation, limits), scatter)


def _moments(n_rows: float, sums: Floats, squares: Floats) -> tuple[Floats, Floats]:
    mean = sums / n_rows
    return mean, np.sqrt(np.maximum(squares / n_rows - mean**2, 0.0))


def _window(mean: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    return mean - WINDOW * deviation, 2 * WINDOW * deviation


def _rows_range(mean: Floats, deviation: Floats, limits: tuple[float, float] | None) -> tuple[Floats, Floats] | None:
    """Where the rows' own columns lie: within limits, or a few deviations of their mean."""
    if limits is not None:
        return np.array([limits[0]], float), np.array([limits[1] - limits[0]], float)
    return (mean - 3 * deviation, 6 * deviation) if len(mean) else None


def _halves(means: Floats, counts: Floats, number: int, apart: Floats, rng: np.random.Generator) -> Floats:
    """Two centers close to each other in the place of each of the largest cells: halves of them, of which nobody was
    told. Where rows lie in groups far apart, cells around any other centers would be those groups again."""
    chosen = means[np.argsort(-counts, kind="stable")[: max(1, number // 2)]]
    away = apart * rng.normal(size=chosen.shape)
    return np.concatenate([chosen + away, chosen - away])


def _cell_means(
    centers: Floats,
    survey: Survey,
    d: int,
    bits: int,
    fewest: int,
    n_rounds: int,
    seed: int,
    told: list[tuple[Floats, Floats]],
) -> Protocol[tuple[Floats, Floats]]:
    """Means of whole rows over cells that Lloyd's algorithm moved among the projected ones, and the rows in each;
    ``told`` collects the projected means of every round."""
    p, before = centers.shape[1], None
    for _ in range(n_rounds):
        try:
            found, counts = yield from _means(centers, (survey.low, survey.span), FINE_BITS, p)
        except Repeated:  # cells came to lie as they did with those who are gone: take the ones before
            if before is None:
                raise
            centers, found, counts = before
            break
        before = centers, found, counts
        if counts.any():
            told.append((found[counts > 0], counts[counts > 0]))
        centers = np.where((counts >= fewest)[:, None], found, centers)
    if p == d:
        return found, counts
    assert survey.rows_range is not None
    yield from total(Regard(seed, p, True))
    return (yield from _means(centers, survey.rows_range, bits, d))


def _scatter(points: Floats, weights: Floats, survey: Survey) -> Protocol[float]:
    """The rows' squared distances from their mean: asked about a point close by, which keeps their digits."""
    try:
        found = yield from total(SumApart(weights @ points / weights.sum()))
    except Repeated:
        if survey.scatter is None:
            raise
        return survey.scatter
    return float(found.squares)


def nearest_counts(points: Floats) -> Protocol[Floats]:
    """How many rows are nearest to each point, over all sites: m numbers."""
    yield from total(Regard(0, points.shape[1], False))
    found = yield from total(CountCells(points), bits=COUNT_BITS)
    return np.rint(found.counts)


def _means(centers: Floats, window: tuple[Floats, Floats], bits: int, width: int) -> Protocol[tuple[Floats, Floats]]:
    """The means of the cells around centers, and how many rows each holds; again where a site is lost between."""
    low, span = window
    while True:
        names = yield from present()
        try:
            counted = yield from total(CountCells(centers), to=names, complete=True, bits=COUNT_BITS)
            counts = np.rint(counted.counts)
            fine = max(bits, int(np.ceil(np.log2(2 * len(names) + 2))))
            ask = ShareCells(fine, width, len(names), centers, counts, low, span)
            shares = yield from total(ask, to=names, complete=True)
            return shares.codes / ask.steps * span + low, counts
        except RosterChanged:
            continue
