"""Guards where rows are seen otherwise: scaled, with incomplete rows or without, weighted."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.messages.refusals import Refusal
from coterie.messages.schema import Nothing, Reply
from coterie.protocols.prepared import Prepare
from tests.attacks.asker import TAU, Asker, sum_columns

from .guarded_sites import asker, cut_at, line

# ---------------------------------------------------------------- views


def test_a_set_seen_otherwise_is_sent_in_the_new_numbers_and_one_nearly_equal_is_not_sent_at_all():
    rows, scaled = line(40), Prepare("refuse", False, np.zeros(1), np.zeros(1), np.full(1, 2.0))
    same, near = Asker.of(rows), Asker.of(rows)
    for made in (same, near):
        made.ask(cut_at(20))
        assert made.ask(scaled) == Nothing()
    np.testing.assert_allclose(same.ask(cut_at(10)).sums[:, 0], [rows[:20].sum() / 2, rows[20:].sum() / 2])
    assert not near.ask(cut_at(10.5)).counts.any()


def with_holes(n):
    rows = np.random.default_rng(5).normal(size=(40, 3))
    rows[:n, 0] = np.nan
    return rows


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("n", [0, 1, TAU - 1, TAU + 3])
def test_sums_with_and_without_incomplete_rows_do_not_leave_in_one_run(first, n):
    made = Asker.of(with_holes(n))
    one, other = made.ask(sum_columns(3, drop=first)), made.ask(sum_columns(3, drop=not first))
    assert isinstance(one, Reply)
    assert other is Refusal.GUARDED
    assert one.rows == (40 - n if first else 40)


def test_the_set_of_all_rows_is_remembered_over_a_restart(tmp_path):
    made = asker(with_holes(2), path=tmp_path / "ledger.jsonl")
    made.ask(sum_columns(3))
    made.restart()
    assert made.ask(sum_columns(3, drop=True)) is Refusal.GUARDED
    assert made.ask(sum_columns(3)).rows == 40


def test_a_view_that_drops_a_few_rows_is_held_against_the_sums_of_all():
    made = Asker.of(with_holes(2))
    made.ask(sum_columns(3))
    assert made.ask(Prepare("drop", False, np.zeros(3), np.zeros(3), np.ones(3))) is Refusal.GUARDED


# ---------------------------------------------------------------- weights


def test_rows_of_weight_0_do_not_count():
    weights = np.ones(40)
    weights[[0, 20]] = 0.0
    made = asker(line(40), weights=weights)
    assert made.ask(cut_at(5)).counts.tolist() == [0, 38]  # four rows with weight, and all less four
    made.ask(cut_at(20))
    moved = made.ask(cut_at(21))  # row 20 weighs nothing: no row moved
    np.testing.assert_allclose(moved.sums[:, 0], [line(40)[1:20].sum(), line(40)[21:].sum()])


def test_rows_count_by_number_and_not_by_weight():
    rows, heavy = line(40), np.full(40, 100.0)
    assert asker(rows, weights=heavy).ask(cut_at(4)).counts.tolist() == [0, 4000]
