"""Several starts: which there are, how sites compare them, and what that costs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

import coterie
from coterie import FederatedKernelKMeans, FederatedKMeans
from coterie.engines.inprocess import in_process
from coterie.errors import InputError
from coterie.estimators.kmeans import LloydKMeans
from coterie.maths.clustering import distinct_first, moments, smallest_first
from coterie.messages.site_api import Memory
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.restarts import (
    AssignEach,
    CompareStarts,
    best_of,
    chosen_start,
    local_each_moments,
    local_start_costs,
)
from coterie.methods.shared.starts import (
    CELLS_A_CLUSTER,
    MOST_NUMBERS,
    PLACE_MOVES,
    PLACES_A_CLUSTER,
    Points,
    cells_and_places,
    cells_by_round,
    points_of,
    solutions,
)
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.federations import blobs, split_evenly

FED = "federated-kmeans"
NOISE = np.random.default_rng(0).uniform(size=(240, 2))
"""Rows without clusters: many optima of nearly the same cost."""


def spread_of(rows):
    return Spread(float(len(rows)), rows.mean(0), rows.std(0))


def steps(rows, centers, n):
    """Lloyd's algorithm row by row, and the cost before the last step."""
    for _ in range(n):
        labels = ((rows[:, None] - centers) ** 2).sum(2).argmin(1)
        cost = ((rows - centers[labels]) ** 2).sum()
        centers = np.array([rows[labels == j].mean(0) if (labels == j).any() else c for j, c in enumerate(centers)])
    return centers, cost


def asked(protocol, rows, n_sites=3, **options):
    ledger = Ledger()
    with in_process(split_evenly(rows, n_sites), **options) as channel:
        return run(protocol, channel, method=FED, ledger=ledger), ledger


def test_a_site_answers_for_several_starts_as_for_each():
    rows, starts = blobs(60, 3, 3, seed=1), np.random.default_rng(0).normal(size=(4, 3, 3)) * 3
    reply = local_each_moments(ArrayTable(rows), Memory(), AssignEach(starts))
    for i, centers in enumerate(starts):
        sums, counts, cost = moments(rows, centers)
        np.testing.assert_array_equal(reply.sums[i], sums)
        np.testing.assert_array_equal(reply.counts[i], counts)
        assert reply.costs[i] == pytest.approx(cost)
    np.testing.assert_allclose(
        local_start_costs(ArrayTable(rows), Memory(), CompareStarts(starts)).costs, reply.costs
    )


def test_a_site_without_rows_answers_zeros():
    nothing, starts = ArrayTable(np.zeros((0, 2))), np.ones((3, 2, 2))
    reply = local_each_moments(nothing, Memory(), AssignEach(starts))
    assert reply.sums.shape == (3, 2, 2)
    assert not reply.sums.any()
    assert not reply.counts.any()
    assert not local_start_costs(nothing, Memory(), CompareStarts(starts)).costs.any()


def test_costs_over_groups_are_those_of_the_rows_behind_them():
    rows = blobs(200, 3, 2, seed=4)
    fit = {}
    for protection in ("groups", "none"):
        policy = Policy(per_site_results="averages", protection=protection, min_roster=1)
        one = np.array([[rows.mean(0)]])  # all rows are nearest to it: their squares about it are those of the groups
        asking = (yield_from(CompareStarts(one)), yield_from(AssignEach(one)))
        fit[protection] = [asked(protocol, rows, policy=policy)[0].costs[0] for protocol in asking]
    np.testing.assert_allclose(fit["groups"], fit["none"])


def yield_from(request):
    from coterie.messages.verbs import total

    return (yield from total(request))


def test_the_better_half_goes_on_after_joint_steps():
    rows = blobs(150, 2, 4, seed=2, spread=1.5)
    starts = list(np.random.default_rng(5).normal(size=(4, 4, 2)) * 6)
    first = [steps(rows, start, 2) for start in starts]
    half = [first[i][0] for i in np.argsort([cost for _, cost in first])[:2]]
    second = [steps(rows, start, 3) for start in half]
    expected = second[int(np.argmin([cost for _, cost in second]))][0]
    (centers, ledger) = asked(best_of(starts, 4), rows)
    np.testing.assert_allclose(centers, expected, rtol=1e-9)
    assert [e.asked for e in ledger.exchanges] == ["shared.AssignEach"] * 5


