"""Forming groups, some ten thousand rows at a time, so that a table may exceed memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from coterie.arrays import Floats, Integers, Mask
from coterie.maths.group_cells import GroupCells, group_cells, rounded
from coterie.maths.grouping import chunk_sizes, group_rows
from coterie.messages.site_api import Table

Progress = Callable[[int, int], None]
"""Called with the number of rows grouped so far, and of all rows."""

CHUNK_ROWS = 1 << 15
CHUNK_BYTES = 1 << 26
"""The most rows, and bytes, that are grouped at a time."""
SCALE_BITS = 24
"""Precision of a site's own scale: the last digits of a sum depend on the order of rows and must not matter."""
ROWS_A_COLUMN = 16
"""The scatter matrix within groups is shown if there are at least so many rows per column."""
FLAT, ROUNDING = 1e-12, 1e-6
"""A shorter combination of unit columns counts as 0; a share of 1 minus less than ``ROUNDING`` counts as 1."""


class OwnScale(NamedTuple):
    """A site's own scaling of its columns, for distances between its rows."""

    center: Floats
    scale: Floats

    def scaled(self, rows: Floats) -> Floats:
        """Rows in these units; a missing value lies at the center."""
        return np.nan_to_num((rows - self.center) / self.scale)


class Formed(NamedTuple):
    """Groups, the group of every row, and the scatter matrix within groups."""

    labels: Integers
    cells: GroupCells
    scatter: Floats | None


def own_scale(table: Table) -> OwnScale:
    """Mean and standard deviation of every column; constant columns are not scaled.

    No column is scaled if all seem to have one unit, such as pixels or 0 and 1: no range is above four times the
    median range, and four in five are at least a quarter of it.
    """
    d = len(table.columns)
    counts, mean, squares = np.zeros(d), np.zeros(d), np.zeros(d)
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    for block in table.raw_blocks():
        rows = block.rows.astype(np.float64, copy=False)
        there = ~np.isnan(rows)
        low, high = np.fmin(low, np.fmin.reduce(rows)), np.fmax(high, np.fmax.reduce(rows))
        n = there.sum(axis=0)
        own = np.where(there, rows, 0.0).sum(axis=0) / np.maximum(n, 1)
        away = np.where(there, rows - own, 0.0)
        total = np.maximum(counts + n, 1)
        squares += (away * away).sum(axis=0) + (own - mean) ** 2 * counts * n / total
        mean = mean + (own - mean) * n / total
        counts += n
    deviation = np.sqrt(squares / np.maximum(counts, 1))
    varies = deviation > 1e-12 * np.maximum(np.abs(mean), 1e-300)
    ranges = (high / 2 - low / 2)[varies]
    if len(ranges) and ranges.max() <= 4 * np.median(ranges) and np.mean(ranges >= np.median(ranges) / 4) >= 0.8:
        return OwnScale(rounded(mean, SCALE_BITS), np.ones(d))
    return OwnScale(rounded(mean, SCALE_BITS), rounded(np.where(varies, deviation, 1.0), SCALE_BITS))


def form_groups(
    table: Table, chosen: Mask, scale: OwnScale, min_group: int, *, progress: Progress | None = None
) -> Formed:
    """Groups of at least ``min_group`` of the chosen rows; chunks of rows are grouped separately."""
    d, n = len(table.columns), int(chosen.sum())
    rare = rare_categories(table, chosen, min_group)
    scatter = np.zeros((d, d)) if n >= ROWS_A_COLUMN * d else None
    labels, parts, formed = [np.zeros(0, np.int64)], list[GroupCells](), 0
    for rows, weights in _chunks(table, chosen, min_group):
        _join_other(rows, rare)
        own = group_rows(scale.scaled(rows), min_group)
        cells = group_cells(rows, own, min_group, weights)
        if scatter is not None:
            away = (rows - cells.means[own]) * np.sqrt(weights)[:, None]
            is_shown = bool(cells.full.all()) and not is_of_few_groups(away, own, min_group)
            scatter = scatter + away.T @ away if is_shown else None
        labels.append(own + formed)
        parts.append(cells)
        formed += len(cells)
        if progress is not None:
            progress(sum(map(len, labels)), n)
    return Formed(np.concatenate(labels), GroupCells.joined(parts), scatter)


