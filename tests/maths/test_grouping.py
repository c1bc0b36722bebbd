"""Groups of similar rows: sizes, the same for any order, as tight as is known to be possible, and fast enough."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_wine
from threadpoolctl import threadpool_limits

from coterie.maths import grouping, partitions
from coterie.maths.grouping import chunk_sizes, group_rows, regroup_remains, within_squares
from coterie.maths.partitions import Partition


def values_by_group(rows, groups):
    """The partition as values: what may not depend on the order of the rows."""
    return sorted(sorted(map(tuple, rows[groups == group] + 0.0)) for group in np.unique(groups[groups >= 0]))


def standardised(rows):
    return (rows - rows.mean(axis=0)) / np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)


def share_within(tables, min_group=5):
    """Of the variance of all rows together, the share within groups that are formed table by table."""
    rows = np.concatenate(tables)
    within = sum(within_squares(table, group_rows(table, min_group)).sum() for table in tables)
    return within / ((rows - rows.mean(axis=0)) ** 2).sum()


def dealt(rows):
    return [rows[np.random.default_rng(0).integers(0, 5, len(rows)) == site] for site in range(5)]


# ---------------------------------------------------------------- what holds for any rows


@st.composite
def odd_rows(draw):
    """Rows with duplicates, constant columns, huge offsets, few columns, or none of it."""
    min_group = draw(st.integers(2, 12))
    n = draw(st.one_of(st.integers(min_group, 3 * min_group), st.integers(min_group, 700)))
    d = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    kind = draw(st.sampled_from(["normal", "few values", "all equal", "one far", "extreme", "heavy tail"]))
    rows = {
        "normal": lambda: rng.normal(size=(n, d)),
        "few values": lambda: rng.integers(0, 3, (n, d)).astype(float),
        "all equal": lambda: np.full((n, d), rng.normal()),
        "one far": lambda: np.where(np.arange(n)[:, None] == 0, 1e9, rng.normal(size=(n, d))),
        "extreme": lambda: rng.choice([1.7e308, -1.7e308, 0.0, -0.0, 5e-324, 1.0], (n, d)),
        "heavy tail": lambda: rng.standard_cauchy((n, d)) ** 3,
    }[kind]()
    if kind != "extreme":
        rows = rows * draw(st.sampled_from([1.0, 1e-200, 1e100])) + draw(st.sampled_from([0.0, 1e6, -1e12]))
        rows[:, 0] = draw(st.sampled_from([rows[:, 0], np.full(n, 7.0)]))
    return rows, min_group, rng


@given(odd_rows())
def test_sizes_are_in_range_and_the_order_of_rows_does_not_matter(drawn):
    rows, min_group, rng = drawn
    before = rows.copy()
    groups = group_rows(rows, min_group)
    sizes = np.bincount(groups)
    assert sizes.min() >= min_group
    assert sizes.max() <= 2 * min_group - 1
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_array_equal(groups, group_rows(rows, min_group))
    moved = rng.permutation(len(rows))
    again = group_rows(rows[moved], min_group)
    assert values_by_group(rows, groups) == values_by_group(rows[moved], again)
    if len(np.unique(rows, axis=0)) == len(rows):
        np.testing.assert_array_equal(groups[moved], again)  # the numbers too


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("min_group", [3, 5, 20, 50])
def test_sizes_are_in_range_for_many_rows(min_group, seed):
    rows = np.random.default_rng(seed).standard_t(2, (5003, 3))
    sizes = np.bincount(group_rows(rows, min_group))
    assert sizes.min() >= min_group
    assert sizes.max() <= 2 * min_group - 1


@pytest.mark.parametrize("min_group", [2, 5, 50])
def test_less_than_two_groups_are_one_group(min_group):
    rows = np.random.default_rng(0).normal(size=(2 * min_group, 2))
    for n in (min_group, 2 * min_group - 1):
        assert set(group_rows(rows[:n], min_group)) == {0}
    assert set(group_rows(rows, min_group)) == {0, 1}


def test_minus_zero_is_zero():
    rows = np.random.default_rng(0).integers(-1, 2, (900, 3)) * 1.0
    minus = np.where(rows == 0, -0.0, rows)
    np.testing.assert_array_equal(group_rows(rows, 5), group_rows(minus, 5))


def test_different_rows_of_the_same_key_have_an_order_too():
    factors = np.random.default_rng(0).integers(1, 1 << 63, 2, np.uint64) | np.uint64(1)  # as in _canonical_order
    steps = np.arange(50, dtype=np.uint64)[:, None] * factors[::-1] * np.array([1, 2**64 - 1], np.uint64)
    mixed = np.array([3, 5], np.uint64) + steps  # of the same product with the factors, all of them
    rows = (mixed ^ (mixed >> np.uint64(32))).view(np.float64)
    rows = rows[np.isfinite(rows).all(axis=1)]
    assert len(rows) > 40
    assert len(np.unique(rows, axis=0)) == len(rows)
    moved = np.random.default_rng(1).permutation(len(rows))
    order, again = (grouping._canonical_order(np.ascontiguousarray(part)) for part in (rows, rows[moved]))
    np.testing.assert_array_equal(rows[order], rows[moved][again])


def test_numbers_of_groups_do_not_follow_the_order_of_rows():
    rows = np.sort(np.random.default_rng(0).normal(size=(2000, 1)), axis=0)
    groups = group_rows(rows, 5)
    assert abs(np.corrcoef(np.arange(2000), groups)[0, 1]) < 0.9
    first = np.unique(groups, return_index=True)[1]
    assert (np.diff(first) < 0).any()


def test_what_cannot_be_grouped_is_refused():
    rows = np.zeros((4, 2))
    with pytest.raises(ValueError, match="4 rows are fewer than min_group=5"):
        group_rows(rows, 5)
    with pytest.raises(ValueError, match="min_group=1"):
        group_rows(rows, 1)
    with pytest.raises(ValueError, match="not finite"):
        group_rows(np.full((10, 1), np.nan), 5)
    with pytest.raises(ValueError, match="3 rows are fewer"):
        chunk_sizes(3, 5)
    with pytest.raises(ValueError, match="one origin per row"):
        regroup_remains(rows, np.zeros(3, int), 5)


@given(st.integers(2, 60), st.integers(0, 5000), st.integers(1, 900))
def test_chunks_are_of_like_size_and_none_is_too_small(min_group, more, target):
    n = min_group + more
    sizes = chunk_sizes(n, min_group, target)
    assert sum(sizes) == n
    assert min(sizes) >= min_group
    assert all(size % min_group == 0 for size in sizes[:-1])
    assert max(sizes) <= 1.5 * target + 2 * min_group
    assert len(sizes) <= max(1, 1.5 * n / target)
    assert max(sizes) - min(sizes) < 2 * min_group


# ---------------------------------------------------------------- the parts, beside slow twins


def slow_within(rows, groups):
    return sum(((rows[groups == group] - rows[groups == group].mean(axis=0)) ** 2).sum() for group in set(groups))


def a_partition(seed, sizes=(3, 5, 4, 3, 5)):
    """Rows in groups at random, and what the search knows of them."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = rng.normal(size=(len(labels), 3)) + 100.0
    return rows, labels, Partition(grouping._squared_distances(rows[None]), labels[None])