def test_of_many_solutions_the_cheapest_are_improved():
    rows = blobs(150, 2, 4, seed=2, spread=1.5)
    starts = list(np.random.default_rng(5).normal(size=(9, 4, 2)) * 6)
    costs = [steps(rows, start, 1)[1] for start in starts]
    assert np.array_equal(asked(best_of(starts, 1), rows)[0], starts[int(np.argmin(costs))])
    two, ledger = asked(best_of(starts, 2), rows)
    np.testing.assert_allclose(two, asked(best_of([starts[i] for i in np.argsort(costs)[:2]], 2), rows)[0], rtol=1e-9)
    assert ledger.exchanges[0].asked == "shared.CompareStarts"


def test_solutions_that_become_the_same_are_one():
    rows = blobs(90, 2, 3, seed=3)
    best = KMeans(3, n_init=5, random_state=0).fit(rows).cluster_centers_
    near = [best, best[::-1] + 0.01, best[[1, 0, 2]] - 0.01, best + 0.02]
    centers, ledger = asked(best_of(near, 4), rows)
    assert len(ledger.exchanges) == 2  # after two steps all are at the optimum
    assert np.allclose(np.sort(centers, 0), np.sort(best, 0))


def test_ranks_are_decided_alike_whatever_the_last_digits():
    assert smallest_first(np.array([3.0, 1.0 + 1e-13, 1.0, 2.0])) == [1, 2, 3, 0]
    assert distinct_first(np.array([3.0, 1.0 + 1e-13, 1.0, 2.0, 3.0])) == [1, 3, 0]
    assert distinct_first(np.zeros(3)) == [0]


