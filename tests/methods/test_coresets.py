"""k-means of all rows from a few weighted ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import InputError, MalformedMessage, QuorumLost
from coterie.maths import clustering
from coterie.maths.coresets import allotted, drawn_by_weight, solvable_weights
from coterie.messages.refusals import Refusal
from coterie.messages.site_api import Memory, rows_at
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.methods.shared.coresets import SampleCoreset, SumCost, coreset, local_coreset_part, local_cost
from coterie.methods.shared.starts import sample_of
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from coterie_studies.closed_forms import coreset_cost
from tests.federations import blobs, split_evenly, tables_of

NAME = "coreset-trial"


@pytest.fixture(autouse=True)
def _trial(monkeypatch):
    monkeypatch.setitem(METHODS, NAME, Method(NAME, "", (SumCost, SampleCoreset), "", ""))


def coreset_kmeans(n_clusters, n_columns, *, n_points, seed):
    found = yield from coreset(n_clusters, n_columns, n_points=n_points, seed=seed)
    return found.centers(n_clusters, seed=seed)


def cost_at(rows, centers):
    return float(clustering.nearest(rows, centers)[1].sum())


def part_of(rows, size, *, k=3, seed=0, place=0, **options):
    table = ArrayTable(rows, **options)
    return local_coreset_part(table, Memory(), SampleCoreset(size, k, rows.shape[1], seed, place))


@given(st.integers(0, 10_000), st.integers(0, 60), st.integers(0, 80), st.integers(1, 8), st.booleans())
def test_a_sites_weights_add_up_to_its_rows(seed, n, size, k, weighted):
    rng = np.random.default_rng(seed)
    rows = blobs(max(n, 1), 3, 3, seed=seed)[:n].round(1)  # some rows are equal
    weights = rng.integers(0, 4, n).astype(float) if weighted else None
    part = part_of(rows, size, k=k, seed=seed, weights=weights)
    held = n if weights is None else weights.sum()
    assert part.weights.sum() + part.left.sum() == pytest.approx(held, rel=1e-12, abs=1e-9)
    assert part.points.shape == (size, 3)
    assert (part.weights >= 0).all()
    assert np.isfinite(part.points).all()


def test_the_cost_estimate_is_unbiased_at_any_centers():
    """The site's rows include some that lie on a local center, which are never drawn."""
    rows = np.concatenate([blobs(150, 3, 3, seed=1, spread=2.0), np.repeat([[40.0, 40.0, 40.0]], 20, axis=0)])
    table, memory = ArrayTable(rows), Memory()
    centers = np.random.default_rng(2).normal(size=(4, 3)) * 3
    found = []
    for place in range(3000):
        part = local_coreset_part(table, memory, SampleCoreset(12, 4, 3, 0, place))
        on_points, on_centers = (clustering.nearest(some, centers)[1] for some in (part.points, part.centers))
        found.append(on_points @ part.weights + on_centers @ part.left)
    error = np.std(found) / np.sqrt(len(found))
    assert error < 0.02 * cost_at(rows, centers)
    assert abs(np.mean(found) - cost_at(rows, centers)) < 4 * error


def test_a_few_hundred_points_estimate_the_cost_of_many_rows():
    rows = blobs(4000, 4, 5, seed=4, spread=3.0)
    with in_process(split_evenly(rows, 4)) as channel:
        found = run(coreset(5, 4, n_points=400, seed=1), channel, method=NAME)
    assert found.weights.sum() == pytest.approx(4000, rel=1e-12)
    for seed in range(5):
        centers = np.random.default_rng(seed).normal(size=(5, 4)) * 5
        assert found.cost(centers) == pytest.approx(cost_at(rows, centers), rel=0.1)


@pytest.mark.parametrize("n_points", [200, 1000])
def test_as_many_points_as_rows_are_the_rows_themselves(n_points):
    rows = blobs(60, 2, 3)
    with in_process({"a": ArrayTable(rows)}) as channel:
        found = run(coreset(3, 2, n_points=n_points, seed=0), channel, method=NAME)
    np.testing.assert_array_equal(found.points, rows)
    np.testing.assert_array_equal(found.weights, np.ones(60))


def test_no_points_at_all_leave_the_sites_own_centers():
    rows = blobs(300, 2, 3, spread=20.0)
    with in_process(split_evenly(rows, 3)) as channel:
        found = run(coreset(3, 2, n_points=0, seed=0), channel, method=NAME)
        centers = run(coreset_kmeans(3, 2, n_points=0, seed=0), channel, method=NAME)
    assert len(found.points) == 9
    assert cost_at(rows, centers) <= 1.1 * KMeans(3, n_init=10, random_state=0).fit(rows).inertia_


