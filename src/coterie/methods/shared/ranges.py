"""Declared ranges of columns: what a site shows is clipped to them, or refused where it lies outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError, OutOfRange
from coterie.messages.schema import Floats
from coterie.messages.site_api import Block, Column, Rows, Table, rows_behind, within_columns, within_scatter

SLACK = 1e-6
"""What rounding may add to a value, as a share of the largest number of its column: float32 has seven digits."""
LEAST = 2.0**-64
"""A limit is at least this, also of a column that is zero."""


@dataclass(frozen=True)
class Ranges:
    """The lowest and the highest value of every column."""

    low: Floats
    high: Floats
    refuses: bool = False
    """Whether a value outside is refused; otherwise it is clipped."""

    @classmethod
    def of(cls, declared: tuple[npt.ArrayLike, npt.ArrayLike], n_columns: int, *, refuses: bool = False) -> Ranges:
        """Checked ranges from (lows, highs)."""
        low, high = (np.asarray(end, float) for end in declared)
        if low.shape != high.shape or low.shape != (n_columns,) or not (low <= high).all():
            raise InputError(
                f"ranges needs one low and one high number for each of the {n_columns} columns, low <= high; it has "
                f"lows of shape {low.shape} and highs of shape {high.shape}."
            )
        if not np.isfinite([low, high]).all():
            raise InputError("ranges holds a number that is not finite; declare the widest range that is plausible.")
        return cls(low, high, refuses)

    def limited(self, rows: Rows, columns: Sequence[Column] | None = None) -> Rows:
        """Values within the ranges; missing ones stay missing. ``OutOfRange`` where values outside are refused."""
        if self.refuses:
            slack = SLACK * (self.high - self.low)
            outside = (rows < self.low - slack) | (rows > self.high + slack)
            if outside.any():
                place = int(np.argmax(outside.any(axis=0)))
                which = repr(columns[place].name) if columns else f"number {place + 1}"
                raise OutOfRange(f"column {which} holds values outside its declared range")
        clipped: Rows = np.clip(rows, self.low.astype(rows.dtype), self.high.astype(rows.dtype))
        return clipped

    def most_squares(self, block: Block) -> Floats:
        """The most that rows within the ranges add to the squares about their mean: n (high - mean)(mean - low)."""
        rows = np.where(np.isnan(block.rows), self.low, np.clip(block.rows, self.low, self.high))
        most: Floats = block.values * (self.high - rows) * (rows - self.low)
        return most

    def box(self, shift: Floats, scale: Floats) -> tuple[float, ...]:
        """By column the largest magnitude of a value within its range, shifted and scaled."""
        ends = np.maximum(np.abs(self.low - shift), np.abs(self.high - shift))
        rounding = SLACK * np.maximum(np.maximum(np.abs(self.low), np.abs(self.high)), np.abs(shift))
        return tuple(np.maximum((ends + rounding) / np.abs(scale), LEAST).tolist())


class RangedTable:
    """A table whose values lie within declared ranges.

    Where it shows groups, their means are clipped: the rows themselves are not at hand. Squares within groups are at
    most what rows within the ranges could have, so that no sum exceeds what the ranges allow.
    """

    def __init__(self, table: Table, ranges: Ranges) -> None:
        self.columns, self._table, self._ranges = table.columns, table, ranges

    @property
    def n_rows(self) -> int:
        """How many rows are shown."""
        return self._table.n_rows

    @property
    def n_grouped(self) -> int:
        """How many rows these stand for."""
        return rows_behind(self._table)

    def raw_blocks(self) -> Iterator[Block]:
        """Rows within the ranges."""
        for block in self._table.raw_blocks():
            within = block.within
            if within is not None:
                within = np.minimum(within, self._ranges.most_squares(block).sum(axis=1))
            yield block._replace(rows=self._ranges.limited(block.rows, self.columns), within=within)

    blocks = raw_blocks

    @cached_property
    def within_columns(self) -> Floats:
        """By column the squares within groups, at most those of rows within the ranges."""
        most = sum((self._ranges.most_squares(b).sum(axis=0) for b in self._table.raw_blocks()), np.zeros(()))
        return np.minimum(within_columns(self._table), most)

    @property
    def within_scatter(self) -> Floats | None:
        """The same for every pair of columns, where the table offers it."""
        scatter, raw = within_scatter(self._table), within_columns(self._table)
        share = np.sqrt(np.divide(self.within_columns, raw, out=np.ones_like(raw), where=raw > 0))
        return None if scatter is None else scatter * np.outer(share, share)
