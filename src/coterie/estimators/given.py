"""What a caller gives, as a table and a policy for each site: a mapping, a list, or one table and its site column."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.errors import InputError, UnknownParameter
from coterie.messages.site_api import Table, keys_of, units_of
from coterie.methods.method import Settings
from coterie.methods.shared.alignment import listed
from coterie.methods.shared.privacy import Privacy
from coterie.sites.policy import Policy
from coterie.sites.policy_files import find_policy
from coterie.sites.tables import open_table, open_tables, split_by_site
from coterie.sites.views.units import unit_rule
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


def opened_sites(
    asked: Settings,
    tables: Any,
    policy: Rules | Mapping[str, Rules] | None,
    *,
    site_column: str | None = None,
    key: str | None = None,
    reading: Mapping[str, Any] | None = None,
    keeps_unlike: bool = False,
) -> tuple[dict[str, Table], dict[str, Policy]]:
    """Every site's table, opened if it is not yet, and its policy, for what is asked of them.

    Text columns become the categories that sites agree on (:func:`coterie.sites.tables.open_tables`).
    """
    if key is not None and not asked.splits_columns:
        raise InputError(f"key={key!r}: {type(asked).__name__} does not match rows; leave the key column out.")
    options = dict(reading or {})
    check_reading(options, tables)
    if site_column is None:
        named = named_tables(tables)
        rules = rules_of(policy, named)
        units, least = units_asked(asked, rules), level_rows(asked, rules)
        return opened_tables(named, key, units, least, options, keeps_unlike=keeps_unlike), rules
    policies = policy.values() if isinstance(policy, Mapping) else [policy]
    rules = {str(i): policy_of(each) for i, each in enumerate(policies)}
    few = [least for least in level_rows(asked, rules).values() if least is not None]
    options["least"] = max(few) if len(few) == len(rules) else None
    options["unit"] = next(iter(units_asked(asked, rules).values()), None)
    opened = _split(tables, site_column, keeps_unlike=keeps_unlike, **options)
    return opened, rules_of(policy, opened)


def opened_tables(
    tables: Any,
    key: str | None,
    units: Mapping[str, str] | None = None,
    least: Mapping[str, int | None] | None = None,
    reading: Mapping[str, Any] | None = None,
    *,
    keeps_unlike: bool = False,
) -> dict[str, Table]:
    """Every site's table, opened if it is not yet: with its unit, and naming levels that ``least`` rows hold."""
    named = named_tables(tables)
    closed = {name: table for name, table in named.items() if not hasattr(table, "raw_blocks")}
    options = {
        name: {**(reading or {}), "name": name, "key": key, "unit": (units or {}).get(name)} for name in closed
    }
    few = {name: None if least is None else least[name] for name in closed}
    now = open_tables(closed, options, few, keeps_unlike=keeps_unlike)
    opened: dict[str, Table] = {name: now.get(name, table) for name, table in named.items()}
    for name, column in (units or {}).items():
        own = units_of(opened[name])
        if own is None or own.column != column:
            raise InputError(
                f"unit={column!r}: the table of {name} was opened without that column; pass the unit to open_table."
            )
    without = [name for name, table in opened.items() if keys_of(table) is None]
    if key is not None and without:
        raise InputError(
            f"key={key!r}: the table of {without[0]} was opened without a key; pass the key to open_table."
        )
    return opened


def _split(table: Any, site_column: str, **options: Any) -> dict[str, Table]:
    """The table of every site that a column of one table names."""
    if isinstance(table, Mapping) or (isinstance(table, Sequence) and not isinstance(table, str)):
        raise InputError(f"site_column={site_column!r} splits one table, and there are {len(table)}; give one.")
    if hasattr(table, "raw_blocks"):
        raise InputError(
            f"site_column={site_column!r}: an opened table cannot be split; give the file or the data frame."
        )
    return split_by_site(table, site_column, **options)


def units_asked(asked: Settings, rules: Mapping[str, Policy]) -> dict[str, str]:
    """By site the column that says whose row it is, where all rows of one unit are protected together."""
    privacy = Privacy.of(asked.privacy)
    found = {
        name: None if privacy is None else unit_rule(privacy, policy.privacy).column for name, policy in rules.items()
    }
    return {name: column for name, column in found.items() if column is not None}


def level_rows(asked: Settings, rules: Mapping[str, Policy]) -> dict[str, int | None]:
    """By site the fewest rows that hold a level of a text column for the site to name it; None where it names none:
    columns of a private run must not depend on a row, and sites with their own columns have nobody to agree with."""
    names_none = asked.privacy is not None or asked.splits_columns
    return {name: None if names_none else policy.level_rows for name, policy in rules.items()}


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


def rules_of(policy: Rules | Mapping[str, Rules] | None, names: Iterable[str]) -> dict[str, Policy]:
    """Every site's policy: its own, the one for all, or the default."""
    names = list(names)
    if not isinstance(policy, Mapping):
        return dict.fromkeys(names, policy_of(policy))
    unknown = [str(name) for name in policy if name not in names]
    if unknown:
        raise InputError(f"policy names {listed(unknown)}; the sites are {listed(names)}.")
    return {name: policy_of(policy.get(name)) for name in names}
