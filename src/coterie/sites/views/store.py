"""The grouping of a site's table: formed before the first question, stored beside the ledger, changed by fixed rules.

Two groupings of nearly the same rows would disclose the few rows in which they differ. Therefore:

- a group in which a row is removed or changed leaves the view as a whole;
- its other rows form new groups once, each with one row from each of ``min_group`` broken groups;
- added rows wait until there are ``20 * min_group`` of them, and then form groups among themselves;
- a row that was in a group and returns, changed or not, stays out.

`coterie site regroup` forms all groups again, by decision of the data officer; the ledger records it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.arrays import Array, Floats, Integers, Mask
from coterie.errors import InputError
from coterie.files import opened_private, private_folder
from coterie.maths.group_cells import GroupCells, group_cells
from coterie.maths.grouping import regroup_remains
from coterie.messages.site_api import Table
from coterie.sites.views.forming import OwnScale, Progress, chosen_rows, form_groups, own_scale
from coterie.sites.views.grouped import GroupedTable
from coterie.sites.views.identity import RowTokens, row_tokens

Tokens = npt.NDArray[np.uint64]

FORMAT = 1
WAITING, REMAINS, OUT, GONE = -1, -2, -3, -4
"""States of a row that is in no group: waiting for others, left over from a broken group, excluded, removed."""
BATCH = 20
"""Added rows form groups once there are so many times ``min_group`` of them."""


@dataclass(frozen=True)
class KnownRows:
    """Every row that was ever part of the table."""

    tokens: Tokens
    values: Tokens
    place: Integers
    """The number of its group, or its state."""
    origin: Integers
    """The broken group it comes from, -1 for none."""


@dataclass(frozen=True)
class Change:
    """The groups and rows that an update changed."""

    formed: int = 0
    broken: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class Grouping:
    """Current groups, known rows, and what is left of broken groups."""

    min_group: int
    columns: tuple[str, ...]
    scale: OwnScale
    cells: GroupCells
    numbers: Integers
    """The number of each group; numbers are never reused."""
    reformed: Mask
    """Whether a group was formed from rows of broken groups."""
    rows: KnownRows
    broken: Integers
    broken_full: Mask
    """Per broken group with rows left over: which cells were means of all its rows."""
    scatter: Floats | None
    n_formed: int
    """The number of groups ever formed."""
    secret: bytes = field(repr=False, default=b"")

    def view(self, table: Table) -> GroupedTable:
        name = str(getattr(table, "name", "table"))
        return GroupedTable(name, table.columns, self.cells, self.scale.scale, self.min_group, scatter=self.scatter)


def form(table: Table, min_group: int, secret: bytes, progress: Progress | None = None) -> Grouping:
    """The first grouping of a table; it has no groups if there are fewer than ``min_group`` rows."""
    columns, d = tuple(column.name for column in table.columns), len(table.columns)
    scale = OwnScale(np.zeros(d), np.ones(d))
    none, wide, hidden = np.zeros(0, np.int64), np.zeros((0, d)), np.zeros((0, d), bool)
    cells = GroupCells(none, np.zeros(0), wide, wide, wide, hidden)
    known = KnownRows(none.astype(np.uint64), none.astype(np.uint64), none, none)
    blank = Grouping(min_group, columns, scale, cells, none, np.zeros(0, bool), known, none, hidden, None, 0, secret)
    return update(blank, table, progress)[0]


def update(grouping: Grouping, table: Table, progress: Progress | None = None) -> tuple[Grouping, Change]:
    """The grouping of the current rows, by the rules above."""
    n_before = grouping.n_formed
    grouping, here = _matched(grouping, row_tokens(table, grouping.secret), table)
    lost = grouping.rows.origin[np.isin(grouping.rows.place, (OUT, GONE))]
    standing = np.isin(grouping.numbers, lost, invert=True)  # in the others a row was removed or changed
    grouping = _with_remains(_without_broken(grouping, standing), here, table)
    fresh = grouping.rows.place[here] == WAITING
    is_first = grouping.n_formed == 0
    enough = grouping.min_group if is_first else BATCH * grouping.min_group
    if fresh.sum() >= enough:
        if is_first:
            grouping = replace(grouping, scale=own_scale(table))
        grouping = _with_added(grouping, here, fresh, table, progress)
    change = Change(
        formed=grouping.n_formed - n_before,
        broken=int((~standing).sum()),
        waiting=int(np.isin(grouping.rows.place, (WAITING, REMAINS)).sum()),
    )
    return grouping, change


def _matched(grouping: Grouping, tokens: RowTokens, table: Table) -> tuple[Grouping, Integers]:
    """The grouping with all known rows, and the position of each current row among them."""
    before = grouping.rows
    _, known_places, row_places = np.intersect1d(before.tokens, tokens.rows, return_indices=True)
    here = np.full(len(tokens.rows), -1)
    here[row_places] = known_places
    is_new = here < 0
    n_new = int(is_new.sum())
    here[is_new] = len(before.tokens) + np.arange(n_new)
    place = np.concatenate([before.place, np.full(n_new, WAITING)])
    values = np.concatenate([before.values, tokens.values[is_new]])
    there = np.zeros(len(place), bool)
    there[here] = True
    was_out = np.isin(place[here], (GONE, OUT))
    changed = np.zeros(len(place), bool)
    changed[here] = values[here] != tokens.values
    values[here] = tokens.values
    place[here[was_out]] = OUT
    weights = np.concatenate([np.zeros(0), *(block.counts for block in table.raw_blocks())])
    place[here[(weights == 0) & (place[here] == WAITING)]] = OUT
    touched = (~there | changed) & (place >= 0)
    origin = np.concatenate([before.origin, np.full(n_new, -1)])
    origin[touched] = place[touched]  # marks the group as broken
    place[touched] = np.where(there[touched], OUT, GONE)
    place[changed & (place == REMAINS)] = OUT
    place[~there & (place == REMAINS)] = GONE
    keep = there | (place != WAITING)  # rows that were never in a group are forgotten
    all_tokens = np.concatenate([before.tokens, tokens.rows[is_new]])
    known = KnownRows(all_tokens[keep], values[keep], place[keep], origin[keep])
    return replace(grouping, rows=known), (np.cumsum(keep) - 1)[here]


def _without_broken(grouping: Grouping, standing: Mask) -> Grouping:
    """The unbroken groups; rows of broken ones may form groups once more, unless they already did."""
    if standing.all():
        return grouping
    known, first = grouping.rows, ~standing & ~grouping.reformed
    left = np.isin(known.place, grouping.numbers[~standing])
    may_reform = np.isin(known.place, grouping.numbers[first])
    place = np.where(left, np.where(may_reform, REMAINS, OUT), known.place)
    return replace(
        grouping,
        cells=grouping.cells.taken(standing),
        numbers=grouping.numbers[standing],
        reformed=grouping.reformed[standing],
        rows=replace(known, place=place, origin=np.where(left, known.place, known.origin)),
        broken=np.concatenate([grouping.broken, grouping.numbers[first]]),
        broken_full=np.concatenate([grouping.broken_full, grouping.cells.full[first]]),
        scatter=None,
    )


def _with_remains(grouping: Grouping, here: Integers, table: Table) -> Grouping:
    """New groups of rows from broken ones, each with one row from each of ``min_group`` of them."""
    left = grouping.rows.place[here] == REMAINS
    origin = grouping.rows.origin[here[left]]
    if len(np.unique(origin)) < grouping.min_group:
        return grouping
    rows, weights = chosen_rows(table, left)
    labels = regroup_remains(grouping.scale.scaled(rows), origin, grouping.min_group)
    used = labels >= 0
    if not used.any():
        return grouping
    cells = group_cells(rows[used], labels[used], grouping.min_group, weights[used], pools=False)
    order = np.searchsorted(grouping.broken, origin[used], sorter=np.argsort(grouping.broken))
    full = grouping.broken_full[np.argsort(grouping.broken)[order]]
    all_full = np.ones((len(cells), full.shape[1]), bool)
    np.logical_and.at(all_full, labels[used], full)
    cells = _with_known_means(cells.without(~(all_full & cells.full)), grouping.cells)
    return _with_cells(grouping, cells, here[left][used], labels[used], reformed=True, scatter=None)


def _with_known_means(cells: GroupCells, standing: GroupCells) -> GroupCells:
    """The same groups, with the mean of the other groups' values in cells that show nothing."""
    hidden = cells.present == 0
    behind = standing.present.sum(axis=0)
    shown = np.where(behind > 0, behind, 1.0)
    values = np.nan_to_num(standing.means)
    mean = (standing.present * values).sum(axis=0) / shown
    spread = (standing.squares + standing.present * (values - mean) ** 2).sum(axis=0) / shown
    share = behind / max(float(standing.weights.sum()), 1e-300)
    present = np.where(hidden, cells.weights[:, None] * share, cells.present)
    return replace(
        cells,
        means=np.where(hidden, np.where(behind > 0, mean, np.nan), cells.means),
        present=present,
        squares=np.where(hidden, present * spread, cells.squares),
    )


