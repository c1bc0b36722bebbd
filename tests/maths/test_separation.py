"""Silhouettes, agreement of clusterings and costs of rows without clusters, beside slow twins."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from coterie.maths import separation

RNG = np.random.default_rng(0)


def slow_silhouette(row, centers):
    """By the definition: distances one at a time."""
    own, other, *_ = [*sorted(float(np.sqrt(((row - center) ** 2).sum())) for center in centers), 0.0]
    return 0.0 if other == 0 else (other - own) / max(own, other)


def slow_rand(first, second):
    """Hubert & Arabie's index by looking at every pair of rows."""
    pairs = list(combinations(range(len(first)), 2))
    same_first = [first[i] == first[j] for i, j in pairs]
    same_second = [second[i] == second[j] for i, j in pairs]
    both = sum(a and b for a, b in zip(same_first, same_second, strict=True))
    expected = sum(same_first) * sum(same_second) / len(pairs)
    most = (sum(same_first) + sum(same_second)) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_silhouettes_are_those_of_the_definition(k):
    rows, centers = RNG.normal(size=(40, 3)), RNG.normal(size=(k, 3))
    rows[0] = centers[0]
    squared = ((rows[:, None] - centers) ** 2).sum(axis=2)
    near = separation.two_nearest(squared)
    assert (near.labels == squared.argmin(axis=1)).all()
    expected = [slow_silhouette(row, centers) for row in rows]
    np.testing.assert_allclose(separation.silhouettes(near), expected, rtol=1e-12)
    assert separation.silhouettes(near)[0] == 1


def test_equal_centers_separate_nothing():
    near = separation.two_nearest(np.zeros((3, 2)))
    assert (separation.silhouettes(near) == 0).all()
    assert (separation.silhouettes(separation.two_nearest(np.ones((3, 1)))) == 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_rand_index_of_pair_counts_is_that_of_all_pairs_of_rows(seed):
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 4, 60)
    second = np.where(rng.random(60) < 0.3, rng.integers(0, 4, 60), first)
    table = separation.pair_counts(first, second, 4, np.ones(60)).reshape(4, 4)
    found = separation.adjusted_rand(table)
    assert found == pytest.approx(slow_rand(first, second), abs=1e-12)
    assert found == pytest.approx(adjusted_rand_score(first, second), abs=1e-12)
    assert separation.adjusted_rand(table.T) == pytest.approx(found, abs=1e-15)


def test_a_weight_of_three_is_three_rows():
    first, second = RNG.integers(0, 3, 20), RNG.integers(0, 3, 20)
    weights = RNG.integers(0, 4, 20)
    weighted = separation.pair_counts(first, second, 3, weights.astype(float))
    repeated = separation.pair_counts(
        np.repeat(first, weights), np.repeat(second, weights), 3, np.ones(weights.sum())
    )
    assert (weighted == repeated).all()


def test_equal_clusterings_agree_whatever_their_numbers():
    assert separation.adjusted_rand(np.array([[0.0, 7.0], [5.0, 0.0]])) == 1
    assert separation.adjusted_rand(np.array([[12.0, 0.0], [0.0, 0.0]])) == 1  # all rows in one cluster, twice
    assert separation.adjusted_rand(np.zeros((2, 2))) == 1
    assert separation.adjusted_rand(np.array([[6.0, 6.0], [0.0, 0.0]])) == 0


def test_reference_costs_are_those_of_kmeans_of_uniform_rows():
    ks, sizes = (1, 2, 4, 9), np.array([3.0, 1.0])
    found = separation.reference_costs(tuple(sizes**2 / 3), 0.0, ks, seed=1)
    assert found.mean[0] == pytest.approx(0, abs=1e-5)  # the mean is rounded to a whole number
    rng, logs = np.random.default_rng(5), []
    for _ in range(10):
        rows = rng.uniform(-sizes, sizes, (500, 2))
        costs = [KMeans(k, n_init=3, random_state=0).fit(rows).inertia_ for k in ks]
        logs.append(np.log(np.array(costs) / costs[0]))
    off = np.abs(found.mean - np.mean(logs, axis=0))
    assert (off[1:] < 3 * np.std(logs, axis=0)[1:]).all()
    assert (np.diff(found.mean) < 0).all()


def test_a_uniform_axis_in_two_halves_costs_a_quarter():
    found = separation.reference_costs((1.0,), 0.0, (2, 3), seed=0)
    np.testing.assert_allclose(np.exp(found.mean), [1 / 4, 1 / 9], rtol=0.03)


def test_what_rows_vary_along_other_axes_does_not_fall():
    """With three times the variance elsewhere, a quarter of the cost falls to a quarter: 3/4 + 1/16 are left."""
    found = separation.reference_costs((1.0,), 3.0, (2,), seed=0)
    np.testing.assert_allclose(np.exp(found.mean), [3 / 4 + 1 / 16], rtol=0.02)


def test_reference_costs_have_no_units():
    one = separation.reference_costs((4.0, 1.0), 2.0, (2, 5), seed=3)
    other = separation.reference_costs((4e-16, 1e-16), 2e-16, (2, 5), seed=3)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-6)
    assert (separation.reference_costs((0.0, 0.0), 0.0, (2, 5), seed=3).mean == 0).all()
