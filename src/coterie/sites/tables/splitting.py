"""One table for each site, from the rows of one file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coterie.arrays import Integers
from coterie.errors import InputError
from coterie.messages.site_api import Table
from coterie.sites.tables.choice import Categories, Choice, encoders_of
from coterie.sites.tables.encoders import Encoder
from coterie.sites.tables.kinds import Kind, kind_of, number_in, owners
from coterie.sites.tables.opening import source_of
from coterie.sites.tables.phrases import no_column, quoted
from coterie.sites.tables.rows import BLOCK_BYTES, ArrayTable
from coterie.sites.tables.sources import ArraySource, MemorySource, Source
from coterie.sites.tables.streams import LOOK, StreamedTable, checked_batches
from coterie.text import count_of

MOST_SITES = 10_000
HELD_TOGETHER = 1 << 28
"""A file of at most so many bytes is read once and split; every site streams its own rows of a larger one."""


def split_by_site(
    source: object,
    site_column: str,
    *,
    columns: Sequence[str] | None = None,
    ignore: Collection[str] = (),
    categories: Categories | None = None,
    name: str | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> dict[str, Table]:
    """One table for each site named in ``site_column``, which is not among the columns; options as `open_table`."""
    reader = source_of(source, name)
    if site_column not in reader.schema.names:
        raise no_column(reader.name, site_column, reader.schema.names)
    kind = reader.schema.field(site_column).type
    if kind_of(kind) is Kind.OTHER:
        raise InputError(f"{reader.name}: column {site_column!r} holds {kind}, which cannot name sites; use text")
    reader.texts = {site_column: frozenset()}
    encoders = encoders_of(reader, Choice(columns, ignore, categories).without(site_column))
    sizes = _sizes(reader, encoders, site_column)
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
) -> dict[str, Table]:
    """Tables of a file that fits in memory."""
    whole = StreamedTable(source, encoders, sum(sizes.values()))
    rows = np.concatenate([block.rows for block in whole.raw_blocks()])
    columns = [c.name for c in whole.columns]
    parts: dict[str, Table] = {}
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