@pytest.mark.parametrize("sorted_by_cluster", [False, True])
def test_comes_near_central_kmeans(sorted_by_cluster):
    rows = blobs(3000, 6, 6, seed=2, spread=3.0)
    best = KMeans(6, n_init=10, random_state=0).fit(rows)
    owners = best.labels_ if sorted_by_cluster else np.random.default_rng(0).integers(0, 6, 3000)
    with in_process(tables_of(rows, owners, 7)) as channel:  # the last site has no rows
        centers = run(coreset_kmeans(6, 6, n_points=300, seed=3), channel, method=NAME)
    assert cost_at(rows, centers) <= 1.1 * best.inertia_


def test_sites_with_no_rows_few_rows_or_equal_rows_are_no_trouble():
    tables = {
        "none": ArrayTable(np.empty((0, 2))),
        "one": ArrayTable(np.array([[50.0, 0.0]])),
        "equal": ArrayTable(np.full((40, 2), -50.1)),
        "many": ArrayTable(blobs(100, 2, 1)),
    }
    with in_process(tables) as channel:
        found = run(coreset(3, 2, n_points=20, seed=0), channel, method=NAME)
        centers = run(coreset_kmeans(3, 2, n_points=20, seed=0), channel, method=NAME)
    assert found.weights.sum() == pytest.approx(141, rel=1e-12)
    assert np.abs(centers - [50.0, 0.0]).sum(axis=1).min() < 1e-9
    assert np.abs(centers + 50.1).sum(axis=1).min() < 1e-9


def test_rows_that_are_all_equal_everywhere_give_that_row():
    with in_process(split_evenly(np.full((30, 2), 0.1), 3)) as channel:
        centers = run(coreset_kmeans(4, 2, n_points=10, seed=0), channel, method=NAME)
    np.testing.assert_allclose(centers, 0.1)


def test_no_rows_at_all_is_said():
    with in_process({"a": ArrayTable(np.empty((0, 2)))}) as channel, pytest.raises(InputError, match="0 rows"):
        run(coreset_kmeans(2, 2, n_points=5, seed=0), channel, method=NAME)


@given(st.integers(0, 500), st.lists(st.floats(0, 1e6), min_size=1, max_size=9))
def test_points_are_allotted_in_proportion_to_costs(n_points, costs):
    sizes = allotted(n_points, np.array(costs))
    assert sum(sizes) == n_points
    shares = np.array(costs) / sum(costs) if sum(costs) > 0 else np.full(len(costs), 1 / len(costs))
    assert (np.abs(np.array(sizes) - n_points * shares) < 1 + 1e-6).all()


def test_a_site_is_allotted_what_its_cost_asks_for():
    wide, narrow = blobs(100, 3, 1, seed=0) * 10, blobs(100, 3, 1, seed=1)
    tables = {"a": ArrayTable(narrow), "b": ArrayTable(wide), "c": ArrayTable(narrow[:0])}
    costs = [float(local_cost(table, Memory(), SumCost(2, 3, 0)).cost) for table in tables.values()]
    with in_process(tables) as channel:
        found = run(coreset(2, 3, n_points=1000, seed=0), channel, method=NAME)
    np.testing.assert_allclose(found.sizes, 1000 * np.array(costs) / sum(costs), atol=1)
    assert found.sizes[1] > 980


def test_two_sites_of_the_same_rows_draw_apart_and_a_rerun_draws_the_same():
    rows = blobs(500, 2, 3)
    one, other, again = (part_of(rows, 50, place=place) for place in (0, 1, 0))
    assert (one.points != other.points).any()
    np.testing.assert_array_equal(one.points, again.points)


def test_blocks_do_not_matter_and_a_bounded_sample_does_to_solve(monkeypatch):
    rows = blobs(3000, 4, 3, seed=5)
    whole, cut = part_of(rows, 40), part_of(rows, 40, block_bytes=1024)
    np.testing.assert_allclose(whole.points, cut.points)
    full = local_cost(ArrayTable(rows), Memory(), SumCost(3, 4, 0)).cost
    monkeypatch.setattr("coterie.methods.shared.coresets.SAMPLE", 200)
    bounded = local_cost(ArrayTable(rows), Memory(), SumCost(3, 4, 0)).cost
    assert full < bounded < 1.2 * full


