"""Tables of rows, in memory or streamed from a source, and the checks of their values."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from coterie.arrays import Integers
from coterie.errors import InputError, MissingValues
from coterie.messages.site_api import Block, Column, Rows, Table, Units, keys_of, units_of
from coterie.sites.tables.encoders import LOOK, Encoder, Encoding, as_text, owners
from coterie.sites.tables.problems import Problem, Remedy
from coterie.sites.tables.sources import Source, column_names
from coterie.text import count_of

BLOCK_BYTES = 1 << 22
"""Bytes per block: small enough for a processor's cache, large enough to keep it busy."""
HELD_BYTES = 1 << 25
"""A table of at most so many bytes is kept in memory after the first pass, since text is slow to parse."""
LARGEST = 1e150
"""Squares of larger values do not fit a float64."""


class CheckedTable(ABC):
    """Checks that all values are finite, once."""

    name: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...] | None = None
    """What identifies each row at every site that holds columns of it; None if rows are matched by position."""
    units: Units | None = None
    """Whose each row is, where the table was opened with a column that says so."""
    na: Mapping[str, Sequence[object]] = {}
    """What stood for missing values, by column of the file."""
    levels: Sequence[str] = ()
    """The columns of the file whose categories sites agreed on."""
    form = ""
    """How the file is written, where that is not the usual form."""
    _is_finite = False

    @abstractmethod
    def raw_blocks(self) -> Iterator[Block]:
        """The rows as they are."""

    def blocks(self) -> Iterator[Block]:
        if self._is_finite:
            yield from self.raw_blocks()
            return
        for block in self.raw_blocks():
            self._check(block.rows)
            yield block
        self._is_finite = True

    def _check(self, rows: Rows) -> None:
        if np.isfinite(rows.sum(dtype=np.float64)):
            return
        bad = ~np.isfinite(rows)
        if bad.any():  # a sum may overflow where no value does
            column = int(np.argmax(bad.any(axis=0)))
            raise MissingValues(
                f"{self.name}: column {self.columns[column].name!r} holds missing or infinite values; "
                "set missing to 'mean' or 'drop', or remove them"
            )


def _key_text(key: object) -> str | None:
    """A key as text, None if it is missing."""
    if key is None or key != key:  # NaN is not itself
        return None
    return str(int(key)) if isinstance(key, float) and key.is_integer() else str(key).strip()


def checked_keys(name: str, keys: Sequence[str | None], n_rows: int) -> tuple[str, ...]:
    """The keys, one for every row; ``InputError`` if some are missing."""
    if len(keys) != n_rows:
        raise InputError(f"{name}: {len(keys)} keys for {n_rows} rows; give one key per row")
    missing = sum(not key for key in keys)
    if missing:
        raise InputError(f"{name}: {count_of(missing, 'row')} without a key; fill in the key, or remove such rows")
    return tuple(str(key) for key in keys)


