"""Some columns of a table, or the rows of it that are complete: what a run uses of all that a site offers.

Groups are formed with all columns of a table, once. A selection is computed from what they show: their means, weights
and values present, one number each for their squares, and the squares of all of them by column. Where it needs the
squares of some columns of a group, or of some groups by column, it apportions these numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from coterie.arrays import Mask
from coterie.errors import InputError, MissingValues
from coterie.messages.schema import Floats
from coterie.messages.site_api import Block, Column, Table, rows_behind, unprepared, within_columns, within_scatter


def selected(table: Table, names: Sequence[str]) -> Table:
    """These columns of a table, in this order."""
    return table if [column.name for column in table.columns] == list(names) else SelectedTable(table, names)


def places_of(table: Table, names: Sequence[str]) -> list[int | None]:
    """The places of columns of a table; of a category that no row has, that of another one of the same column."""
    places = {column.name: place for place, column in enumerate(table.columns)}
    of_category = {name.partition("=")[0]: place for name, place in reversed(places.items()) if "=" in name}
    return [places.get(name, of_category.get(name.partition("=")[0]) if "=" in name else None) for name in names]


class SelectedTable:
    """Columns of a table by name, in this order; a category that the table has no column for is 0 in all rows."""

    def __init__(self, table: Table, names: Sequence[str]) -> None:
        places = places_of(table, names)
        self._places = [place for place in places if place is not None]
        if len(self._places) < len(places):
            raise InputError(f"asked to use column {names[places.index(None)]!r}, which the table does not have")
        self.raw, self._names = table, tuple(names)
        self._is_empty = np.array(
            [table.columns[p].name != n for p, n in zip(self._places, names, strict=True)], bool
        )
        self.columns = tuple(Column(n, table.columns[p].kind) for p, n in zip(self._places, names, strict=True))
        self.name = str(getattr(table, "name", "table"))

    @property
    def unprepared(self) -> Table:
        """The table that these columns are selected of."""
        return unprepared(self.raw)

    @property
    def n_rows(self) -> int:
        """How many rows are shown."""
        return self.raw.n_rows

    @property
    def n_grouped(self) -> int:
        """How many rows these stand for."""
        return rows_behind(self.raw)

    def raw_blocks(self) -> Iterator[Block]:
        """The selected columns of each block."""
        for block in self.raw.raw_blocks():
            within = None if block.within is None else block.within * self._share
            present = None if block.present is None else np.ascontiguousarray(block.present[:, self._places])
            rows = np.ascontiguousarray(block.rows[:, self._places])
            if self._is_empty.any():
                rows[:, self._is_empty] *= 0  # what is missing stays so
            yield Block(rows, block.weights, within, present)

    def blocks(self) -> Iterator[Block]:
        """The same; ``MissingValues`` if a value is missing."""
        for block in self.raw_blocks():
            whole = (block.values == block.counts[:, None]).all(axis=0) & np.isfinite(block.rows).all(axis=0)
            if not whole.all():
                column = self.columns[int(np.argmin(whole))].name
                raise MissingValues(
                    f"{self.name}: column {column!r} has missing values; set missing to 'mean' or 'drop'"
                )
            yield block._replace(present=None)

    @cached_property
    def complete(self) -> Table:
        """The rows that lack no value of the selected columns."""
        if set(self.columns) == set(self.raw.columns):
            return SelectedTable(complete(self.raw), self._names)
        return CompleteTable(self)

    @property
    def within_columns(self) -> Floats:
        """By column the squares within groups."""
        return np.where(self._is_empty, 0.0, within_columns(self.raw)[self._places])

    @property
    def within_scatter(self) -> Floats | None:
        """The same for every pair of columns, where the table offers it."""
        scatter = within_scatter(self.raw)
        if scatter is None:
            return None
        held = ~self._is_empty
        return np.asarray(scatter[np.ix_(self._places, self._places)] * np.outer(held, held))

    @cached_property
    def _share(self) -> float:
        """The selected columns' share of all squares within groups."""
        return float(self.within_columns.sum() / max(float(within_columns(self.raw).sum()), 1e-300))


class CompleteTable:
    """A table without the rows, or whole groups, that lack a value; ``of`` another one, in step with it, with more
    columns."""

    def __init__(self, table: Table, of: Table | None = None) -> None:
        self._table, self._shown = table, of or table
        self.columns = self._shown.columns

    @cached_property
    def n_rows(self) -> int:
        """How many rows are left; counted once."""
        return sum(len(block.rows) for block in self.raw_blocks())

    @cached_property
    def n_grouped(self) -> int:
        """How many rows these stand for."""
        return round(sum(float(block.counts.sum()) for block in self.raw_blocks()))

    def raw_blocks(self) -> Iterator[Block]:
        """The rows that are left."""
        if self._shown is self._table:
            return map(complete_rows, self._table.raw_blocks())
        pairs = zip(self._shown.raw_blocks(), self._table.raw_blocks(), strict=True)
        return (shown.part(_is_whole(block)) for shown, block in pairs)

    blocks = raw_blocks

    @cached_property
    def within_columns(self) -> Floats:
        """By column the squares within groups: of those of all groups, the share of the groups that are left."""
        kept, squares = 0.0, 0.0
        for block in self._table.raw_blocks():
            if block.within is not None:
                kept += float(block.within[_is_whole(block)].sum())
                squares += float(block.within.sum())
        return within_columns(self._shown) * (kept / max(squares, 1e-300))


def complete(table: Table) -> Table:
    """A table without the rows that lack a value; of groups, those of which no row does, whole."""
    own: Table | None = getattr(table, "complete", None)
    return CompleteTable(table) if own is None else own


def complete_rows(block: Block) -> Block:
    """The rows without a missing value."""
    return block.part(_is_whole(block))


def _is_whole(block: Block) -> Mask:
    """Which rows lack no value."""
    return np.asarray((block.values == block.counts[:, None]).all(axis=1))
