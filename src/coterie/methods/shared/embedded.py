"""A site's rows in an embedding, as later questions see them in the table's place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol as Interface

import numpy as np

from coterie.maths import clustering
from coterie.maths.kernels import Kernel
from coterie.messages.schema import Fields, Floats
from coterie.messages.site_api import Block, Column, Rows, Table, unprepared

KEPT_BYTES = 64 << 20
"""Embedded rows are kept where they fit into this, else made anew whenever they are looked at."""
PIECE_BYTES = 16 << 20
"""They are made for so many rows at a time."""


class OfKernel(Fields):
    """What a request states of a kernel."""

    kernel: str
    gamma: float
    degree: int
    coef0: float

    def the_kernel(self) -> Kernel:
        """The kernel it states."""
        return Kernel(self.kernel, self.gamma, self.degree, self.coef0)


def stated_kernel(kernel: Kernel) -> tuple[str, float, int, float]:
    """A kernel as a message carries it."""
    return kernel.name, float(kernel.gamma), int(kernel.degree), float(kernel.coef0)


class StreamedTable:
    """A table's rows by a function of each row, some rows at a time; kept only where that is little."""

    def __init__(self, raw: Table, embed: Callable[[Block], Rows], n_columns: int) -> None:
        self.raw, self.embed = raw, embed
        self.columns = tuple(Column(f"component{i}") for i in range(n_columns))
        self._kept: list[Block] | None = None

    @property
    def n_rows(self) -> int:
        return self.raw.n_rows

    @property
    def unprepared(self) -> Table:
        """The site's own table behind the rows that are embedded."""
        return unprepared(self.raw)

    def blocks(self) -> Iterator[Block]:
        """The same as :meth:`raw_blocks`: every value is finite."""
        return self.raw_blocks()

    def raw_blocks(self) -> Iterator[Block]:
        """The embedded rows, weighted as the raw ones; these are not looked at again once all are kept."""
        if self._kept is not None:
            yield from self._kept
            return
        for raw, rows in self.pieces():
            yield Block(rows, raw.weights)

    def pieces(self) -> Iterator[tuple[Block, Rows]]:
        """Some rows at a time as they are, and embedded."""
        if self._kept is not None:
            yield from ((raw, kept.rows) for raw, kept in zip(self._raw_pieces(), self._kept, strict=True))
            return
        embedded: list[Block] = []
        fits = True
        for raw in self._raw_pieces():
            rows = self.embed(raw)
            fits = self.raw.n_rows * len(self.columns) * rows.itemsize <= KEPT_BYTES
            if fits:
                embedded.append(Block(rows, raw.weights))
            yield raw, rows
        self._kept = embedded if fits else None

    def _raw_pieces(self) -> Iterator[Block]:
        for block in self.raw.blocks():
            size = max(1, PIECE_BYTES // (8 * (len(self.columns) + block.rows.shape[1])))
            yield from (block.part(slice(start, start + size)) for start in range(0, len(block.rows), size))


class RowsTable:
    """Rows in memory as a table."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.n_rows = rows, len(rows)
        self.columns = tuple(Column(f"x{i}") for i in range(rows.shape[1]))

    def blocks(self) -> Iterator[Block]:
        """All rows at once."""
        yield Block(self.rows)

    raw_blocks = blocks


class EmbeddedTable(StreamedTable):
    """A table's rows whose embedding is known."""

    def __init__(self, raw: Table, rows: Floats) -> None:
        super().__init__(raw, lambda block: block.rows, rows.shape[1])
        self.rows = rows

    def raw_blocks(self) -> Iterator[Block]:
        """The embedded rows, weighted as the raw ones."""
        start = 0
        for block in self.raw.blocks():
            stop = start + len(block.rows)
            yield Block(self.rows[start:stop], block.weights)
            start = stop


def seen_moments(pieces: Iterable[tuple[Block, Rows]], points: Floats, width: int) -> tuple[Floats, Floats]:
    """Sums of rows of ``width`` columns, and their counts, by the point nearest to each row as it is seen in another
    way: every piece is rows, and the same rows as seen."""
    sums, counts = np.zeros((len(points), width)), np.zeros(len(points))
    for block, seen in pieces:
        labels = clustering.nearest(seen, points)[0]
        sums += clustering.sums_by_cell(block.rows, labels, block.counts, len(points))
        counts += clustering.counts_by_cell(labels, block.counts, len(points))
    return sums, counts


def raw_of(table: Table) -> Table:
    """The table itself, or the one whose rows are embedded."""
    return table.raw if isinstance(table, StreamedTable) else table


class Embeds(Interface):
    """Turns any rows into their embedding."""

    def embed(self, rows: Rows) -> Rows:
        """One embedded row for every row."""
        ...