def test_within_squares_are_those_of_each_group():
    rows, labels, _ = a_partition(0)
    own = [((rows[labels == group] - rows[labels == group].mean(axis=0)) ** 2).sum() for group in range(5)]
    np.testing.assert_allclose(within_squares(rows, labels), own, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_gain_of_an_exchange_is_what_the_squares_fall_by(seed):
    rows, labels, part = a_partition(seed)
    leaf, group = np.zeros(5, np.intp), np.arange(5)
    best = part._best_gains(leaf, group)
    gains = np.full((5, 5), -np.inf)
    for i in range(len(rows)):
        for j in range(len(rows)):
            if labels[i] != labels[j]:
                other = labels.copy()
                other[[i, j]] = labels[[j, i]]
                fall = slow_within(rows, labels) - slow_within(rows, other)
                gains[labels[i], labels[j]] = max(gains[labels[i], labels[j]], fall)
    np.testing.assert_allclose(best, gains, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_an_exchange_keeps_all_that_is_known_up_to_date(seed):
    rows, labels, part = a_partition(seed)
    fall = part._best_gains(np.zeros(2, np.intp), np.array([0, 2]))
    part._exchange(np.zeros(2, np.intp), np.array([0, 2]), np.array([1, 4]))
    after = part.labels(len(rows))[0]
    assert (after != labels).sum() == 4
    fallen = slow_within(rows, labels) - slow_within(rows, after)
    np.testing.assert_allclose(fallen, fall[0, 1] + fall[1, 4], rtol=1e-9)
    anew = Partition(grouping._squared_distances(rows[None]), after[None])
    np.testing.assert_allclose(part.within, anew.within, rtol=1e-9)
    every = np.zeros(5, np.intp), np.arange(5)
    np.testing.assert_allclose(part._best_gains(*every), anew._best_gains(*every), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_after_swapping_no_exchange_gains(seed):
    rows, labels, part = a_partition(seed, sizes=(5, 6, 5, 9, 5, 7))
    part.swap()
    after = part.labels(len(rows))[0]
    np.testing.assert_array_equal(np.bincount(after), np.bincount(labels))
    least = slow_within(rows, after)
    assert least < slow_within(rows, labels)
    for i in range(len(rows)):
        for j in range(i):
            other = after.copy()
            other[[i, j]] = after[[j, i]]
            assert slow_within(rows, other) >= least * (1 - 1e-9)


def slowly_dissolved(rows, labels, min_group):
    """The worst group first: each of its rows joins the group that it adds least to, if that is less in all."""
    labels, fixed = labels.copy(), set()
    squares = within_squares(rows, labels)
    for group in np.argsort(-squares, kind="stable"):
        if group in fixed:
            continue
        other = labels.copy()
        other[labels == group] = -1
        for row in np.flatnonzero(labels == group):
            costs = {}
            for target in set(other) - {-1}:
                if (other == target).sum() < 2 * min_group - 1:
                    joined = np.where(np.arange(len(rows)) == row, target, other)
                    costs[slow_within(rows[joined >= 0], joined[joined >= 0])] = target
            other[row] = costs[min(costs)] if costs else -2
        if (other >= 0).all() and slow_within(rows, other) < slow_within(rows, labels) * (1 - 1e-9):
            fixed |= set(other[labels == group])
            labels = other
    return labels


@pytest.mark.parametrize("seed", range(20))
def test_dissolving_is_what_its_slow_twin_does(seed, monkeypatch):
    monkeypatch.setattr(partitions, "SLACK", 1e9)
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(8), [5, 6, 5, 5, 9, 5, 5, 7]))
    rows = rng.normal(size=(8, 2))[labels] * 3 + rng.normal(size=(len(labels), 2))
    rows[rng.integers(0, len(rows), 6)] += 9.0
    part = Partition(grouping._squared_distances(rows[None]), labels[None])
    leaf, slots = part.dissolved(5)
    assert len(leaf) == 1
    after = part.regrouped(leaf, slots).labels(len(rows))[0]
    assert values_by_group(rows, after) == values_by_group(rows, slowly_dissolved(rows, labels, 5))


def test_dissolving_frees_a_row_that_is_far_from_its_group():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(24, 2)), rng.normal(size=(6, 2)) + 50.0])
    labels = np.concatenate([np.repeat(np.arange(5), 5)[:24], [5, 5, 5, 5, 5, 4]])  # the last among near ones
    part = Partition(grouping._squared_distances(rows[None]), labels[None])
    after = part.regrouped(*part.dissolved(5)).labels(len(rows))[0]
    assert len(set(after[24:])) == 1
    assert set(after[24:]).isdisjoint(after[:24])


