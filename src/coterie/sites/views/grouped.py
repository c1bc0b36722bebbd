"""The view of a table under ``protection = "groups"``: fixed groups of rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coterie.arrays import Floats
from coterie.errors import MissingValues
from coterie.maths.group_cells import GroupCells, rounded
from coterie.messages.site_api import Block, Column
from coterie.sites.tables.rows import rows_a_block

WITHIN_BITS = 8
"""Precision of a group's sum of squares, used by kernels only: all digits would disclose squares of columns."""


class GroupedTable:
    """Groups of at least ``min_group`` rows, each shown as one weighted row: its mean.

    It holds no row and no reference to one. Besides the means it holds the number of values behind each, a sum of
    squares per group and per column and, if the site has enough rows, the scatter matrix within groups.
    """

    keys: tuple[str, ...] | None = None

    def __init__(
        self,
        name: str,
        columns: tuple[Column, ...],
        cells: GroupCells,
        scale: Floats,
        min_group: int,
        *,
        scatter: Floats | None = None,
    ) -> None:
        self.name, self.columns, self.min_group = name, columns, min_group
        self.n_rows = len(cells)
        self.n_grouped = int(cells.sizes.sum())
        """Rows that are in a group."""
        self.within_columns: Floats = cells.squares.sum(axis=0)
        self.within_scatter = scatter
        self._means, self._weights = cells.means, cells.weights
        whole = (cells.present == cells.weights[:, None]).all(axis=1)
        self._present = None if whole.all() else cells.present
        self.complete = self
        """The groups without missing values."""
        if not whole.all():
            self.complete = GroupedTable(name, columns, cells.taken(whole), scale, min_group)
        scaled = cells.squares @ (1 / scale**2)
        within = scaled * (self.within_columns.sum() / max(float(scaled.sum()), 1e-300))
        self._within = rounded(within, WITHIN_BITS)
        self._step = rows_a_block(len(columns), 8)

    def raw_blocks(self) -> Iterator[Block]:
        """The groups; NaN where a group shows no value of a column."""
        for start in range(0, self.n_rows, self._step):
            here = slice(start, start + self._step)
            present = None if self._present is None else self._present[here]
            yield Block(self._means[here], self._weights[here], self._within[here], present)

    def blocks(self) -> Iterator[Block]:
        """The groups; ``MissingValues`` if some values are missing."""
        if self._present is not None:
            lacking = (self._present < self._weights[:, None]).any(axis=0)
            column = self.columns[int(np.argmax(lacking))].name
            raise MissingValues(f"{self.name}: column {column!r} has missing values; set missing to 'mean' or 'drop'")
        return self.raw_blocks()
