"""What a caller gives as tables, as one table for each site: a mapping, a list, or one table and its site column."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.errors import InputError, UnknownParameter
from coterie.messages.site_api import Table
from coterie.sites.policy import Policy
from coterie.sites.policy_files import find_policy
from coterie.sites.tables import open_table, split_by_site
from coterie.text import nearest_name

Rules = Policy | str | Path
"""A policy, its name or its file."""
READING = frozenset(inspect.signature(open_table).parameters) - {"source", "columns", "levels", "key", "unit", "name"}
"""The options of :func:`~coterie.open_table` that hold for all tables."""


def named_tables(tables: Any) -> Mapping[str, Any]:
    """Tables by site; those of a list are called site1, site2, and so on."""
    if isinstance(tables, Mapping):
        named = {str(name): table for name, table in tables.items()}
    elif isinstance(tables, Sequence) and not isinstance(tables, str | bytes):
        named = {f"site{i}": table for i, table in enumerate(tables, 1)}
    else:
        raise InputError(
            f"tables is one {type(tables).__name__}; give one table for each site (a list, or a mapping from the "
            "sites' names), or site_column=, the column that names the site of every row."
        )
    if not named:
        raise InputError("tables is empty; at least one site is needed.")
    return named


def split_tables(
    table: Any, site_column: str, unit: str | None, least: int | None, reading: Mapping[str, Any]
) -> dict[str, Table]:
    """The table of every site that a column of one table names; ``least`` is how many rows hold a level of text."""
    if isinstance(table, Mapping) or (isinstance(table, Sequence) and not isinstance(table, str)):
        raise InputError(f"site_column={site_column!r} splits one table, and there are {len(table)}; give one.")
    if hasattr(table, "raw_blocks"):
        raise InputError(
            f"site_column={site_column!r}: an opened table cannot be split; give the file or the data frame."
        )
    return split_by_site(table, site_column, unit=unit, least=least, **reading)


def check_reading(reading: Mapping[str, Any], tables: Any) -> None:
    """Raise what is wrong with options of reading: unknown ones, or tables that are opened already."""
    for name in reading:
        if name not in READING:
            raise UnknownParameter(f"fit has no option {name!r}{nearest_name(name, READING)}")
    given = tables.values() if isinstance(tables, Mapping) else tables if isinstance(tables, Sequence) else [tables]
    if reading and any(hasattr(table, "raw_blocks") for table in given):
        raise InputError(f"{', '.join(reading)}: a table is opened already; pass such options to open_table.")


def policy_of(rules: Rules | None) -> Policy:
    """A policy given as it is, by name or as a file; the default where none is given."""
    if rules is None:
        return Policy()
    return rules if isinstance(rules, Policy) else find_policy(str(rules))
