"""Tables seen through a preparation: missing values treated, columns shifted and scaled, the same at every site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from coterie.errors import InputError, MissingValues
from coterie.messages.bounds import Limits
from coterie.messages.schema import Floats, Nothing, Request, array
from coterie.messages.site_api import (
    Block,
    Column,
    Memory,
    Rows,
    Table,
    answers,
    remembers,
    rows_behind,
    unprepared,
    within_columns,
    within_scatter,
)
from coterie.methods.shared.ranges import RangedTable, Ranges
from coterie.methods.shared.selection import CompleteTable, complete, complete_rows

Missing = Literal["refuse", "mean", "drop"]


class Prepare(Request[Nothing], remembered=True, doing="preparing the sites' rows"):
    """From now on see your rows so: within these ranges, missing values treated, then ``(x - shift) / scale``.

    There is one range a column, or none. Values outside are clipped; where ``bounded``, a site that has one says so.
    ``missing`` may also be ``keep``: values that are missing stay so.
    """

    missing: str
    bounded: bool
    fill: Floats = array("d")
    shift: Floats = array("d")
    scale: Floats = array("d")
    low: Floats = array("ranges")
    high: Floats = array("ranges")

    @property
    def tells_nothing(self) -> bool:
        """Whether every row can be prepared so, whatever it holds: nothing overflows, even in single precision."""
        numbers = np.concatenate([self.low, self.high, self.fill, self.shift])
        is_sane = bool((np.abs(numbers) < HUGE).all() and (np.abs(self.scale) > 1 / HUGE).all())
        return self.missing in ("mean", "drop") and len(self.low) > 0 and not self.bounded and is_sane

    def limits_after(self, limits: Limits) -> Limits:
        """Ranges say how large values are in each column; rows are at most as many as before."""
        ranges = Preparation.of(self).ranges
        if ranges is None:
            return {}
        rows = {name: limit for name, limit in limits.items() if name == "rows"}
        return {**rows, "box": ranges.box(self.shift, self.scale)}


HUGE = 1e18
"""Two such numbers, and their quotient, are far from overflow."""


@remembers(Prepare)
def keep_prepared(table: Table, memory: Memory, ask: Prepare) -> None:
    """Put the prepared view in the table's place, and in the place of any view before."""
    if len(table.columns) != ask.axes["d"]:
        raise InputError(f"asked to prepare {ask.axes['d']} columns, the table has {len(table.columns)}")
    memory.table = PreparedTable(table.raw if isinstance(table, PreparedTable) else table, Preparation.of(ask))


@answers(Prepare)
def local_nothing(table: Table, memory: Memory, ask: Prepare) -> Nothing:
    """Look at every row once, so that what cannot be prepared is found now rather than in the middle of a run; not
    where every row can be."""
    if ask.tells_nothing:  # not even numbers that overflow may decide whether the site answers
        return Nothing()
    for _ in table.raw_blocks() if ask.missing == "keep" else table.blocks():
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

    missing: Literal["refuse", "mean", "drop", "keep"]
    fill: Floats
    shift: Floats
    scale: Floats
    bounded: bool = False
    spread: Spread | None = None
    """The prepared columns' own spread, where it is known without asking again."""
    low: Floats = field(default_factory=lambda: np.zeros(0))
    high: Floats = field(default_factory=lambda: np.zeros(0))
    """The declared range of every column, if there are any."""

    @classmethod
    def of(cls, ask: Prepare) -> Preparation:
        """What a request to prepare asks for."""
        if ask.missing not in ("refuse", "mean", "drop", "keep"):
            raise InputError(f"missing={ask.missing!r}; it is refuse, mean, drop or keep")
        if len(ask.low) not in (0, len(ask.shift)) or not (ask.low <= ask.high).all():
            raise InputError(f"{len(ask.low)} ranges for {len(ask.shift)} columns, or a low above its high")
        missing: Any = ask.missing
        return cls(missing, ask.fill, ask.shift, ask.scale, ask.bounded, None, ask.low, ask.high)

    def request(self) -> Prepare:
        return Prepare(self.missing, self.bounded, self.fill, self.shift, self.scale, self.low, self.high)

    @property
    def ranges(self) -> Ranges | None:
        """The declared ranges of raw columns; a model of an earlier version has them as shift and scale."""
        if len(self.low):
            return Ranges(self.low, self.high, self.bounded)
        return Ranges(self.shift, self.shift + self.scale, True) if self.bounded else None

    @property
    def box(self) -> tuple[Floats, Floats]:
        """Where prepared values lie that were within declared ranges: lowest and highest, by column."""
        assert len(self.low)
        return (self.low - self.shift) / self.scale, (self.high - self.shift) / self.scale

    def apply(self, block: Block, columns: Sequence[Column] | None = None) -> Block:
        """Prepared rows, in the precision of the raw ones; ``columns`` name what is wrong with one."""
        used, ranges = complete_rows(block) if self.missing == "drop" else block, self.ranges
        if ranges is not None:
            used = used._replace(rows=ranges.limited(used.rows, columns))
        rows = self._filled(used) if self.missing == "mean" else used.rows
        prepared = (rows - self.shift.astype(rows.dtype)) / self.scale.astype(rows.dtype)
        present = None if self.missing == "mean" else used.present
        return Block(prepared, used.weights, used.within, present)

    def _filled(self, block: Block) -> Rows:
        """Rows with the fill in place of what is missing; means of several rows, as if each row had been filled."""
        rows, fill = block.rows, self.fill.astype(block.rows.dtype)
        filled = np.where(np.isnan(rows), fill, rows)
        if block.present is None:
            return filled
        share = (block.present / block.counts[:, None]).astype(rows.dtype)
        return np.where(share == 1, filled, share * filled + (1 - share) * fill)

    def spread_by_filling(self, block: Block) -> Floats:
        """What filling adds to the squares of the rows behind each row shown, about it, by column and prepared."""
        if self.missing != "mean" or block.present is None:
            return np.zeros((1, len(self.scale)))
        away = np.nan_to_num(block.rows - self.fill) / self.scale
        share = block.present / block.counts[:, None]
        added: Floats = block.present * (1 - share) * away**2
        return added

    def undo(self, points: Floats) -> Floats:
        """Points of the prepared space in the units of the raw columns."""
        return points * self.scale + self.shift