def _with_added(grouping: Grouping, here: Integers, fresh: Mask, table: Table, progress: Progress | None) -> Grouping:
    formed = form_groups(table, fresh, grouping.scale, grouping.min_group, progress=progress)
    scatter = formed.scatter
    if grouping.n_formed and scatter is not None:
        scatter = None if grouping.scatter is None else grouping.scatter + scatter
    return _with_cells(grouping, formed.cells, here[fresh], formed.labels, reformed=False, scatter=scatter)


def _with_cells(
    grouping: Grouping,
    cells: GroupCells,
    members: Integers,
    labels: Integers,
    *,
    reformed: bool,
    scatter: Floats | None,
) -> Grouping:
    """The grouping with new groups of these known rows."""
    place = grouping.rows.place.copy()
    place[members] = grouping.n_formed + labels
    numbers = grouping.n_formed + np.arange(len(cells))
    return replace(
        grouping,
        cells=GroupCells.joined([grouping.cells, cells]) if len(grouping.cells) else cells,
        numbers=np.concatenate([grouping.numbers, numbers]),
        reformed=np.concatenate([grouping.reformed, np.full(len(cells), reformed)]),
        rows=replace(grouping.rows, place=place),
        scatter=scatter,
        n_formed=grouping.n_formed + len(cells),
    )


