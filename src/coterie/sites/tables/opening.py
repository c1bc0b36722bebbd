"""Opening a table: from a path, an array, a data frame or an Arrow table."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from coterie.errors import InputError
from coterie.messages.site_api import Column, Table
from coterie.sites.tables.archives import npy_source, npz_names, npz_source
from coterie.sites.tables.choice import Categories, Choice, encoders_of
from coterie.sites.tables.delimited import CsvSource
from coterie.sites.tables.encoders import Encoder
from coterie.sites.tables.files import IpcSource, ParquetSource
from coterie.sites.tables.kinds import Kind, as_text, kind_of
from coterie.sites.tables.phrases import no_column, quoted, reading
from coterie.sites.tables.rows import BLOCK_BYTES, ArrayTable, checked_keys
from coterie.sites.tables.sources import ArraySource, Source, source_of_object
from coterie.sites.tables.streams import LOOK, StreamedTable, counted

READERS: dict[str, Callable[[Path, str], Source]] = {
    ".parquet": ParquetSource,
    ".pq": ParquetSource,
    ".csv": CsvSource,
    ".tsv": CsvSource,
    ".csv.gz": CsvSource,
    ".tsv.gz": CsvSource,
    ".feather": IpcSource,
    ".arrow": IpcSource,
    ".ipc": IpcSource,
    ".npz": npz_source,
    ".npy": npy_source,
}


def open_table(
    source: object,
    *,
    columns: Sequence[str] | None = None,
    ignore: Collection[str] = (),
    categories: Categories | None = None,
    key: str | None = None,
    name: str | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Table:
    """The table in a file (by its suffix), a 2-d numpy array, a pandas DataFrame or a pyarrow Table.

    Its columns are exactly ``columns``, in this order, or all but those in ``ignore``. A text column becomes a column
    of 0 and 1 for each of its ``categories``. CSV cells, categories and large integers are checked here, so that
    a run does not fail halfway. Files are streamed, except ``.npz``. ``key`` is the column that identifies a row at
    every site that holds columns of it; it is not among the columns.
    """
    reader, choice = source_of(source, name), Choice(columns, ignore, categories)
    keys = None if key is None else _keys(reader, key)
    encoders = encoders_of(reader, choice if key is None else choice.without(key))
    if keys is None and isinstance(reader, ArraySource) and _is_unchanged(reader, encoders):
        names = [encoder.column for encoder in encoders]
        return ArrayTable(reader.values, columns=names, name=reader.name, block_bytes=block_bytes)
    table = StreamedTable(reader, encoders, counted(reader, encoders), block_bytes=block_bytes)
    table.keys = None if keys is None else checked_keys(reader.name, keys, table.n_rows)
    return table


def read_keys(source: object, key: str) -> tuple[str, ...]:
    """The keys of the rows in a file or an object."""
    reader = source_of(source, None)
    keys = _keys(reader, key)
    return checked_keys(reader.name, keys, len(keys))


def _keys(reader: Source, key: str) -> list[str | None]:
    if key not in reader.schema.names:
        raise no_column(reader.name, key, reader.schema.names)
    kind = reader.schema.field(key).type
    if kind_of(kind) is Kind.OTHER:
        raise InputError(f"{reader.name}: column {key!r} holds {kind}, which cannot be a key; use numbers or text")
    reader.texts = {**reader.texts, key: frozenset()}
    texts = [text for batch in reader.batches([key], LOOK) for text in as_text(batch.column(key), kind).to_pylist()]
    return [text and text.strip() for text in texts]


def read_columns(source: object) -> tuple[Column, ...]:
    """The columns and what they hold, ``"number"`` or ``"text"``, without reading all rows.

    Dates count as text; a CSV file is judged by its first rows.
    """
    path = _path(source)
    if path is not None and _suffix(path) == ".npz":
        _check_file(path)
        return tuple(Column(name) for name in npz_names(path, path.name))
    schema = source_of(source, None).schema
    kinds = {f.name: "number" if kind_of(f.type) is Kind.NUMBER else "text" for f in schema}
    return tuple(Column(name, kind) for name, kind in kinds.items())


def source_of(source: object, name: str | None) -> Source:
    """The source for a path or an object."""
    path = _path(source)
    if path is None:
        return source_of_object(source, name or "table")
    _check_file(path)
    return READERS[_suffix(path)](path, name or path.name)


def _path(source: object) -> Path | None:
    return Path(source) if isinstance(source, str | os.PathLike) else None


def _suffix(path: Path) -> str:
    lowered = path.name.lower()
    return next((suffix for suffix in READERS if lowered.endswith(suffix)), "")


def _check_file(path: Path) -> None:
    with reading(str(path), "file"):
        if path.is_dir():
            raise InputError(f"{path}: is a directory; give a file")
        if not path.exists():
            raise InputError(f"{path}: there is no such file")
        if not _suffix(path):
            raise InputError(f"{path}: the suffix {quoted(path.suffix)} is unknown; use one of {', '.join(READERS)}")
        if path.is_file() and path.stat().st_size == 0:
            raise InputError(f"{path}: is empty (0 bytes); write it again")


def _is_unchanged(source: ArraySource, encoders: Sequence[Encoder]) -> bool:
    """Whether the table is the whole array, without any conversion."""
    same = [e.names for e in encoders] == [(name,) for name in source.schema.names]
    return same and source.values.dtype in (np.float32, np.float64)
