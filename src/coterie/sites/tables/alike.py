"""Raw rows as the columns of a model: found by name in any order, text encoded as the model's one-hot columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from coterie.errors import InputError
from coterie.messages.site_api import Rows, Table
from coterie.sites.tables.opening import open_table, source_of


def raw_columns(names: Sequence[str], held: Collection[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The columns to read for columns of these names, and the categories of those that are text.

    ``sex=f`` is the category ``f`` of the column ``sex``, unless a column has that very name.
    """
    columns, categories = dict[str, None](), dict[str, list[str]]()
    for name in names:
        column, sign, value = name.partition("=")
        is_category = bool(sign) and name not in held
        columns[column if is_category else name] = None
        if is_category:
            categories.setdefault(column, []).append(value)
    return list(columns), categories


def table_alike(source: object, names: Sequence[str], *, name: str = "the rows") -> Table:
    """A table with exactly these columns, of a file, a data frame or an Arrow table that may hold others besides."""
    columns, categories = raw_columns(names, set(source_of(source, name).schema.names))
    table = open_table(source, columns=columns, categories=categories, name=name)
    own = [column.name for column in table.columns]
    if own != list(names):
        raise InputError(f"{name}: the columns are {', '.join(own)}; needed are {', '.join(names)}.")
    return table


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
