"""Landmarks by sums alone: means of cells of all sites' rows, of which no single answer is ever seen.

Cells are found where that is cheap: sites look at their rows through a public random projection onto a few columns,
and Lloyd's algorithm by sums moves the cells there, a few hundred numbers a round. Only then are means of whole rows
asked for, once, in a ring of a few bits: counts are summed up first, so that a site can send its part of a mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from coterie.errors import Guarded, InputError, MalformedMessage, RosterChanged
from coterie.maths.landmarks import Landmarks
from coterie.messages.schema import Floats, Integers, Nothing, Reply, Request, array
from coterie.messages.site_part import Block, CellMoments, Memory, Rows, Table, answers, remembers
from coterie.messages.verbs import Protocol, present, total
from coterie.protocols.cells import seen_cells
from coterie.protocols.embedded import EmbeddedTable, StreamedTable

__all__ = ["CountCells", "Regard", "ShareCells", "SumApart", "SumRegarded", "nearest_counts", "summed_landmarks"]

FINE_BITS = 10
"""Of means of projected rows."""
COUNT_BITS = 32
MOST_PROJECTIONS = 2
"""The one cells are found with, and rows as they are."""
ROWS_A_CELL = 10
"""Cells are as many as leave each site about so many rows in each: sums over fewer may be held back."""
WINDOW = 6.0
"""Means of projected rows lie within so many deviations of the mean of all."""


# ---------------------------------------------------------------- what a site is asked


@dataclass(frozen=True)
class Regard(Request[Nothing], remembered=True):
    """From now on cells are those of rows projected onto ``p`` columns; what is summed up over them are the projected
    rows, or the ``whole`` rows."""

    seed: int
    p: int
    whole: bool


def projection_of(d: int, p: int, seed: int) -> Floats:
    """The public projection: signs over the root of p, or none where p is d."""
    if p == d:
        return np.eye(d)
    signs = np.random.default_rng([seed, d, p]).choice([-1.0, 1.0], size=(d, p))
    scaled: Floats = signs / np.sqrt(p)
    return scaled


@dataclass(frozen=True)
class _Lens:
    """How a site looks at its rows."""

    table: StreamedTable
    seed: int
    whole: bool

    @property
    def width(self) -> int:
        """How many columns sums have."""
        return len((self.table.raw if self.whole else self.table).columns)

    def projects(self, raw: Table, ask: Regard) -> bool:
        """Whether these rows are already projected as asked."""
        return self.table.raw is raw and (self.seed, len(self.table.columns)) == (ask.seed, ask.p)

    def blocks(self) -> Iterator[tuple[Block, Rows]]:
        """Some rows as they are summed up, and as they are projected."""
        for raw, seen in self.table.pieces():
            yield (raw if self.whole else Block(seen, raw.weights, raw.places)), seen


@remembers(Regard)
def keep_lens(table: Table, memory: Memory, ask: Regard) -> None:
    """Keep the projection, and the projected rows where they are few."""
    raw = table.raw if isinstance(table, EmbeddedTable) else table
    d = len(raw.columns)
    if not 1 <= ask.p <= d or ask.seed < 0:
        raise MalformedMessage(f"rows of {d} columns cannot be projected onto {ask.p}")
    seen = projection_of(d, ask.p, ask.seed)
    before = memory.get("lens")
    if isinstance(before, _Lens) and before.projects(raw, ask):
        memory["lens"] = replace(before, whole=ask.whole)
        return
    projected = StreamedTable(raw, lambda rows: rows @ seen.astype(rows.dtype), ask.p)
    memory["lens"] = _Lens(projected, ask.seed, ask.whole)


def _lens(memory: Memory) -> _Lens:
    found = memory.get("lens")
    if not isinstance(found, _Lens):
        raise MalformedMessage("no projection was agreed on in this run")
    return found


@dataclass(frozen=True)
class RegardedSums(Reply, content="sums"):
    """The number of rows, and the sums and squares of their projected columns."""

    rows: Floats = array(bound="rows", nonnegative=True)
    sums: Floats = array("p", bound="rows * reach * box")
    squares: Floats = array("p", bound="rows * (reach * box)**2", nonnegative=True)


@dataclass(frozen=True)
class SumRegarded(Request[RegardedSums]):
    """Sum up your projected rows; ``reach`` is how much larger than a row's numbers theirs can be."""

    p: int
    reach: float