class ArrayTable(CheckedTable):
    """Rows in memory, or mapped from a file, as float32 or float64; other types become float64."""

    categories: tuple[tuple[int, int, int | None], ...] = ()
    """First column and end of each one-hot block, and the column of its category ``other``, if any."""

    def __init__(
        self,
        rows: npt.ArrayLike,
        *,
        columns: Sequence[str] | None = None,
        weights: npt.ArrayLike | None = None,
        keys: Sequence[object] | None = None,
        name: str = "table",
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        values = np.asarray(rows)
        names = column_names(values, columns, name)
        if values.dtype not in (np.float32, np.float64):
            try:
                values = values.astype(np.float64)
            except (TypeError, ValueError):
                raise InputError(f"{name}: holds values other than numbers") from None
        self.name = name
        self.columns = tuple(Column(n) for n in names)
        self._rows = values
        self._weights = None if weights is None else np.asarray(weights, dtype=np.float64)
        if self._weights is not None and self._weights.shape != (len(values),):
            raise InputError(f"{name}: {self._weights.shape} weights for {len(values)} rows")
        self.keys = None if keys is None else checked_keys(name, [_key_text(key) for key in keys], len(values))
        self._step = rows_a_block(values.shape[1], values.dtype.itemsize, block_bytes)

    @property
    def n_rows(self) -> int:
        return len(self._rows)

    def raw_blocks(self) -> Iterator[Block]:
        """Slices of the rows; nothing is copied where they are C-ordered already."""
        for start in range(0, len(self._rows), self._step):
            rows = np.ascontiguousarray(self._rows[start : start + self._step])
            weights = None if self._weights is None else self._weights[start : start + self._step]
            yield Block(rows, weights)


class StreamedTable(CheckedTable):
    """Rows streamed from a source that may exceed memory; with ``owner``, only those of one site."""

    def __init__(
        self,
        source: Source,
        encoding: Encoding,
        n_rows: int,
        *,
        owner: tuple[str, str] | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.name, self.n_rows = source.name, n_rows
        self.columns, self.form = tuple(map(Column, encoding.names)), source.form
        self.categories = encoding.categories
        self._source, self._encoding, self._owner = source, encoding, owner
        self._dtype = np.dtype(np.float32 if encoding.single else np.float64)
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
                self._encoding.fill(rows[filled : filled + take], batch.slice(start, take))
                start, filled = start + take, filled + take
                if filled == len(rows):
                    yield Block(rows)
                    done, filled = done + filled, 0
                    rows = self._empty(done)
        self._check_same(done == self.n_rows)

    def _batches(self) -> Iterator[Any]:
        names = self._encoding.columns
        if self._owner is None:
            yield from self._source.batches(names, self._step)
            return
        column, site = self._owner
        kind = self._source.schema.field(column).type
        for batch in self._source.batches([column, *names], self._step):
            yield batch.filter(pc.equal(owners(batch.column(column), kind), site))

    def _empty(self, done: int) -> Rows:
        return np.empty((min(self._step, self.n_rows - done), len(self.columns)), self._dtype)

    def _check_same(self, same: bool) -> None:
        if not same:
            raise InputError(f"{self.name}: no longer has its {self.n_rows} rows; open the file again")


class PairedTable:
    """A table, and later rows of the same columns."""

    def __init__(self, table: Table, new: Table) -> None:
        self.columns, self.n_rows, self.new = table.columns, table.n_rows, new
        self.name, self.keys = str(getattr(table, "name", "table")), keys_of(table)
        if [column.name for column in new.columns] != [column.name for column in table.columns]:
            raise InputError(f"{self.name}: the new rows have other columns than the fitted rows; use the same.")
        self._table = table

    def raw_blocks(self) -> Iterator[Block]:
        return self._table.raw_blocks()

    def blocks(self) -> Iterator[Block]:
        return self._table.blocks()


def rows_a_block(n_columns: int, itemsize: int, block_bytes: int = BLOCK_BYTES) -> int:
    """The number of rows in a block of about ``block_bytes``."""
    return max(256, block_bytes // max(1, n_columns * itemsize))


def scan_table(table: Table, *, refuses: bool = True) -> tuple[Integers, str]:
    """Missing values by column, and a fingerprint of the rows, their keys and units; infinite or huge values are
    refused."""
    scanned = Scan(table)
    if refuses and scanned.problems:
        raise InputError(f"{scanned.problems[0].table}: {scanned.problems[0].told()}.")
    return scanned.missing, scanned.fingerprint


class Scan:
    """What one pass over a table shows."""

    def __init__(self, table: Table) -> None:
        name = str(getattr(table, "name", "table"))
        self.missing: Integers = np.zeros(len(table.columns), np.int64)
        """Missing values by column."""
        infinite, large = np.zeros((2, len(table.columns)), bool)
        seen = hashlib.blake2b(digest_size=16)
        for block in table.raw_blocks():
            self.missing = self.missing + np.isnan(block.rows).sum(axis=0)
            infinite, large = infinite | np.isinf(block.rows).any(0), large | (np.abs(block.rows) > LARGEST).any(0)
            seen.update(np.ascontiguousarray(block.rows).tobytes())
        keys, units = keys_of(table), units_of(table)
        suffix = "" if keys is None else f"-{hashlib.blake2b(repr(keys).encode(), digest_size=8).hexdigest()}"
        if units is not None:
            suffix += f"-{hashlib.blake2b(units.codes.tobytes(), digest_size=8).hexdigest()}"
        self.fingerprint = seen.hexdigest() + suffix
        """A digest of the rows, and of their keys and units if they have any."""
        self.problems = [
            Problem(
                name,
                f"column {column.name!r} holds {'infinite values' if endless else f'values beyond {LARGEST:g}'}",
                "remove, replace or rescale them",
                Remedy.IGNORE,
                column.name,
            )
            for column, endless, huge in zip(table.columns, infinite, large, strict=True)
            if huge
        ]
        """Columns with infinite or huge values."""


def fingerprint(table: Table, *, refuses: bool = True) -> str:
    """A digest of the rows, and of their keys and units if they have any."""
    return scan_table(table, refuses=refuses)[1]


class Check:
    """A pass over the rows of a source that collects what cannot be encoded."""

    def __init__(self, source: Source, encoding: Encoding) -> None:
        self._source, self._encoding = source, encoding
        self.problems: list[Problem] = []
        """What was wrong, once all rows were seen."""

    def batches(self, others: Sequence[str] = ()) -> Iterator[Any]:
        """The batches; only columns that need the check, and ``others``, are read; all columns if the number of rows
        is unknown."""
        source, is_strict = self._source, not self._source.forgives
        suspects = [e for e in self._encoding.encoders if (e.suspect and is_strict) or source.n_rows is None]
        first_faults: dict[Encoder, tuple[int, str]] = {}
        n_faults, start = Counter[Encoder](), 0
        source.strays = {}
        for batch in source.batches([*dict.fromkeys([*others, *(e.column for e in suspects)])], LOOK):
            for encoder in suspects if is_strict else ():
                values = batch.column(encoder.column)
                places = np.flatnonzero(encoder.faulty(values))
                if len(places):
                    seen = as_text(values.slice(places[0], 1), encoder.kind)[0].as_py()
                    first_faults.setdefault(encoder, (start + int(places[0]) + 1, seen))
                    n_faults[encoder] += len(places)
            start += batch.num_rows
            yield batch
        faults = {e.column: e.complaint(source.name, *fault, n_faults[e]) for e, fault in first_faults.items()}
        faults |= source.strays
        source.strays = None
        self.problems = [faults[column] for column in self._encoding.columns if column in faults]

    def count(self) -> int:
        """The number of rows, after the check that all can be encoded."""
        if self._source.n_rows is not None and not any(encoder.suspect for encoder in self._encoding.encoders):
            return self._source.n_rows
        return sum(batch.num_rows for batch in self.batches())
