"""Where k-means starts. A start is never a row of a site.

- given centers, or centers drawn in a public box: no question is asked (:func:`random_start`);
- one-shot: each site sends a few local centers and how many rows each stands for, the server clusters them;
  single answers are seen, each an average over at least ``min_count`` rows (:func:`one_shot`);
- var-part by sums: cells are split at their mean along their widest column, from per-cell sums only
  (:func:`var_part`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple
from typing import Protocol as Interface

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError, Repeated
from coterie.maths import clustering
from coterie.messages.schema import Floats, Integers, Reply, Request, array
from coterie.messages.site_part import CellMoments, Memory, Table, answers, rows_at
from coterie.messages.verbs import Protocol, each, total
from coterie.protocols.cells import local_cells
from coterie.protocols.costs import Cost, exchange_cost
from coterie.protocols.lloyd import Sizes
from coterie.protocols.prepared import Spread

__all__ = [
    "CellSums",
    "LocalCenters",
    "Sample",
    "Split",
    "Start",
    "Summarise",
    "cells_start",
    "one_shot",
    "one_shot_cost",
    "own_centers",
    "random_start",
    "sample_of",
    "var_part",
    "var_part_cost",
    "var_part_rounds",
]


def random_start(low: npt.ArrayLike, high: npt.ArrayLike, n_clusters: int, *, seed: int) -> Floats:
    """Centers drawn uniformly in a public box; the same at every end for the same seed."""
    bottom, top = np.atleast_1d(np.asarray(low, float)), np.atleast_1d(np.asarray(high, float))
    if bottom.shape != top.shape or not (bottom <= top).all():
        raise InputError("the public box needs one low and one high number a column, low <= high")
    return clustering.random_in_box(bottom, top, n_clusters, np.random.default_rng([seed, 0]))


# ---------------------------------------------------------------- one-shot local centers


@dataclass(frozen=True)
class LocalCenters(Reply, content="averages"):
    """A site's own k-means centers and how many rows each stands for; unused places have count 0."""

    centers: Floats = array("q", "d", bound="box")
    counts: Floats = array("q", bound="rows", nonnegative=True)


@dataclass(frozen=True)
class Summarise(Request[LocalCenters]):
    """Cluster your own rows into at most ``q`` centers, none for fewer than ``min_count`` rows."""

    q: int
    d: int
    min_count: int
    sample: int
    seed: int


@answers(Summarise)
def local_centers(table: Table, memory: Memory, ask: Summarise) -> LocalCenters:
    """k' = max(1, min(q, n // (2 min_count))) centers from a bounded sample of rows, counted over all of them.

    A center that ends up with fewer than ``min_count`` rows is withheld, and so is everything where the site
    holds fewer than that in all. Chance only decides which rows are sampled.
    """
    return LocalCenters(*own_centers(table, memory, ask))


class AsksForCenters(Interface):
    """What a request for a site's own centers says."""

    @property
    def q(self) -> int: ...
    @property
    def d(self) -> int: ...
    @property
    def min_count(self) -> int: ...
    @property
    def sample(self) -> int: ...
    @property
    def seed(self) -> int: ...