@answers(SumRegarded)
def local_regarded_sums(table: Table, memory: Memory, ask: SumRegarded) -> RegardedSums:
    """A site's share, over all its rows or none; of two projections a run where it is guarded: squares of many would
    be the products of all columns."""
    reply, lens, guard = RegardedSums.zeros(ask.axes), _lens(memory), memory.guard
    if ask.p != len(lens.table.columns):
        raise MalformedMessage(f"sums of {ask.p} columns of rows projected onto {len(lens.table.columns)}")
    if guard is not None and not guard.allows("regarded", f"{lens.seed} {ask.p}".encode(), MOST_PROJECTIONS):
        raise Guarded("sums of other projections left in this run already")
    watched = None if guard is None else guard.cells(1)
    for block, seen in lens.blocks():
        rows, each = seen.astype(np.float64, copy=False), block.counts
        reply += RegardedSums(each.sum(), each @ rows, each @ rows**2)
        if watched is not None:
            watched.see(block, np.zeros(len(rows), np.intp))
    return reply if watched is None or watched.release_whole() else RegardedSums.zeros(ask.axes)


@dataclass(frozen=True)
class Apart(Reply, content="sums"):
    """The number of rows, and their squared distances from a point in all."""

    rows: Floats = array(bound="rows", nonnegative=True)
    squares: Floats = array(bound="4 * rows * d * box**2", nonnegative=True)


@dataclass(frozen=True)
class SumApart(Request[Apart]):
    """How far are your rows from this point, squared and in all?"""

    origin: Floats = array("d")


@answers(SumApart)
def local_apart(table: Table, memory: Memory, ask: SumApart) -> Apart:
    """A site's share, over all its rows or none; about one point a run where it is guarded."""
    guard, reply = memory.guard, Apart.zeros(ask.axes)
    if guard is not None and not guard.allows("apart", guard.context + ask.origin.tobytes(), 1):
        raise Guarded("distances from another point left in this run already")
    watched = None if guard is None else guard.cells(1)
    for block in table.blocks():
        away = block.rows - ask.origin
        reply += Apart(block.counts.sum(), block.counts @ np.vecdot(away, away))
        if watched is not None:
            watched.see(block, np.zeros(len(away), np.intp))
    return reply if watched is None or watched.release_whole() else Apart.zeros(ask.axes)


@dataclass(frozen=True)
class CellCounts(Reply, content="sums"):
    """How many of a site's rows are in each cell."""

    counts: Floats = array("m", bound="rows", nonnegative=True)


@dataclass(frozen=True)
class CountCells(Request[CellCounts]):
    """How many of your rows are, projected, nearest to each of these points?"""

    centers: Floats = array("m", "p")


@dataclass(frozen=True)
class CellShares(Reply, content="sums"):
    """A site's part of every cell's mean, as whole numbers."""

    codes: Integers = array("m", "width", dtype="uint{bits}")


@dataclass(frozen=True)
class ShareCells(Request[CellShares]):
    """Send your part of the mean of every cell, which holds ``totals`` rows over ``sites`` sites in all.

    A mean is a whole number of a few bits between ``low`` and ``low + span``, of each column or of all. Parts add up
    to less than the ring holds, rounding included.
    """

    bits: int
    width: int
    sites: int
    centers: Floats = array("m", "p")
    totals: Floats = array("m")
    low: Floats = array("ranges")
    span: Floats = array("ranges")

    @property
    def ring(self) -> int:
        """As large as a mean is fine."""
        return self.bits

    @property
    def steps(self) -> int:
        """The largest whole number a mean can be: every site may round up once."""
        return (1 << self.bits) - 1 - self.sites


@answers(CountCells)
def local_counts(table: Table, memory: Memory, ask: CountCells) -> CellCounts:
    """A site's share of the counts, as far as they may leave."""
    return CellCounts(_cells(_lens(memory), memory, ask.centers).counts)


