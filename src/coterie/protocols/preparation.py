"""What any method can be preceded by: agreement on columns, imputation and scaling.

Sites end up with a prepared view of their table, which later questions see in its place. What they are told is
public (means, deviations, ranges), so a site that joins late or restarts is brought up to date with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

from coterie.errors import ColumnsDiffer, Guarded, InputError, MalformedMessage, MissingValues, OutOfRange
from coterie.messages.schema import Floats, Integers, Nothing, Reply, Request, array
from coterie.messages.site_part import Block, Column, Memory, Rows, Table, answers, remembers
from coterie.messages.verbs import Protocol, each, total
from coterie.protocols.costs import Cost, exchange_cost
from coterie.protocols.limits import find_units, within

__all__ = [
    "Agree",
    "ColumnReport",
    "ColumnSums",
    "Preparation",
    "Prepare",
    "PreparedTable",
    "Spread",
    "SumColumns",
    "agree",
    "min_max",
    "prepare",
    "spread",
    "standard",
    "standard_cost",
]

Missing = Literal["refuse", "mean", "drop"]
RANGE_SLACK = 1e-6


# ---------------------------------------------------------------- agreement on columns


class Match(IntEnum):
    """How a site's column compares with the one expected."""

    SAME = 0
    ABSENT = 1
    ELSEWHERE = 2
    OTHER_KIND = 3


@dataclass(frozen=True)
class ColumnReport(Reply, content="schema"):
    """For every expected column whether the site has it so; and how many columns it has besides."""

    matches: Integers = array("d", dtype="uint2")
    others: Integers = array(dtype="uint32")


@dataclass(frozen=True)
class Agree(Request[ColumnReport]):
    """Are these your columns, in this order?"""

    d: int
    names: tuple[str, ...]
    kinds: tuple[str, ...]


@answers(Agree)
def local_report(table: Table, memory: Memory, ask: Agree) -> ColumnReport:
    """Compare the site's columns with the expected ones; rows are not looked at."""
    if not ask.d == len(ask.names) == len(ask.kinds):
        raise MalformedMessage(f"{len(ask.names)} names and {len(ask.kinds)} kinds for {ask.d} columns")
    places = {column.name: place for place, column in enumerate(table.columns)}
    matches = np.zeros(ask.d, np.int64)
    for i, (name, kind) in enumerate(zip(ask.names, ask.kinds, strict=True)):
        if name not in places:
            matches[i] = Match.ABSENT
        elif table.columns[places[name]].kind != kind:
            matches[i] = Match.OTHER_KIND
        elif places[name] != i:
            matches[i] = Match.ELSEWHERE
    return ColumnReport(matches, np.array(len(places.keys() - set(ask.names))))


def agree(columns: Sequence[Column]) -> Protocol[None]:
    """Make sure that every site holds these columns in this order; :class:`ColumnsDiffer` says who does not.

    Single answers are seen, because the site that differs is to be named; they tell of columns, not of rows.
    """
    names, kinds = tuple(c.name for c in columns), tuple(c.kind for c in columns)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"column {twice[0]!r} is there more than once; columns need different names")
    found = yield from each(Agree(len(names), names, kinds))
    differences = {site: _differences(report, columns) for site, report in found.items()}
    differences = {site: texts for site, texts in differences.items() if texts}
    if differences:
        told = "; ".join(f"{site}: {', '.join(texts)}" for site, texts in differences.items())
        raise ColumnsDiffer(
            f"sites do not hold the same columns. {told}. Naming the columns to use, in order, helps where they are "
            "there but elsewhere, or where there are more.",
            differences,
        )


def _differences(report: ColumnReport, columns: Sequence[Column]) -> tuple[str, ...]:
    words = {
        Match.ABSENT: "column {0.name!r} is missing",
        Match.OTHER_KIND: "column {0.name!r} does not hold {0.kind}s",
        Match.ELSEWHERE: "column {0.name!r} is in another place",
    }
    told = [words[Match(int(m))].format(c) for c, m in zip(columns, report.matches, strict=True) if m]
    others = int(report.others)
    if others:
        told.append(f"{others} column{'s' if others > 1 else ''} more than expected")
    return tuple(told)


# ---------------------------------------------------------------- sums by column


@dataclass(frozen=True)
class ColumnSums(Reply, content="sums"):
    """The number of rows; per column how many values are present, their sum and their squares about an origin."""

    rows: Floats = array(bound="rows", nonnegative=True)
    present: Floats = array("d", bound="rows", nonnegative=True)
    sums: Floats = array("d", bound="2 * rows * box")
    squares: Floats = array("d", bound="4 * rows * box**2", nonnegative=True)


