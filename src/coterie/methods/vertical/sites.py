"""What a site answers where it holds columns of rows that others hold columns of, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.errors import MalformedMessage, MissingValues
from coterie.maths.clustering import beyond_rounding
from coterie.maths.factors import JOINS, kernel_pairs, rank_for, scaled_distances
from coterie.maths.spectra import Ritz
from coterie.messages.schema import Fields, Floats, Integers, Nothing, Reply, Request, array
from coterie.messages.site_api import Memory, Rows, Table, answers, remembers
from coterie.methods.shared.alignment import ORDERS, subject
from coterie.methods.shared.limits import N_MARKS, marks
from coterie.methods.shared.scales import divisors, scale_for

MOST_MISSING = 0.1
"""Columns with a larger share of missing values are left out."""
FAR = 750.0
"""Beyond this many units of the kernel a value is 0 in double precision, so a distance may as well stop here."""


class Treat(Request[Nothing], remembered=True, doing="preparing the sites' columns"):
    """From now on see your columns so. ``missing="mean"``: columns with more than a tenth missing are left out, in
    others the mean stands in; ``scale="center"``: mean 0; ``scale="standard"``: and variance 1."""

    missing: str
    scale: str


class Spreads(Reply, content="rows"):
    """The sum of the columns' variances, and of all squared values; of however few rows."""

    variance: Floats = array(nonnegative=True)
    squares: Floats = array(nonnegative=True)


class MeasureSpread(Request[Spreads], doing="measuring the spread of rows"):
    """How far do your rows spread?"""


class RankFound(Reply, content="rows"):
    """How many eigenpairs are enough, and the Frobenius norm of what they leave out; at many scales these reveal
    single distances."""

    rank: Integers = array(dtype="uint32", bound="most")
    left: Floats = array(nonnegative=True)


class OfColumns(Fields):
    """Which kernel matrix of a site's columns, and the seed for finding its eigenpairs."""

    kernel: str
    gamma: float
    seed: int
    rows: int


class FindRank(OfColumns, Request[RankFound], doing="finding the rank of each site's kernel matrix"):
    """Of how many eigenpairs of your kernel matrix is the rest at most ``share`` (Frobenius norm, eq. 18)?"""

    most: int
    share: float


class Pairs(Reply, content="rows"):
    """Leading eigenpairs of a site's kernel matrix: all distances between its rows follow from them."""

    vectors: Floats = array("rows", "rank", dtype="{precision}", bound="1")
    values: Floats = array("rank", nonnegative=True)


class Decompose(OfColumns, Request[Pairs], doing="computing eigenpairs of each site's kernel matrix"):
    """Send the leading ``rank`` eigenpairs of your kernel matrix, out of ``found`` that you find."""

    rank: int
    found: int
    precision: str


class Distances(Reply, content="rows"):
    """gamma times the squared distance of new rows from all others, in this site's columns."""

    values: Floats = array("some", "rows", dtype="{precision}", bound="750", nonnegative=True)


class SumDistances(Request[Distances], doing="summing distances of new rows"):
    """How far are ``some`` new rows, from the ``first`` on, from every row? (eq. 10)"""

    gamma: float
    first: int
    some: int
    rows: int
    precision: str


class Products(Reply, content="rows"):
    """Products of sums of rows with new rows, in this site's columns."""

    values: Floats = array("c", "some", bound="largest[some]")


class SumProducts(Request[Products], doing="summing products with new rows"):
    """Multiply ``some`` new rows, from the ``first`` on, with your rows summed up by ``vectors``. (eq. 9)"""

    first: int
    some: int
    vectors: Floats = array("rows", "c")

    @property
    def measure(self) -> ReportProducts:
        """New rows may be of very different lengths, so each has its own limit."""
        return ReportProducts(self.first, self.some, self.vectors)


class ProductMagnitudes(Reply, content="rows"):
    """A mark for every new row."""

    largest: Integers = array("some", N_MARKS, dtype="uint1", bound="1")


class ReportProducts(Request[ProductMagnitudes], doing="finding the magnitude of the products"):
    """Mark the power of sixteen above the largest of these products, for ``some`` new rows from the ``first`` on."""

    first: int
    some: int
    vectors: Floats = array("rows", "c")


@dataclass(frozen=True)
class Treatment:
    """Which columns are kept, what stands in for missing values, and how values are scaled."""

    kept: Integers
    fill: Floats
    shift: Floats
    scale: Floats

    @classmethod
    def of(cls, rows: Rows, ask: Treat, names: Sequence[str]) -> Treatment:
        """Found from the rows a run is fitted on, all of which this site has of its columns."""
        d = rows.shape[1]
        kept, fill = np.arange(d), np.zeros(d)
        if ask.missing == "mean":
            absent = np.isnan(rows)
            kept = np.flatnonzero((absent.mean(axis=0) <= MOST_MISSING) & ~absent.all(axis=0))
            if not len(kept):
                raise MissingValues("every column here has more than a tenth of its values missing, so none is left")
            fill = np.nanmean(rows[:, kept].astype(np.float64), axis=0)
            rows = np.where(absent[:, kept], fill, rows[:, kept])
        shift, scale = np.zeros(len(kept)), np.ones(len(kept))
        if ask.scale in ("center", "standard"):
            exact = rows.astype(np.float64)
            shift, spread = exact.mean(axis=0), exact.std(axis=0)
            own = [names[int(place)] for place in kept]
            if ask.scale == "standard" and scale_for("standard", own) == "standard":
                scale = divisors(beyond_rounding(spread, shift), "standard", own)
        return cls(kept, fill, shift, scale)

    def apply(self, rows: Rows) -> Floats:
        chosen = rows[:, self.kept].astype(np.float64)
        treated: Floats = (np.where(np.isnan(chosen), self.fill, chosen) - self.shift) / self.scale
        return treated


