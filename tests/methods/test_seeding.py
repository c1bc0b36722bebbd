"""Where k-means starts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from coterie.engines.inprocess import in_process
from coterie.errors import InputError
from coterie.messages.site_api import Memory
from coterie.methods.shared.lloyd import lloyd
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.starts import Summarise, local_centers, one_shot, random_start, var_part
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable
from coterie_studies.closed_forms import one_shot_cost, var_part_cost
from tests.federations import blobs, split_evenly, tables_of


def central_var_part(rows, k):
    """The same rule on pooled rows, one cell at a time: a slow, obvious twin."""
    cells = [rows]
    while len(cells) < k:
        errors = [((c - c.mean(0)) ** 2).sum(0) for c in cells]
        order = sorted(range(len(cells)), key=lambda i: -errors[i].sum())
        chosen = [i for i in order if errors[i].max() > 1e-12][: min(k - len(cells), len(cells))]
        if not chosen:
            break
        for i in chosen:
            column = int(np.argmax(errors[i] >= errors[i].max() * (1 - 1e-9)))
            above = cells[i][:, column] > cells[i][:, column].mean()
            cells.append(cells[i][above])
            cells[i] = cells[i][~above]
    return np.array([c.mean(0) for c in cells])


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 5))
def test_var_part_by_sums_equals_the_pooled_rule_however_rows_are_split(seed, k, n_sites):
    rows = blobs(80, 3, 4, seed=seed)
    owners = np.random.default_rng(seed).integers(0, n_sites, 80)
    with in_process(tables_of(rows, owners, n_sites)) as channel:
        found = run(var_part(k, 3), channel, method="lloyd")
    np.testing.assert_allclose(found, central_var_part(rows, k), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("k", [1, 2, 3, 8, 13])
def test_var_part_costs_what_its_closed_form_says(k):
    rows, ledger = blobs(200, 5, 4), Ledger()
    with in_process(split_evenly(rows, 3)) as channel:
        run(var_part(k, 5), channel, method="lloyd", ledger=ledger)
    cost = var_part_cost(3, k, 5, method="lloyd")
    cells = [1, *(min(2**i, k) for i in range(int(np.ceil(np.log2(k))) + 1))]
    assert cost.floats_up == 3 * sum(cells) * (2 * 5 + 1)
    assert ledger.total("rounds") == len(cells) == cost.rounds
    for what in ("floats_up", "bytes_up", "bytes_down"):
        assert ledger.total(what) == getattr(cost, what)


def test_var_part_with_a_known_origin_saves_the_first_round():
    rows, ledger = blobs(100, 2, 4), Ledger()
    with in_process(split_evenly(rows, 3)) as channel:
        known = Spread(100.0, rows.mean(0), rows.std(0))
        with_origin = run(var_part(4, 2, about=known), channel, method="lloyd", ledger=ledger)
        without = run(var_part(4, 2), channel, method="lloyd")
    np.testing.assert_allclose(with_origin, without, rtol=1e-9)
    assert ledger.total("rounds") == 3


def test_var_part_with_fewer_distinct_rows_than_clusters_repeats_what_there_is():
    rows = np.repeat([[0.0, 1.0], [5.0, 1.0]], 10, axis=0)
    with in_process(split_evenly(rows, 2)) as channel:
        found = run(var_part(5, 2), channel, method="lloyd")
    assert found.shape == (5, 2)
    assert {tuple(c) for c in found} == {(0.0, 1.0), (5.0, 1.0)}


def test_var_part_of_no_rows_says_so():
    with in_process({"a": ArrayTable(np.empty((0, 2)))}) as channel, pytest.raises(InputError, match="no site holds"):
        run(var_part(2, 2), channel, method="lloyd")


def test_one_shot_and_var_part_starts_lead_lloyd_near_the_pooled_optimum():
    rows = blobs(1500, 6, 6, seed=2, spread=3.0)
    best = KMeans(6, n_init=10, random_state=0).fit(rows).inertia_
    rng = np.random.default_rng(0)
    with in_process(tables_of(rows, rng.integers(0, 5, 1500), 5)) as channel:
        for start in (one_shot(6, 6, seed=1), var_part(6, 6)):
            found = run(start, channel, method="lloyd")
            fit = run(lloyd(found), channel, method="lloyd")
            assert fit.cost <= 1.05 * best


def test_one_shot_finds_clusters_that_only_one_site_has():
    rows = np.concatenate([blobs(100, 2, 1, seed=s) + 50 * s for s in range(4)])
    with in_process(split_evenly(rows, 4)) as channel:
        centers = run(one_shot(4, 2, seed=0), channel, method="one-shot")
    truth = np.array([rows[i * 100 : (i + 1) * 100].mean(0) for i in range(4)])
    found = centers[np.argsort(centers[:, 0])]
    np.testing.assert_allclose(found, truth[np.argsort(truth[:, 0])], atol=0.5)


@given(st.integers(0, 5000), st.integers(0, 60), st.integers(1, 8))
def test_a_site_sends_a_center_for_two_of_its_rows_at_most(seed, n, q):
    table = ArrayTable(blobs(max(n, 1), 3, 3, seed=seed)[:n])
    reply = local_centers(table, Memory(), Summarise(q, 3, 2000, seed))
    assert reply.centers.shape == (q, 3)
    used = reply.counts > 0
    assert (reply.centers[~used] == 0).all()
    assert reply.counts.sum() == n
    assert used.sum() <= max(1, n // 2)


def test_local_centers_are_means_of_the_rows_nearest_to_them_counted_over_all_rows():
    rows = blobs(400, 3, 3, seed=1)
    reply = local_centers(ArrayTable(rows, block_bytes=1), Memory(), Summarise(3, 3, 50, 7))
    assert reply.counts.sum() == 400
    np.testing.assert_allclose(reply.counts @ reply.centers / 400, rows.mean(0), rtol=1e-12)


def test_one_shot_with_too_little_to_send_says_what_to_do():
    with (
        in_process(split_evenly(blobs(3, 2), 3)) as channel,
        pytest.raises(InputError, match="sent 3 local centers for 4 clusters"),
    ):
        run(one_shot(4, 2, seed=0), channel, method="one-shot")


def test_one_shot_costs_what_its_closed_form_says():
    ledger = Ledger()
    with in_process(split_evenly(blobs(100, 4), 3)) as channel:
        run(one_shot(5, 4, seed=0), channel, method="one-shot", ledger=ledger)
    cost = one_shot_cost(3, 5, 4, method="one-shot")
    assert cost.floats_up == 3 * 5 * (4 + 1)
    for what in ("floats_up", "bytes_up", "bytes_down", "rounds"):
        assert ledger.total(what) == getattr(cost, what)


def test_random_start_is_a_function_of_the_seed_and_lies_in_the_box():
    low, high = [0.0, -1.0], [2.0, 1.0]
    one, two, other = (random_start(low, high, 50, seed=s) for s in (3, 3, 4))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    assert (one >= low).all()
    assert (one <= high).all()
    with pytest.raises(InputError, match="public box"):
        random_start([1.0], [0.0], 2, seed=0)
