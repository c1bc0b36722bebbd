"""Algorithm 1 of the federated k-means paper, against a slow twin that follows its lines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.engines.inprocess import in_process
from coterie.errors import InputError
from coterie.messages.site_api import Memory
from coterie.methods.kmeans import federated as module
from coterie.methods.kmeans.federated import (
    FederatedSettings,
    Reassignment,
    Train,
    federated_kmeans,
    local_weighted_centers,
)
from coterie.methods.shared.preparation import spread
from coterie.methods.shared.restarts import chosen_start
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable
from coterie_studies.closed_forms import federated_kmeans_cost
from tests.federations import blobs, central_lloyd, split_evenly, tables_of

FED = "federated-kmeans"


def client_kmeans(rows, centers, epochs, batch_size, beta, seed, step):
    """ClientKMeans of Algorithm 1, one row and one cluster at a time."""
    centers, sizes = np.array(centers, float), np.zeros(len(centers))
    size = batch_size or max(1, len(rows))
    batches = [rows[i : i + size] for i in range(0, len(rows), size)]
    for epoch in range(epochs):
        sizes = np.zeros(len(centers))
        order = range(len(batches))
        if batch_size:
            order = np.random.default_rng([seed, step, epoch]).permutation(np.arange(0, len(rows), size)) // size
        for b in order:
            nearest = [int(np.argmin([((x - c) ** 2).sum() for c in centers])) for x in batches[b]]
            for k in range(len(centers)):
                mine = [x for x, label in zip(batches[b], nearest, strict=True) if label == k]
                if not mine:
                    continue
                sizes[k] += len(mine)
                centers[k] = centers[k] + beta * len(mine) / sizes[k] * (np.mean(mine, axis=0) - centers[k])
    return sizes, centers


@given(
    st.integers(0, 9999),
    st.integers(0, 40),
    st.integers(1, 3),
    st.sampled_from([None, 1, 7, 64]),
    st.sampled_from([1.0, 0.3]),
)
def test_a_site_does_what_the_paper_says(seed, n, epochs, batch_size, beta):
    rng = np.random.default_rng(seed)
    rows, centers = blobs(max(n, 1), 2, 3, seed=seed)[:n], rng.normal(size=(3, 2)) * 4
    ask = FederatedSettings(epochs=epochs, batch_size=batch_size, site_rate=beta).ask(centers, seed, 4)
    reply = local_weighted_centers(ArrayTable(rows, block_bytes=1), Memory(), ask)
    sizes, moved = client_kmeans(rows, centers, epochs, batch_size, beta, seed, 4)
    np.testing.assert_allclose(reply.sizes, sizes)
    np.testing.assert_allclose(reply.weighted, sizes[:, None] * moved, rtol=1e-10, atol=1e-10)


def test_mini_batches_larger_than_a_window_and_across_blocks(monkeypatch):
    monkeypatch.setattr(module, "WINDOW_ROWS", 100)
    rows = blobs(1000, 2, 3)
    seen = []
    for batch in module._batches(ArrayTable(rows, block_bytes=1), Train(1, 30, 1.0, 3, 1, np.zeros((1, 2))), 0):
        (block,) = batch
        seen.append(block.rows)
    assert sorted(map(len, seen)) == [10] + [30] * 33
    np.testing.assert_array_equal(np.sort(np.concatenate(seen), axis=0), np.sort(rows, axis=0))


@given(st.integers(0, 9999), st.integers(1, 5))
def test_with_everything_at_one_it_is_central_lloyd(seed, n_sites):
    rows = blobs(60, 3, 3, seed=seed)
    owners = np.random.default_rng(seed).integers(0, n_sites, 60)
    start = np.random.default_rng(seed + 1).normal(size=(4, 3)) * 4
    with in_process(tables_of(rows, owners, n_sites + 1)) as channel:
        fit = run(federated_kmeans(start, FederatedSettings(max_rounds=5)), channel, method=FED)
    centers, cost, rounds = central_lloyd(rows, start, 5, 0.0)
    np.testing.assert_allclose(fit.centers, centers, rtol=1e-12, atol=1e-12)
    assert fit.cost == pytest.approx(cost, rel=1e-12)
    assert fit.n_rounds == rounds


def test_the_server_weighs_rates_and_remembers_as_the_paper_says():
    rows, start = blobs(90, 2, 3, seed=4), np.eye(3, 2) * 4
    settings = FederatedSettings(
        fraction=0.5, epochs=2, server_rate=0.7, server_momentum=0.5, site_rate=0.4, max_rounds=6
    )
    trajectory = []
    with in_process(split_evenly(rows, 5)) as channel:
        run(federated_kmeans(start, settings, seed=9, trajectory=trajectory), channel, method=FED)
    parts, centers, velocity = np.array_split(rows, 5), start, np.zeros_like(start)
    parts = [rows[np.arange(90) * 5 // 90 == m] for m in range(5)]
    for t in range(1, 7):
        chosen = sorted(np.random.default_rng([9, t]).choice(5, 2, replace=False))
        found = [client_kmeans(parts[i], centers, 2, None, 0.4, 9, t) for i in chosen]
        sizes = sum(s for s, _ in found)
        weighted = sum(s[:, None] * c for s, c in found)
        goal = np.where(sizes[:, None] > 0, weighted / np.maximum(sizes, 1e-300)[:, None], centers)
        velocity = 0.5 * velocity + 0.5 * (goal - centers)
        centers = centers + 0.7 * velocity
        np.testing.assert_allclose(trajectory[t - 1], centers, rtol=1e-10, atol=1e-12)


def test_a_cluster_that_stays_small_moves_to_a_fresh_place_in_the_box():
    rows = blobs(200, 1, 1, seed=1)
    start = np.array([[0.0], [1e6]])
    rule = Reassignment(rows.min(0), rows.max(0), patience=3)
    trajectory = []
    with in_process(split_evenly(rows, 2)) as channel:
        settings = FederatedSettings(server_momentum=0.5, max_rounds=3)
        fit = run(
            federated_kmeans(start, settings, tol=-1, reassignment=rule, trajectory=trajectory), channel, method=FED
        )
    assert [c[1, 0] for c in trajectory[:2]] == [1e6, 1e6]
    assert rows.min() <= fit.centers[1, 0] <= rows.max()


def test_a_cluster_of_a_fair_share_stays():
    rows = np.repeat([[0.0], [5.0]], [97, 3], axis=0)
    rule = Reassignment(np.array([100.0]), np.array([200.0]), patience=2)
    with in_process(split_evenly(rows, 2)) as channel:
        settings = FederatedSettings(max_rounds=8)
        fit = run(
            federated_kmeans(np.array([[0.0], [5.0]]), settings, tol=-1, reassignment=rule), channel, method=FED
        )
    np.testing.assert_allclose(np.sort(fit.centers[:, 0]), [0, 5])


@pytest.mark.parametrize(("fraction", "m"), [(0.02, 1), (0.3, 3), (0.99, 9), (1.0, 10)])
def test_as_many_sites_are_asked_as_the_paper_says(fraction, m):
    ledger, rows = Ledger(), blobs(50, 1, 2)
    settings = FederatedSettings(fraction=fraction, max_rounds=4)
    with in_process(split_evenly(rows, 10)) as channel:
        fit = run(federated_kmeans(rows[:2], settings, tol=-1), channel, method=FED, ledger=ledger)
    assert [len(e.sites) for e in ledger.exchanges] == [m] * 4 + [10]
    cost = federated_kmeans_cost(10, 2, 1, fit.n_rounds, settings)
    assert ledger.total("floats_up") == cost.floats_up == 4 * m * 4 + 10 * 3
    assert ledger.total("bytes_up") == cost.bytes_up


def started(init):
    rows = blobs(200, 2, 3, seed=3, spread=2.0)

    def protocol():
        found = yield from spread(2)
        return (yield from chosen_start(init, 1, 3, found, seed=1))

    with in_process(split_evenly(rows, 3)) as channel:
        return run(protocol(), channel, method=FED)


def test_a_start_that_is_no_start_is_an_input_error():
    with pytest.raises(InputError, match="init='k-means\\+\\+' must be auto"):
        started("k-means++")


def test_random_starts_lie_within_two_deviations_of_the_mean():
    centers = started("random")
    rows = blobs(200, 2, 3, seed=3)
    assert (np.abs(centers - rows.mean(0)) <= 2 * rows.std(0) + 1e-9).all()


@pytest.mark.parametrize(
    "bad",
    [
        {"fraction": 0.0},
        {"fraction": 1.5},
        {"server_rate": 0.0},
        {"site_rate": 1.5},
        {"server_momentum": 1.0},
        {"epochs": 0},
        {"batch_size": 0},
        {"max_rounds": -1},
    ],
)
def test_impossible_settings_are_named(bad):
    with pytest.raises(InputError, match=f"{next(iter(bad))}="):
        FederatedSettings(**bad).check(2)
