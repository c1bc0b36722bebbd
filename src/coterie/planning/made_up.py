"""Tables of which no row is looked at, and made-up ones of the same shape in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

import numpy as np

from coterie.arrays import Floats
from coterie.errors import InputError
from coterie.extents import between
from coterie.messages.site_api import Block, Column, Table, keys_of, new_rows_of, rows_behind
from coterie.sites.tables import ArrayTable, PairedTable
from coterie.sites.tables.rows import CheckedTable

ROWS = 512
"""Made-up rows of a site, which count as many as it holds, where no answer has a number for every row."""
BLOBS, APART = 3, 6.0
"""Made-up rows lie in so many clusters, whose centers are so many deviations from each other."""


class Shape(NamedTuple):
    """How many rows a site holds, and its columns, by name; a category is called ``column=category``."""

    rows: int
    columns: Sequence[str]


class ShapeTable(CheckedTable):
    """A table of which only the shape is known."""

    def __init__(self, name: str, shape: Shape) -> None:
        if isinstance(shape.rows, bool) or not isinstance(shape.rows, int | np.integer) or shape.rows < 1:
            raise InputError(f"shapes: {name} has rows={shape.rows!r}; give a whole number of at least 1.")
        if not shape.columns:
            raise InputError(f"shapes: {name} has no columns; give at least one.")
        self.name, self.n_rows = name, int(shape.rows)
        self.columns = tuple(map(Column, shape.columns))

    def raw_blocks(self) -> Iterator[Block]:
        """There are none."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InputError(f"{self.name}: only the shape of this table is known; it can be planned with, not run over.")


def tables_of(shapes: Mapping[str, Shape | tuple[int, int] | tuple[int, Sequence[str]]]) -> dict[str, Table]:
    """A table for each site; columns that are only counted are called x0, x1 and so on."""
    tables: dict[str, Table] = {}
    for name, (rows, columns) in shapes.items():
        names = [f"x{j}" for j in range(columns)] if isinstance(columns, int) else list(columns)
        tables[str(name)] = ShapeTable(str(name), Shape(rows, names))
    return tables


class MadeUpTable(ArrayTable):
    """Made-up rows, each of which stands for some rows of a site."""

    def __init__(self, rows: Floats, table: Table, counts: Floats | None, min_group: int) -> None:
        super().__init__(rows, weights=counts, name=str(getattr(table, "name", "table")))
        self.columns = table.columns
        self.n_grouped = len(rows) if counts is None else rows_behind(table)
        """How many rows these stand for."""
        self.min_group = min_group
        if keys_of(table) is not None:
            self.keys = tuple(map(str, range(len(rows))))


class Rules(NamedTuple):
    """How the rows of a site are shown."""

    min_group: int = 0
    """The fewest rows in a group; 0 where rows are shown."""
    each: bool = False
    """Whether answers may have a number for every row shown: as many are made up as there would be."""
    ranges: tuple[Floats, Floats] | None = None
    """Where the values of the columns lie."""


def made_up(table: Table, rules: Rules, place: int = 0) -> Table:
    """Made-up rows in the place of a table's: as many columns, counting as many rows; ``place`` is its site's."""
    new = new_rows_of(table)
    if new is not None:
        return PairedTable(made_up(_Old(table), rules, place), made_up(new, rules, place))
    n, least = rows_behind(table), rules.min_group
    shown = n if not least else between(-(-n // (least + 1)), -(-n // (2 * least - 1)), n // least)
    shown = min(max(1, shown), shown if rules.each else ROWS)
    counts = None if shown == n else np.full(shown, n / shown)
    if counts is not None:  # groups hold whole rows
        counts = np.floor(counts) + (np.arange(shown) < n - shown * (n // shown))
    return MadeUpTable(_rows(table, shown, rules.ranges, place), table, counts, least)


class _Old:
    """A table without the new rows that came later."""

    def __init__(self, table: Table) -> None:
        self.columns, self.n_rows = table.columns, table.n_rows
        self.name, self.keys = str(getattr(table, "name", "table")), keys_of(table)

    def raw_blocks(self) -> Iterator[Block]:
        """None is looked at."""
        raise InputError(f"{self.name}: no row is looked at.")

    blocks = raw_blocks


def _rows(table: Table, n_rows: int, ranges: tuple[Floats, Floats] | None, place: int) -> Floats:
    """Rows in a few clusters, the same at every site but for chance; categories are 0 or 1."""
    d = len(table.columns)
    rng = np.random.default_rng([place, d])
    directions = np.random.default_rng(d).normal(size=(BLOBS, d))
    centers = directions * APART / np.sqrt(2.0 * d)
    rows = centers[rng.integers(0, BLOBS, n_rows)] + rng.normal(size=(n_rows, d))
    if ranges is not None:
        low, high = (np.asarray(end, float)[:d] for end in ranges)
        rows[:, : len(low)] = low + (high - low) * (0.5 + np.clip(rows[:, : len(low)] / 16, -0.5, 0.5))
    is_category = np.array(["=" in column.name for column in table.columns])
    rows[:, is_category] = rng.integers(0, 2, (n_rows, int(is_category.sum())))
    return np.asarray(rows)
