"""Tables seen through a preparation: missing values treated, columns shifted and scaled, the same at every site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.errors import Guarded, InputError, MissingValues, OutOfRange
from coterie.messages.schema import Floats, Nothing, Request, array
from coterie.messages.site_part import Block, Column, Memory, Rows, Table, answers, remembers

__all__ = [
    "Missing",
    "Preparation",
    "Prepare",
    "PreparedTable",
    "Spread",
    "complete_rows",
    "placed",
    "tie_rows",
]

Missing = Literal["refuse", "mean", "drop"]
RANGE_SLACK = 1e-6


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
        tie_rows(memory, ask.missing == "drop")
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
        used = complete_rows(block) if self.missing == "drop" else block
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
            blocks = placed(blocks)
        return (self._preparation.apply(block, self.columns) for block in blocks)

    def blocks(self) -> Iterator[Block]:
        """Prepared rows, every value finite."""
        for block in self.raw_blocks():
            whole = np.isfinite(block.rows).all(axis=0)
            if not whole.all():
                column = int(np.argmin(whole))
                raise MissingValues(f"column {self.columns[column].name!r} holds missing or infinite values")
            yield block


def tie_rows(memory: Memory, drop: bool) -> None:
    """With or without incomplete rows, not both in one run: a column's difference may be a single value."""
    assert memory.guard is not None
    if not memory.guard.allows("rows", b"complete" if drop else b"all", 1):
        raise Guarded("rows were summed up with and without incomplete ones in this run")


def placed(blocks: Iterator[Block]) -> Iterator[Block]:
    """The same blocks, every one knowing which of the table's rows it holds."""
    start = 0
    for block in blocks:
        places = np.arange(start, start + len(block.rows)) if block.places is None else block.places
        start += len(block.rows)
        yield Block(block.rows, block.weights, places)


def complete_rows(block: Block) -> Block:
    whole = ~np.isnan(block.rows).any(axis=1)
    weights = None if block.weights is None else block.weights[whole]
    return Block(block.rows[whole], weights, None if block.places is None else block.places[whole])
