"""Groups of at least so many similar rows (microaggregation): a partition whose squares within groups are small.

Rows are halved until a leaf holds a few hundred. In a leaf, MDAV (Domingo-Ferrer & Mateo-Sanz 2002) gives a first
partition; pairs of rows change places, and groups are dissolved into others, while the sum of squares within groups
falls. Many leaves are worked on at once: arrays have the leaf as their first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.maths.clustering import counts_by_cell, sums_by_cell

__all__ = ["chunk_sizes", "group_rows", "regroup_remains", "within_squares"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]

LEAF = 256
"""Rows of a leaf, about; more where groups are large."""
SAMPLE = 2048
"""Rows that a cut is found from, at most."""
ENTRIES = 1 << 20
"""Distances that are in memory at once, about."""
TOLERANCE = 1e-11
"""Gains below it, as a share of a leaf's largest squared distance, may be rounding."""
SLACK = 1.2
"""How many times its squares the rows of a group may add elsewhere, each on its own, for dissolving to be tried."""
WORST = 256
"""One of so many groups is formed anew across leaves."""
SWEEPS, DISSOLVINGS = 1000, 2


def group_rows(
    rows: npt.NDArray[Any], min_group: int, *, progress: Callable[[int, int], None] | None = None
) -> Integers:
    """The number of each row's group: ``min_group`` to ``2 * min_group - 1`` similar rows, by Euclidean distance.

    The partition depends on the rows' values alone, not on their order, and so do the groups' numbers. Another BLAS
    may round, and thus group, otherwise: store the result. ``progress`` gets the number of rows done and of all.
    """
    n = len(rows)
    if min_group < 2:
        raise ValueError(f"min_group={min_group} is no group; use min_group >= 2.")
    if n < min_group:
        raise ValueError(f"{n} rows are less than one group of min_group={min_group}; use at least {min_group} rows.")
    if not np.isfinite(rows).all():
        raise ValueError("rows hold values that are not finite; fill missing values before grouping.")
    order = _canonical_order(np.ascontiguousarray(rows, np.float64))
    values = _centered(np.asarray(rows, np.float64)[order])
    leaves, groups, done = _leaves(values, min_group), np.empty(n, np.intp), 0
    for batch in _batches(leaves):
        for leaf, labels in zip(batch, _leaf_groups(values, batch, min_group), strict=True):
            groups[leaf] = labels + n * done  # compressed below
            done += len(leaf)
        if progress is not None:
            progress(done, n)
    groups = np.unique(groups, return_inverse=True)[1]
    if len(leaves) > 1:
        groups = _mended(values, groups, min_group)
    out = np.empty(n, np.intp)
    out[order] = groups
    return out


