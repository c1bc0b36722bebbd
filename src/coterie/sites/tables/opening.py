"""Opening a table, or one for each site, from a path, an array, a data frame or an Arrow table."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coterie.arrays import Integers
from coterie.errors import InputError
from coterie.messages.site_api import Column, Table, Units
from coterie.sites.tables import sources
from coterie.sites.tables.delimited import CsvSource
from coterie.sites.tables.encoders import (
    LOOK,
    Categories,
    Choice,
    Encoder,
    Kind,
    as_text,
    encoders_of,
    kind_of,
    number_in,
    owners,
)
from coterie.sites.tables.levels import Levels, agreed_levels, check_shared, columns_of_text, level_counts, united
from coterie.sites.tables.phrases import no_column, quoted, reading
from coterie.sites.tables.rows import BLOCK_BYTES, ArrayTable, StreamedTable, checked_batches, checked_keys, counted
from coterie.sites.tables.sources import ArraySource, MemorySource, Source
from coterie.text import count_of

MOST_SITES = 10_000
HELD_TOGETHER = 1 << 28
"""A file of at most so many bytes is read once and split; every site streams its own rows of a larger one."""
READERS: dict[str, Callable[[Path, str], Source]] = {
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
    categories: Categories | None = None,
    levels: Categories | None = None,
    key: str | None = None,
    unit: str | None = None,
    unreadable: Literal["refuse", "missing"] = "refuse",
    name: str | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Table:
    """The table in a file (by its suffix), a 2-d numpy array, a pandas DataFrame or a pyarrow Table.

    Its columns are exactly ``columns``, in this order, or all but those in ``ignore``. A text column becomes a column
    of 0 and 1 for each of its ``categories``. CSV cells, categories and large integers are checked here, so that
    a run does not fail halfway. Files are streamed, except ``.npz``. ``key`` is the column that identifies a row at
    every site that holds columns of it; it is not among the columns. Nor is ``unit``, the column that says whose row
    it is, for differential privacy of all rows of one person. ``levels`` are categories that sites agreed on
    (:func:`open_tables`): a value that is none of them is of the category ``other``, or else of none.

    With ``unreadable="missing"`` no cell keeps a table from being opened: text in a column of numbers and values
    outside the declared categories count as missing, larger integers are rounded, and keys are not read.
    """
    reader, choice = source_of(source, name), Choice(columns, ignore, categories, levels)
    if unreadable == "missing":
        reader.forgive()
    keys = None if key is None or reader.forgives else _keys(reader, key)
    units = None if unit is None else _units(reader, unit)
    for column in filter(None, (key, unit)):
        choice = choice.without(column)
    table = _opened(reader, encoders_of(reader, choice), keys, block_bytes)
    table.units = units
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
    levels = named_levels(sources, options, least)
    if not keeps_unlike:
        check_shared(levels)
    return {site: open_table(source, levels=levels, **options[site]) for site, source in sources.items()}


def named_levels(
    sources: Mapping[str, object], options: Mapping[str, Mapping[str, Any]], least: Mapping[str, int | None]
) -> Levels:
    """The levels that these sites name together; nothing is read at those that name none."""
    readers, choices, naming = {}, {}, {site: few for site in sources if (few := least[site]) is not None}
    for site in naming:
        given = options[site]
        readers[site] = source_of(sources[site], given.get("name"))
        choice = Choice(given.get("columns"), given.get("ignore", ()), given.get("categories"))
        for column in filter(None, (given.get("key"), given.get("unit"))):
            choice = choice.without(column)
        choices[site] = choice
    return agreed_levels(readers, choices, naming)


def _opened(
    reader: Source, encoders: Sequence[Encoder], keys: Sequence[str | None] | None, block_bytes: int
) -> ArrayTable | StreamedTable:
    """The table of the encoded columns."""
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
    kind = _type_of_names(reader, key, "be a key; use numbers or text")
    texts = [text for batch in reader.batches([key], LOOK) for text in as_text(batch.column(key), kind).to_pylist()]
    return [text and text.strip() for text in texts]


def _units(reader: Source, unit: str) -> Units:
    """Whose each row is; a row that lacks a value is a unit of its own."""
    kind = _type_of_names(reader, unit, "say whose row it is; use numbers or text")
    texts = [owners(batch.column(unit), kind) for batch in reader.batches([unit], LOOK)]
    codes = pa.chunked_array(texts, pa.large_string()).combine_chunks().dictionary_encode().indices
    own, missing = codes.to_numpy(zero_copy_only=False), np.asarray(codes.is_null())
    found = np.where(missing, -1, own).astype(np.int64)
    found[missing] = len(found) + np.arange(int(missing.sum()))
    return Units(unit, found)


def _type_of_names(reader: Source, column: str, use: str) -> Any:
    """The type of a column whose values name something; the reader will return them as text."""
    if column not in reader.schema.names:
        raise no_column(reader.name, column, reader.schema.names)
    kind = reader.schema.field(column).type
    if kind_of(kind) is Kind.OTHER:
        raise InputError(f"{reader.name}: column {column!r} holds {kind}, which cannot {use}")
    reader.texts = {**reader.texts, column: frozenset()}
    return kind


def read_columns(source: object) -> tuple[Column, ...]:
    """The columns and what they hold, ``"number"`` or ``"text"``, without reading all rows.

    Dates count as text; a CSV file is judged by its first rows.
    """
    schema = source_of(source, None).schema
    return tuple(Column(f.name, "number" if kind_of(f.type) is Kind.NUMBER else "text") for f in schema)


def source_of(source: object, name: str | None) -> Source:
    """The source for a path or an object."""
    if not isinstance(source, str | os.PathLike):
        return sources.source_of_object(source, name or "table")
    path = Path(source)
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
    return READERS[suffix](path, name or path.name)


def _is_unchanged(source: ArraySource, encoders: Sequence[Encoder]) -> bool:
    """Whether the table is the whole array, without any conversion."""
    same = [e.names for e in encoders] == [(name,) for name in source.schema.names]
    return same and source.values.dtype in (np.float32, np.float64)


def split_by_site(
    source: object,
    site_column: str,
    *,
    columns: Sequence[str] | None = None,
    ignore: Collection[str] = (),
    categories: Categories | None = None,
    unit: str | None = None,
    name: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    least: int | None = None,
    keeps_unlike: bool = False,
) -> dict[str, Table]:
    """One table for each site named in ``site_column``, which is not among the columns; options as `open_table`, and
    as `open_tables` for text columns."""
    reader = source_of(source, name)
    _type_of_names(reader, site_column, "name sites; use text")
    choice, units = Choice(columns, ignore, categories).without(site_column), None
    if unit is not None:
        choice, units = choice.without(unit), _units(reader, unit)
    if least is not None:
        counts = level_counts(reader, columns_of_text({"": reader}, {"": choice}), site_column)
        levels = united(counts, dict.fromkeys(counts, least))
        if not keeps_unlike:
            check_shared(levels)
        choice = replace(choice, levels=levels)
    encoders = encoders_of(reader, choice)
    sizes = _sizes(reader, encoders, site_column)
    tables = _parts(reader, encoders, site_column, sizes, block_bytes)
    if units is not None:
        for site, own in _places(reader, site_column, sizes).items():
            tables[site].units = units._replace(codes=units.codes[own])
    return dict(tables)


def _parts(
    reader: Source, encoders: Sequence[Encoder], site_column: str, sizes: dict[str, int], block_bytes: int
) -> Mapping[str, ArrayTable | StreamedTable]:
    """A table for each site."""
    is_mapped = isinstance(reader, ArraySource) and isinstance(reader.values, np.memmap)
    if isinstance(reader, MemorySource | ArraySource) and not is_mapped:
        return {
            site: StreamedTable(reader.taken(own), encoders, len(own), block_bytes=block_bytes)
            for site, own in _places(reader, site_column, sizes).items()
        }
    if sum(sizes.values()) * sum(len(encoder.names) for encoder in encoders) * 8 <= HELD_TOGETHER:
        return _held(reader, encoders, site_column, sizes, block_bytes)
    return {
        site: StreamedTable(reader, encoders, size, owner=(site_column, site), block_bytes=block_bytes)
        for site, size in sizes.items()
    }


def _held(
    source: Source, encoders: Sequence[Encoder], column: str, sizes: dict[str, int], block_bytes: int
) -> dict[str, ArrayTable | StreamedTable]:
    """Tables of a file that fits in memory."""
    whole = StreamedTable(source, encoders, sum(sizes.values()))
    rows = np.concatenate([block.rows for block in whole.raw_blocks()])
    columns = [c.name for c in whole.columns]
    parts: dict[str, ArrayTable | StreamedTable] = {}
    for site, own in _places(source, column, sizes).items():
        part = ArrayTable(rows[own], columns=columns, name=source.name, block_bytes=block_bytes)
        part.categories = whole.categories
        parts[site] = part
    return parts


def _places(source: Source, column: str, sizes: dict[str, int]) -> dict[str, Integers]:
    """The positions of each site's rows."""
    kind = source.schema.field(column).type
    named = pa.chunked_array([owners(batch.column(column), kind) for batch in source.batches([column], LOOK)])
    sites = pc.index_in(named, value_set=pa.array(list(sizes), pa.large_string())).to_numpy()
    order = np.argsort(sites, kind="stable")
    return dict(zip(sizes, np.split(order, np.cumsum(list(sizes.values()))[:-1]), strict=True))


