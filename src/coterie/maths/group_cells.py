"""The cells of groups: per group and column a mean, and the weight of the values behind it.

A cell is thin if it has few values, or if all but one or two of its rows hold the column's most frequent value: its
mean would disclose those few. Thin cells of a column are pooled: each shows the mean of all of them. If a column has
too few values for a pool, they are not shown; if only one or two rows of a pool hold another value than the most
frequent one, they count as holding that one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from coterie.arrays import Array, Floats, Integers, Mask

MOST_OFF = 2
"""A cell is thin if at most so many of its rows differ from the most frequent value of the column."""


@dataclass(frozen=True)
class GroupCells:
    """Groups of rows; each array has a row per group."""

    sizes: Integers
    """Rows in each group."""
    weights: Floats
    """The total weight of these rows."""
    means: Floats
    """Per column the mean shown; NaN if none is."""
    present: Floats
    """Per column the weight of the values behind the mean; 0 if none is shown."""
    squares: Floats
    """Per column the sum of squares of these values about the mean."""
    full: Mask
    """Per column whether the mean is that of exactly the rows of this group."""

    def __len__(self) -> int:
        return len(self.sizes)

    def taken(self, which: Array) -> GroupCells:
        """A part of the groups, by mask or position."""
        return GroupCells(*[getattr(self, item.name)[which] for item in fields(self)])

    def without(self, hidden: Mask) -> GroupCells:
        return replace(
            self,
            means=np.where(hidden, np.nan, self.means),
            present=np.where(hidden, 0.0, self.present),
            squares=np.where(hidden, 0.0, self.squares),
            full=self.full & ~hidden,
        )

    @classmethod
    def joined(cls, parts: list[GroupCells]) -> GroupCells:
        if len(parts) == 1:
            return parts[0]
        return cls(*[np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(cls)])


def group_cells(
    rows: Floats, labels: Integers, min_group: int, weights: Floats | None = None, *, pools: bool = True
) -> GroupCells:
    """The cells of groups of rows; NaN is a missing value. Without ``pools`` thin cells are hidden.

    No cell has 1 to ``min_group - 1`` values, nor 1 or 2 rows that differ from the column's most frequent value.
    """
    order = np.argsort(labels, kind="stable")
    x = np.asarray(rows, np.float64)[order]
    each = None if weights is None or (weights == 1).all() else np.asarray(weights, np.float64)[order]
    starts = np.searchsorted(labels[order], np.arange(int(labels.max(initial=-1)) + 1))
    groups = _Groups(starts, len(x), each)
    there = ~np.isnan(x)
    modes = _modes(x, min_group)
    off = there & (x != modes)
    thin = _is_thin(groups.counts(there), groups.counts(off), min_group)
    cells = groups.cells(x, there & ~thin[groups.of_row] if not pools else there)
    for column in np.flatnonzero(thin.any(axis=0)).tolist() if pools else ():
        values = x[:, column], there[:, column], off[:, column]
        pool = _reduce_to_pool(cells, column, *values, float(modes[column]), groups, min_group)
        if pool.any():
            _put_pool(cells, column, pool)
    return cells


def _is_thin(n_present: Array, n_off: Array, min_group: int) -> Mask:
    return np.asarray(((n_present > 0) & (n_present < min_group)) | ((n_off > 0) & (n_off <= MOST_OFF)))


def _modes(x: Floats, min_group: int) -> Floats:
    """The most frequent value of every column, the smallest of several; NaN if fewer than a group hold it."""
    modes = np.full(x.shape[1], np.nan)
    for column, values in enumerate(np.sort(x, axis=0).T):  # NaN comes last
        known = values[: np.searchsorted(values, np.nan)]
        if len(known):
            starts = np.flatnonzero(np.append(True, known[1:] != known[:-1]))
            times = np.diff(np.append(starts, len(known)))
            if times.max() >= min_group:
                modes[column] = known[starts[np.argmax(times)]]
    return modes


class _Groups:
    """Rows in order of their groups."""

    def __init__(self, starts: Integers, n_rows: int, each: Floats | None) -> None:
        self.starts, self.each = starts, each
        self.sizes = np.diff(np.append(starts, n_rows))
        self.of_row = np.repeat(np.arange(len(starts)), self.sizes)

    def counts(self, values: Mask) -> Integers:
        return self._added(values, np.int64)

    def sums(self, values: Floats) -> Floats:
        if self.each is not None:
            values = values * (self.each if values.ndim == 1 else self.each[:, None])
        return self._added(values, np.float64)

    def _added(self, values: Array, kind: type) -> Array:
        if not len(self.starts):
            return np.zeros((0, *values.shape[1:]), kind)
        return np.asarray(np.add.reduceat(values, self.starts, axis=0, dtype=kind))

    def cells(self, x: Floats, there: Mask) -> GroupCells:
        behind = self.sums(there.astype(np.float64))
        shown = np.where(behind > 0, behind, np.nan)
        means = self.sums(np.where(there, x, 0.0)) / shown
        away = x - means[self.of_row]
        away[~there] = 0.0
        squares = self.sums(away * away)
        full = self.counts(there) == (self.sizes if x.ndim == 1 else self.sizes[:, None])
        weights = self.sums(np.ones(len(x)))
        return GroupCells(self.sizes, weights, means, behind, squares, full)


def _put_pool(cells: GroupCells, column: int, pool: Mask) -> None:
    """Replace the pooled cells of a column by their common mean."""
    behind, means, weights = cells.present[pool, column], cells.means[pool, column], cells.weights[pool]
    mean = behind @ means / behind.sum()
    squares = cells.squares[pool, column].sum() + behind @ (means - mean) ** 2
    cells.means[pool, column] = mean
    cells.present[pool, column] = weights * (behind.sum() / weights.sum())
    cells.squares[pool, column] = weights * (squares / weights.sum())
    cells.full[pool, column] = False


def _reduce_to_pool(
    cells: GroupCells, column: int, x: Floats, there: Mask, off: Mask, mode: float, groups: _Groups, min_group: int
) -> Mask:
    """The thin cells of a column and those pooled with them; values are removed from the column, and its cells put
    again, while no pool is large enough."""
    while True:
        n_present, n_off = groups.counts(there), groups.counts(off)
        pool = _is_thin(n_present, n_off, min_group)
        if not pool.any() or _is_enough(pool, n_present, n_off, min_group):
            return pool
        pool = _enlarged(pool, n_present, n_off, min_group)
        if _is_enough(pool, n_present, n_off, min_group):
            return pool
        in_pool = pool[groups.of_row]
        if 0 < (off & in_pool).sum() <= MOST_OFF and not np.isnan(mode):
            x = np.where(off & in_pool, mode, x)
        else:
            there = there & ~in_pool
        off = off & ~in_pool
        reduced = groups.cells(x, there)
        for name in ("means", "present", "squares", "full"):
            getattr(cells, name)[:, column] = getattr(reduced, name)


def _is_enough(pool: Mask, n_present: Integers, n_off: Integers, min_group: int) -> bool:
    return bool(n_present[pool].sum() >= min_group) and not 0 < n_off[pool].sum() <= MOST_OFF


def _enlarged(pool: Mask, n_present: Integers, n_off: Integers, min_group: int) -> Mask:
    """The pool with the smallest other cell that makes it large enough, if there is one."""
    for place in np.argsort(np.where(pool, np.iinfo(np.int64).max, n_off), kind="stable"):
        if pool[place] or n_present[place] < min_group:
            continue
        larger = pool.copy()
        larger[place] = True
        if _is_enough(larger, n_present, n_off, min_group):
            return larger
    return pool


def rounded(values: Floats, bits: int) -> Floats:
    """The values, rounded to ``bits`` significant bits."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.rint(mantissa * 2.0**bits), exponent - bits))
