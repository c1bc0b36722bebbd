"""Where k-means starts: :func:`starts_of` lists the ways. A start is never a row of a site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.extents import between
from coterie.maths import clustering
from coterie.maths.coresets import drawn_by_weight
from coterie.messages.schema import Floats, Integers, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers, rows_at
from coterie.messages.verbs import Protocol, each, total
from coterie.methods.shared.lloyd import table_moments
from coterie.methods.shared.prepared import Spread


def random_start(low: npt.ArrayLike, high: npt.ArrayLike, n_clusters: int, *, seed: int) -> Floats:
    """Centers drawn uniformly in a public box; the same at every end for the same seed."""
    bottom, top = np.atleast_1d(np.asarray(low, float)), np.atleast_1d(np.asarray(high, float))
    if bottom.shape != top.shape or not (bottom <= top).all():
        raise InputError("the public box needs one low and one high number for every column, low <= high")
    return clustering.random_in_box(bottom, top, n_clusters, np.random.default_rng([seed, 0]))


CELLS_A_CLUSTER, PLACES_A_CLUSTER = 4, 16
"""Of the start ``auto``: cells cut along columns, and public places that move to the rows near them."""
PLACE_MOVES = 3
"""How often places move, in the rounds that cut cells."""
START_BITS = 48
"""Of a ring for masked sums that only decide where to start."""
FEWEST_ROWS, MOST_NUMBERS = 5, 1 << 18
"""There are at most as many places as leave each so many rows, and each question at most so many numbers."""


class LocalCenters(Reply, content="averages"):
    """A site's own k-means centers and how many rows each stands for; unused places have count 0."""

    centers: Floats = array("q", "d", bound="box[d]")
    counts: Floats = array("q", bound="rows", nonnegative=True)


class Summarise(Request[LocalCenters], doing="clustering each site's own rows"):
    """Cluster your own rows into at most ``q`` centers."""

    q: int
    d: int
    sample: int
    seed: int


@answers(Summarise)
def local_centers(table: Table, memory: Memory, ask: Summarise) -> LocalCenters:
    """k' = max(1, min(q, n // 2)) centers from a bounded sample of rows that count n, counted over all of them.

    Chance only decides which rows are sampled.
    """
    return LocalCenters(*own_centers(table, ask.q, ask.d, sample_of(table, ask.sample, ask.seed)))


