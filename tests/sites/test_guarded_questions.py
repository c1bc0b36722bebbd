"""Questions with guards of their own: training, closing, sums of columns, largest values, limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply
from coterie.protocols.federated_kmeans import Train
from coterie.protocols.limits import MarkLargest
from coterie.protocols.lloyd import Close
from coterie.sites.policy import Policy
from tests.attacks.asker import TAU, Asker, nearest_row, sum_columns

from .guarded_sites import asker, cut_at, line, partitions

# ---------------------------------------------------------------- training and closing


@pytest.mark.parametrize(
    ("epochs", "batch_size", "rate", "is_held"),
    [
        (2, 0, 0.5, True),
        (1, 7, 0.5, True),
        (3, 7, 0.99, True),
        (1, 0, 0.5, False),
        (3, 0, 1.0, False),
        (2, 7, 1.0, False),
    ],
)
def test_centers_that_mix_several_batches_at_a_rate_below_1_are_held_back(epochs, batch_size, rate, is_held):
    ask = Train(epochs, batch_size, rate, 0, 0, np.array([[10.0], [30.0]]))
    found = Asker.of(line(40), method="federated-kmeans").ask(ask)
    assert found is Refusal.GUARDED if is_held else found.sizes.sum() == 40
    free = Asker.of(line(40), Policy(single_answers="averages", min_count=1), method="federated-kmeans")
    assert free.ask(ask).sizes.sum() == 40


@given(partitions(), st.integers(1, 3), st.integers(0, 9))
def test_trained_centers_stand_for_enough_rows(case, epochs, batch_size):
    rows, questions = case
    made = Asker.of(rows.reshape(-1, 2), method="federated-kmeans")
    for step, centers in enumerate(questions):
        reply = made.ask(Train(epochs, batch_size, 1.0, 0, step, centers))
        assert all(size == 0 or size >= TAU for size in reply.sizes)
        assert not reply.weighted[reply.sizes == 0].any()
        means = reply.weighted[reply.sizes > 0] / reply.sizes[reply.sizes > 0, None]
        assert all(nearest_row(mean, rows) > 1e-9 for mean in means)


def test_a_run_is_closed_at_one_set_of_centers(tmp_path):
    centers, others = np.array([[10.0], [30.0]]), np.array([[10.0], [30.0 + 1e-9]])
    made = asker(line(40), path=tmp_path / "ledger.jsonl")
    first = made.ask(Close(centers))
    assert first.counts.sum() == 40
    assert made.ask(Close(others)) is Refusal.GUARDED
    made.restart()
    assert made.ask(Close(others)) is Refusal.GUARDED
    assert made.ask(Close(centers)).cost == first.cost
    assert Asker(made.site, run=b"s" * 16).ask(Close(others)).counts.sum() == 40
    made.site.ledger.close()


def test_counts_below_tau_are_not_closed_with():
    assert Asker.of(line(40)).ask(Close(np.array([[1.0], [31.0]]))).counts.tolist() == [16, 24]
    assert Asker.of(line(40)).ask(Close(np.array([[1.0], [5.0], [31.0]]))).counts.tolist() == [0, 15, 22]


# ---------------------------------------------------------------- columns, marks and limits


def test_a_column_with_few_values_counts_as_one_without_any():
    rows = np.random.default_rng(6).normal(size=(40, 3))
    rows[TAU - 1 :, 0], rows[TAU:, 1] = np.nan, np.nan
    reply = Asker.of(rows).ask(sum_columns(3))
    assert reply.present.tolist() == [0, TAU, 40]
    assert reply.sums[0] == reply.squares[0] == 0
    np.testing.assert_allclose(reply.sums[1:], np.nansum(rows, axis=0)[1:])


def test_the_largest_values_are_marked_about_a_few_origins(tmp_path):
    made, origins = asker(line(40), path=tmp_path / "ledger.jsonl"), np.arange(20.0)
    found = [made.ask(MarkLargest(1, np.array([origin]))) for origin in origins]
    n = sum(isinstance(one, Reply) for one in found)
    assert 1 <= n <= 5
    assert {*found[n:]} == {Refusal.GUARDED}
    made.restart()
    assert made.ask(MarkLargest(1, np.array([7.5]))) is Refusal.GUARDED
    assert isinstance(made.ask(MarkLargest(1, np.zeros(1))), Reply)  # the same again tells nothing new
    made.site.ledger.close()


def test_a_run_may_declare_a_few_different_limits():
    made = Asker.of(line(40))
    found = [made.ask(cut_at(20), {"rows": 100.0, "box": 100.0 + i}) for i in range(20)]
    n = sum(isinstance(one, Reply) for one in found)
    assert 2 <= n <= 10
    assert {*found[n:]} == {Refusal.GUARDED}
    assert isinstance(made.ask(cut_at(20), {"rows": 100.0, "box": 100.0}), Reply)