@dataclass(frozen=True)
class SumColumns(Request[ColumnSums]):
    """Sum up every column about ``origin``, in units of ``unit``, missing values left out (``drop``: whole rows)."""

    drop: bool
    origin: Floats = array("d")
    unit: Floats = array("d")


@answers(SumColumns)
def local_column_sums(table: Table, memory: Memory, ask: SumColumns) -> ColumnSums:
    """A site's share of every column's sums."""
    if not (ask.unit > 0).all():
        raise MalformedMessage("a unit is a number above 0")
    if memory.guard is not None:
        _tie_rows(memory, ask.drop or (isinstance(table, PreparedTable) and table.drops))
    reply, watched = ColumnSums.zeros(ask.axes), None if memory.guard is None else memory.guard.cells(1)
    for block in _placed(table.raw_blocks()) if ask.drop else table.raw_blocks():
        used = _complete(block) if ask.drop else block
        rows, each = used.rows, used.counts
        if watched is not None:
            watched.see(used, np.zeros(len(rows), np.intp))
        there = ~np.isnan(rows)
        about = np.where(there, (rows - ask.origin) / ask.unit, 0.0)
        reply += ColumnSums(each.sum(), each @ there, each @ about, each @ (about * about))
    if watched is None:
        return reply
    if not watched.release_whole():
        return ColumnSums.zeros(ask.axes)
    enough = reply.present >= memory.min_count  # a column with fewer values here counts as one without any
    kept = (np.where(enough, part, 0.0) for part in (reply.present, reply.sums, reply.squares))
    return ColumnSums(reply.rows, *kept)


def _tie_rows(memory: Memory, drop: bool) -> None:
    """With or without incomplete rows, not both in one run: a column's difference may be a single value."""
    assert memory.guard is not None
    if not memory.guard.allows("rows", b"complete" if drop else b"all", 1):
        raise Guarded("rows were summed up with and without incomplete ones in this run")


def _placed(blocks: Iterator[Block]) -> Iterator[Block]:
    """The same blocks, every one knowing which of the table's rows it holds."""
    start = 0
    for block in blocks:
        places = np.arange(start, start + len(block.rows)) if block.places is None else block.places
        start += len(block.rows)
        yield Block(block.rows, block.weights, places)


def _complete(block: Block) -> Block:
    whole = ~np.isnan(block.rows).any(axis=1)
    weights = None if block.weights is None else block.weights[whole]
    return Block(block.rows[whole], weights, None if block.places is None else block.places[whole])


# ---------------------------------------------------------------- preparing tables


@dataclass(frozen=True)
class Prepare(Request[Nothing], remembered=True):
    """From now on see your rows so: missing values treated, then ``(x - shift) / scale``.

    ``bounded`` asks that every value then lies between 0 and 1; a site where one does not says so.
    """

    missing: str
    bounded: bool
    fill: Floats = array("d")
    shift: Floats = array("d")
    scale: Floats = array("d")


@remembers(Prepare)
def keep_prepared(table: Table, memory: Memory, ask: Prepare) -> None:
    """Put the prepared view in the table's place, and in the place of any view before.

    A guarded site is prepared at most twice a run: what is out of a declared range at many would measure its rows.
    """
    if memory.guard is not None:
        _tie_rows(memory, ask.missing == "drop")
        told = repr((ask.missing, ask.bounded)).encode() + ask.shift.tobytes() + ask.scale.tobytes()
        if not memory.guard.allows("prepare", told + ask.fill.tobytes(), 2):
            raise Guarded("rows were prepared in other ways already in this run")
    if len(table.columns) != ask.axes["d"]:
        raise InputError(f"asked to prepare {ask.axes['d']} columns, the table has {len(table.columns)}")
    memory.table = PreparedTable(table.raw if isinstance(table, PreparedTable) else table, Preparation.of(ask))


@answers(Prepare)
def local_nothing(table: Table, memory: Memory, ask: Prepare) -> Nothing:
    """Look at every row once, so that what cannot be prepared is found now rather than in the middle of a run."""
    for _ in table.blocks():
        pass
    return Nothing()


@dataclass(frozen=True)
class Spread:
    """How many rows there are over all sites, and each column's mean and standard deviation."""

    rows: float
    mean: Floats
    deviation: Floats

    @property
    def low(self) -> Floats:
        """Two deviations below the mean: the lower end of a box anyone may know."""
        return self.mean - 2 * self.deviation

    @property
    def high(self) -> Floats:
        """Two deviations above the mean."""
        return self.mean + 2 * self.deviation


