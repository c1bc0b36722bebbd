"""The view of its table that a site's functions get, by its policy: single rows, or fixed groups of rows."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote
from weakref import WeakKeyDictionary

from coterie.errors import InputError
from coterie.maths.arithmetic import fixed_threads
from coterie.messages.site_api import Table
from coterie.sites.ledger import SiteLedger
from coterie.sites.tables.phrases import listed
from coterie.sites.views.forming import Progress
from coterie.sites.views.grouped import GroupedTable
from coterie.sites.views.store import Change, Grouping, form, load, save, update

__all__ = ["FEW_GROUPS", "GroupedTable", "grouped_view", "groups_folder"]

FEW_GROUPS = 8
"""A site with fewer than so many times ``min_group`` rows is warned: its groups are few, of dissimilar rows."""

_IN_MEMORY: WeakKeyDictionary[Table, dict[int, GroupedTable]] = WeakKeyDictionary()
"""Views of tables whose site keeps no files: a table is grouped once."""


@fixed_threads()  # the last digits of a sum could decide a group
def grouped_view(
    table: Table,
    min_group: int,
    ledger: SiteLedger,
    *,
    name: str = "table",
    anew: bool = False,
    progress: Progress | None = None,
) -> GroupedTable:
    """The table as fixed groups of at least ``min_group`` rows.

    If the ledger is a file, the grouping is stored beside it under the table's ``name``. It is formed once and then
    changes only by the rules of :mod:`coterie.sites.views.store`; every change is a line of the ledger. ``anew``
    forms all groups again: earlier and later answers are then computed from two groupings.
    """
    folder = groups_folder(ledger, name)
    if folder is None:
        views = _IN_MEMORY.setdefault(table, {})
        if min_group not in views:
            views[min_group] = form(table, min_group, bytes(32), progress).view(table)
        return views[min_group]
    secret = hashlib.blake2b(b"rows", key=ledger.secret()).digest()
    kept = None if anew else load(folder, secret)
    difference = "" if kept is None else _difference(kept, table, min_group)
    if kept is None or (difference and not ledger.total("answers")):  # nothing has left yet
        grouping = form(table, min_group, secret, progress)
        _keep(grouping, folder, ledger, name, "regrouped" if anew else "formed", Change(formed=grouping.n_formed))
        return grouping.view(table)
    if difference:
        raise InputError(f"{folder}: {difference}, or form the groups again with `coterie site regroup`.")
    grouping, change = update(kept, table, progress)
    if change.formed or change.broken or len(grouping.rows.tokens) != len(kept.rows.tokens):
        _keep(grouping, folder, ledger, name, "updated", change)
    return grouping.view(table)


def groups_folder(ledger: SiteLedger, name: str) -> Path | None:
    """The folder of a table's grouping; None without a ledger file."""
    if ledger.path is None:
        return None
    return ledger.path.with_name(ledger.path.stem + ".groups") / quote(name, safe="")


def _keep(grouping: Grouping, folder: Path, ledger: SiteLedger, name: str, how: str, change: Change) -> None:
    save(grouping, folder)
    ledger.grouping(
        how,
        table=name,
        min_group=grouping.min_group,
        groups=len(grouping.numbers),
        rows=int(grouping.cells.sizes.sum()),
        **asdict(change),
    )


def _difference(kept: Grouping, table: Table, min_group: int) -> str:
    """Why the stored groups cannot be used, and what to do; empty if they can."""
    names = tuple(column.name for column in table.columns)
    if kept.columns != names:
        return (
            f"the site's groups were formed with the columns {listed(kept.columns)}, and the table now has "
            f"{listed(names)}; use the same columns"
        )
    if kept.min_group < min_group:
        return (
            f"the site's groups have at least {kept.min_group} rows, and its policy now requires {min_group}; "
            f"set min_group = {kept.min_group}"
        )
    return ""