class _Head(msgspec.Struct):
    format: int
    min_group: int
    columns: list[str]
    n_formed: int


def save(grouping: Grouping, folder: Path) -> None:
    """Write a grouping, atomically, readable by the site's own user only."""
    temporary, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    shutil.rmtree(temporary, ignore_errors=True)
    private_folder(temporary)
    head = _Head(FORMAT, grouping.min_group, list(grouping.columns), grouping.n_formed)
    with _created(temporary / "head.json") as file:
        file.write(msgspec.json.encode(head))
    for name, values in _arrays(grouping).items():
        with _created(temporary / f"{name}.npy") as file:
            np.save(file, values, allow_pickle=False)
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    temporary.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _created(path: Path) -> BinaryIO:
    return open(path, "xb", opener=opened_private)


def _arrays(grouping: Grouping) -> dict[str, Array]:
    parts = {**vars(grouping), **grouping.scale._asdict(), **vars(grouping.cells), **vars(grouping.rows)}
    return {name: values for name, values in parts.items() if isinstance(values, np.ndarray)}


def load(folder: Path, secret: bytes) -> Grouping | None:
    """The grouping stored in a folder, None if there is none; arrays are mapped into memory."""
    old = folder.with_name(folder.name + ".old")
    if not folder.exists() and old.exists():  # after a crash between the two renames
        old.rename(folder)
    if not folder.exists():
        return None
    try:
        head = msgspec.json.decode((folder / "head.json").read_bytes(), type=_Head)
        if head.format != FORMAT:
            raise InputError(f"{folder}: format {head.format} of groups is unknown; this version reads {FORMAT}.")

        def array(name: str) -> Any:
            return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)

        return Grouping(
            min_group=head.min_group,
            columns=tuple(head.columns),
            scale=OwnScale(*map(array, OwnScale._fields)),
            cells=GroupCells(*[array(item.name) for item in fields(GroupCells)]),
            rows=KnownRows(*[array(item.name) for item in fields(KnownRows)]),
            scatter=array("scatter") if (folder / "scatter.npy").exists() else None,
            n_formed=head.n_formed,
            secret=secret,
            **{name: array(name) for name in ("numbers", "reformed", "broken", "broken_full")},
        )
    except (OSError, ValueError, msgspec.DecodeError) as problem:
        if isinstance(problem, InputError):
            raise
        raise InputError(
            f"{folder}: the site's groups cannot be read ({type(problem).__name__}); restore the folder from a "
            "backup, or form the groups again with `coterie site regroup`."
        ) from None