@dataclass(frozen=True)
class Preparation:
    """How raw rows become the rows a method sees; the same public numbers at every site."""

    missing: Missing
    fill: Floats
    shift: Floats
    scale: Floats
    bounded: bool = False
    spread: Spread | None = None
    """The prepared columns' own spread, where it is known without asking again."""

    @classmethod
    def of(cls, ask: Prepare) -> Preparation:
        """What a request to prepare asks for."""
        if ask.missing not in ("refuse", "mean", "drop"):
            raise InputError(f"missing={ask.missing!r}; it is refuse, mean or drop")
        missing: Missing = ask.missing  # type: ignore[assignment]
        return cls(missing, ask.fill, ask.shift, ask.scale, ask.bounded)

    def request(self) -> Prepare:
        """The request that asks sites for this preparation."""
        return Prepare(self.missing, self.bounded, self.fill, self.shift, self.scale)

    def apply(self, block: Block, columns: Sequence[Column] | None = None) -> Block:
        """Prepared rows, in the precision of the raw ones; ``columns`` name what is wrong with one."""
        used = _complete(block) if self.missing == "drop" else block
        rows = used.rows
        if self.missing == "mean":
            rows = np.where(np.isnan(rows), self.fill.astype(rows.dtype), rows)
        prepared = (rows - self.shift.astype(rows.dtype)) / self.scale.astype(rows.dtype)
        if self.bounded:
            _check_unit_range(prepared, columns)
        return Block(prepared, used.weights, used.places)

    def undo(self, points: Floats) -> Floats:
        """Points of the prepared space in the units of the raw columns."""
        return points * self.scale + self.shift


def _check_unit_range(rows: Rows, columns: Sequence[Column] | None) -> None:
    outside = (rows < -RANGE_SLACK) | (rows > 1 + RANGE_SLACK)
    if outside.any():
        place = int(np.argmax(outside.any(axis=0)))
        which = repr(columns[place].name) if columns else f"number {place + 1}"
        raise OutOfRange(f"column {which} holds values outside its declared range")


