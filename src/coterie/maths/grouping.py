"""Microaggregation: groups of at least ``min_group`` similar rows, with a small sum of squares within groups.

Rows are split in halves until a leaf has a few hundred. In a leaf, MDAV (Domingo-Ferrer & Mateo-Sanz 2002) gives a
first partition; then rows are swapped and groups dissolved while the sum of squares within groups decreases. Many
leaves are processed at once: arrays have the leaf as their first axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import Array, Floats, Indices
from coterie.maths.clustering import counts_by_cell, row_hashes, sums_by_cell
from coterie.maths.partitions import Partition

LEAF = 256
"""Rows of a leaf, approximately; more if groups are large."""
SAMPLE = 2048
"""The most rows that determine a split."""
ENTRIES = 1 << 19
"""Distances in memory at once, approximately."""
WORST = 256
"""One of so many groups is formed again across leaves."""
DISSOLVINGS = 2
"""The most passes that dissolve groups of a leaf."""


def group_rows(rows: Array, min_group: int) -> Indices:
    """The number of each row's group: ``min_group`` to ``2 * min_group - 1`` similar rows, by Euclidean distance.

    The result depends on the values of the rows, not on their order. Another BLAS may round, and so group,
    differently: store the result.
    """
    n = len(rows)
    if min_group < 2:
        raise ValueError(f"min_group={min_group} is too small; use min_group >= 2.")
    if n < min_group:
        raise ValueError(f"{n} rows are fewer than min_group={min_group}; use at least {min_group} rows.")
    if not np.isfinite(rows).all():
        raise ValueError("rows hold values that are not finite; fill missing values before grouping.")
    rows = np.ascontiguousarray(rows, np.float64)
    order = _canonical_order(rows)
    values = _centered(rows[order])
    leaves, groups, done = _leaves(values, min_group), np.empty(n, np.intp), 0
    for batch in _batches(leaves):
        for leaf, labels in zip(batch, _leaf_groups(values, batch, min_group), strict=True):
            groups[leaf] = labels + n * done  # renumbered below
            done += len(leaf)
    groups = np.unique(groups, return_inverse=True)[1]
    if len(leaves) > 1:
        groups = _regrouped_across_leaves(values, groups, min_group)
    out = np.empty(n, np.intp)
    out[order] = groups
    return out


def chunk_sizes(n_rows: int, min_group: int, target: int = 1 << 15) -> list[int]:
    """Sizes of chunks to group separately: at most 1.5 ``target`` plus two groups, at least one group.

    All but the last are multiples of ``min_group``.
    """
    if n_rows < min_group:
        raise ValueError(f"{n_rows} rows are fewer than min_group={min_group}; use at least {min_group} rows.")
    units = n_rows // min_group
    n_chunks = max(1, min(round(n_rows / target), units))
    sizes = [min_group * (units * (i + 1) // n_chunks - units * i // n_chunks) for i in range(n_chunks)]
    sizes[-1] += n_rows - units * min_group
    return sizes


def within_squares(rows: Array, labels: Indices) -> Floats:
    """Per group the sum of squared distances of its rows from their mean."""
    rows = np.asarray(rows, np.float64)
    counts, about = np.bincount(labels), rows - rows.mean(axis=0)
    means = sums_by_cell(about, labels, np.ones(len(rows)), len(counts)) / np.maximum(counts, 1)[:, None]
    about -= means[labels]
    return counts_by_cell(labels, np.vecdot(about, about), len(counts))


def regroup_remains(rows: Array, origin: npt.NDArray[np.integer[Any]], min_group: int) -> Indices:
    """New groups for rows left over from broken groups: the number of each row's new group, -1 where it has none.

    ``origin`` is the broken group that a row comes from. A new group has exactly ``min_group`` rows, all of different
    origins, and there are as many groups as possible. Each consists of similar rows, near the row farthest from the
    mean of those left. The order of the rows does not matter.
    """
    if len(rows) != len(origin):
        raise ValueError(f"{len(rows)} rows have {len(origin)} origins; give one origin per row.")
    groups = np.full(len(rows), -1, np.intp)
    if len(rows) < min_group:
        return groups
    rows, by_origin = np.asarray(rows, np.float64), np.argsort(origin, kind="stable")
    order = by_origin[_canonical_order(rows[by_origin])]
    values, source = _centered(rows[order]), np.unique(origin[order], return_inverse=True)[1]
    n_groups = _most_groups(np.bincount(source), min_group)
    for number in range(n_groups):
        members = _one_of_each(values, source, min_group, n_groups - number)
        groups[order[members]] = number
        order, source = np.delete(order, members), np.delete(source, members)
        values = np.delete(values, members, axis=0)
    return groups


def _most_groups(counts: Indices, min_group: int) -> int:
    """The most groups of rows of different origins: the largest k with sum(min(counts, k)) >= k min_group."""
    most = int(counts.sum())
    while (fewer := int(np.minimum(counts, most).sum()) // min_group) < most:
        most = fewer
    return most


def _one_of_each(rows: Floats, source: Indices, min_group: int, n_groups: int) -> Indices:
    """One group of nearby rows of different origins that leaves ``n_groups - 1`` further groups possible.

    They are if no more origins with at least ``n_groups`` rows are left out of it than there are spare rows.
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