def is_of_few_groups(away: Floats, labels: Integers, min_group: int) -> bool:
    """Whether some combination of columns may differ from the groups' means in fewer than ``min_group`` groups only.

    Products of that combination with any column would be sums over the rows of these few groups. A group's share of
    a unit vector in the space of the columns is at most its largest share of any such vector; if the combination lies
    in few groups, their largest shares add up to at least 1.
    """
    lengths = np.linalg.norm(away, axis=0)
    basis, turned = np.linalg.qr(away / np.where(lengths > 0, lengths, 1.0))
    axes, sizes, _ = np.linalg.svd(turned)
    basis = basis @ axes[:, sizes > FLAT * sizes.max(initial=0.0)]
    shares = np.bincount(labels, (basis * basis).sum(axis=1))  # of all vectors together: at least the largest
    is_largest = np.zeros(len(shares), bool)
    while True:
        most = np.argsort(-shares, kind="stable")[: min_group - 1]
        if shares[most].sum() < 1 - ROUNDING:
            return False
        if is_largest[most].all():
            return True
        for group in most[~is_largest[most]]:
            shares[group] = np.linalg.norm(basis[labels == group], 2) ** 2
        is_largest[most] = True


def chosen_rows(table: Table, chosen: Mask) -> tuple[Floats, Floats]:
    """The chosen rows and their weights."""
    none = np.zeros((0, len(table.columns))), np.zeros(0)
    rows, weights = zip(none, *_chosen_blocks(table, chosen), strict=True)
    return np.concatenate(rows), np.concatenate(weights)


def _chosen_blocks(table: Table, chosen: Mask) -> Iterator[tuple[Floats, Floats]]:
    """The chosen rows of each block and their weights."""
    start = 0
    for block in table.raw_blocks():
        here = chosen[start : start + len(block.rows)]
        start += len(block.rows)
        yield block.rows[here].astype(np.float64), block.counts[here]


def _chunks(table: Table, chosen: Mask, min_group: int) -> Iterator[tuple[Floats, Floats]]:
    """The chosen rows in chunks of about equal size, none smaller than a group."""
    target = min(CHUNK_ROWS, CHUNK_BYTES // (8 * max(1, len(table.columns))))
    ends = np.cumsum(chunk_sizes(int(chosen.sum()), min_group, target)).tolist()
    rows, weights, done = np.zeros((0, len(table.columns))), np.zeros(0), 0
    for more, counts in _chosen_blocks(table, chosen):
        rows, weights = np.concatenate([rows, more]), np.concatenate([weights, counts])
        while ends and done + len(rows) >= ends[0]:
            size = ends.pop(0) - done
            yield rows[:size].copy(), weights[:size]
            rows, weights, done = rows[size:], weights[size:], done + size


def rare_categories(table: Table, chosen: Mask, min_group: int) -> list[tuple[int, int | None]]:
    """One-hot columns that are 1 in fewer than ``min_group`` chosen rows, and the column ``other`` of their block."""
    blocks: tuple[tuple[int, int, int | None], ...] = getattr(table, "categories", ())
    if not blocks:
        return []
    held = sum(((rows == 1).sum(axis=0) for rows, _ in _chosen_blocks(table, chosen)), np.zeros(len(table.columns)))
    return [
        (column, other)
        for first, stop, other in blocks
        for column in range(first, stop)
        if 0 < held[column] < min_group and column != other
    ]


def _join_other(rows: Floats, rare: list[tuple[int, int | None]]) -> None:
    for column, other in rare:
        held = rows[:, column] == 1
        rows[held, column] = 0.0
        if other is not None:
            rows[held, other] = 1.0