def own_centers(table: Table, q: int, d: int, sample: Sample) -> tuple[Floats, Floats]:
    """A site's own centers of a table, and how many rows each stands for; zeros where it sends none."""
    centers, counts = np.zeros((q, d)), np.zeros(q)
    if sample.held > 0:
        wanted = max(1, min(q, int(sample.held) // 2))
        cells = table_moments(table, clustering.weighted_kmeans(sample.rows, sample.weights, wanted, seed=None))
        centers[:wanted] = clustering.means(cells.sums, cells.counts, fallback=np.zeros_like(cells.sums))
        counts[:wanted] = cells.counts
    return centers, counts


class Sample(NamedTuple):
    """Some rows, what each counts, and what all rows count."""

    rows: Floats
    weights: Floats
    held: float


def sample_of(table: Table, size: int, seed: int) -> Sample:
    """All rows where they are at most ``size``, else as many drawn by what they count; the same whenever asked."""
    if table.n_rows <= size:
        rows, counts = rows_at(table, np.arange(table.n_rows))
        return Sample(rows, counts, float(counts.sum()))
    counts = np.concatenate([block.counts for block in table.blocks()])
    rows = rows_at(table, drawn_by_weight(counts, size, seed))[0]
    return Sample(rows, np.ones(len(rows)), float(counts.sum()))


def one_shot(n_clusters: int, n_columns: int, *, seed: int, sample: int = 2000) -> Protocol[Floats]:
    """Centers of all sites' local centers, weighted by the rows they stand for. Per-site results are seen."""
    ask = Summarise(n_clusters, n_columns, sample, seed)
    replies = yield from each(ask)
    points = np.concatenate([reply.centers for reply in replies.values()]).astype(np.float64)
    weights = np.concatenate([reply.counts for reply in replies.values()]).astype(np.float64)
    sent = int((weights > 0).sum())
    if sent < n_clusters:
        raise InputError(
            f"the sites sent {sent} local centers for {n_clusters} clusters. A site sends at most one for two of its "
            "rows; use fewer clusters, or a start by sums (method lloyd, or init='var-part')."
        )
    return clustering.weighted_kmeans(points, weights, n_clusters, seed=seed)


class CellSums(Reply, content="sums"):
    """Per cell the number of a site's rows, their sum and their sum of squares, column by column; per point the
    number and the sum of those nearest to it."""

    counts: Floats = array("cells", bound="rows", nonnegative=True)
    sums: Floats = array("cells", "d", bound="rows * (box[d] + origin[d])")
    squares: Floats = array("cells", "d", bound="rows * (box[d] + origin[d])**2", nonnegative=True)
    near: Floats = array("points", bound="rows", nonnegative=True)
    near_sums: Floats = array("points", "d", bound="rows * (box[d] + origin[d])")


class Split(Request[CellSums], doing="summing up the cells of the initial partition"):
    """Walk every row down a tree of cuts to its cell, put it to its nearest point, and sum up both.

    Cut ``i`` splits cell ``parent[i]`` at ``threshold[i]`` of column ``column[i]``: what lies above becomes
    cell ``i + 1``. Sums are taken about ``origin`` to keep their digits.
    """

    cells: int
    parent: Integers = array("cuts", dtype="int32")
    column: Integers = array("cuts", dtype="int32")
    threshold: Floats = array("cuts")
    origin: Floats = array("d")
    places: Floats = array("points", "d")


@answers(Split)
def local_cell_sums(table: Table, memory: Memory, ask: Split) -> CellSums:
    reply = CellSums.zeros(ask.axes)
    for block in table.blocks():
        cells = clustering.cells_of(block.rows, ask.parent, ask.column, ask.threshold)
        parts = clustering.cell_sums(block.rows, cells, ask.cells, ask.origin, block.weights)
        sums, near = np.zeros(ask.places.shape), np.zeros(len(ask.places))
        if len(near):
            sums, near, _ = clustering.moments(block.rows, ask.places, block.weights)
        reply += CellSums(*parts, near, sums - near[:, None] * ask.origin)
    return reply


def split_request(cuts: Sequence[tuple[int, int, float]], origin: Floats, places: Floats | None = None) -> Split:
    """The request for the cells that these cuts leave, each a cell, a column and a threshold, and for points."""
    parent, column, threshold = np.array(cuts, float).reshape(-1, 3).T
    near = np.zeros((0, len(origin))) if places is None else places
    return Split(len(cuts) + 1, parent.astype(np.int64), column.astype(np.int64), threshold, origin, near)


def var_part(
    n_clusters: int, n_columns: int, *, about: Spread | None = None, most_numbers: float = np.inf
) -> Protocol[Floats]:
    """Split cells at their mean along their widest column until there are enough; return the cells' means.

    Each round the cells of largest squared error are split, at most doubling their number, so about
    log2(k) + 1 rounds do (Su & Dy 2007, by sums). Deterministic: no start and no seed. ``about`` is what is
    known of the rows, a point near their mean above all; without it one round finds the mean. Splitting ends before a
    site would send more than ``most_numbers``.
    """
    cells, _ = yield from _split_cells(n_clusters, n_columns, about, most_numbers)
    return np.resize(cells.points, (n_clusters, n_columns))


def cells_start(
    n_clusters: int, n_columns: int, *, seed: int, about: Spread | None = None, most_numbers: float = np.inf
) -> Protocol[Floats]:
    """The var-part rule for four times as many cells, then the centers of the cells' means by their counts.

    Costs four times the numbers of :func:`var_part` and about two rounds more; it ends in better
    optima where no column by itself shows the clusters. Sums only.
    """
    cells, _ = yield from _split_cells(CELLS_A_CLUSTER * n_clusters, n_columns, about, most_numbers)
    return clustering.best_centers(*cells, n_clusters, seed=seed).centers


class Points(NamedTuple):
    """Points that stand for rows, and for how many."""

    points: Floats
    weights: Floats


def _split_cells(
    n_cells: int, n_columns: int, about: Spread | None, most_numbers: float = np.inf, places: Floats | None = None
) -> Protocol[tuple[Points, Points]]:
    """Cells split by the var-part rule, fewer where nothing is left to split, or to be sent; and the cells of some
    places, which move to the means of the rows nearest to them for the first rounds."""
    taken: list[tuple[int, int, float]] = []
    sent, cell_numbers = 0, 2 * n_columns + 1
    if about is None:
        sent += cell_numbers
        m = yield from total(split_request(taken, np.zeros(n_columns)))
        origin = m.sums[0] / max(float(m.counts[0]), 1e-300)
    else:
        origin = about.mean
    bits = None if places is None else START_BITS
    near, moves = Points(np.zeros((0, n_columns)) if places is None else places, np.zeros(0)), PLACE_MOVES
    while True:
        m = yield from total(split_request(taken, origin, near.points if moves else None), bits=bits)
        if moves:
            near = Points(origin + clustering.means(m.near_sums, m.near, fallback=near.points - origin), m.near)
            moves -= 1
        sent += len(m.counts) * cell_numbers
        if not m.counts.sum() > 0:
            raise InputError("no site holds any row")
        mean, error = clustering.mean_and_error(m.counts, m.sums, m.squares)
        cuts = clustering.var_part_cuts(mean + origin, error, n_cells - len(m.counts))
        if len(m.counts) < n_cells:  # the most rounds are those that cut one cell each
            cuts = between(cuts, [], cuts[:1] or [(0, 0, 0.0)])
        if not cuts or sent + (len(m.counts) + len(cuts)) * cell_numbers > most_numbers:
            return Points(mean + origin, m.counts), near
        taken += cuts


def cells_by_round(n_cells: int) -> list[int]:
    """How many cells there are while they are split: 1, 2, 4, ... (for data that can be split)."""
    return [min(1 << i, n_cells) for i in range((n_cells - 1).bit_length() + 1)]


def starts_of(
    init: str | Floats, n_clusters: int, spread: Spread, *, seed: int, most: int = 1
) -> Protocol[list[Floats]]:
    """At most so many different starts by name, never a row of a site; the most promising first."""
    d = len(spread.mean)
    if not isinstance(init, str):
        return [np.array(init, np.float64)]
    if init == "random":
        seeds = [seed, *((seed + 7919 * i) % 2**32 for i in range(1, most))]
        return [random_start(spread.low, spread.high, n_clusters, seed=own) for own in seeds]
    if init == "var-part":
        return [(yield from var_part(n_clusters, d, about=spread))]
    if init == "cells" and most == 1:
        return [(yield from cells_start(n_clusters, d, seed=seed, about=spread))]
    if init == "cells":
        cells, _ = yield from _split_cells(CELLS_A_CLUSTER * n_clusters, d, spread)
        return solutions([cells], n_clusters, most, seed=seed)
    if init == "one-shot":
        return [(yield from one_shot(n_clusters, d, seed=seed))]
    if init != "auto":
        raise InputError(f"init={init!r} must be auto, one-shot, cells, var-part, random or an array of centers.")
    a_cluster = max(CELLS_A_CLUSTER, min(PLACES_A_CLUSTER, most))  # few where few starts are asked for
    n_places = min(a_cluster * n_clusters, points_of(n_clusters, spread))
    cells, near = yield from cells_and_places(n_clusters, spread, seed=seed, n_places=n_places)
    both = Points(np.concatenate([cells.points, near.points]), np.concatenate([cells.weights, near.weights]))
    return solutions([both, cells, near], n_clusters, most, seed=seed)


def points_of(n_clusters: int, spread: Spread) -> int:
    """How many points one question may ask about: no more than rows can tell apart, or than is worth sending."""
    fewest = min(spread.rows / FEWEST_ROWS, MOST_NUMBERS / (len(spread.mean) + 1))
    return max(n_clusters, int(fewest))


def cells_and_places(
    n_clusters: int, spread: Spread, *, seed: int, n_places: int | None = None
) -> Protocol[tuple[Points, Points]]:
    """Two sets of points that stand for all rows: the means of four cells a cluster, and public places, as many
    unless stated, that moved to the means of the rows near them.

    Cells are fewer where rows cannot be told apart: a cell whose rows are equal is not cut.
    """
    d, most = len(spread.mean), points_of(n_clusters, spread)
    n_cells = min(CELLS_A_CLUSTER * n_clusters, max(n_clusters, MOST_NUMBERS // (d + 1)))
    n_drawn = min(n_cells, most) if n_places is None else n_places
    drawn = np.random.default_rng([seed, 2]).standard_normal((n_drawn, d))
    return (yield from _split_cells(n_cells, d, spread, places=spread.mean + spread.deviation * drawn))


def solutions(sets: Sequence[Points], n_clusters: int, most: int, *, seed: int) -> list[Floats]:
    """At most so many distinct solutions of weighted k-means problems, the best of each first."""
    each = -(-most // len(sets))
    ranked = [
        clustering.several_starts(points, weights, n_clusters, each, seed=(seed + 104729 * i) % 2**32)
        for i, (points, weights) in enumerate(sets)
    ]
    in_turn = [centers[i] for i in range(each) for centers in ranked if i < len(centers)]
    return in_turn[:most]
