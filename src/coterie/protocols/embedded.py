"""A site's rows in an embedding, as later questions see them in the table's place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from coterie.messages.schema import Floats
from coterie.messages.site_part import Block, Column, Rows, Table

__all__ = ["EmbeddedTable", "StreamedTable"]

KEPT_BYTES = 64 << 20
"""Embedded rows are kept where they fit into this, else made anew whenever they are looked at."""
PIECE_BYTES = 16 << 20
"""They are made for so many rows at a time."""


class EmbeddedTable:
    """A table's rows in their embedding."""

    def __init__(self, raw: Table, rows: Floats) -> None:
        self.raw, self.rows = raw, rows
        self.columns = _components(rows.shape[1])

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self.raw.n_rows

    def raw_blocks(self) -> Iterator[Block]:
        """The embedded rows, weighted and placed as the raw ones."""
        start = 0
        for block in self.raw.blocks():
            stop = start + len(block.rows)
            yield Block(self.rows[start:stop], block.weights, block.places)
            start = stop

    def blocks(self) -> Iterator[Block]:
        """The same: every value is finite."""
        return self.raw_blocks()


class StreamedTable(EmbeddedTable):
    """The same by a function of each row, some rows at a time; kept only where that is little."""

    def __init__(self, raw: Table, embed: Callable[[Rows], Rows], n_columns: int) -> None:
        self.raw = raw
        self._embed, self._kept = embed, None if raw.n_rows * n_columns * 8 > KEPT_BYTES else list[Block]()
        self.columns = _components(n_columns)

    @cached_property
    def rows(self) -> Rows:  # type: ignore[override]
        """All embedded rows."""
        made = [block.rows for block in self.raw_blocks()]
        return np.concatenate([np.zeros((0, len(self.columns))), *made])

    def raw_blocks(self) -> Iterator[Block]:
        """The embedded rows, weighted and placed as the raw ones."""
        if self._kept:
            yield from self._kept
            return
        kept = []
        for block in self.raw.blocks():
            size = max(1, PIECE_BYTES // (8 * (len(self.columns) + block.rows.shape[1])))
            parts = [self._embed(block.rows[i : i + size]) for i in range(0, len(block.rows), size)]
            made = Block(np.concatenate([np.zeros((0, len(self.columns))), *parts]), block.weights, block.places)
            if self._kept is not None:
                kept.append(made)
            yield made
        self._kept = None if self._kept is None else kept


def _components(number: int) -> tuple[Column, ...]:
    return tuple(Column(f"component{i}") for i in range(number))