def _canonical_order(rows: Floats) -> Indices:
    """A pseudo-random order of the rows that depends only on their values: by 64-bit hashes.

    If the hashes of different rows collide, all rows are sorted by column instead.
    """
    keys = row_hashes(rows)
    order = np.argsort(keys, kind="stable")
    equal = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    if (rows[order[equal]] != rows[order[equal + 1]]).any():
        return np.lexsort(rows.T)
    return order


def _centered(rows: Floats) -> Floats:
    """Center rows in place, after scaling by a power of two so that squares do not overflow."""
    exponent = np.frexp(np.abs(rows).max(initial=0.0))[1]
    np.ldexp(rows, -exponent, out=rows)
    rows -= rows.mean(axis=0)
    return rows


def _leaf_size(min_group: int) -> int:
    return max(LEAF, 16 * min_group)


def _leaves(rows: Floats, min_group: int) -> list[Indices]:
    """Leaves, split by balanced 2-means; all sizes but one are multiples of ``min_group``."""
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
    """The direction between the means of balanced 2-means: six power steps to the main axis, then four mean steps."""
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


def _batches(leaves: list[Indices]) -> Iterator[list[Indices]]:
    """Batches of leaves of similar size."""
    leaves = sorted(leaves, key=len)
    per_batch = max(1, ENTRIES // max(map(len, leaves), default=1) ** 2)
    for first in range(0, len(leaves), per_batch):
        yield leaves[first : first + per_batch]


def _regrouped_across_leaves(rows: Floats, groups: Indices, min_group: int) -> Indices:
    """Groups across leaves: the worst groups are formed again with the groups nearest to their rows, if that
    decreases the squares within groups."""
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


def _pools(rows: Floats, groups: Indices, members: list[Indices], min_group: int) -> list[list[int]]:
    """The worst groups, each with the groups nearest to its rows; overlapping ones are merged up to a leaf."""
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


def _leaf_groups(rows: Floats, leaves: list[Indices], min_group: int) -> list[Indices]:
    """The group of each row of each leaf."""
    sizes = np.array([len(leaf) for leaf in leaves])
    members = np.zeros((len(leaves), sizes.max()), np.intp)
    for line, leaf in zip(members, leaves, strict=True):
        line[: len(leaf)] = leaf
    squared = _squared_distances(rows[members])
    labels = _mdav(squared, sizes, min_group)
    part, changed = Partition(squared, labels), np.arange(len(labels))
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
    """Squared distances between the rows of each leaf."""
    near = rows - rows.mean(axis=1, keepdims=True)
    norms = np.vecdot(near, near)
    squared: Floats = near @ near.swapaxes(1, 2)
    squared *= -2
    squared += norms[:, :, None]
    squared += norms[:, None, :]
    every = np.arange(rows.shape[1])
    squared[:, every, every] = 0.0
    return np.maximum(squared, 0.0, out=squared)


def _mdav(squared: Floats, sizes: Indices, min_group: int) -> Indices:
    """Groups of ``min_group``, alternately around the row farthest from the mean of those left and around the row
    farthest from that one; the last group takes the rest."""
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