def chunk_sizes(n_rows: int, min_group: int, target: int = 1 << 15) -> list[int]:
    """Numbers of rows to group at a time: about ``target``, never more than twice that, and no chunk too small.

    All but the last are multiples of ``min_group``.
    """
    if n_rows < min_group:
        raise ValueError(f"{n_rows} rows are less than one group of min_group={min_group}.")
    units = n_rows // min_group
    n_chunks = max(1, min(round(n_rows / target), units))
    sizes = [min_group * (units * (i + 1) // n_chunks - units * i // n_chunks) for i in range(n_chunks)]
    sizes[-1] += n_rows - units * min_group
    return sizes


def within_squares(rows: npt.NDArray[Any], labels: Integers) -> Floats:
    """Of each group the sum of squared distances of its rows from their mean."""
    rows = np.asarray(rows, np.float64)
    counts, about = np.bincount(labels), rows - rows.mean(axis=0)
    means = sums_by_cell(about, labels, np.ones(len(rows)), len(counts)) / np.maximum(counts, 1)[:, None]
    about -= means[labels]
    return counts_by_cell(labels, np.vecdot(about, about), len(counts))


def regroup_remains(rows: npt.NDArray[Any], origin: npt.NDArray[np.integer[Any]], min_group: int) -> Integers:
    """New groups for rows left over from broken groups: the number of each row's new group, -1 where it has none.

    ``origin`` is the number of the broken group that a row comes from. A new group has exactly ``min_group`` rows,
    each of another origin, and there are as many new groups as that allows. Similar rows stand together: a group
    forms about the row farthest from the mean of those left. The order of the rows does not matter.
    """
    if len(rows) != len(origin):
        raise ValueError(f"{len(rows)} rows have {len(origin)} origins; give one for each row.")
    groups = np.full(len(rows), -1, np.intp)
    if len(rows) < min_group:
        return groups
    by_origin = np.argsort(origin, kind="stable")
    order = by_origin[_canonical_order(np.ascontiguousarray(rows[by_origin], np.float64))]
    values, source = _centered(np.asarray(rows, np.float64)[order]), np.unique(origin[order], return_inverse=True)[1]
    n_groups = _most_groups(np.bincount(source), min_group)
    for number in range(n_groups):
        members = _one_of_each(values, source, min_group, n_groups - number)
        groups[order[members]] = number
        order, source = np.delete(order, members), np.delete(source, members)
        values = np.delete(values, members, axis=0)
    return groups


def _most_groups(counts: Integers, min_group: int) -> int:
    """How many groups of rows of different origins there can be: the largest k with sum(min(counts, k)) >= k
    min_group."""
    most = int(counts.sum())
    while (fewer := int(np.minimum(counts, most).sum()) // min_group) < most:
        most = fewer
    return most


def _one_of_each(rows: Floats, source: Integers, min_group: int, n_groups: int) -> Integers:
    """One group of rows of different origins near each other, so that ``n_groups - 1`` more can follow.

    They can if the origins with at least ``n_groups`` rows that have no part in it are at most as many as there are
    rows to spare.
    """
    counts = np.bincount(source)
    many = counts >= n_groups
    needed = max(0, int(many.sum()) - int(np.minimum(counts, n_groups).sum()) + n_groups * min_group)
    spread = rows - rows.mean(axis=0)
    apart = rows - rows[np.vecdot(spread, spread).argmax()]
    near = np.argsort(np.vecdot(apart, apart), kind="stable")
    near = near[np.sort(np.unique(source[near], return_index=True)[1])]  # the nearest of each origin, nearest first
    forced = near[many[source[near]]][:needed]
    others = near[~np.isin(near, forced)]
    return np.concatenate([forced, others[: min_group - needed]])


# ---------------------------------------------------------------- one order, one scale


def _canonical_order(rows: Floats) -> Integers:
    """An order of the rows that depends on their values alone, and looks drawn at random: by 64 bits of each.

    Should the bits of different rows agree, all are sorted by their columns.
    """
    factors = np.random.default_rng(0).integers(1, 1 << 63, rows.shape[1], np.uint64) | np.uint64(1)
    keys = np.empty(len(rows), np.uint64)
    for first in range(0, len(rows), SAMPLE):
        bits = (rows[first : first + SAMPLE] + 0.0).view(np.uint64)  # one zero only
        bits ^= bits >> np.uint64(32)
        keys[first : first + SAMPLE] = bits @ factors
    order = np.argsort(keys, kind="stable")
    equal = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    if (rows[order[equal]] != rows[order[equal + 1]]).any():
        return np.lexsort(rows.T)
    return order


def _centered(rows: Floats) -> Floats:
    """Move rows, in place, to their mean, and multiply them by a power of two so that no square is too large."""
    exponent = np.frexp(np.abs(rows).max(initial=0.0))[1]
    np.ldexp(rows, -exponent, out=rows)
    rows -= rows.mean(axis=0)
    return rows


# ---------------------------------------------------------------- leaves


def _leaf_size(min_group: int) -> int:
    return max(LEAF, 16 * min_group)


def _leaves(rows: Floats, min_group: int) -> list[Integers]:
    """Rows in leaves, each a multiple of ``min_group`` but one, halved by balanced 2-means."""
    most = _leaf_size(min_group) + min_group
    todo, leaves = [np.arange(len(rows))], []
    while todo:
        leaf = todo.pop()
        if len(leaf) <= most:
            leaves.append(leaf)
            continue
        own = rows[leaf]
        half = len(leaf) // min_group // 2 * min_group
        upper = np.argpartition(own @ _direction(own[:: max(1, len(leaf) // SAMPLE)]), half)
        todo += [leaf[np.sort(upper[half:])], leaf[np.sort(upper[:half])]]
    return leaves


def _direction(rows: Floats) -> Floats:
    """From one mean to the other of balanced 2-means: six power steps towards the main axis, then four mean steps."""
    near = rows - rows.mean(axis=0)
    towards: Floats = near[np.vecdot(near, near).argmax()]
    for step in range(10):
        places = near @ towards
        if step >= 6:
            places = np.where(places >= np.partition(places, len(places) // 2)[len(places) // 2], 1.0, -1.0)
        ahead = places @ near
        length = float(np.linalg.norm(ahead))
        if length == 0.0:
            break
        towards = ahead / length
    return towards


def _batches(leaves: list[Integers]) -> Iterator[list[Integers]]:
    """Leaves that are worked on at once; those of like sizes come together."""
    leaves = sorted(leaves, key=len)
    per_batch = max(1, ENTRIES // max(map(len, leaves), default=1) ** 2)
    for first in range(0, len(leaves), per_batch):
        yield leaves[first : first + per_batch]


def _mended(rows: Floats, groups: Integers, min_group: int) -> Integers:
    """Groups across the cuts between leaves: the worst are formed anew, together with the groups nearest to their
    rows, where the squares within groups fall."""
    number, order, counts = int(groups.max()) + 1, np.argsort(groups, kind="stable"), np.bincount(groups)
    members = np.split(order, np.cumsum(counts)[:-1])
    pools = _pools(rows, groups, members, min_group)
    for batch in _batches([np.concatenate([members[group] for group in pool]) for pool in pools]):
        for leaf, labels in zip(batch, _leaf_groups(rows, batch, min_group), strict=True):
            before = np.unique(groups[leaf], return_inverse=True)[1]
            if within_squares(rows[leaf], labels).sum() < within_squares(rows[leaf], before).sum() * (1 - 1e-9):
                groups[leaf] = number + labels
                number += int(labels.max()) + 1
    return np.unique(groups, return_inverse=True)[1]


def _pools(rows: Floats, groups: Integers, members: list[Integers], min_group: int) -> list[list[int]]:
    """The worst groups, each with the groups nearest to its rows; those that share a group together, up to a leaf."""
    counts, most = np.bincount(groups), _leaf_size(min_group)
    means = sums_by_cell(rows, groups, np.ones(len(rows)), len(counts)) / counts[:, None]
    norms = np.vecdot(means, means)
    squares = counts_by_cell(groups, np.vecdot(rows, rows), len(counts)) - counts * norms
    worst = np.argsort(-squares, kind="stable")[: 4 + len(counts) // WORST]
    own = np.concatenate([members[group] for group in worst])
    apart = norms - 2.0 * (rows[own] @ means.T)
    apart[np.arange(len(own)), groups[own]] = np.inf
    nearest = np.split(apart.argmin(axis=1), np.cumsum(counts[worst])[:-1])
    pools: dict[int, set[int]] = {}  # by each of their groups
    for group, near in zip(worst.tolist(), nearest, strict=True):
        others, votes = np.unique(near, return_counts=True)
        pool = {group, *others[np.argsort(-votes, kind="stable")][: most // (2 * min_group) - 1].tolist()}
        pool = pool.union(*(pools[other] for other in pool if other in pools))
        if counts[list(pool)].sum() <= most:
            pools.update(dict.fromkeys(pool, pool))
    return list({min(pool): sorted(pool) for pool in pools.values()}.values())


def _leaf_groups(rows: Floats, leaves: list[Integers], min_group: int) -> list[Integers]:
    """The group of each row of each leaf."""
    sizes = np.array([len(leaf) for leaf in leaves])
    members = np.zeros((len(leaves), sizes.max()), np.intp)
    for line, leaf in zip(members, leaves, strict=True):
        line[: len(leaf)] = leaf
    squared = _squared_distances(rows[members])
    labels = _mdav(squared, sizes, min_group)
    part, changed = _Partition(squared, labels), np.arange(len(labels))
    for _ in range(DISSOLVINGS):
        part.swap()
        labels[changed] = part.labels(labels.shape[1])
        dissolved, slots = part.dissolved(min_group)
        if not len(dissolved):
            break
        part, changed = part.regrouped(dissolved, slots), changed[dissolved]
    else:
        part.swap()
        labels[changed] = part.labels(labels.shape[1])
    return [line[:size] for line, size in zip(labels, sizes, strict=True)]


def _squared_distances(rows: Floats) -> Floats:
    """Between the rows of each leaf."""
    near = rows - rows.mean(axis=1, keepdims=True)
    norms = np.vecdot(near, near)
    squared: Floats = near @ near.swapaxes(1, 2)
    squared *= -2
    squared += norms[:, :, None]
    squared += norms[:, None, :]
    every = np.arange(rows.shape[1])
    squared[:, every, every] = 0.0
    return np.maximum(squared, 0.0, out=squared)


def _mdav(squared: Floats, sizes: Integers, min_group: int) -> Integers:
    """Groups of ``min_group``: about the row farthest from the mean of those left, then about the one farthest from
    that, and so on; the last group takes what is left."""
    n_leaves, n_rows, _ = squared.shape
    every = np.arange(n_leaves)
    left = np.arange(n_rows) < sizes[:, None]
    labels = np.full((n_leaves, n_rows), -1, np.intp)
    spread = np.vecdot(squared, left[:, None, :].astype(float))  # largest where a row is farthest from the mean
    corner = np.zeros(n_leaves, np.intp)
    for group in range(int(sizes.max()) // min_group):
        n_left = left.sum(axis=1)
        far = squared[every, corner] if group % 2 else spread
        corner = np.where(left, far, -1.0).argmax(axis=1)
        near = np.where(left, squared[every, corner], np.inf)
        nearest = np.argpartition(near, min_group - 1, axis=1)[:, :min_group]
        taken = np.zeros_like(left)
        np.put_along_axis(taken, nearest, True, axis=1)
        taken = np.where((n_left >= 2 * min_group)[:, None], taken, left)
        labels[taken] = group
        left &= ~taken
        spread -= squared[every[:, None], nearest].sum(axis=1)
    return labels


class _Partition:
    """Leaves in groups. A row has a slot: the k-th of its group; slots without a row fill groups up to one size."""

    def __init__(self, squared: Floats, labels: Integers, rows: Integers | None = None) -> None:
        """From squared distances, and the group, of the rows of each leaf; -1: there is no such row."""
        slots, self.sizes = _slots(labels)
        n_leaves, width, n_groups = slots.shape
        self.taken = slots >= 0
        flat = np.maximum(slots, 0).reshape(n_leaves, -1)
        self.rows = np.where(
            self.taken, slots if rows is None else rows[np.arange(n_leaves)[:, None, None], slots], -1
        )
        """Which of the leaf's rows has a slot."""
        self.squared = np.stack([leaf[at][:, at] for leaf, at in zip(squared, flat, strict=True)])
        self.squared = self.squared.reshape(n_leaves, width, n_groups, width, n_groups)
        """Distances between slots."""
        self.squared[~self.taken] = 0.0
        self.share = 1.0 / np.maximum(self.sizes, 1)
        self.sums: Floats = self.squared.sum(axis=1)
        """Of squared distances from all rows of a group to each slot."""
        self.within: Floats = np.empty(self.sizes.shape)
        """Mean squared distance of a group's rows from their mean."""
        self.own: Floats = np.empty(slots.shape)
        """Squared distance of each row from its group's mean; minus infinity where there is no row."""
        self._measure(*np.indices(self.sizes.shape).reshape(2, -1))

    def _measure(self, leaf: Integers, group: Integers) -> None:
        """Bring ``within`` and ``own`` of some groups up to date."""
        share, taken = self.share[leaf, group], self.taken[leaf, :, group]
        sums = np.where(taken, self.sums[leaf, group, :, group], 0.0)
        within = sums.sum(axis=1) * share**2 / 2
        self.within[leaf, group] = within
        self.own[leaf, :, group] = np.where(taken, sums * share[:, None] - within[:, None], -np.inf)

    def labels(self, n_rows: int) -> Integers:
        """The group of each row of a leaf."""
        labels = np.full((len(self.rows), n_rows), -1, np.intp)
        leaf, place, group = np.nonzero(self.taken)
        labels[leaf, self.rows[leaf, place, group]] = group
        return labels

    # If row i of group a and row j of group b change places, the squares within groups fall by
    #   2 (M_a - M_b).(x_j - x_i) + |x_i - x_j|^2 (1/n_a + 1/n_b)
    #   = (|x_i - M_a|^2 - |x_i - M_b|^2) + (|x_j - M_b|^2 - |x_j - M_a|^2) + |x_i - x_j|^2 (1/n_a + 1/n_b).

    def swap(self) -> None:
        """Let pairs of rows change places while the squares within groups fall; groups keep their sizes."""
        n_leaves, n_groups = self.sizes.shape
        least = TOLERANCE * self.squared.reshape(n_leaves, -1).max(axis=1)
        gains = np.empty((n_leaves, n_groups, n_groups))
        leaf, group = np.indices(self.sizes.shape).reshape(2, -1)
        for _ in range(SWEEPS):
            best = self._best_gains(leaf, group)
            gains[leaf, group] = best
            gains[leaf, :, group] = best
            leaf, a, b = _pairs(gains, np.unique(leaf), least)
            if not len(leaf):
                return
            self._exchange(leaf, a, b)
            leaf, group = np.concatenate([leaf, leaf]), np.concatenate([a, b])

    def _best_gains(self, leaf: Integers, group: Integers) -> Floats:
        """Of some groups, with every other group of their leaf: the largest gain of a pair of rows."""
        share = self.share[leaf] + self.share[leaf, group][:, None]
        leaving = self.own[leaf, :, group][:, :, None] - self._from_means(leaf, group)
        leaving /= share[:, None]
        best = np.empty((len(leaf), *self.own.shape[1:]))
        best.fill(-np.inf)
        for place in range(best.shape[1]):
            gains = self.squared[leaf, place, group]
            gains += leaving[:, place, None]
            np.maximum(best, gains, out=best)
        best *= share[:, None]
        best += self.own[leaf]
        arriving = self.sums[leaf, group]
        arriving *= self.share[leaf, group][:, None, None]
        best -= arriving
        most = _largest(best)
        most += self.within[leaf, group][:, None]
        most[np.arange(len(leaf)), group] = -np.inf
        return most

    def _from_means(self, leaf: Integers, group: Integers) -> Floats:
        """Squared distances of the rows of some groups from the means of all groups of their leaf."""
        sums = self.sums[leaf, :, :, group].swapaxes(1, 2)
        return sums * self.share[leaf][:, None] - self.within[leaf][:, None]

    def _exchange(self, leaf: Integers, a: Integers, b: Integers) -> None:
        """Carry out the best exchange between each pair of groups; no group is in two pairs."""
        gains = self.squared[leaf, :, a, :, b] * (self.share[leaf, a] + self.share[leaf, b])[:, None, None]
        gains += self._leaving(leaf, a, b)[:, :, None] + self._leaving(leaf, b, a)[:, None, :]
        best = gains.reshape(len(leaf), -1).argmax(axis=1)
        i, j = best // gains.shape[2], best % gains.shape[2]
        difference = self.squared[leaf, j, b] - self.squared[leaf, i, a]
        self.sums[leaf, a] += difference
        self.sums[leaf, b] -= difference
        every = slice(None)
        for values, before in ((self.rows, 0), (self.squared, 0), (self.sums, 1), (self.squared, 2)):
            first, second = ((leaf, *[every] * before, place, group) for place, group in ((i, a), (j, b)))
            values[first], values[second] = values[second], values[first]
        self._measure(np.concatenate([leaf, leaf]), np.concatenate([a, b]))

    def _leaving(self, leaf: Integers, group: Integers, other: Integers) -> Floats:
        """By how much the rows of a group are nearer to another group's mean than to their own."""
        apart = self.sums[leaf, other, :, group] * self.share[leaf, other][:, None]
        return self.own[leaf, :, group] - apart + self.within[leaf, other][:, None]

    def dissolved(self, min_group: int) -> tuple[Integers, Integers]:
        """Let the rows of a group join the nearest groups that have room, the worst group first, where the squares
        within groups fall. The leaves where that happens, and the new group of every slot of theirs."""
        room = 2 * min_group - 1
        total, size = self.within * self.sizes, np.where(self.sizes > 0, self.sizes, room).astype(float)
        new = np.where(self.taken, np.arange(self.sizes.shape[1]), -1)
        fixed = self._joined_alone(size, room) >= SLACK * total
        worst = np.argsort(np.where(fixed, 0.0, -total), axis=1, kind="stable")
        for group in worst.T[: int((~fixed).sum(axis=1).max())]:
            leaf = np.flatnonzero(~fixed[np.arange(len(group)), group])
            joined, target = self._joined(leaf, group[leaf], size, total, room)
            better = joined.sum(axis=1) < total[leaf, group[leaf]] * (1 - 1e-9)
            leaf, joined, target = leaf[better], joined[better], target[better]
            for k in range(target.shape[1]):
                real = self.taken[leaf, k, group[leaf]]
                at, to = leaf[real], target[real, k]
                new[at, k, group[at]] = to
                self.sums[at, to] += self.squared[at, k, group[at]]
                size[at, to] += 1
                total[at, to] += joined[real, k]
                fixed[at, to] = True
            size[leaf, group[leaf]] = room
            fixed[leaf, group[leaf]] = True
        changed = np.flatnonzero((new != np.where(self.taken, np.arange(self.sizes.shape[1]), -1)).any(axis=(1, 2)))
        return changed, new.reshape(len(new), -1)[changed]

    def _joined_alone(self, size: Floats, room: int) -> Floats:
        """What the rows of each group would add to the squares of the groups they join if each were the only one."""
        least = np.full_like(self.own, np.inf)
        for other in range(size.shape[1]):
            n, share, within = (of[:, other, None, None] for of in (size, self.share, self.within))
            cost = np.where(n < room, n / (n + 1) * (self.sums[:, other] * share - within), np.inf)
            cost[:, :, other] = np.inf
            np.minimum(least, cost, out=least)
        added: Floats = np.where(self.taken, least, 0.0).sum(axis=1)
        return added

    def _joined(
        self, leaf: Integers, group: Integers, size: Floats, total: Floats, room: int
    ) -> tuple[Floats, Integers]:
        """What the rows of a group, one after the other, add to the squares of the groups they join; and which."""
        lines, n = np.arange(len(leaf)), size[leaf]
        n[lines, group] = room
        apart = self.sums[leaf, :, :, group].swapaxes(1, 2) / n[:, None] - (total[leaf] / n)[:, None]
        among = self.squared[leaf, :, group, :, group]
        added, target = np.zeros(among.shape[:2]), np.zeros(among.shape[:2], np.intp)
        for k in range(among.shape[1]):
            real = self.taken[leaf, k, group]
            cost = np.where(n < room, n / (n + 1) * apart[:, k], np.inf)
            to = cost.argmin(axis=1)
            added[:, k], target[:, k] = np.where(real, cost[lines, to], 0.0), to
            before = n[lines, to][:, None]
            moved = (before * apart[lines, :, to] + among[:, k]) / (before + 1)
            moved -= before * apart[lines, k, to][:, None] / (before + 1) ** 2
            apart[lines, :, to] = np.where(real[:, None], moved, apart[lines, :, to])
            n[lines, to] += real
        return added, target

    def regrouped(self, leaf: Integers, labels: Integers) -> _Partition:
        """Some of the leaves, their slots in other groups."""
        n_slots = labels.shape[1]
        squared = self.squared[leaf].reshape(len(leaf), n_slots, n_slots)
        return _Partition(squared, labels, self.rows[leaf].reshape(len(leaf), n_slots))


def _largest(values: Floats) -> Floats:
    """The maximum over the second axis; NumPy's own is slow along short axes."""
    largest = values[:, 0].copy()
    for place in range(1, values.shape[1]):
        np.maximum(largest, values[:, place], out=largest)
    return largest


def _slots(labels: Integers) -> tuple[Integers, Integers]:
    """Which row is the k-th of each group, -1 where a group has fewer, and the groups' sizes."""
    n_leaves, n_groups = len(labels), int(labels.max()) + 1
    order = np.argsort(labels, axis=1, kind="stable")
    ordered = np.take_along_axis(labels, order, axis=1)
    leaf, place = np.nonzero(ordered >= 0)
    group, row = ordered[leaf, place], order[leaf, place]
    sizes = np.zeros((n_leaves, n_groups), np.intp)
    np.add.at(sizes, (leaf, group), 1)
    before = (labels < 0).sum(axis=1)[:, None] + np.cumsum(sizes, axis=1) - sizes
    slots = np.full((n_leaves, int(sizes.max()), n_groups), -1, np.intp)
    slots[leaf, place - before[leaf, group], group] = row
    return slots, sizes


def _pairs(gains: Floats, leaves: Integers, least: Floats) -> tuple[Integers, Integers, Integers]:
    """Pairs of groups to exchange rows: of each leaf the pair of largest gain, and others that no better one touches,
    three times over; no group is in two."""
    left, out = gains[leaves], []
    for _ in range(3):
        partner = left.argmax(axis=2)
        gain = np.take_along_axis(left, partner[:, :, None], axis=2)[:, :, 0]
        leaf, a = np.nonzero(gain > least[leaves][:, None])
        b, gain = partner[leaf, a], gain[leaf, a]
        rank = np.argsort(np.argsort(gain, kind="stable"), kind="stable")
        best = np.full(partner.shape, -1)
        np.maximum.at(best, (leaf, a), rank)
        np.maximum.at(best, (leaf, b), rank)
        keep = (best[leaf, a] == rank) & (best[leaf, b] == rank)
        leaf, a, b = leaf[keep], a[keep], b[keep]
        out.append((leaves[leaf], a, b))
        for used in (a, b):
            left[leaf, used] = -np.inf
            left[leaf, :, used] = -np.inf
    leaf, a, b = (np.concatenate(part) for part in zip(*out, strict=True))
    return leaf, a, b