class PreparedTable:
    """A table seen through a preparation."""

    def __init__(self, table: Table, preparation: Preparation) -> None:
        self.raw, self._preparation = table, preparation
        self._used = complete(table) if preparation.missing == "drop" else table
        if preparation.ranges is not None:
            self._used = RangedTable(self._used, preparation.ranges)

    @property
    def complete(self) -> Table:
        """The same without what lacks a value."""
        return PreparedTable(complete(self.raw), self._preparation)

    @property
    def unprepared(self) -> Table:
        """The site's own table, without the rows that are dropped."""
        whole = unprepared(self.raw)
        if self._preparation.missing != "drop":
            return whole
        return complete(whole) if set(whole.columns) == set(self.columns) else CompleteTable(self.raw, whole)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.raw.columns

    @property
    def n_rows(self) -> int:
        """How many rows are left."""
        return self._used.n_rows

    @property
    def n_grouped(self) -> int:
        """How many rows these stand for."""
        return rows_behind(self._used)

    @cached_property
    def within_columns(self) -> Floats:
        """For every prepared column the sum of squares of the rows behind the rows shown, about these."""
        squares: Floats = within_columns(self._used) / self._preparation.scale**2
        for block in self._used.raw_blocks():
            squares = squares + self._preparation.spread_by_filling(block).sum(axis=0)
        return squares

    @property
    def within_scatter(self) -> Floats | None:
        """The same for every pair of columns, where the table offers it and nothing was filled."""
        scatter, scale = within_scatter(self._used), self._preparation.scale
        is_filled = self._preparation.missing == "mean" and any(
            block.present is not None for block in self._used.raw_blocks()
        )
        return None if scatter is None or is_filled else scatter / np.outer(scale, scale)

    def raw_blocks(self) -> Iterator[Block]:
        """Prepared rows; where missing values are refused they are still there, as NaN."""
        for block in self._used.raw_blocks():
            prepared = self._preparation.apply(block, self.columns)
            if block.within is None:
                yield prepared
            else:
                added = self._preparation.spread_by_filling(block).sum(axis=1)
                yield prepared._replace(within=block.within * self._rescaled + added)

    @cached_property
    def _rescaled(self) -> float:
        """How much larger squares within groups are in prepared units, over all columns."""
        raw = within_columns(self._used)
        return float((raw / self._preparation.scale**2).sum() / max(float(raw.sum()), 1e-300))

    def blocks(self) -> Iterator[Block]:
        """Prepared rows, every value finite."""
        for block in self.raw_blocks():
            whole = np.isfinite(block.rows).all(axis=0)
            if block.present is not None:
                whole &= (block.present == block.counts[:, None]).all(axis=0)
            if not whole.all():
                column = int(np.argmin(whole))
                raise MissingValues(f"column {self.columns[column].name!r} holds missing or infinite values")
            yield block
