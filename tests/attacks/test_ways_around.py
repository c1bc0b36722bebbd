"""Ways around the guards that were found by trying, each closed since."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import CoterieError, InputError
from coterie.maths.clustering import moments
from coterie.maths.memberships import Memberships, SketchIndex, n_different
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Nothing
from coterie.messages.verbs import total
from coterie.protocols.federated_kmeans import Train
from coterie.protocols.limits import MarkLargest
from coterie.protocols.lloyd import Assign, Close
from coterie.protocols.prepared import Prepare
from coterie.protocols.seeding import Split
from coterie.runtime.layers import Declared
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import ROW, Asker, MaskedAsker, nearest_row, sum_columns

rng = np.random.default_rng(0)


def identity(d):
    return Prepare("refuse", False, np.zeros(d), np.zeros(d), np.ones(d))


def line(n):
    return np.sort(np.random.default_rng(n).uniform(0, 1, (n, 1)) + np.arange(n)[:, None], axis=0)


def cut_at(*places):
    n = len(places)
    return Split(n + 1, np.arange(n), np.zeros(n, int), np.array(places, float) - 1e-9, np.zeros(1))


# sets and totals are not held against each other
def holes():
    rows = np.random.default_rng(1).normal(size=(60, 3))
    rows[0] = [50.0, 40.0, 30.0]
    rows[10:18, 2] = np.nan
    return rows


FILL = Prepare("mean", False, np.full(3, 50.0), np.zeros(3), np.ones(3))
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
        made.ask(Prepare("refuse", False, np.zeros(d), np.zeros(d), scale))
        end = made.ask(Close(np.array([np.zeros(d), far])))
        if not isinstance(end, Refusal):
            views.append((far / scale, ((whole.squares / scale**2).sum() - end.cost + far @ far) / 2))
    if len(views) == d:
        guess = np.linalg.solve(np.array([v for v, _ in views]), np.array([t for _, t in views]))
        assert np.abs(guess - rows[0]).max() > ROW


# rosters
T = {
    n: np.concatenate(
        [rng.normal(size=(30, 2)) - 5, rng.normal(size=(20, 2)) + 5, rng.normal(size=(2, 2)) + np.array([0, 20])]
    )
    for n in "abcd"
}
ALL, FEW, C = tuple("abcd"), tuple("abc"), np.array([[-5.0, -5.0], [5.0, 5.0]])


def masked(protocol, policy=None, schedule=None):
    with in_process(
        {n: ArrayTable(r) for n, r in T.items()}, policy=policy or Policy(), schedule=schedule
    ) as channel:
        layers = [Declared({"rows": 100, "box": 50.0}), MaskedSums()]
        try:
            return run(protocol, channel, method="lloyd", layers=layers, terms=Terms(quorum=0.5, resends=0))
        except CoterieError:
            return None


def difference(first, second, between=None, to=(ALL, FEW)):
    one = yield from total(first, to=to[0])
    if between is not None:
        yield from total(between)
    two = yield from total(second, to=to[1])
    return type(one)(*[a - b for a, b in zip(one.arrays(), two.arrays(), strict=True)])


def test_sums_of_all_rows_over_two_rosters():
    found = masked(difference(sum_columns(2), sum_columns(2)))
    assert found is None or np.abs(found.sums - T["d"].sum(0)).max() > ROW


def test_closing_over_two_rosters():
    found = masked(difference(Close(C), Close(C)))
    assert found is None or abs(found.cost - moments(T["d"], C).cost) > ROW


def test_the_same_sets_in_another_view():
    found = masked(difference(Assign(C), Assign(C), identity(2)))
    assert found is None or np.abs(found.sums - moments(T["d"], C).sums).max() > ROW


def test_a_dropout_on_a_question_asked_before():
    """Also what happens to an honest run whose cells stand still when a site drops out."""
    gone = Schedule([Fault("d", "vanish", frozenset({4}))])  # keys, introduction, upload, reveal, upload
    found = masked(difference(Assign(C), Assign(C), to=(None, None)), schedule=gone)
    assert found is None or np.abs(found.sums - moments(T["d"], C).sums).max() > ROW


def test_all_rows_sent_in_place_of_nearly_all():
    centers = np.array([[0.0, 0.0], [0.0, 30.0]])  # two rows of every site in the second cell
    found = masked(difference(Assign(centers), Assign(centers)))
    assert found is None or np.abs(found.sums[0] - T["d"].sum(0)).max() > ROW


# refusals and marks that answer questions
def test_a_bounded_preparation_does_not_tell_the_largest_value():
    rows = np.random.default_rng(7).normal(size=(40, 1))
    made, low, high = Asker.of(rows), 0.0, 64.0
    for _ in range(60):
        middle = (low + high) / 2
        told = made.ask(Prepare("refuse", True, np.zeros(1), np.full(1, middle - 1e3), np.full(1, 1e3 / (1 + 1e-6))))
        low, high = (low, middle) if told == Nothing() else (middle, high)
        made.remembered = []
        made.recall()
    assert abs(high - rows.max()) > ROW


def test_marks_do_not_tell_the_largest_value():
    rows = np.random.default_rng(8).normal(size=(40, 1))
    made, low, high = Asker.of(rows), 0.0, 15.0
    for _ in range(60):
        middle = (low + high) / 2
        marks = made.ask(MarkLargest(1, np.full(1, middle - 16.0)))  # is the largest within 16 of middle - 16?
        if isinstance(marks, Refusal):
            break
        is_within = marks.sizes[0].argmax() - 16 <= 1
        low, high = (low, middle) if is_within else (middle, high)
    assert abs(high - rows.max()) > ROW


def test_limits_do_not_tell_one_site_s_masked_sum():
    """Whether the site's own sum is within the bound the server states is answered in the clear."""
    sites = {n: Site(n, ArrayTable(r[:, :1]), policy=Policy()) for n, r in T.items()}
    asker, low, high = MaskedAsker(sites, method="federated-kmeans"), 1e-6, 5000.0
    ask = Train(1, 0, 1.0, 0, 0, np.zeros((1, 1)))  # its sums are at most 4 * rows * box
    for _ in range(50):
        middle = (low + high) / 2
        told = asker.upload(ask, ALL, {"rows": 100.0, "box": middle / 400}).found["d"]
        low, high = (middle, high) if told is Refusal.INVALID_ANSWER else (low, middle)
    assert abs(high - abs(T["d"][:, 0].sum())) > ROW


# tau beyond the buckets
def test_a_smallest_count_the_sketches_cannot_hold_is_refused_or_kept():
    def sketch(rows):
        seen = Memberships(1)
        seen.see(np.asarray(rows), np.zeros(len(rows), np.intp))
        return seen.sketches[0]

    tau, one = 2000, sketch(np.arange(5000))
    other = sketch(np.arange(1500, 5000))  # 1500 rows fewer: all buckets differ, no group is shared
    try:
        index = SketchIndex(tau)
    except (ValueError, InputError):
        return
    index.add(one)
    assert n_different(one, other) == 128
    assert index.find(other)


# without a file, notes go with the ninth run
def test_the_guard_of_a_run_outlives_eight_other_runs():
    made = Asker.of(line(40))
    before = made.ask(cut_at(20))
    for i in range(9):
        Asker(made.site, run=bytes([i] * 16)).ask(cut_at(20))
    assert made.ask(cut_at(21)).counts.tolist() == before.counts.tolist()