class PreparedTable:
    """A table seen through a preparation."""

    def __init__(self, table: Table, preparation: Preparation) -> None:
        self.raw, self._preparation = table, preparation
        self.drops = preparation.missing == "drop"
        self._n_rows = None if self.drops else table.n_rows

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, in order."""
        return self.raw.columns

    @property
    def n_rows(self) -> int:
        """How many rows are left; counted once where incomplete ones are dropped."""
        if self._n_rows is None:
            self._n_rows = sum(len(block.rows) for block in self.raw_blocks())
        return self._n_rows

    def raw_blocks(self) -> Iterator[Block]:
        """Prepared rows; where missing values are refused they are still there, as NaN."""
        blocks = self.raw.raw_blocks()
        if self.drops:
            blocks = _placed(blocks)
        return (self._preparation.apply(block, self.columns) for block in blocks)

    def blocks(self) -> Iterator[Block]:
        """Prepared rows, every value finite."""
        for block in self.raw_blocks():
            whole = np.isfinite(block.rows).all(axis=0)
            if not whole.all():
                column = int(np.argmin(whole))
                raise MissingValues(f"column {self.columns[column].name!r} holds missing or infinite values")
            yield block


# ---------------------------------------------------------------- the server's part


def spread(
    n_columns: int,
    *,
    missing: Missing = "refuse",
    names: Sequence[str] | None = None,
    measured: bool = False,
) -> Protocol[Spread]:
    """Mean and deviation of every column over all rows, by sums.

    Two rounds, the second about the first one's mean, so that no digits are lost far from zero. A column without
    spread has deviation 0. With ``missing="mean"`` columns count as filled with their mean. ``measured`` finds every
    column's units before each round, as masked sums need them.
    """
    drop = missing == "drop"
    first, unit = yield from _column_sums(drop, np.zeros(n_columns), measured)
    _check_present(first, names)
    mean = _divided(first.sums, first.present) * unit
    second, unit = yield from _column_sums(drop, mean, measured)
    counted = np.broadcast_to(second.rows, second.present.shape) if missing == "mean" else second.present
    left = _divided(second.sums, second.present)  # what rounding left of the mean
    variance = _divided(second.squares, counted) - left**2
    deviation = np.sqrt(np.maximum(variance, 0.0)) * unit
    noise = 10 * np.finfo(float).eps * np.maximum(np.abs(mean), 1e-300)
    return Spread(float(second.rows), mean + left * unit, np.where(deviation > noise, deviation, 0.0))


def _column_sums(drop: bool, origin: Floats, measured: bool) -> Protocol[tuple[ColumnSums, Floats]]:
    """Sums about an origin, and the units they are in."""
    if not measured:
        plain = np.ones(len(origin))
        return (yield from total(SumColumns(drop, origin, plain))), plain
    unit, limits = yield from find_units(origin)
    return (yield from within(limits, total(SumColumns(drop, origin, unit)))), unit


def standard(
    n_columns: int,
    *,
    missing: Missing = "refuse",
    names: Sequence[str] | None = None,
    measured: bool = False,
) -> Protocol[Preparation]:
    """Mean 0 and variance 1 for every column of all rows together: scikit-learn's StandardScaler by sums.

    Two rounds of :func:`spread` and one to tell the sites. Constant columns are only shifted. With
    ``missing="mean"`` columns are filled with their mean first.
    """
    found = yield from spread(n_columns, missing=missing, names=names, measured=measured)
    scale = np.where(found.deviation > 0, found.deviation, 1.0)
    known = Spread(found.rows, np.zeros(n_columns), np.where(found.deviation > 0, 1.0, 0.0))
    return (yield from _told(Preparation(missing, found.mean, found.mean, scale, spread=known)))


def min_max(
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    *,
    missing: Missing = "refuse",
    names: Sequence[str] | None = None,
    measured: bool = False,
) -> Protocol[Preparation]:
    """Every column to 0..1 by declared ranges; a site that holds a value outside refuses to go on."""
    bottom, top = np.asarray(low, float), np.asarray(high, float)
    if bottom.shape != top.shape or bottom.ndim != 1 or not (bottom <= top).all():
        raise InputError("declared ranges need one low and one high number a column, low <= high")
    fill = bottom
    if missing == "mean":
        fill = yield from _mean(len(bottom), names, measured)
    scale = np.where(top > bottom, top - bottom, 1.0)
    return (yield from _told(Preparation(missing, fill, bottom, scale, bounded=True)))


def prepare(
    n_columns: int,
    *,
    scale: Literal["none", "standard", "minmax"] = "none",
    missing: Missing = "refuse",
    ranges: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    names: Sequence[str] | None = None,
    measured: bool = False,
) -> Protocol[Preparation]:
    """Any of the preparations by name; ``ranges`` (lows, highs) are needed for ``minmax``."""
    if scale == "standard":
        return (yield from standard(n_columns, missing=missing, names=names, measured=measured))
    if scale == "minmax":
        if ranges is None:
            raise InputError("scale='minmax' needs the declared ranges of the columns")
        return (yield from min_max(*ranges, missing=missing, names=names, measured=measured))
    fill = (yield from _mean(n_columns, names, measured)) if missing == "mean" else np.zeros(n_columns)
    plain = Preparation(missing, fill, np.zeros(n_columns), np.ones(n_columns))
    if missing == "refuse":
        return plain
    return (yield from _told(plain))


def _mean(n_columns: int, names: Sequence[str] | None, measured: bool) -> Protocol[Floats]:
    found, unit = yield from _column_sums(False, np.zeros(n_columns), measured)
    _check_present(found, names)
    return _divided(found.sums, found.present) * unit


def _check_present(found: ColumnSums, names: Sequence[str] | None) -> None:
    """A column without a single value has no mean; where there are no rows at all, others say so."""
    empty = np.flatnonzero(found.present == 0)
    if len(empty) and float(found.rows) > 0:
        which = repr(names[empty[0]]) if names else f"number {empty[0] + 1}"
        raise InputError(f"column {which} holds no value at any site; leave it out.")


def _told(preparation: Preparation) -> Protocol[Preparation]:
    yield from total(preparation.request())
    return preparation


def _divided(sums: Floats, counts: Floats) -> Floats:
    return np.where(counts > 0, sums / np.maximum(counts, 1e-300), 0.0)


def standard_cost(n_sites: int, d: int, *, method: str, missing: Missing = "refuse") -> Cost:
    """3d + 1 numbers a site in each of two rounds, and one round of nothing."""
    ask = SumColumns(missing == "drop", np.zeros(d), np.ones(d))
    sums = exchange_cost(n_sites, floats=3 * d + 1, float_bytes=8, request=ask, method=method)
    plain = Preparation(missing, np.zeros(d), np.zeros(d), np.ones(d)).request()
    return sums * 2 + exchange_cost(n_sites, floats=0, float_bytes=8, request=plain, method=method)
