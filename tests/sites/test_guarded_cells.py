"""The guard of cells: which sets of rows leave a site, beside those that left before."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.messages.site_part import Memory, find_answer
from coterie.protocols.federated_kmeans import Train
from coterie.protocols.lloyd import Assign, Close
from coterie.protocols.seeding import Split, Summarise
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import TAU, Asker, sum_columns

from .guarded_sites import asker, cut_at, line, partitions


def cells_of(rows, centers):
    """The rows nearest to each center."""
    labels = [int(np.argmin([((row - c) ** 2).sum() for c in centers])) for row in rows]
    return [frozenset(i for i, label in enumerate(labels) if label == c) for c in range(len(centers))]


def read(reply, rows, candidates):
    """Which set of rows each cell of an answer is about, found from its number and its mean."""
    sets = []
    for count, summed in zip(reply.counts, reply.sums, strict=True):
        fits = [s for s in candidates if len(s) == count and np.allclose(rows[sorted(s)].sum(0), summed, atol=1e-9)]
        assert len(fits) == 1, "a sum over no set of rows that was asked for"
        sets += fits
    return sets


def left_over(n_rows, sent):
    """All rows less those sent, a row sent twice counting -1."""
    rest = Counter(range(n_rows))
    for rows in sent:
        rest.subtract(rows)
    return rest


def differing(one, other):
    """How many rows two signed sets differ by."""
    return sum(one[row] != other[row] for row in {*one, *other})


@given(partitions())
def test_no_set_and_no_rest_ever_differs_by_a_few_rows_from_an_earlier_one(case):
    rows, questions = case
    made, whole = Asker.of(rows.reshape(-1, 2)), frozenset(range(len(rows)))
    candidates, sets, rests = {frozenset(), whole}, [frozenset(), whole], [Counter()]
    for centers in questions:
        candidates.update(cells_of(rows, centers))
        reply = made.ask(Assign(centers))
        sent = read(reply, rows, candidates)
        if len(rows) < TAU:
            assert not any(sent)
            continue
        rest = left_over(len(rows), sent)
        assert not [s for s in sent if any(0 < len(s ^ known) < TAU for known in sets)]
        assert not [known for known in rests if 0 < differing(rest, known) < TAU]
        sets += sent
        rests.append(rest)


@given(partitions())
def test_what_is_sent_for_a_cell_is_itself_a_known_set_much_like_it_or_nothing(case):
    """A known set may differ by a few rows more than tau where rows share a bucket of its sketch."""
    rows, questions = case
    made, whole = Asker.of(rows.reshape(-1, 2)), frozenset(range(len(rows)))
    known = {frozenset(), whole}
    for centers in questions:
        cells = cells_of(rows, centers)
        sent = read(made.ask(Assign(centers)), rows, {*known, *cells})
        for cell, told in zip(cells, sent, strict=True):
            assert told in (cell, frozenset()) or (told in known and len(told ^ cell) <= 2 * TAU)
        known.update(sent)


@given(partitions())
def test_the_cost_sent_is_that_of_the_sets_sent(case):
    rows, questions = case
    made, candidates = Asker.of(rows.reshape(-1, 2)), {frozenset(), frozenset(range(len(rows)))}
    for centers in questions:
        candidates.update(cells_of(rows, centers))
        reply = made.ask(Assign(centers))
        sent = read(reply, rows, candidates)
        cost = sum(((rows[sorted(s)] - c) ** 2).sum() for s, c in zip(sent, centers, strict=True))
        assert reply.cost == pytest.approx(cost, abs=1e-9)


@given(partitions(), st.integers(0, 2**32))
def test_forgetting_and_starting_again_change_no_answer(tmp_path_factory, case, seed):
    rows, questions = case
    path = tmp_path_factory.mktemp("guards") / "ledger.jsonl"
    straight, troubled = Asker.of(rows.reshape(-1, 2)), asker(rows.reshape(-1, 2), path=path)
    disturb = np.random.default_rng(seed).integers(0, 3, len(questions))
    for centers, how in zip(questions, disturb, strict=True):
        if how:
            troubled.restart() if how == 1 else troubled.recall()
        one, other = straight.ask(Assign(centers)), troubled.ask(Assign(centers))
        assert all((a == b).all() for a, b in zip(one.arrays(), other.arrays(), strict=True))
    troubled.site.ledger.close()


@pytest.mark.parametrize("disturbance", ["nothing", "recall", "restart"])
def test_a_cell_that_gained_one_row_is_answered_as_before(tmp_path, disturbance):
    made = asker(line(40), path=tmp_path / "ledger.jsonl")
    before = made.ask(cut_at(20))
    if disturbance != "nothing":
        getattr(made, disturbance)()
    after = made.ask(cut_at(21))
    assert before.counts.tolist() == [20, 20]
    assert all((a == b).all() for a, b in zip(before.arrays(), after.arrays(), strict=True))


@pytest.mark.parametrize(("moved", "counts"), [(1, [20, 20]), (4, [20, 20]), (8, [28, 12])])
def test_a_cell_that_gained_enough_rows_is_answered_anew(moved, counts):
    made = Asker.of(line(40))
    made.ask(cut_at(20))
    assert made.ask(cut_at(20 + moved)).counts.tolist() == counts


@pytest.mark.parametrize(("place", "counts"), [(22, [20, 20]), (24, [26, 14])])
def test_of_several_known_sets_the_nearest_is_sent(place, counts):
    made = Asker.of(line(40))
    made.ask(cut_at(20))
    assert made.ask(cut_at(26)).counts.tolist() == [26, 14]
    assert made.ask(cut_at(place)).counts.tolist() == counts


@pytest.mark.parametrize(
    ("places", "counts"),
    [
        ((20,), [20, 20]),
        ((3,), [0, 40]),  # what is left after a few rows is all rows
        ((37,), [40, 0]),
        ((3, 20), [0, 0, 20]),  # the rest would be three rows: the next larger cell is held back, too
        ((10, 13), [0, 0, 27]),
        ((3, 6, 9), [0, 0, 0, 31]),
        ((1, 2, 3, 4), [0, 0, 0, 0, 40]),
    ],
)
def test_cells_of_few_rows_are_held_back_and_so_is_what_gives_them_away(places, counts):
    sent = Asker.of(line(40)).ask(cut_at(*places)).counts.tolist()
    assert sent == counts
    assert sum(sent) == 40 or 40 - sum(sent) >= TAU


@pytest.mark.parametrize("n", [0, 1, 4, 5])
def test_a_site_with_fewer_rows_than_tau_sends_zeros(n):
    made = Asker.of(line(n).reshape(-1, 1))
    asked = [cut_at(), Assign(np.zeros((1, 1))), sum_columns(1), Close(np.zeros((1, 1))), Summarise(1, 1, 1, 100, 0)]
    for request in asked:
        reply = made.ask(request)
        assert any(a.any() for a in reply.arrays()) == (n >= TAU)


@given(partitions())
def test_without_a_smallest_count_answers_are_those_of_a_site_without_a_guard(case):
    rows, questions = case
    made = Asker.of(rows.reshape(-1, 2), Policy(single_answers="averages", min_count=1))
    for centers in questions:
        for ask in (Assign(centers), Close(centers), sum_columns(2)):
            reply = made.ask(ask)
            plain = find_answer(type(ask))(ArrayTable(rows.reshape(-1, 2)), Memory(), ask)
            assert all((a == b).all() for a, b in zip(reply.arrays(), plain.arrays(), strict=True))


CORNERS = np.array([[0.0, 0.0], [0.0, 20.0], [20.0, 0.0]])


@given(st.integers(0, 1000))
def test_a_first_partition_into_large_cells_is_answered_as_without_a_guard(seed):
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.normal(size=(TAU + 3, 2)) + corner for corner in CORNERS])
    centers = CORNERS + rng.normal(size=(3, 2))
    cuts = Split(3, np.zeros(2, int), np.array([0, 1]), np.array([10.0, 10.0]), rng.normal(size=2))
    for ask in (Assign(centers), cuts, Train(1, 0, 1.0, 0, 0, centers), Train(1, 0, 0.5, 0, 0, centers)):
        method = "federated-kmeans" if isinstance(ask, Train) else "lloyd"
        reply = Asker.of(rows, method=method).ask(ask)
        plain = find_answer(type(ask))(ArrayTable(rows), Memory(), ask)
        for one, other in zip(reply.arrays(), plain.arrays(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_sets_are_known_whatever_question_they_answered():
    rows = line(40)
    first = Asker.of(rows)
    first.ask(cut_at(20))
    reply = first.ask(Assign(np.array([[10.5], [31.5]])))  # splits at 21
    assert reply.counts.tolist() == [20, 20]
    np.testing.assert_allclose(reply.sums[0], rows[:20].sum(0))
    trained = Asker.of(rows, method="federated-kmeans")
    trained.ask(cut_at(20))
    moved = trained.ask(Train(1, 0, 1.0, 0, 0, np.array([[10.5], [31.5]])))
    np.testing.assert_allclose(moved.weighted[0], rows[:20].sum(0))


def test_local_centers_are_held_against_what_left_before():
    rows = np.concatenate([line(20), line(20) + 1000])
    made = Asker.of(rows)
    made.ask(cut_at(19))  # one row fewer on the left than the local center will have
    reply = made.ask(Summarise(2, 1, 1, 100, 0))
    assert sorted(reply.counts) == [19, 21]
    np.testing.assert_allclose(sorted(reply.centers[:, 0]), [rows[:19].mean(), rows[19:].mean()])


def test_runs_are_guarded_each_for_itself():
    one = Asker.of(line(40))
    one.ask(cut_at(20))
    other = Asker(one.site, run=b"s" * 16)
    assert other.ask(cut_at(21)).counts.tolist() == [21, 19]
    assert one.ask(cut_at(21)).counts.tolist() == [20, 20]
