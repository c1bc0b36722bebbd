"""Federated Lloyd is central Lloyd."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from coterie.engines.inprocess import in_process
from coterie.methods.shared.lloyd import Assign, Moments, lloyd
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable
from coterie_studies.closed_forms import lloyd_cost
from tests.federations import blobs, central_lloyd, split_evenly, tables_of


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_equals_central_lloyd_however_rows_are_split(seed, n_sites, k, label_sorted):
    rng = np.random.default_rng(seed)
    rows = blobs(60, 3, 3, seed=seed)
    owners = rng.integers(0, n_sites, 60)
    owners[owners == n_sites - 1] = 0 if n_sites > 1 else owners[owners == n_sites - 1]  # a site without rows
    if label_sorted:
        rows = rows[np.argsort(rows[:, 0])]
        owners = np.sort(owners)
    start = rng.normal(size=(k, 3)) * 5
    with in_process(tables_of(rows, owners, n_sites)) as channel:
        fit = run(lloyd(start, max_rounds=7, tol=0.0), channel, method="lloyd")
    centers, cost, rounds = central_lloyd(rows, start, 7, 0.0)
    np.testing.assert_allclose(fit.centers, centers, rtol=1e-12, atol=1e-12)
    assert fit.cost == pytest.approx(cost, rel=1e-12)
    assert fit.n_rounds == rounds
    assert fit.counts.sum() == 60


def test_a_center_no_row_is_nearest_to_stays_finite_and_put():
    rows = blobs(50, 2, 1)
    far = np.array([[0.0, 0.0], [1e6, 1e6]])
    with in_process(split_evenly(rows, 3)) as channel:
        fit = run(lloyd(far), channel, method="lloyd")
    np.testing.assert_array_equal(fit.centers[1], far[1])
    assert np.isfinite(fit.centers).all()
    np.testing.assert_allclose(fit.centers[0], rows.mean(axis=0), rtol=1e-12)


def test_sites_without_any_row_leave_the_start_alone():
    with in_process({"a": ArrayTable(np.empty((0, 2))), "b": ArrayTable(np.empty((0, 2)))}) as channel:
        fit = run(lloyd(np.ones((2, 2))), channel, method="lloyd")
    np.testing.assert_array_equal(fit.centers, np.ones((2, 2)))
    assert fit.cost == 0


def test_agrees_with_scikit_learn_far_from_the_origin_and_in_float32():
    rows = blobs(2000, 5, 4, seed=3)
    for shift, dtype, tolerance in ((1e7, np.float64, 1e-7), (0.0, np.float32, 1e-5)):
        shifted = (rows + shift).astype(dtype)
        start = shifted[:4].astype(float)
        with in_process(split_evenly(shifted, 4, block_bytes=4096)) as channel:
            fit = run(lloyd(start, max_rounds=5, tol=0), channel, method="lloyd")
        centers, cost, _ = central_lloyd(shifted.astype(float), start, 5, 0)
        np.testing.assert_allclose(fit.centers - shift, centers - shift, atol=tolerance)
        assert fit.cost == pytest.approx(cost, rel=tolerance)


def test_weights_count_a_row_as_often_as_they_say():
    rows, rng = blobs(90, 3, 3, seed=5), np.random.default_rng(0)
    weights = rng.integers(0, 4, 90)
    repeated = np.repeat(rows, weights, axis=0)
    with in_process(
        {"a": ArrayTable(rows[:40], weights=weights[:40]), "b": ArrayTable(rows[40:], weights=weights[40:])}
    ) as c:
        weighted = run(lloyd(rows[:3], tol=0), c, method="lloyd")
    with in_process(split_evenly(repeated, 2)) as channel:
        plain = run(lloyd(rows[:3], tol=0), channel, method="lloyd")
    np.testing.assert_allclose(weighted.centers, plain.centers, rtol=1e-12)
    assert weighted.cost == pytest.approx(plain.cost, rel=1e-12)


def test_reaches_what_scikit_learn_reaches_from_the_same_start():
    rows = blobs(500, 4, 5, seed=8, spread=1.0)
    start = rows[:5].copy()
    pooled = KMeans(5, init=start, n_init=1, algorithm="lloyd", tol=0, max_iter=300).fit(rows)
    with in_process(split_evenly(rows, 5)) as channel:
        fit = run(lloyd(start, max_rounds=300, tol=0.0), channel, method="lloyd")
    assert fit.cost == pytest.approx(pooled.inertia_, rel=1e-10)


def test_the_ledger_equals_the_closed_form():
    rows = blobs(200, 7, 3)
    ledger = Ledger()
    with in_process(split_evenly(rows, 4)) as channel:
        fit = run(lloyd(rows[:3]), channel, method="lloyd", ledger=ledger)
    cost = lloyd_cost(4, 3, 7, fit.n_rounds)
    for what in ("floats_up", "bytes_up", "bytes_down", "rounds"):
        assert ledger.total(what) == getattr(cost, what)
    assert ledger.total("floats_up") == 4 * (fit.n_rounds * (3 * 8 + 1) + 3 + 1)


def test_the_server_half_can_be_driven_by_hand():
    protocol = lloyd(np.array([[0.0], [10.0]]), tol=0.0)
    question = next(protocol)
    assert question.summed
    assert isinstance(question.request, Assign)
    first = Moments(np.array([[2.0], [24.0]]), np.array([2.0, 2.0]), np.array(1.0))
    question = protocol.send(first)
    np.testing.assert_array_equal(question.request.centers, [[1.0], [12.0]])
    question = protocol.send(first)  # the same means again: nothing moves, the closing question follows
    np.testing.assert_array_equal(question.request.centers, [[1.0], [12.0]])
    with pytest.raises(StopIteration) as stop:
        protocol.send(Moments(np.zeros((2, 1)), np.array([2.0, 2.0]), np.array(0.5)))
    assert stop.value.value.cost == 0.5
    assert stop.value.value.n_rounds == 2