@answers(ShareCells)
def local_shares(table: Table, memory: Memory, ask: ShareCells) -> CellShares:
    """A site's part of the means; nothing of cells that hold too few rows in all."""
    lens = _lens(memory)
    if ask.width != lens.width or ask.axes["ranges"] not in (1, ask.width) or not 1 <= ask.steps < 1 << 31:
        raise MalformedMessage(f"means of {ask.width} columns in {ask.bits} bits over {ask.sites} sites")
    found = _cells(lens, memory, ask.centers)
    totals = np.maximum(ask.totals, found.counts)  # a part is at most the whole
    share = np.where(totals > 0, found.counts / np.where(totals > 0, totals, 1.0), 0.0)
    where = np.clip((found.means - ask.low) / np.where(ask.span > 0, ask.span, 1.0), 0.0, 1.0)
    return CellShares(np.rint(share[:, None] * where * ask.steps).astype(np.int64))


def _cells(lens: _Lens, memory: Memory, centers: Floats) -> CellMoments:
    """The moments of what is summed up over the cells, as far as a guard lets them go."""
    if centers.shape[1] != len(lens.table.columns):
        raise MalformedMessage(f"points of {centers.shape[1]} columns for rows of {len(lens.table.columns)}")
    return seen_cells(lens.blocks(), memory.guard, centers, lens.width)


# ---------------------------------------------------------------- the server's part


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
    before: Landmarks | None = None,
) -> Protocol[Landmarks]:
    """Means of cells over all sites' rows, none over fewer than ``min_count``.

    ``limits`` are the smallest and largest value of any row where they are known; else means are coded within a few
    deviations of the mean, which takes a round of the whole rows' sums. Costs 2 p + 1 numbers, n_rounds times
    m in 32 bits and m p in 10, then m and m d in ``bits``, and 2 more, each a masked sum of its own. With landmarks
    found ``before`` the cells start elsewhere, and how far rows are apart is known.
    """
    d, p = n_columns, min(n_projected, n_columns)
    seen = projection_of(d, p, seed)
    reach = float(np.abs(seen).sum(axis=0).max())
    yield from total(Regard(seed, p, False))
    about = yield from total(SumRegarded(p, reach))
    n_rows = float(about.rows)
    if not n_rows > 0:
        raise InputError("the sites hold 0 rows in all, or too few to tell of.")
    mean = about.sums / n_rows
    deviation = np.sqrt(np.maximum(about.squares / n_rows - mean**2, 0.0))
    low, span = mean - WINDOW * deviation, 2 * WINDOW * deviation
    number = min(n_landmarks, max(2, int(n_rows) // (ROWS_A_CELL * len((yield from present())))))
    rng = np.random.default_rng([seed, 3, 0 if before is None else 1])
    centers = mean + deviation * rng.normal(size=(number, p))
    for _ in range(n_rounds):
        found, counts = yield from _means(centers, (low, span), FINE_BITS, p)
        centers = np.where((counts >= max(1, min_count))[:, None], found, centers)
    if p == d:
        points, weights = found, counts
    else:
        span_of_rows = (yield from _whole_range(d)) if limits is None else _one_range(*limits)
        yield from total(Regard(seed, p, True))
        points, weights = yield from _means(centers, span_of_rows, bits, d)
    kept = weights >= max(1, min_count)
    if not kept.any():
        raise InputError(f"no cell of the sites' rows holds {max(1, min_count)} of them; ask for fewer landmarks.")
    points, weights = points[kept], weights[kept]
    middle = weights @ points / weights.sum()
    scatter = float((yield from total(SumApart(middle))).squares) if before is None else before.scatter
    return Landmarks(points, weights * (n_rows / weights.sum()), scatter)


def nearest_counts(points: Floats) -> Protocol[Floats]:
    """How many rows are nearest to each point, over all sites: m numbers."""
    yield from total(Regard(0, points.shape[1], False))
    found = yield from total(CountCells(points), bits=COUNT_BITS)
    return np.rint(found.counts)


def _one_range(low: float, high: float) -> tuple[Floats, Floats]:
    return np.array([low], float), np.array([high - low], float)


def _whole_range(d: int) -> Protocol[tuple[Floats, Floats]]:
    """Where the rows' columns lie: their mean and a few deviations to each side, by sums of the rows themselves."""
    yield from total(Regard(0, d, False))
    about = yield from total(SumRegarded(d, 1.0))  # in the large ring: a variance is small beside the limits' square
    n = max(float(about.rows), 1.0)
    mean = about.sums / n
    deviation = np.sqrt(np.maximum(about.squares / n - mean**2, 0.0))
    return mean - 3 * deviation, 6 * deviation


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
