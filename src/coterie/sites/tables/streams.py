"""A table streamed from a source, and the check that all of it can be encoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from coterie.errors import InputError
from coterie.messages.site_api import Block, Column, Rows
from coterie.sites.tables.encoders import LOOK, CategoryEncoder, Encoder, as_text, owners
from coterie.sites.tables.rows import BLOCK_BYTES, CheckedTable, rows_a_block
from coterie.sites.tables.sources import Source

HELD_BYTES = 1 << 25
"""A table of at most so many bytes is kept in memory after the first pass, since text is slow to parse."""


def checked_batches(source: Source, encoders: Sequence[Encoder], others: Sequence[str] = ()) -> Iterator[Any]:
    """The batches of a source; ``InputError`` at the end if some values cannot be encoded.

    Only columns that need the check, and ``others``, are read; all columns if the number of rows is unknown.
    """
    suspects = [e for e in encoders if e.suspect or source.n_rows is None]
    first_faults: dict[Encoder, tuple[int, str]] = {}
    n_faults, start = Counter[Encoder](), 0
    for batch in source.batches([*dict.fromkeys([*others, *(e.column for e in suspects)])], LOOK):
        for encoder in suspects:
            values = batch.column(encoder.column)
            places = np.flatnonzero(encoder.faulty(values))
            if len(places):
                seen = as_text(values.slice(places[0], 1), encoder.kind)[0].as_py()
                first_faults.setdefault(encoder, (start + int(places[0]) + 1, seen))
                n_faults[encoder] += len(places)
        start += batch.num_rows
        yield batch
    for encoder, fault in first_faults.items():
        raise InputError(f"{source.name}: {encoder.complaint(*fault, n_faults[encoder])}")


def counted(source: Source, encoders: Sequence[Encoder]) -> int:
    """The number of rows, after the check that all can be encoded."""
    if source.n_rows is not None and not any(encoder.suspect for encoder in encoders):
        return source.n_rows
    return sum(batch.num_rows for batch in checked_batches(source, encoders))


def _category_blocks(encoders: Sequence[Encoder]) -> tuple[tuple[int, int, int | None], ...]:
    blocks, start = [], 0
    for encoder in encoders:
        stop = start + len(encoder.names)
        if isinstance(encoder, CategoryEncoder):
            named = [value.lower() for value in encoder.categories]
            blocks.append((start, stop, start + named.index("other") if "other" in named else None))
        start = stop
    return tuple(blocks)


class StreamedTable(CheckedTable):
    """Rows streamed from a source that may exceed memory; with ``owner``, only those of one site."""

    def __init__(
        self,
        source: Source,
        encoders: Sequence[Encoder],
        n_rows: int,
        *,
        owner: tuple[str, str] | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.name, self.n_rows = source.name, n_rows
        self.columns = tuple(Column(name) for encoder in encoders for name in encoder.names)
        self.categories = _category_blocks(encoders)
        self._source, self._encoders, self._owner = source, tuple(encoders), owner
        self._dtype = np.dtype(np.float32 if all(e.single for e in encoders) else np.float64)
        self._step = rows_a_block(len(self.columns), self._dtype.itemsize, block_bytes)
        self._held: list[Block] | None = None

    def raw_blocks(self) -> Iterator[Block]:
        """The rows in blocks of equal size; a small table is read only once."""
        if self._held is not None:
            yield from self._held
            return
        held: list[Block] | None = (
            [] if self.n_rows * len(self.columns) * self._dtype.itemsize <= HELD_BYTES else None
        )
        for block in self._read():
            if held is not None:
                block.rows.flags.writeable = False
                held.append(block)
            yield block
        self._held = held

    def _read(self) -> Iterator[Block]:
        done, filled = 0, 0
        rows = self._empty(done)
        for batch in self._batches():
            start = 0
            while start < batch.num_rows:
                self._check_same(done + filled < self.n_rows)
                take = min(len(rows) - filled, batch.num_rows - start)
                self._fill(rows[filled : filled + take], batch.slice(start, take))
                start, filled = start + take, filled + take
                if filled == len(rows):
                    yield Block(rows)
                    done, filled = done + filled, 0
                    rows = self._empty(done)
        self._check_same(done == self.n_rows)

    def _batches(self) -> Iterator[Any]:
        names = [encoder.column for encoder in self._encoders]
        if self._owner is None:
            return self._source.batches(names, self._step)
        return self._owned(names, *self._owner)

    def _owned(self, names: list[str], column: str, site: str) -> Iterator[Any]:
        kind = self._source.schema.field(column).type
        for batch in self._source.batches([column, *names], self._step):
            yield batch.filter(pc.equal(owners(batch.column(column), kind), site))

    def _fill(self, out: Rows, batch: Any) -> None:
        place = 0
        for encoder in self._encoders:
            width = len(encoder.names)
            encoder.put(batch.column(encoder.column), out[:, place : place + width])
            place += width

    def _empty(self, done: int) -> Rows:
        return np.empty((min(self._step, self.n_rows - done), len(self.columns)), self._dtype)

    def _check_same(self, same: bool) -> None:
        if not same:
            raise InputError(f"{self.name}: no longer has its {self.n_rows} rows; open the file again")
