"""One table split into those of several sites, by a column that names the site of each row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coterie.arrays import Integers
from coterie.errors import InputError
from coterie.messages.site_api import Table
from coterie.sites.tables.encoders import LOOK, Encoding, encoding_of, owners
from coterie.sites.tables.levels import columns_of_text, level_counts, united, unlike
from coterie.sites.tables.opening import source_of, type_of_names, units_in
from coterie.sites.tables.phrases import quoted
from coterie.sites.tables.problems import Problem, TableProblems
from coterie.sites.tables.reading import Reading, number_in, reading_by
from coterie.sites.tables.rows import BLOCK_BYTES, ArrayTable, Check, StreamedTable
from coterie.sites.tables.sources import ArraySource, MemorySource, Source
from coterie.text import count_of

MOST_SITES = 10_000
HELD_TOGETHER = 1 << 28
"""A file of at most so many bytes is read once and split; every site streams its own rows of a larger one."""


def split_by_site(
    source: object,
    site_column: str,
    *,
    unit: str | None = None,
    name: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    least: int | None = None,
    keeps_unlike: bool = False,
    **options: Any,
) -> dict[str, Table]:
    """One table for each site named in ``site_column``, which is not among the columns; options as `open_table`, and
    as `open_tables` for text columns."""
    tables, problems = examined_by_site(
        source,
        site_column,
        reading_by(**options),
        unit=unit,
        name=name,
        block_bytes=block_bytes,
        least=least,
        keeps_unlike=keeps_unlike,
    )
    if problems:
        raise TableProblems(problems)
    return dict(tables)


def examined_by_site(
    source: object,
    site_column: str,
    how: Reading,
    *,
    unit: str | None = None,
    name: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    least: int | None = None,
    keeps_unlike: bool = False,
) -> tuple[Mapping[str, ArrayTable | StreamedTable], list[Problem]]:
    """The tables of the sites of one file, and what is wrong with it; no tables then."""
    how.check()
    reader = source_of(source, name, how)
    type_of_names(reader, site_column, "name sites; use text")
    how, units = how.without(site_column), None
    if unit is not None:
        how, units = how.without(unit), units_in(reader, unit)
    levels: dict[str, tuple[str, ...]] = {}
    if least is not None:
        counts = level_counts(reader, columns_of_text({"": reader}, {"": how}), site_column)
        levels = united(counts, dict.fromkeys(counts, least))
    encoding, problems = encoding_of(reader, how, levels)
    problems += [] if keeps_unlike else unlike(levels)
    check = Check(reader, encoding)
    sizes = _sizes(reader, check, site_column)
    if problems or check.problems:
        return {}, problems + check.problems
    tables = _parts(reader, encoding, site_column, sizes, block_bytes)
    for table in tables.values():
        table.na, table.levels, table.form = how.na, tuple(levels), reader.form
    if units is not None:
        for site, own in _places(reader, site_column, sizes).items():
            tables[site].units = units._replace(codes=units.codes[own])
    return tables, []


def _parts(
    reader: Source, encoding: Encoding, site_column: str, sizes: dict[str, int], block_bytes: int
) -> Mapping[str, ArrayTable | StreamedTable]:
    """A table for each site."""
    is_mapped = isinstance(reader, ArraySource) and isinstance(reader.values, np.memmap)
    if isinstance(reader, MemorySource | ArraySource) and not is_mapped:
        return {
            site: StreamedTable(_coded(reader.taken(own), reader), encoding, len(own), block_bytes=block_bytes)
            for site, own in _places(reader, site_column, sizes).items()
        }
    if sum(sizes.values()) * len(encoding.names) * 8 <= HELD_TOGETHER:
        return _held(reader, encoding, site_column, sizes, block_bytes)
    return {
        site: StreamedTable(reader, encoding, size, owner=(site_column, site), block_bytes=block_bytes)
        for site, size in sizes.items()
    }


def _coded(part: Source, whole: Source) -> Source:
    """A part of a source, with the codes of the whole."""
    part.codes = whole.codes
    return part


def _held(
    source: Source, encoding: Encoding, column: str, sizes: dict[str, int], block_bytes: int
) -> dict[str, ArrayTable | StreamedTable]:
    """Tables of a file that fits in memory."""
    whole = StreamedTable(source, encoding, sum(sizes.values()))
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


def _sizes(source: Source, check: Check, column: str) -> dict[str, int]:
    """The number of rows of each site, ordered by name."""
    kind = source.schema.field(column).type
    sizes: Counter[str | None] = Counter()
    for batch in check.batches(others=[column]):
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