@remembers(Treat)
def keep_treatment(table: Table, memory: Memory, ask: Treat) -> None:
    """Find the treatment, and forget rows seen without it."""
    if ask.missing not in ("refuse", "mean") or ask.scale not in ("none", "center", "standard"):
        raise MalformedMessage("there is no such treatment of columns")
    if ask.missing == "refuse":
        _check(_gathered(table))
    memory["treatment"] = Treatment.of(_gathered(table), ask, [column.name for column in table.columns])


def columns_of(table: Table, memory: Memory, *, new: bool = False) -> Floats:
    """All of this site's rows, in the order agreed on, treated; double precision, every value finite."""
    place, how = "new columns" if new else "columns", (memory.get(ORDERS[new]), memory.get("treatment"))
    kept = memory.get(place)
    if kept is None or kept[0] is not how[0] or kept[1] is not how[1]:
        order, treatment = how
        rows = _gathered(subject(table, new))
        rows = rows if order is None else rows[order]
        kept = (*how, rows.astype(np.float64) if treatment is None else treatment.apply(rows))
        _check(kept[2])
        memory[place] = kept
    seen: Floats = kept[2]
    return seen


def _gathered(table: Table) -> Rows:
    blocks = [block.rows for block in table.raw_blocks()]
    return np.concatenate(blocks) if blocks else np.zeros((0, len(table.columns)))


def _check(rows: Rows) -> None:
    if not np.isfinite(rows).all():
        raise MissingValues("a column holds missing or infinite values; use missing='mean', or remove them")


def _held(table: Table, memory: Memory, rows: int) -> Floats:
    columns = columns_of(table, memory)
    if len(columns) != rows:
        raise MalformedMessage(f"asked about {rows} rows, there are {len(columns)}")
    return columns


@answers(MeasureSpread)
def local_spread(table: Table, memory: Memory, ask: MeasureSpread) -> Spreads:
    rows = columns_of(table, memory)
    return Spreads(rows.var(axis=0).sum(), np.asarray(np.vdot(rows, rows)))


@answers(FindRank)
def local_rank(table: Table, memory: Memory, ask: FindRank) -> RankFound:
    """The fewest pairs that leave no more than was said, or as many as there may be."""
    rows = _held(table, memory, ask.rows)
    _check_kernel(ask.kernel, ask.gamma)
    if not 1 <= ask.most <= ask.rows or not ask.share > 0:
        raise MalformedMessage(f"{ask.most} pairs of {ask.rows} rows, a rest of {ask.share:g}")
    pairs, rank, left = rank_for(ask.kernel, ask.gamma, rows, ask.share, most=ask.most, seed=ask.seed)
    memory["pairs"] = (_question(ask, len(pairs.values)), pairs)
    return RankFound(np.asarray(rank), np.asarray(left))


@answers(Decompose)
def local_pairs(table: Table, memory: Memory, ask: Decompose) -> Pairs:
    """Algorithm 1, step 1."""
    rows = _held(table, memory, ask.rows)
    _check_kernel(ask.kernel, ask.gamma)
    if not 1 <= ask.rank <= ask.found <= ask.rows:
        raise MalformedMessage(f"{ask.rank} pairs of {ask.found} of {ask.rows} rows")
    question, pairs = memory.get("pairs", (None, None))
    if question != _question(ask, ask.found):
        pairs = kernel_pairs(ask.kernel, ask.gamma, rows, ask.found, seed=ask.seed)
    assert isinstance(pairs, Ritz)
    sent = pairs.top(ask.rank)
    return Pairs(np.clip(sent.vectors, -1.0, 1.0), np.maximum(sent.values, 0.0))


def _question(ask: FindRank | Decompose, n_pairs: int) -> tuple[str, float, int, int]:
    return ask.kernel, ask.gamma, ask.seed, n_pairs


def _check_kernel(kernel: str, gamma: float) -> None:
    if kernel not in JOINS or not (np.isfinite(gamma) and gamma > 0):
        raise MalformedMessage("there is no such kernel of columns")


@answers(SumDistances)
def local_distances(table: Table, memory: Memory, ask: SumDistances) -> Distances:
    """In units of the kernel; from ``FAR`` on all are as far."""
    rows, new = _held(table, memory, ask.rows), _some(table, memory, ask.first, ask.some)
    _check_kernel("rbf", ask.gamma)
    return Distances(np.minimum(scaled_distances(new, rows, ask.gamma), FAR))


@answers(SumProducts)
def local_products(table: Table, memory: Memory, ask: SumProducts) -> Products:
    return Products(_products(table, memory, ask))


@answers(ReportProducts)
def local_product_magnitudes(table: Table, memory: Memory, ask: ReportProducts) -> ProductMagnitudes:
    return ProductMagnitudes(marks(np.abs(_products(table, memory, ask)).max(axis=0, initial=0.0)))


def _products(table: Table, memory: Memory, ask: SumProducts | ReportProducts) -> Floats:
    rows = _held(table, memory, len(ask.vectors))
    products: Floats = (_some(table, memory, ask.first, ask.some) @ (rows.T @ ask.vectors)).T
    return products


def _some(table: Table, memory: Memory, first: int, count: int) -> Floats:
    new = columns_of(table, memory, new=True)
    if not 0 <= first < first + count <= len(new):
        raise MalformedMessage(f"rows {first} to {first + count} of {len(new)} new ones")
    return new[first : first + count]
