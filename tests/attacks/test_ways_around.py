"""Ways around the guards that were found by trying, each closed since."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.messages.refusals import Refusal
from coterie.messages.schema import Nothing
from coterie.methods.shared.limits import ReportMagnitude
from coterie.methods.shared.lloyd import Assign, Close
from coterie.methods.shared.prepared import Prepare
from coterie.methods.shared.starts import Split
from tests.attacks.asker import ROW, Asker, nearest_row, sum_columns

rng = np.random.default_rng(0)


def line(n):
    return np.sort(np.random.default_rng(n).uniform(0, 1, (n, 1)) + np.arange(n)[:, None], axis=0)


def cut_at(*places):
    n = len(places)
    return Split(n + 1, np.arange(n), np.zeros(n, int), np.array(places, float) - 1e-9, np.zeros(1), np.zeros((0, 1)))


# sets and totals are not held against each other
def holes():
    rows = np.random.default_rng(1).normal(size=(60, 3))
    rows[0] = [50.0, 40.0, 30.0]
    rows[10:18, 2] = np.nan
    return rows


FILL = Prepare("mean", False, np.full(3, 50.0), np.zeros(3), np.ones(3), *np.zeros((2, 0)))
APART = Assign(np.array([[0, 0, 0.0], [0, 0, 50.0]]))  # filled rows and row 0 here, the rest there


def test_a_cell_is_held_against_earlier_totals():
    made = Asker.of(holes())
    whole = made.ask(sum_columns(3, drop=True))  # the 52 complete rows
    made.ask(FILL)
    cells = made.ask(APART)  # 51 of them
    assert isinstance(cells, Refusal) or nearest_row(whole.sums - cells.sums[0], holes()[:1]) > ROW


def test_a_total_is_held_against_earlier_cells():
    made = Asker.of(holes())
    made.ask(FILL)
    cells = made.ask(APART)
    made.remembered = []
    made.recall()
    whole = made.ask(sum_columns(3, drop=True))
    assert isinstance(whole, Refusal) or nearest_row(whole.sums - cells.sums[0], holes()[:1]) > ROW


# rests and sets are not held against each other
@pytest.mark.parametrize("set_first", [True, False])
def test_what_is_left_over_is_held_against_sets_and_sets_against_it(set_first):
    rows = line(40)
    asks = [cut_at(20), cut_at(4, 8, 12, 16, 19, 30)]  # rows 0-19 | rows 0-18 withheld in pieces, so left over
    made = Asker.of(rows)
    found = [made.ask(ask) for ask in (asks if set_first else asks[::-1])]
    one, other = found if set_first else found[::-1]
    left_over = rows.sum(0) - other.sums.sum(0)
    assert np.abs(one.sums[0] - left_over - rows[19]).max() > ROW


# columns with few values
def test_a_column_with_one_value_is_not_summed_up():
    rows = np.random.default_rng(2).normal(size=(40, 3))
    rows[1:, 1] = np.nan
    reply = Asker.of(rows).ask(sum_columns(3))
    assert isinstance(reply, Refusal) or abs(reply.sums[1] - rows[0, 1]) > ROW


def test_a_column_is_held_against_the_same_column_of_complete_rows():
    rows = np.random.default_rng(3).normal(size=(40, 3))
    rows[1:10, 1], rows[0, 2] = np.nan, np.nan  # ten incomplete rows; only row 0 of them has a value in column 1
    made = Asker.of(rows)
    all_, complete = made.ask(sum_columns(3)), made.ask(sum_columns(3, drop=True))
    assert isinstance(complete, Refusal) or abs((all_.sums - complete.sums)[1] - rows[0, 1]) > ROW


# the cost of closing includes rows whose counts are withheld
def test_the_closing_cost_and_the_sums_of_all_rows_do_not_give_a_row_on_a_line():
    rows = np.random.default_rng(4).normal(size=(40, 1))
    rows[0] = 30.0
    made = Asker.of(rows)
    whole, end, far = made.ask(sum_columns(1)), made.ask(Close(np.array([[0.0], [29.0]]))), 29.0
    if not isinstance(end, Refusal):
        guess = (whole.squares[0] - end.cost + far**2) / (2 * far)
        assert abs(guess - rows[0, 0]) > ROW


# "once a run" forgets the view
def test_closing_at_the_same_centers_of_shifted_rows_does_not_locate_a_row():
    d, rows = 3, np.random.default_rng(5).normal(size=(40, 3))
    rows[0] = [30.0, 20.0, 10.0]
    made, far = Asker.of(rows), np.array([29.0, 21.0, 11.0])
    whole = made.ask(sum_columns(d))
    views = []  # sum |x|^2 over all - cost = |x0|^2 - |x0 - far|^2 = 2 <x0, far> - |far|^2, in every view
    for j in range(d):
        scale = np.ones(d)
        scale[j] = 2.0
        made.remembered = []
        made.recall()
        made.ask(Prepare("refuse", False, np.zeros(d), np.zeros(d), scale, *np.zeros((2, 0))))
        end = made.ask(Close(np.array([np.zeros(d), far])))
        if not isinstance(end, Refusal):
            views.append((far / scale, ((whole.squares / scale**2).sum() - end.cost + far @ far) / 2))
    if len(views) == d:
        guess = np.linalg.solve(np.array([v for v, _ in views]), np.array([t for _, t in views]))
        assert np.abs(guess - rows[0]).max() > ROW


T = {
    n: np.concatenate(
        [rng.normal(size=(30, 2)) - 5, rng.normal(size=(20, 2)) + 5, rng.normal(size=(2, 2)) + np.array([0, 20])]
    )
    for n in "abcd"
}
ALL = tuple("abcd")


# refusals and marks that answer questions
def test_a_bounded_preparation_does_not_tell_the_largest_value():
    rows = np.random.default_rng(7).normal(size=(40, 1))
    made, low, high = Asker.of(rows), 0.0, 64.0
    for _ in range(60):
        middle = (low + high) / 2
        told = made.ask(
            Prepare(
                "refuse", True, np.zeros(1), np.full(1, middle - 1e3), np.full(1, 1e3 / (1 + 1e-6)), *np.zeros((2, 0))
            )
        )
        low, high = (low, middle) if told == Nothing() else (middle, high)
        made.remembered = []
        made.recall()
    assert abs(high - rows.max()) > ROW


def test_marks_do_not_tell_the_largest_value():
    rows = np.random.default_rng(8).normal(size=(40, 1))
    made, low, high = Asker.of(rows), 0.0, 15.0
    for _ in range(60):
        middle = (low + high) / 2
        marks = made.ask(ReportMagnitude(1, np.full(1, middle - 16.0)))  # is the largest within 16 of middle - 16?
        if isinstance(marks, Refusal):
            break
        is_within = marks.box[0].argmax() - 16 <= 1
        low, high = (low, middle) if is_within else (middle, high)
    assert abs(high - rows.max()) > ROW
