"""Tables of rows in memory, and the checks of values that tables share."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from coterie.arrays import Integers
from coterie.errors import InputError, MissingValues
from coterie.messages.site_api import Block, Column, Rows, Table, keys_of
from coterie.text import count_of

BLOCK_BYTES = 1 << 22
"""Bytes per block: small enough for a processor's cache, large enough to keep it busy."""
LARGEST = 1e150
"""Squares of larger values do not fit a float64."""


class CheckedTable(ABC):
    """Checks that all values are finite, once."""

    name: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...] | None = None
    """What identifies each row at every site that holds columns of it; None if rows are matched by position."""
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
        if values.ndim != 2:
            raise InputError(f"{name}: the array has {values.ndim} axes; a table needs two, rows and columns")
        if values.dtype not in (np.float32, np.float64):
            try:
                values = values.astype(np.float64)
            except (TypeError, ValueError):
                raise InputError(f"{name}: holds values other than numbers") from None
        names = [f"x{i}" for i in range(values.shape[1])] if columns is None else list(columns)
        if len(names) != values.shape[1]:
            raise InputError(f"{name}: {len(names)} names for {values.shape[1]} columns; give one name per column")
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


def scan_table(table: Table) -> tuple[Integers, str]:
    """Missing values by column, and a fingerprint of the rows and their keys; infinite or huge values are refused."""
    missing, seen = np.zeros(len(table.columns), np.int64), hashlib.blake2b(digest_size=16)
    name = str(getattr(table, "name", "table"))
    for block in table.raw_blocks():
        missing = missing + np.isnan(block.rows).sum(axis=0)
        large = np.abs(block.rows) > LARGEST
        if large.any():
            column = table.columns[int(np.argmax(large.any(axis=0)))].name
            kind = "infinite values" if np.isinf(block.rows).any() else f"values beyond {LARGEST:g}"
            raise InputError(f"{name}: column {column!r} holds {kind}; remove, replace or rescale them.")
        seen.update(np.ascontiguousarray(block.rows).tobytes())
    keys = keys_of(table)
    suffix = "" if keys is None else f"-{hashlib.blake2b(repr(keys).encode(), digest_size=8).hexdigest()}"
    return missing, seen.hexdigest() + suffix


def fingerprint(table: Table) -> str:
    """A digest of the rows, and of their keys if they have any."""
    return scan_table(table)[1]