def test_what_was_forgotten_between_the_questions_is_found_again():
    table, memory = ArrayTable(blobs(200, 3, 3)), Memory()
    local_cost(table, memory, SumCost(3, 3, 7))
    ask = SampleCoreset(20, 3, 3, 7, 0)
    kept, fresh = (local_coreset_part(table, held, ask) for held in (memory, Memory()))
    np.testing.assert_array_equal(kept.points, fresh.points)
    np.testing.assert_array_equal(kept.left, fresh.left)


def test_rows_are_found_at_their_places():
    rows = blobs(100, 3, 2)
    places = np.array([0, 0, 17, 63, 99])
    found, counts = rows_at(ArrayTable(rows, block_bytes=256, weights=np.arange(100)), places)
    np.testing.assert_array_equal(found, rows[places])
    np.testing.assert_array_equal(counts, places)


def test_negative_weights_are_set_to_0_and_the_sum_stays():
    np.testing.assert_allclose(solvable_weights(np.array([5.0, -1.0, 4.0])), [5 * 8 / 9, 0, 4 * 8 / 9])


@pytest.mark.parametrize("n_points", [0, 37, 2000])
def test_the_ledger_equals_the_closed_form(n_points):
    rows, ledger = blobs(400, 5, 3), Ledger()
    with in_process(split_evenly(rows, 4)) as channel:
        found = run(coreset(3, 5, n_points=n_points, seed=1), channel, method=NAME, ledger=ledger)
    cost = coreset_cost(3, 5, found.sizes, method=NAME, seed=1)
    for what in ("floats_up", "bytes_up", "bytes_down", "rounds"):
        assert ledger.total(what) == getattr(cost, what)
    assert ledger.total("floats_up") == 4 + (n_points + 4 * 3) * (5 + 1)


def test_a_site_lost_on_the_way_leaves_a_coreset_of_the_others_rows():
    faults = Schedule([Fault("site-1", "drop", frozenset({1}))])
    with in_process(split_evenly(blobs(300, 2, 3), 3), schedule=faults) as channel:
        terms = Terms(quorum=0.5, resends=0)
        found = run(coreset(3, 2, n_points=30, seed=0), channel, method=NAME, terms=terms)
    assert found.weights.sum() == pytest.approx(200, rel=1e-12)


def test_sites_refuse_to_send_rows_unless_their_policy_says_so():
    for policy in (Policy(), Policy(per_site_results="averages")):
        for is_masked in (False, True):
            assert policy.objection(NAME, SampleCoreset, is_masked=is_masked) in (
                Refusal.SINGLE_ANSWER_FORBIDDEN,
                Refusal.ROWS_FORBIDDEN,
            )
        with in_process(split_evenly(blobs(90), 3), policy=policy) as channel, pytest.raises(QuorumLost):
            run(coreset_kmeans(3, 4, n_points=9, seed=0), channel, method=NAME)


@pytest.mark.parametrize("ask", [SumCost(2**40, 4, 0), SumCost(0, 4, 0), SumCost(3, 5, 0), SumCost(3, 4, -1)])
def test_a_question_that_makes_no_sense_is_refused_before_anything_is_computed(ask):
    with pytest.raises(MalformedMessage):
        local_cost(ArrayTable(blobs(30)), Memory(), ask)


@pytest.mark.parametrize("size", [1, 20, 59])
def test_a_sample_of_weighted_rows_is_one_of_repeated_rows(size):
    weights = np.random.default_rng(1).integers(0, 4, 90)
    rows = blobs(90)
    one = sample_of(ArrayTable(rows, weights=weights), size, 7)
    other = sample_of(ArrayTable(np.repeat(rows, weights, axis=0)), size, 7)
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_array_equal(one.weights, other.weights)
    assert one.held == other.held == weights.sum()


def test_rows_are_drawn_as_often_as_they_count():
    counts = np.array([0.5, 0.0, 3.0, 1.5, 100.0] + [1.0] * 40)
    times = np.zeros(45)
    for seed in range(4000):
        times += np.bincount(drawn_by_weight(counts, 10, seed), minlength=45)
    np.testing.assert_allclose(times / times.sum(), counts / counts.sum(), atol=0.004)
    np.testing.assert_array_equal(drawn_by_weight(np.ones(9), 9, 3), np.arange(9))
    assert not len(drawn_by_weight(np.zeros(3), 2, 0))