def numbers_sent(ledger):
    """By exchange, what each site sent."""
    return [e.event()["floats_up"] // len(e.sites) for e in ledger.exchanges]


def test_the_start_asks_for_sums_only_and_sends_what_is_said():
    rows, k, d = np.random.default_rng(1).normal(size=(900, 5)), 4, 5
    _, ledger = asked(chosen_start("auto", "auto", k, spread_of(rows), seed=0), rows)  # averages are allowed
    kinds, numbers = [e.asked for e in ledger.exchanges], numbers_sent(ledger)
    cells = [n * (2 * d + 1) for n in cells_by_round(CELLS_A_CLUSTER * k)]
    cells[:PLACE_MOVES] = [n + PLACES_A_CLUSTER * k * (d + 1) for n in cells[:PLACE_MOVES]]
    n = len(cells)
    assert (kinds[:n], numbers[:n]) == (["shared.Split"] * n, cells)
    assert (kinds[n], numbers[n]) == ("shared.CompareStarts", 24)
    assert set(kinds[n + 1 :]) == {"shared.AssignEach"}
    most = [left * (k * (d + 1) + 1) for left in (8, 8, 4, 4, 4, 2, 2, 2, 2)]
    assert all(sent <= limit for sent, limit in zip(numbers[n + 1 :], most, strict=False))


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("n_init", ["auto", 1, 3])
def test_few_rows_many_clusters_and_one_cluster(k, n_init):
    rows = np.array([[0.0, 1.0]] * 3 + [[4.0, 4.0]] * 4 + [[9.0, 1.0]])
    model = FederatedKMeans(k, n_init=n_init, random_state=0).fit(rows, sites=[0, 0, 0, 1, 1, 2, 2, 2])
    best = KMeans(min(k, 3), n_init=10, random_state=0).fit(rows).inertia_
    assert model.inertia_ == pytest.approx(best, abs=1e-9)


def test_wide_rows_and_few_rows_have_fewer_points():
    wide = Spread(1e6, np.zeros(50_000), np.ones(50_000))
    assert points_of(4, wide) == 5
    assert points_of(10, wide) == 10  # of the fewest there is one a cluster
    assert points_of(4, Spread(60.0, np.zeros(2), np.ones(2))) == 12
    rows = np.random.default_rng(0).normal(size=(30, 50_000))
    (cells, near), ledger = asked(cells_and_places(2, spread_of(rows), seed=0), rows, 2)
    assert len(near.points) == 5
    assert max(numbers_sent(ledger)) <= 3 * MOST_NUMBERS + 10


def test_points_stand_for_all_rows():
    rows = blobs(300, 3, 2, seed=7)
    (cells, near), _ = asked(cells_and_places(3, spread_of(rows), seed=0, n_places=20), rows)
    for points, weights in (cells, near):
        assert weights.sum() == pytest.approx(300)
        np.testing.assert_allclose(weights @ points / 300, rows.mean(0), atol=1e-6)


def test_solutions_are_distinct_and_no_more_than_wanted():
    points = Points(np.random.default_rng(0).normal(size=(30, 2)), np.ones(30))
    several = solutions([points, points], 4, 6, seed=0)
    assert len(several) == 6
    assert len(solutions([Points(np.zeros((5, 2)), np.ones(5))], 2, 6, seed=0)) == 1


@pytest.mark.parametrize("model", [FederatedKMeans, LloydKMeans])
@pytest.mark.parametrize("n_init", ["auto", 1, 5])
def test_a_seed_decides_the_optimum_and_gives_it_again(model, n_init):
    def centers(seed):
        return model(9, n_init=n_init, random_state=seed).fit(NOISE, sites=np.arange(len(NOISE)) % 3).cluster_centers_

    np.testing.assert_array_equal(centers(1), centers(1))
    first = np.sort(centers(1), axis=0)
    assert any(np.abs(first - np.sort(centers(seed), axis=0)).max() > 0.02 for seed in range(2, 6))


@pytest.mark.parametrize("model", [FederatedKMeans, LloydKMeans])
def test_more_starts_are_no_worse(model):
    rows = blobs(400, 12, 2, seed=8, spread=1.0)
    costs = {n: np.mean([model(12, n_init=n, random_state=s).fit(rows).inertia_ for s in range(4)]) for n in (1, 8)}
    best = KMeans(12, n_init=20, random_state=0).fit(rows).inertia_
    assert costs[8] <= costs[1] * (1 + 1e-9)
    assert costs[8] <= 1.01 * best


def test_random_starts_can_be_several():
    rows = blobs(300, 6, 2, seed=9)
    costs = {
        n: np.mean([FederatedKMeans(6, init="random", n_init=n, random_state=s).fit(rows).inertia_ for s in range(5)])
        for n in (1, 10)
    }
    assert costs[10] < 0.97 * costs[1]
    assert len(FederatedKMeans(6, init="random", random_state=0, max_rounds=2).fit(rows).cluster_centers_) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_init": 0}, "n_init=0; it is 'auto' or a whole number, at least 1"),
        ({"n_init": "best"}, "n_init='best'; it is 'auto' or"),
        ({"n_init": 3, "init": "var-part"}, "n_init=3 needs starts that differ, and init is 'var-part'"),
        ({"n_init": 3, "init": np.zeros((2, 2))}, "n_init=3 needs starts that differ, and init is an array"),
    ],
)
@pytest.mark.parametrize("model", [FederatedKMeans, LloydKMeans])
def test_what_cannot_be_restarted_is_named(model, options, message):
    with pytest.raises(InputError, match=message):
        model(2, **options).fit(np.zeros((9, 2)))


@pytest.mark.parametrize("options", [{}, {"n_components": 3}, {"landmarks": "summed"}])
def test_kernel_clusters_can_be_restarted(options):
    rows = np.concatenate([NOISE, 3 + 0.2 * NOISE])
    tables = {f"site-{i}": ArrayTable(rows[i::3]) for i in range(3)}
    for n_init in ("auto", 1, 4):
        model = FederatedKernelKMeans(2, gamma=2.0, n_init=n_init, random_state=1, **options)
        fit = coterie.fit(model, tables, policy=Policy.simulation())
        assert fit.inertia_ > 0
        again = coterie.fit(model, tables, policy=Policy.simulation())
        np.testing.assert_array_equal(fit.cluster_centers_, again.cluster_centers_)