def own_centers(table: Table, memory: Memory, ask: AsksForCenters, seen_as: bytes = b"") -> tuple[Floats, Floats]:
    """A site's own centers of a table, and how many rows each stands for; zeros where it sends none."""
    centers, counts = np.zeros((ask.q, ask.d)), np.zeros(ask.q)
    rows, weights, _, held = sample_of(table, ask.sample, ask.seed)
    fewest = max(1, ask.min_count, memory.min_count)
    wanted = max(1, min(ask.q, int(held) // (2 * fewest)))
    if held >= fewest:
        found = clustering.weighted_kmeans(rows, weights, wanted, seed=None)
        cells = local_cells(table, memory.guard, found, seen_as)
        enough = cells.counts >= fewest
        centers[:wanted][enough] = cells.means[enough]
        counts[:wanted][enough] = cells.counts[enough]
    return centers, counts


class Sample(NamedTuple):
    """Some rows, what each counts, which ones they are, and what all rows count."""

    rows: Floats
    weights: Floats
    places: Integers
    held: float


def sample_of(table: Table, size: int, seed: int) -> Sample:
    """At most ``size`` rows, the same whenever asked."""
    n = table.n_rows
    chosen = np.arange(n)
    if n > size:
        chosen = np.sort(np.random.default_rng([seed, n]).choice(n, size, replace=False))
    rows, counts = rows_at(table, chosen)
    held = counts.sum() if len(chosen) == n else sum(float(block.counts.sum()) for block in table.blocks())
    return Sample(rows, counts, chosen, float(held))


def one_shot(
    n_clusters: int, n_columns: int, *, seed: int, min_count: int = 1, sample: int = 2000, complete: bool = False
) -> Protocol[Floats]:
    """Centers of all sites' local centers, weighted by the rows they stand for. Single answers are seen.

    ``complete`` makes it an error when any site does not answer.
    """
    ask = Summarise(n_clusters, n_columns, min_count, sample, seed)
    found = yield from each(ask, complete=complete)
    points = np.concatenate([reply.centers for reply in found.values()]).astype(np.float64)
    weights = np.concatenate([reply.counts for reply in found.values()]).astype(np.float64)
    sent = int((weights > 0).sum())
    if sent < n_clusters:
        raise InputError(
            f"the sites sent {sent} local centers for {n_clusters} clusters, none for fewer rows than they allow; "
            "ask for fewer clusters, or use a method that starts by sums (lloyd, or init='var-part')."
        )
    return clustering.weighted_kmeans(points, weights, n_clusters, seed=seed)


def one_shot_cost(n_sites: int, k: int, d: int, *, method: str, seed: int = 0) -> Cost:
    """k(d+1) numbers a site in one round."""
    ask = Summarise(k, d, 1, 2000, seed)
    return exchange_cost(n_sites, floats=k * (d + 1), float_bytes=8, request=ask, method=method)


# ---------------------------------------------------------------- var-part by sums


@dataclass(frozen=True)
class CellSums(Reply, content="sums"):
    """Per cell the number of a site's rows, their sum and their sum of squares, column by column."""

    counts: Floats = array("cells", bound="rows", nonnegative=True)
    sums: Floats = array("cells", "d", bound="4 * rows * box")
    squares: Floats = array("cells", "d", bound="16 * rows * box**2", nonnegative=True)


@dataclass(frozen=True)
class Split(Request[CellSums]):
    """Walk every row down a tree of cuts to its cell and sum up each cell.

    Cut ``i`` splits cell ``parent[i]`` at ``threshold[i]`` of column ``column[i]``: what lies above becomes
    cell ``i + 1``. Sums are taken about ``origin`` to keep their digits.
    """

    cells: int
    parent: Integers = array("cuts", dtype="int32")
    column: Integers = array("cuts", dtype="int32")
    threshold: Floats = array("cuts")
    origin: Floats = array("d")


@answers(Split)
def local_cell_sums(table: Table, memory: Memory, ask: Split) -> CellSums:
    """A site's share of every cell."""
    reply, watched = CellSums.zeros(ask.axes), None if memory.guard is None else memory.guard.cells(ask.cells)
    for block in table.blocks():
        cells = clustering.cells_of(block.rows, ask.parent, ask.column, ask.threshold)
        reply += CellSums(*clustering.cell_sums(block.rows, cells, ask.cells, ask.origin, block.weights))
        if watched is not None:
            watched.see(block, cells)
    if watched is None:
        return reply
    sent = watched.release(CellMoments.about(ask.origin, reply.counts, reply.sums, reply.squares))
    return CellSums(sent.counts, sent.sums(ask.origin), sent.squares(ask.origin))


@dataclass
class _Tree:
    """The cuts so far."""

    parent: list[int]
    column: list[int]
    threshold: list[float]

    def cut(self, cell: int, column: int, at: float) -> None:
        """What lies above becomes a cell of its own."""
        self.parent.append(cell)
        self.column.append(column)
        self.threshold.append(at)

    def ask(self, origin: Floats) -> Split:
        return Split(
            len(self.parent) + 1,
            np.array(self.parent, np.int64),
            np.array(self.column, np.int64),
            np.array(self.threshold, float),
            origin,
        )


HALF_AWAY = 0.8
"""Deviations by which the means of a cell's two halves lie from its own: 0.80 of a normal one, 0.87 of a flat one."""


class Start(NamedTuple):
    """Where k-means starts, and how many rows are nearest to each center at what cost, where that is known."""

    centers: Floats
    known: Sizes | None = None


def var_part(
    n_clusters: int, n_columns: int, *, about: Spread | None = None, most_numbers: float = np.inf
) -> Protocol[Start]:
    """Split cells at their mean along their widest column until there are enough; return the cells' means.

    Each round the cells of largest squared error are split, at most doubling their number, so about
    log2(k) + 1 rounds do (Su & Dy 2007, by sums). Deterministic: no start and no seed. ``about`` is what is
    known of the rows, a point near their mean above all; without it one round finds the mean. Splitting ends before a
    site would send more than ``most_numbers``.
    """
    cells = yield from _split_cells(n_clusters, n_columns, about, most_numbers)
    sizes = np.concatenate([cells.counts, np.zeros(n_clusters - len(cells.counts))])
    centers = np.resize(cells.means, (n_clusters, n_columns))
    return Start(centers, cells.sizes(sizes, cells.errors.sum(), about))


def cells_start(
    n_clusters: int,
    n_columns: int,
    *,
    seed: int,
    about: Spread | None = None,
    factor: int = 4,
    most_numbers: float = np.inf,
) -> Protocol[Start]:
    """The var-part rule for ``factor`` times as many cells, then the centers of the cells' means by their counts.

    Costs ``factor`` times the numbers of :func:`var_part` and about log2(factor) rounds more; it ends in better
    optima where no column by itself shows the clusters. Sums only.
    """
    cells = yield from _split_cells(factor * n_clusters, n_columns, about, most_numbers)
    centers = clustering.weighted_kmeans(cells.means, cells.counts, n_clusters, seed=seed)
    m = clustering.moments(cells.means, centers, cells.counts)
    return Start(centers, cells.sizes(m.counts, m.cost + cells.errors.sum(), about))


@dataclass(frozen=True)
class _Cells:
    """Means of cells, the rows in each, and their squared errors by column."""

    means: Floats
    counts: Floats
    errors: Floats
    is_told: bool = True
    """Whether sites told so, and none of it was made up here."""

    def sizes(self, counts: Floats, cost: Any, about: Spread | None) -> Sizes | None:
        """What is known of rows around centers, for as many as there are: of some, sites may have told nothing."""
        held = float(counts.sum())
        share = about.rows / held if about is not None and held > 0 else 1.0
        return Sizes(counts * share, cost * share) if self.is_told else None

    def halved(self, n_cells: int) -> _Cells:
        """The same, cut in thought, where sites tell of no more: halves lie a little to each side of the mean."""
        means, counts, errors = self.means.copy(), self.counts.copy(), self.errors.copy()
        while cuts := clustering.var_part_cuts(means, errors, n_cells - len(means)):
            for cell, column, _ in cuts:
                away = HALF_AWAY * np.sqrt(errors[cell, column] / max(float(counts[cell]), 1e-300))
                counts[cell] /= 2
                errors[cell] /= 2
                errors[cell, column] *= 1 - HALF_AWAY**2
                means = np.concatenate([means, means[cell : cell + 1]])
                means[cell, column] -= away
                means[-1, column] += away
                counts, errors = np.append(counts, counts[cell]), np.concatenate([errors, errors[cell : cell + 1]])
        return _Cells(means, counts, errors, self.is_told and len(means) == len(self.means))


def _split_cells(
    n_cells: int, n_columns: int, about: Spread | None, most_numbers: float = np.inf
) -> Protocol[_Cells]:
    """Cells split by the var-part rule, fewer where nothing is left to split, or to be sent.

    Where a site was lost and the others do not tell of the same sets without it, what is known is split in thought,
    and sites are asked about the parts.
    """
    tree, sent = _Tree([], [], []), 0
    cells = None if about is None else _Cells(about.mean[None], np.array([about.rows]), _errors(about), False)
    if about is None:
        sent += 2 * n_columns + 1
        m = yield from total(tree.ask(np.zeros(n_columns)))
        origin = m.sums[0] / max(float(m.counts[0]), 1e-300)
    else:
        origin = about.mean
    while True:
        try:
            m = yield from total(tree.ask(origin))
        except Repeated:
            if cells is None:
                raise
            cuts = clustering.var_part_cuts(cells.means, cells.errors, n_cells - len(tree.parent) - 1)
            if not cuts:
                return cells
            cells = cells.halved(len(cells.means) + len(cuts))
        else:
            sent += len(m.counts) * (2 * n_columns + 1)
            if not m.counts.sum() > 0:
                raise InputError("no site holds any row")
            mean, error = clustering.mean_and_error(m.counts, m.sums, m.squares)
            cells = _Cells(mean + origin, m.counts, error)
            cuts = clustering.var_part_cuts(cells.means, error, n_cells - len(m.counts))
            if not cuts or sent + (len(m.counts) + len(cuts)) * (2 * n_columns + 1) > most_numbers:
                return cells
        for cell, column, cut in cuts:
            tree.cut(cell, column, cut)


def _errors(about: Spread) -> Floats:
    """Squared errors of all rows from their mean, by column."""
    errors: Floats = about.rows * about.deviation[None] ** 2
    return errors


def var_part_rounds(n_clusters: int) -> int:
    """Two rounds for the mean and the first cell, then one a doubling (for data that can be split)."""
    return 2 + int(np.ceil(np.log2(n_clusters)))


def var_part_cost(n_sites: int, k: int, d: int, *, method: str) -> Cost:
    """cells(2d+1) numbers a site a round, for 1, 1, 2, 4, ... k cells."""
    cost, cells = Cost(), [1]
    while cells[-1] < k:
        cells.append(min(2 * cells[-1], k))
    for c in [1, *cells]:
        cuts = np.zeros(c - 1)
        ask = Split(c, cuts.astype(int), cuts.astype(int), cuts, np.zeros(d))
        cost += exchange_cost(n_sites, floats=c * (2 * d + 1), float_bytes=8, request=ask, method=method)
    return cost