def _sizes(source: Source, encoders: Sequence[Encoder], column: str) -> dict[str, int]:
    """The number of rows of each site, ordered by name."""
    kind = source.schema.field(column).type
    sizes: Counter[str | None] = Counter()
    for batch in checked_batches(source, encoders, others=[column]):
        for pair in owners(batch.column(column), kind).value_counts().to_pylist():
            sizes[pair["values"]] += pair["counts"]
        if len(sizes) > MOST_SITES:
            raise InputError(
                f"{source.name}: column {column!r} names more than {MOST_SITES} sites; "
                "choose the column that names the site of a row"
            )
    missing = sizes.pop(None, 0)
    if missing:
        rows = count_of(missing, "row")
        raise InputError(f"{source.name}: column {column!r} names no site in {rows}; fill it in, or remove the rows")
    _check_sites(source.name, column, [site for site in sizes if site is not None])
    return {site: sizes[site] for site in sorted(filter(None, sizes))}


def _check_sites(table: str, column: str, sites: Sequence[str]) -> None:
    if not sites:
        raise InputError(f"{table}: has no rows, so column {column!r} names no sites; give a file with rows")
    numbers = [number for number in map(number_in, sites) if number is not None and math.isfinite(number)]
    if len(numbers) == len(sites) and any(number % 1 for number in numbers):
        fraction = next(site for site, number in zip(sites, numbers, strict=True) if number % 1)
        raise InputError(
            f"{table}: column {column!r} holds numbers with fractions ({quoted(fraction)}), not names of sites; "
            "choose the column that names the site of a row"
        )