# ---------------------------------------------------------------- how tight groups are


def test_rows_that_are_there_several_times_stand_together():
    rows = np.repeat(np.random.default_rng(0).normal(size=(300, 4)), 5, axis=0)
    assert share_within([rows]) < 1e-12


def test_groups_of_sorted_numbers_are_nearly_the_best():
    rows = np.random.default_rng(0).normal(size=(600, 1))
    values = np.sort(rows[:, 0])
    least = np.full(len(values) + 1, np.inf)  # of the first so many: groups of one column are runs
    least[0] = 0.0
    for end in range(5, len(values) + 1):
        least[end] = min(least[end - n] + n * values[end - n : end].var() for n in range(5, min(9, end) + 1))
    assert within_squares(rows, group_rows(rows, 5)).sum() < 1.3 * least[-1]


@pytest.mark.parametrize(
    ("rows", "share"), [(load_digits().data / 16, 0.262), (standardised(load_wine().data), 0.325)]
)
def test_little_of_the_variance_is_within_groups(rows, share):
    assert share_within(dealt(rows) if len(rows) > 1000 else [rows]) < share


@pytest.mark.data
@pytest.mark.parametrize(("name", "share"), [("heart_disease", 0.24), ("wisdm", 0.285), ("mushrooms", 0.165)])
def test_little_of_the_variance_is_within_groups_of_shared_data(data_folder, name, share):
    with np.load(data_folder / f"{name}.npz") as stored:
        rows = stored["X"].astype(float)
        site = next((stored[key] for key in ("site", "client") if key in stored.files), None)
    if site is None:
        tables = dealt(rows)
    else:
        rows = standardised(np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows))
        tables = [rows[site == one] for one in np.unique(site)]
    assert share_within(tables) < share


