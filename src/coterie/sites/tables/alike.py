"""Raw rows as the columns of a model: found by name in any order, read as the rows were that it was fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from coterie.errors import InputError
from coterie.messages.site_api import Rows, Table
from coterie.sites.tables.opening import READING, examined, source_of
from coterie.sites.tables.phrases import listed
from coterie.sites.tables.problems import Problem, TableProblems
from coterie.sites.tables.reading import Reading, reading_for


def examined_alike(
    source: object,
    names: Sequence[str],
    na: Mapping[str, Sequence[object]],
    levels: Sequence[str],
    how: Reading = READING,
    *,
    name: str = "the rows",
) -> tuple[Table, list[Problem]]:
    """A table with these columns, of rows that may hold others besides, and what is wrong with it.

    The names say what was done to the raw columns. ``na`` stands for missing values, ``levels`` are the text columns
    whose categories sites agreed on; ``how`` adds codes for missing values, and how a CSV file is written.
    """
    held = list(source_of(source, name, how).schema.names)
    wanted = reading_for(names, held, {**na, **how.na})
    lacking = [column for column in wanted.columns or () if column not in held]
    if lacking:
        are = f"there is no column {lacking[0]!r}" if len(lacking) == 1 else f"there are no columns {_all(lacking)}"
        raise TableProblems([Problem(name, f"{are}, which the model needs; there are {listed(held)}")])
    agreed = {column: tuple(own) for column, own in wanted.categories.items() if column in levels}
    declared = {column: own for column, own in wanted.categories.items() if column not in agreed}
    csv_form = {item: getattr(how, item) for item in ("csv_separator", "csv_decimal", "csv_encoding")}
    read = replace(wanted.for_columns(held), categories=declared, **csv_form)
    return examined(source, read, agreed, name=name)


def table_alike(
    source: object,
    names: Sequence[str],
    na: Mapping[str, Sequence[object]],
    levels: Sequence[str],
    how: Reading = READING,
    *,
    name: str = "the rows",
) -> Table:
    """A table with exactly these columns, of a file, a data frame or an Arrow table that may hold others besides."""
    table, problems = examined_alike(source, names, na, levels, how, name=name)
    if problems:
        raise TableProblems(problems)
    own = [column.name for column in table.columns]
    if set(own) != set(names):
        raise InputError(f"{name}: the columns are {', '.join(own)}; needed are {', '.join(names)}.")
    return table


def _all(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def is_frame(rows: Any) -> bool:
    """Whether rows are a data frame or an Arrow table: columns with names."""
    return isinstance(rows, pa.Table) or (hasattr(rows, "columns") and hasattr(rows, "iloc"))


def names_of(frame: Any) -> Sequence[Any]:
    """The names of a frame's columns."""
    return list(frame.column_names if isinstance(frame, pa.Table) else frame.columns)


def rows_of(table: Table) -> Rows:
    """All rows of a table, missing values as NaN."""
    blocks = [block.rows for block in table.raw_blocks()]
    return np.concatenate(blocks) if blocks else np.zeros((0, len(table.columns)))
