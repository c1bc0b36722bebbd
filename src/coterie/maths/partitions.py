"""Improving a partition of rows into groups: rows are swapped, groups are dissolved into others.

Many small sets of rows, called leaves, are processed at once: arrays have the leaf as their first axis. Only squared
distances between rows are needed.
"""

from __future__ import annotations

import numpy as np

from coterie.arrays import Floats, Indices

TOLERANCE = 1e-11
"""Smaller gains, relative to a leaf's largest squared distance, may be rounding errors."""
SLACK = 1.2
"""Dissolving is tried if the rows of a group, each alone, would add less than so many times its squares elsewhere."""
SWEEPS = 1000
"""The most sweeps of swaps."""


class Partition:
    """Leaves in groups. A row has a slot, the k-th of its group; empty slots pad groups to one size."""

    def __init__(self, squared: Floats, labels: Indices, rows: Indices | None = None) -> None:
        """From the squared distances and the groups of each leaf's rows; -1 for padding."""
        slots, self.sizes = _slots(labels)
        n_leaves, width, n_groups = slots.shape
        self.taken = slots >= 0
        flat = np.maximum(slots, 0).reshape(n_leaves, -1)
        self.rows = slots if rows is None else rows[np.arange(n_leaves)[:, None, None], slots]
        """The row in each slot; undefined for empty slots."""
        self.squared = np.stack([leaf[at][:, at] for leaf, at in zip(squared, flat, strict=True)])
        self.squared = self.squared.reshape(n_leaves, width, n_groups, width, n_groups)
        """Distances between slots."""
        self.squared[~self.taken] = 0.0
        self.share = 1.0 / np.maximum(self.sizes, 1)
        self.sums: Floats = self.squared.sum(axis=1)
        """Sums of squared distances from all rows of a group to each slot."""
        self.within: Floats = np.empty(self.sizes.shape)
        """Mean squared distance of a group's rows from their mean."""
        self.own: Floats = np.empty(slots.shape)
        """Squared distance of each row from its group's mean; minus infinity for empty slots."""
        self._measure(*np.indices(self.sizes.shape).reshape(2, -1))

    def _measure(self, leaf: Indices, group: Indices) -> None:
        """Update ``within`` and ``own`` of these groups."""
        share, taken = self.share[leaf, group], self.taken[leaf, :, group]
        sums = np.where(taken, self.sums[leaf, group, :, group], 0.0)
        within = sums.sum(axis=1) * share**2 / 2
        self.within[leaf, group] = within
        self.own[leaf, :, group] = np.where(taken, sums * share[:, None] - within[:, None], -np.inf)

    def labels(self, n_rows: int) -> Indices:
        labels = np.full((len(self.rows), n_rows), -1, np.intp)
        leaf, place, group = np.nonzero(self.taken)
        labels[leaf, self.rows[leaf, place, group]] = group
        return labels

    # If row i of group a and row j of group b are swapped, the squares within groups decrease by
    #   2 (M_a - M_b).(x_j - x_i) + |x_i - x_j|^2 (1/n_a + 1/n_b)
    #   = (|x_i - M_a|^2 - |x_i - M_b|^2) + (|x_j - M_b|^2 - |x_j - M_a|^2) + |x_i - x_j|^2 (1/n_a + 1/n_b).

    def swap(self) -> None:
        """Swap pairs of rows while the squares within groups decrease; groups keep their sizes."""
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

    def _best_gains(self, leaf: Indices, group: Indices) -> Floats:
        """For these groups and every other group of their leaf, the largest gain of swapping two rows."""
        share = self.share[leaf] + self.share[leaf, group][:, None]
        leaving = self.own[leaf, :, group][:, :, None] - self._from_means(leaf, group)
        leaving /= share[:, None]
        best = np.full((len(leaf), *self.own.shape[1:]), -np.inf)
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

    def _from_means(self, leaf: Indices, group: Indices) -> Floats:
        """Squared distances of the rows of these groups from the means of all groups of their leaf."""
        sums = self.sums[leaf, :, :, group].swapaxes(1, 2)
        return sums * self.share[leaf][:, None] - self.within[leaf][:, None]

    def _exchange(self, leaf: Indices, a: Indices, b: Indices) -> None:
        """Swap the best two rows of each pair of groups; no group is in two pairs."""
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

    def _leaving(self, leaf: Indices, group: Indices, other: Indices) -> Floats:
        """Squared distances of a group's rows from its mean, minus those from another group's mean."""
        apart = self.sums[leaf, other, :, group] * self.share[leaf, other][:, None]
        return self.own[leaf, :, group] - apart + self.within[leaf, other][:, None]

    def dissolved(self, min_group: int) -> tuple[Indices, Indices]:
        """Move the rows of a group to the nearest groups with room, worst groups first, if the squares within groups
        decrease. Returns the changed leaves, and the new group of each of their slots."""
        room = 2 * min_group - 1
        total, size = self.within * self.sizes, np.where(self.sizes > 0, self.sizes, room).astype(float)
        old = np.where(self.taken, np.arange(self.sizes.shape[1]), -1)
        new = old.copy()
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
        changed = np.flatnonzero((new != old).any(axis=(1, 2)))
        return changed, new.reshape(len(new), -1)[changed]

    def _joined_alone(self, size: Floats, room: int) -> Floats:
        """What the rows of each group would add to the squares of the groups they join, each row alone."""
        least = np.full_like(self.own, np.inf)
        for other in range(size.shape[1]):
            n, share, within = (of[:, other, None, None] for of in (size, self.share, self.within))
            cost = np.where(n < room, n / (n + 1) * (self.sums[:, other] * share - within), np.inf)
            cost[:, :, other] = np.inf
            np.minimum(least, cost, out=least)
        return np.asarray(np.where(self.taken, least, 0.0).sum(axis=1))

    def _joined(
        self, leaf: Indices, group: Indices, size: Floats, total: Floats, room: int
    ) -> tuple[Floats, Indices]:
        """What the rows of a group, in turn, add to the squares of the groups they join; and these groups."""
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

    def regrouped(self, leaf: Indices, labels: Indices) -> Partition:
        """These leaves with new groups of their slots."""
        n_slots = labels.shape[1]
        squared = self.squared[leaf].reshape(len(leaf), n_slots, n_slots)
        return Partition(squared, labels, self.rows[leaf].reshape(len(leaf), n_slots))


def _largest(values: Floats) -> Floats:
    """The maximum over the second axis; NumPy's is slow along short axes."""
    largest = values[:, 0].copy()
    for place in range(1, values.shape[1]):
        np.maximum(largest, values[:, place], out=largest)
    return largest


def _slots(labels: Indices) -> tuple[Indices, Indices]:
    """The k-th row of each group, -1 if it has fewer, and the sizes of the groups."""
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


def _pairs(gains: Floats, leaves: Indices, least: Floats) -> tuple[Indices, Indices, Indices]:
    """Disjoint pairs of groups to swap rows between: in each of three passes, the pairs of largest gain that share no
    group with a better pair."""
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
