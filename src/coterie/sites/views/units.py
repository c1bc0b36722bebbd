"""At most so many rows of each person: those that come first; nobody's rows decide which of another's count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from coterie.arrays import Integers, Mask
from coterie.errors import InputError
from coterie.messages.site_api import Block, Table, keys_of, units_of
from coterie.methods.shared.privacy import Privacy
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.tables.rows import CheckedTable


class UnitRule(NamedTuple):
    """What a site counts of each unit in a run, and what that costs."""

    column: str | None
    """Says whose row it is; None: every row counts."""
    most: int
    """How many rows of each unit count."""
    charged: int
    """By how many rows' length a sum changes at most without one unit of the site's budget."""


def unit_rule(asked: Privacy, rules: PrivacyRules | None) -> UnitRule:
    """The rule for an order: the site's own unit, or else the order's.

    Without one row, another row of the same unit may count in its place: a budget for rows pays for both.
    """
    own = PrivacyRules(asked.epsilon) if rules is None else rules
    if own.unit == asked.unit:
        most = min(own.rows_per_unit, asked.rows_per_unit)
        return UnitRule(asked.unit_column, most, most)
    if own.unit_column is None:
        return UnitRule(asked.unit, asked.rows_per_unit, max(2, asked.rows_per_unit))
    return UnitRule(own.unit, own.rows_per_unit, max(own.rows_per_unit, asked.rows_per_unit))


def taken(asked: Privacy, rules: PrivacyRules) -> float:
    """What an order takes of a budget, as the square of mu."""
    return asked.mu_squared * unit_rule(asked, rules).charged ** 2


def check_unit(name: str, table: Table, policy: Policy) -> None:
    """Raise where a policy protects units that nobody can tell apart in the table."""
    units = units_of(table)
    column = None if policy.privacy is None else policy.privacy.unit_column
    if column is not None and (units is None or units.column != column):
        raise InputError(
            f"{name}: the policy protects all rows of one {column!r}, and the table was opened without that column; "
            f"open it with unit={column!r}."
        )


def unit_codes(units: Iterable[tuple[Any, Any]]) -> Integers:
    """A number for each pair of a site and a unit; where the unit is missing it is of its own."""
    known: dict[Any, int] = {}
    return np.array(
        [
            known.setdefault((site, unit) if unit is not None and unit == unit else (site, place, None), len(known))
            for place, (site, unit) in enumerate(units)
        ],
        np.int64,
    )


def first_of_each(codes: Integers, most: int) -> Mask:
    """Which rows are among the first so many of their unit."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=codes[order][:1] - 1))
    sizes = np.diff(np.append(starts, len(codes)))
    counted = np.zeros(len(codes), bool)
    counted[order] = np.arange(len(codes)) - np.repeat(starts, sizes) < most
    return counted


class BoundedTable(CheckedTable):
    """A table with at most so many rows of each unit."""

    def __init__(self, table: Table, most: int) -> None:
        units = units_of(table)
        assert units is not None
        self.columns, self.keys, self.name = table.columns, keys_of(table), str(getattr(table, "name", "table"))
        self._table, self._counted = table, first_of_each(units.codes, most)
        if len(self._counted) != table.n_rows:
            raise InputError(f"{self.name}: {len(self._counted)} units for {table.n_rows} rows; open it again.")
        self.n_rows = int(self._counted.sum())

    def raw_blocks(self) -> Iterator[Block]:
        start = 0
        for block in self._table.raw_blocks():
            stop = start + len(block.rows)
            yield block.part(self._counted[start:stop])
            start = stop