@pytest.mark.parametrize(("n", "d"), [(100, 2), (300, 10), (1000, 20), (5000, 2)])
@pytest.mark.parametrize("size", [5, 6, 8, 9, 10, 11, 14, 18])
def test_a_far_cluster_keeps_to_itself(n, d, size):
    rng = np.random.default_rng(size)
    away = rng.normal(size=d)
    rows = np.concatenate([rng.normal(size=(n, d)), rng.normal(size=(size, d)) + 30 * away / np.linalg.norm(away)])
    groups = group_rows(standardised(rows), 5)
    far = np.isin(groups, groups[n:])
    off = rows[far].mean(axis=0) - rows[n:].mean(axis=0)
    assert np.abs(off).max() < 0.1


def test_a_far_cluster_that_a_cut_went_through_is_mended():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(20_000, 2)), rng.normal((12.0, 0.0), size=(10, 2))])
    leaves = grouping._leaves(rows - rows.mean(axis=0), 5)
    assert sum((leaf >= 20_000).any() for leaf in leaves) > 1
    groups = group_rows(rows, 5)
    assert set(groups[20_000:]).isdisjoint(groups[:20_000])


@pytest.mark.parametrize("min_group", [5, 50])
def test_what_is_mended_together_has_no_group_twice_and_is_at_most_a_leaf(min_group):
    rows = np.random.default_rng(0).standard_cauchy((4000, 2))
    groups = group_rows(rows, min_group)
    members = [np.flatnonzero(groups == group) for group in range(groups.max() + 1)]
    pools = grouping._pools(rows, groups, members, min_group)
    every = [group for pool in pools for group in pool]
    assert len(set(every)) == len(every) > len(pools) > 0
    assert max(sum(len(members[group]) for group in pool) for pool in pools) <= max(256, 16 * min_group)
    assert within_squares(rows, groups).argmax() in every


# ---------------------------------------------------------------- rows left over


@st.composite
def remains(draw):
    min_group = draw(st.integers(2, 6))
    counts = draw(st.lists(st.integers(1, 2 * min_group), max_size=20))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    origin = rng.permutation(np.repeat(7 * np.arange(len(counts)), counts))
    rows = rng.normal(size=(len(origin), 2)) if draw(st.booleans()) else rng.integers(0, 2, (len(origin), 2)) * 1.0
    return rows, origin, min_group, rng


@given(remains())
def test_remains_form_as_many_groups_of_different_origins_as_there_can_be(drawn):
    rows, origin, min_group, rng = drawn
    groups = regroup_remains(rows, origin, min_group)
    n_groups = int(groups.max(initial=-1)) + 1
    for group in range(n_groups):
        assert (groups == group).sum() == min_group == len(set(origin[groups == group]))
    counts = np.bincount(origin) if len(origin) else np.zeros(1, int)
    k = n_groups + 1
    assert (
        np.minimum(counts, k).sum() < k * min_group
    )  # one more cannot be: each origin gives at most one row to each
    moved = rng.permutation(len(rows))
    again = regroup_remains(rows[moved], origin[moved], min_group)
    with_origin = np.column_stack([rows, origin])
    assert values_by_group(with_origin, groups) == values_by_group(with_origin[moved], again)


def test_remains_that_are_alike_stand_together():
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(40, 3)) * 20
    rows = np.repeat(middles, 5, axis=0) + 0.01 * rng.normal(size=(200, 3))
    origin = np.tile(np.arange(5), 40)
    groups = regroup_remains(rows, origin, 5)
    assert groups.min() >= 0
    assert within_squares(rows, groups).sum() < 0.01 * ((rows - rows.mean(axis=0)) ** 2).sum()


# ---------------------------------------------------------------- speed


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1_000_000, 20), (65_536, 784)])
def test_grouping_takes_at_most_twelve_times_as_long_as_k_means(shape):
    rows = np.random.default_rng(0).normal(size=shape)  # without clusters, so that k-means takes all its steps
    chunks = np.cumsum([0, *chunk_sizes(len(rows), 5)])
    with threadpool_limits(1):
        begin = time.process_time()
        solver = KMeans(10, n_init=1, max_iter=20, random_state=0).fit(rows)
        middle = time.process_time()
        for first, last in pairwise(chunks):
            group_rows(rows[first:last], 5)
        end = time.process_time()
    assert solver.n_iter_ == 20
    assert end - middle <= 12 * (middle - begin)
