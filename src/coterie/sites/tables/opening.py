"""Opening a table, or one for each site, from a path, an array, a data frame or an Arrow table."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from coterie.errors import InputError
from coterie.messages.site_api import Column, Table, Units
from coterie.sites.tables import sources
from coterie.sites.tables.delimited import CsvSource
from coterie.sites.tables.encoders import LOOK, Encoding, Kind, Levels, as_text, encoding_of, kind_of, owners
from coterie.sites.tables.levels import agreed_levels, unlike
from coterie.sites.tables.phrases import no_column, quoted, reading
from coterie.sites.tables.problems import Problem, TableProblems
from coterie.sites.tables.reading import Reading, reading_by
from coterie.sites.tables.rows import BLOCK_BYTES, ArrayTable, Check, StreamedTable, checked_keys
from coterie.sites.tables.sources import ArraySource, Source

READING = Reading()
"""A file as it is."""
READERS: dict[str, Any] = {
    ".parquet": sources.ParquetSource,
    ".pq": sources.ParquetSource,
    ".csv": CsvSource,
    ".tsv": CsvSource,
    ".csv.gz": CsvSource,
    ".tsv.gz": CsvSource,
    ".feather": sources.IpcSource,
    ".arrow": sources.IpcSource,
    ".ipc": sources.IpcSource,
    ".npz": sources.npz_source,
    ".npy": sources.npy_source,
}


def open_table(
    source: object,
    *,
    columns: Sequence[str] | None = None,
    ignore: Collection[str] = (),
    categories: Mapping[str, Sequence[object]] | None = None,
    levels: Levels | None = None,
    na: Mapping[str, Sequence[object]] | Sequence[object] = (),
    transforms: Mapping[str, str] | None = None,
    normalise_rows: Literal["l1", "l2", "mean"] | None = None,
    csv_separator: str | None = None,
    csv_decimal: str | None = None,
    csv_encoding: str | None = None,
    key: str | None = None,
    unit: str | None = None,
    unreadable: Literal["refuse", "missing"] = "refuse",
    name: str | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Table:
    """The table in a file (by its suffix), a 2-d numpy array, a pandas DataFrame or a pyarrow Table.

    Its columns are exactly ``columns``, in this order, or all but those in ``ignore``. A text column becomes a column
    of 0 and 1 for each of its ``categories``. The values of ``na``, by column or for all of them, count as missing,
    before anything else. ``transforms`` names a ``log``, ``log1p`` or ``sqrt`` by column; then ``normalise_rows``
    divides the numbers of each row by their mean or norm. The names of columns say so: ``sex=f``, ``log(pm25)``,
    ``h0/mean(24)``.

    CSV cells, categories and large integers are checked here, so that a run does not fail halfway; the error names
    all that is wrong. Files are streamed, except ``.npz``. Separator, decimal sign and encoding of a CSV file are
    found by its first lines, unless they are given. ``key`` is the column that identifies a row at every site that
    holds columns of it; it is not among the columns. Nor is ``unit``, the column that says whose row it is, for
    differential privacy of all rows of one person. ``levels`` are categories that sites agreed on
    (:func:`open_tables`): a value that is none of them is of the category ``other``, or else of none.

    With ``unreadable="missing"`` no cell keeps a table from being opened: text in a column of numbers and values
    outside the declared categories count as missing, larger integers are rounded, and keys are not read. No cell then
    decides how a CSV file is read: its separator is that of the header, and it has decimal points unless it is said
    otherwise.
    """
    how = reading_by(
        columns=columns,
        ignore=ignore,
        categories=categories,
        na=na,
        transforms=transforms,
        normalise_rows=normalise_rows,
        csv_separator=csv_separator,
        csv_decimal=csv_decimal,
        csv_encoding=csv_encoding,
    )
    forgives = unreadable == "missing"
    table, problems = examined(
        source, how, levels or {}, key=key, unit=unit, forgives=forgives, name=name, block_bytes=block_bytes
    )
    if problems:
        raise TableProblems(problems)
    return table


def open_tables(
    sources: Mapping[str, object],
    options: Mapping[str, Mapping[str, Any]],
    least: Mapping[str, int | None],
    *,
    keeps_unlike: bool = False,
) -> dict[str, Table]:
    """The table of every site, by its options for :func:`open_table`; text columns by the levels all agree on.

    ``least`` is how many rows of a site must hold a level for the site to name it; None: it names none. A column of
    which no level is named is refused, or, with ``keeps_unlike``, has one category, ``other``.
    """
    readings = {site: reading_by(**options[site]) for site in sources}
    for site, given in options.items():
        for column in filter(None, (given.get("key"), given.get("unit"))):
            readings[site] = readings[site].without(column)
    names = {site: given.get("name") for site, given in options.items()}
    levels, problems = named_levels(sources, readings, least, names)
    problems += [] if keeps_unlike else unlike(levels)
    if problems:
        raise TableProblems(problems)
    return {site: open_table(source, levels=levels, **options[site]) for site, source in sources.items()}


def named_levels(
    sources: Mapping[str, object],
    readings: Mapping[str, Reading],
    least: Mapping[str, int | None],
    names: Mapping[str, str | None],
) -> tuple[dict[str, tuple[str, ...]], list[Problem]]:
    """The levels that these sites name together, and what keeps columns from having some; nothing is read at sites
    that name none."""
    naming = {site: few for site in sources if (few := least[site]) is not None}
    readers = {site: source_of(sources[site], names[site], readings[site]) for site in naming}
    return agreed_levels(readers, readings, naming)


def examined(
    source: object,
    how: Reading,
    levels: Levels,
    *,
    key: str | None = None,
    unit: str | None = None,
    forgives: bool = False,
    name: str | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[ArrayTable | StreamedTable, list[Problem]]:
    """The table, as far as it can be read, and what is wrong with it."""
    how.check()
    reader = source_of(source, name, how, forgives=forgives)
    keys = None if key is None or reader.forgives else _keys(reader, key)
    units = None if unit is None else units_in(reader, unit)
    for column in filter(None, (key, unit)):
        how = how.without(column)
    encoding, problems = encoding_of(reader, how, levels)
    if keys is None and isinstance(reader, ArraySource) and _is_unchanged(reader, encoding):
        table: ArrayTable | StreamedTable = ArrayTable(
            reader.values, columns=encoding.names, name=reader.name, block_bytes=block_bytes
        )
    else:
        check = Check(reader, encoding)
        table = StreamedTable(reader, encoding, check.count(), block_bytes=block_bytes)
        problems += check.problems
        try:
            table.keys = None if keys is None else checked_keys(reader.name, keys, table.n_rows)
        except InputError as problem:
            problems.append(Problem(reader.name, str(problem).removeprefix(f"{reader.name}: ")))
        reader.strays = {} if problems else None  # the other columns can still be looked at
    table.units, table.na, table.levels = units, how.na, tuple(levels)
    return table, problems


def read_keys(source: object, key: str) -> tuple[str, ...]:
    """The keys of the rows in a file or an object."""
    reader = source_of(source, None)
    keys = _keys(reader, key)
    return checked_keys(reader.name, keys, len(keys))


def read_texts(source: object, column: str, how: Reading = READING) -> Any:
    """A column as it is in a file or an object; the cells of a CSV file as text."""
    reader = source_of(source, None, replace(how, na={}))
    if column not in reader.schema.names:
        raise TableProblems([no_column(reader.name, column, reader.schema.names)])
    reader.texts = {column: frozenset(("NA", "NaN", "nan", "null"))}
    batches = [batch.column(column) for batch in reader.batches([column], LOOK)]
    return pa.chunked_array(batches, None if batches else pa.string())


def _keys(reader: Source, key: str) -> list[str | None]:
    kind = type_of_names(reader, key, "be a key; use numbers or text")
    texts = [text for batch in reader.batches([key], LOOK) for text in as_text(batch.column(key), kind).to_pylist()]
    return [text and text.strip() for text in texts]


def units_in(reader: Source, unit: str) -> Units:
    """Whose each row is; a row that lacks a value is a unit of its own."""
    kind = type_of_names(reader, unit, "say whose row it is; use numbers or text")
    texts = [owners(batch.column(unit), kind) for batch in reader.batches([unit], LOOK)]
    codes = pa.chunked_array(texts, pa.large_string()).combine_chunks().dictionary_encode().indices
    own, missing = codes.to_numpy(zero_copy_only=False), np.asarray(codes.is_null())
    found = np.where(missing, -1, own).astype(np.int64)
    found[missing] = len(found) + np.arange(int(missing.sum()))
    return Units(unit, found)


def type_of_names(reader: Source, column: str, use: str) -> Any:
    """The type of a column whose values name something; the reader will return them as text."""
    if column not in reader.schema.names:
        raise TableProblems([no_column(reader.name, column, reader.schema.names)])
    kind = reader.schema.field(column).type
    if kind_of(kind) is Kind.OTHER:
        raise InputError(f"{reader.name}: column {column!r} holds {kind}, which cannot {use}")
    reader.texts = {**reader.texts, column: frozenset()}
    return kind


def read_columns(source: object, how: Reading = READING) -> tuple[Column, ...]:
    """The columns and what they hold, ``"number"`` or ``"text"``, without reading all rows.

    Dates count as text; a CSV file is judged by its first rows.
    """
    schema = source_of(source, None, how).schema
    return tuple(Column(f.name, "number" if kind_of(f.type) is Kind.NUMBER else "text") for f in schema)


def source_of(source: object, name: str | None, how: Reading = READING, *, forgives: bool = False) -> Source:
    """The source for a path or an object."""
    if isinstance(source, str | os.PathLike):
        reader = _source_of_file(Path(source), name, how, forgives)
    else:
        reader = sources.source_of_object(source, name or "table")
    reader.codes = {column: frozenset(map(_code, values)) for column, values in how.na.items()}
    if forgives:
        reader.forgive()
    return reader


def _code(value: object) -> str:
    """A value as the text that a file has: 0 for 0.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _source_of_file(path: Path, name: str | None, how: Reading, forgives: bool) -> Source:
    suffix = next((suffix for suffix in READERS if path.name.lower().endswith(suffix)), "")
    with reading(str(path), "file"):
        if path.is_dir():
            raise InputError(f"{path}: is a directory; give a file")
        if not path.exists():
            raise InputError(f"{path}: there is no such file")
        if not suffix:
            raise InputError(f"{path}: the suffix {quoted(path.suffix)} is unknown; use one of {', '.join(READERS)}")
        if path.is_file() and path.stat().st_size == 0:
            raise InputError(f"{path}: is empty (0 bytes); write it again")
    reader = READERS[suffix]
    return (
        CsvSource(path, name or path.name, how, forgives=forgives)
        if reader is CsvSource
        else reader(path, name or path.name)
    )


def _is_unchanged(source: ArraySource, encoding: Encoding) -> bool:
    """Whether the table is the whole array, without any conversion."""
    same = encoding.is_plain and not source.codes and encoding.columns == source.schema.names
    return same and source.values.dtype in (np.float32, np.float64)
