"""What a site is asked in the search for landmarks by sums alone: cells of projected rows, their counts and means.

The server's part is in :mod:`coterie.methods.kernel.landmarks.search`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from coterie.errors import MalformedMessage
from coterie.maths import clustering
from coterie.messages.bounds import Limits
from coterie.messages.schema import Floats, Integers, Nothing, Reply, Request, array
from coterie.messages.site_api import Block, Memory, Table, answers, remembers, within_columns
from coterie.methods.shared.embedded import StreamedTable, raw_of, seen_moments


class UseProjection(Request[Nothing], remembered=True, doing="projecting rows for the cells"):
    """From now on cells are those of rows projected onto ``p`` columns; what is summed up over them are the projected
    rows, or the ``whole`` rows."""

    seed: int
    p: int
    whole: bool

    def limits_after(self, limits: Limits) -> Limits:
        """The table stays as it is."""
        return limits


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


@remembers(UseProjection)
def keep_lens(table: Table, memory: Memory, ask: UseProjection) -> None:
    """Keep the projection, and the projected rows where they are few."""
    raw, before = raw_of(table), memory.get("lens")
    d = len(raw.columns)
    if not 1 <= ask.p <= d or ask.seed < 0:
        raise MalformedMessage(f"rows of {d} columns cannot be projected onto {ask.p}")
    if before is None or before.table.raw is not raw or (before.seed, len(before.table.columns)) != (ask.seed, ask.p):
        seen = projection_of(d, ask.p, ask.seed)
        projected = StreamedTable(raw, lambda block: block.rows @ seen.astype(block.rows.dtype), ask.p)
        before = _Lens(projected, ask.seed, ask.whole)
    memory["lens"] = replace(before, whole=ask.whole)


def _lens(memory: Memory) -> _Lens:
    lens = memory.get("lens")
    if not isinstance(lens, _Lens):
        raise MalformedMessage("no projection was agreed on in this run")
    return lens


class ProjectedSums(Reply, content="sums"):
    """The number of rows, and the sums and squares of their projected columns, and of their own where asked for."""

    rows: Floats = array(bound="rows", nonnegative=True)
    sums: Floats = array("p", bound="rows * reach * box")
    squares: Floats = array("p", bound="rows * (reach * box)**2", nonnegative=True)
    own_sums: Floats = array("d", bound="rows * box[d]")
    own_squares: Floats = array("d", bound="rows * box[d]**2", nonnegative=True)


class SumProjected(Request[ProjectedSums], doing="summing projected rows"):
    """Sum up your projected rows; ``reach`` is how much larger than a row's numbers theirs can be.

    ``d`` is the number of the rows' own columns, to be summed up as well, or 0.
    """

    p: int
    reach: float
    d: int


@answers(SumProjected)
def local_projected_sums(table: Table, memory: Memory, ask: SumProjected) -> ProjectedSums:
    """A site's share: sums and squares of the rows it shows, which is what cells are made of."""
    reply, lens = ProjectedSums.zeros(ask.axes), _lens(memory)
    own = len(lens.table.raw.columns)
    if ask.p != len(lens.table.columns) or ask.d not in (0, own):
        raise MalformedMessage(f"sums of {ask.p} and {ask.d} columns for {len(lens.table.columns)} and {own}")
    for block, seen in lens.table.pieces():
        rows, each = seen.astype(np.float64, copy=False), block.counts
        wide = block.rows[:, : ask.d].astype(np.float64, copy=False)
        reply += ProjectedSums(each.sum(), each @ rows, each @ rows**2, each @ wide, each @ wide**2)
    return reply


class SquaredDistances(Reply, content="sums"):
    """The number of rows, and their squared distances from a point in all."""

    rows: Floats = array(bound="rows", nonnegative=True)
    squares: Floats = array(bound="rows * d * (box + origin)**2", nonnegative=True)


class SumSquaredDistances(Request[SquaredDistances], doing="summing squared distances from a point"):
    """How far are your rows from this point, squared and in all?"""

    origin: Floats = array("d")


@answers(SumSquaredDistances)
def local_squared_distances(table: Table, memory: Memory, ask: SumSquaredDistances) -> SquaredDistances:
    reply = SquaredDistances(np.zeros(()), np.asarray(within_columns(table).sum()))
    for block in table.blocks():
        away = block.rows - ask.origin
        reply += SquaredDistances(block.counts.sum(), block.counts @ np.vecdot(away, away))
    return reply


class CellCounts(Reply, content="sums"):
    """How many of a site's rows are in each cell."""

    counts: Floats = array("m", bound="rows", nonnegative=True)


class CountCells(Request[CellCounts], doing="counting the rows of each cell"):
    """How many of your rows are, projected, nearest to each of these points?"""

    centers: Floats = array("m", "p")


class CellShares(Reply, content="sums"):
    """A site's part of every cell's mean, as whole numbers."""

    codes: Integers = array("m", "width", dtype="uint{bits}")


class ShareCells(Request[CellShares], doing="averaging the cells over all sites"):
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
    return CellCounts(_cells(_lens(memory), ask.centers)[1])


@answers(ShareCells)
def local_shares(table: Table, memory: Memory, ask: ShareCells) -> CellShares:
    lens = _lens(memory)
    if ask.width != lens.width or ask.axes["ranges"] not in (1, ask.width) or not 1 <= ask.steps < 1 << 31:
        raise MalformedMessage(f"means of {ask.width} columns in {ask.bits} bits over {ask.sites} sites")
    sums, counts = _cells(lens, ask.centers)
    totals = np.maximum(ask.totals, counts)  # a part is at most the whole
    share = np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), 0.0)
    means = clustering.means(sums, counts, fallback=np.zeros_like(sums))
    where = np.clip((means - ask.low) / np.where(ask.span > 0, ask.span, 1.0), 0.0, 1.0)
    return CellShares(np.rint(share[:, None] * where * ask.steps).astype(np.int64))


def _cells(lens: _Lens, centers: Floats) -> tuple[Floats, Floats]:
    """The sums of what is summed up over the cells, and the cells' counts."""
    if centers.shape[1] != len(lens.table.columns):
        raise MalformedMessage(f"points of {centers.shape[1]} columns for rows of {len(lens.table.columns)}")
    pieces = ((raw if lens.whole else Block(seen, raw.weights), seen) for raw, seen in lens.table.pieces())
    return seen_moments(pieces, centers, lens.width)
