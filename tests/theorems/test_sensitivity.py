"""How much one row, or one person, changes the integers of every private answer: the same run replayed without it.

The questions are those of real runs of all private methods, so that a method of tomorrow is checked, too.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from coterie.messages.contributions import CONTRIBUTIONS, ByCell, Gram, PrivateRequest, Whole
from coterie.messages.schema import message_fields
from coterie.messages.site_api import Units
from coterie.methods.shared import whole_rows
from coterie.sites.tables import ArrayTable
from coterie.sites.views.noise import exact_sums
from coterie.sites.views.units import BoundedTable, first_of_each
from tests.attacks.private_runs import (
    HIGH,
    LOW,
    contributions,
    questions,
    recorded_runs,
    squared_length,
    sums_without_noise,
)
from tests.federations import blobs

RUNS = {run.name: run for run in recorded_runs()}
N_ROWS = 12


def odd_rows(d: int) -> dict[str, Any]:
    """Rows that nobody expects."""
    rng = np.random.default_rng(d)
    one = np.eye(d)[0]
    return {
        "missing": np.full(d, np.nan),
        "one missing": np.where(one > 0, np.nan, 1.0),
        "infinite": np.full(d, np.inf),
        "both infinite": np.where(one > 0, -np.inf, np.inf),
        "infinite and missing": np.where(one > 0, np.nan, -np.inf),
        "huge": np.full(d, 1e300),
        "tiny": np.full(d, -5e-324),
        "middle": np.full(d, (LOW + HIGH) / 2),
        "corner": np.full(d, HIGH),
        "outside": rng.normal(size=d) * 1e3,
        "one outside": 1e6 * one,
        "inside": rng.uniform(LOW, HIGH, d),
    }


def changed(request: PrivateRequest[Any], rng: np.random.Generator) -> list[PrivateRequest[Any]]:
    """The same question with numbers that no honest protocol asks with."""
    found = []
    for item in message_fields(type(request)):
        value = getattr(request, item.name)
        if item.name in ("variances", "sites", "tolerated", "bits"):
            continue
        if item.array is not None and item.array.dtype == "float64":
            noise = rng.normal(size=value.shape)
            found += [(item.name, value * 0), (item.name, noise * 1e300), (item.name, value + 1e9 * noise)]
        elif item.type is float:
            found += [(item.name, number) for number in (value * 1e-9, value * 1e9, 5e-324, 1e300)]
        elif item.type is int and item.name not in request.axes.keys() & stated(request):
            found += [(item.name, number) for number in (1, 2, 1 << 19)]
    return _askable(request, found)


def reshaped(request: PrivateRequest[Any]) -> list[PrivateRequest[Any]]:
    """The same question with arrays of other sizes."""
    found: list[tuple[str, Any]] = []
    for item in message_fields(type(request)):
        value = getattr(request, item.name)
        if item.array is not None and item.name != "variances":
            found += [(item.name, value[..., :part]) for part in (0, 1)]
            found += [(item.name, value[:0]), (item.name, np.concatenate([value, value], axis=-1))]
        elif item.name in stated(request):
            found += [(item.name, size) for size in (0, 1, value + 1)]
    return _askable(request, found)


def _askable(request: PrivateRequest[Any], found: list[tuple[str, Any]]) -> list[PrivateRequest[Any]]:
    """The request with another value of a field, where sites do not refuse it for itself."""
    made = []
    for name, value in found:
        with suppress(ValueError):  # what cannot be a message
            made.append(replace(request, **{name: value}))
    return [one for one in made if one.problem() is None]


def stated(request: PrivateRequest[Any]) -> set[str]:
    """The fields that say how long axes of the question or its answer are."""
    specs = [*message_fields(type(request)), *message_fields(request.layout.reply)]
    return {axis for item in specs if item.array for axis in item.array.axes if isinstance(axis, str)}


def test_a_run_of_some_method_asks_every_private_question_there_is():
    assert set().union(*(run.kinds for run in RUNS.values())) == set(CONTRIBUTIONS)


@pytest.mark.parametrize("name", RUNS)
def test_one_row_changes_every_answer_by_at_most_the_norm_wherever_it_stands(name):
    run = RUNS[name]
    rows = blobs(N_ROWS, run.n_columns, seed=1)
    rows[3, 1], rows[7] = np.nan, 1e5
    before = sums_without_noise(run.asked, ArrayTable(rows))
    asked = [one for one in run.asked if isinstance(one, PrivateRequest)]
    has_changed = set()
    for odd, row in odd_rows(run.n_columns).items():
        alone = sums_without_noise(run.asked, ArrayTable(row[None]))
        for place in range(N_ROWS + 1):
            after = sums_without_noise(run.asked, ArrayTable(np.insert(rows, place, row, axis=0)))
            for request, old, new, own in zip(asked, before, after, alone, strict=True):
                for at, norm in enumerate(request.norms):
                    assert (new[at] - old[at] == own[at]).all(), (request.kind, odd, place)
                    assert squared_length(request, at, own[at]) <= Fraction(norm) ** 2, (request.kind, odd)
                    has_changed |= {type(request)} if own[at].any() else set()
    assert has_changed == run.kinds  # what is compared is not all zero


@pytest.mark.parametrize("name", RUNS)
def test_what_a_row_contributes_is_the_same_bit_for_bit_whatever_rows_stand_beside_it(name):
    run, rng = RUNS[name], np.random.default_rng(2)
    odd = np.array(list(odd_rows(run.n_columns).values()))
    rows = np.concatenate([odd, rng.uniform(LOW - 1, HIGH + 1, (150, run.n_columns)), odd])
    everywhere = list(questions(run.asked, ArrayTable(rows)))
    tables = [ArrayTable(rows[i : i + 1]) for i in range(len(rows))]
    alone = [list(questions(run.asked, table)) for table in tables]
    kept = [i for i, table in enumerate(tables) if _n_shown(run.asked, table)]
    for number, (memory, request) in enumerate(everywhere):
        for one in [request, *changed(request, rng)]:
            together = [*contributions(memory, one)]
            assert len(together) == 1
            for place, i in enumerate(kept):
                (by_itself,) = contributions(alone[i][number][0], one)
                for whole, single in zip(together[0], by_itself, strict=True):
                    for part, own in zip(vars(whole).values(), vars(single).values(), strict=True):
                        assert part is own is None or part[place].tobytes() == own[0].tobytes(), (one, i)


@pytest.mark.parametrize("name", RUNS)
def test_an_honest_question_leaves_no_row_out(name):
    """What a row adds is whole numbers, and no longer than declared: the exit would leave it out."""
    run = RUNS[name]
    rows = np.concatenate(
        [blobs(300, run.n_columns, seed=8), *(one[None] for one in odd_rows(run.n_columns).values())]
    )
    for memory, request in questions(run.asked, ArrayTable(rows)):
        (parts,) = contributions(memory, request)
        for part, norm in zip(parts, request.norms, strict=True):
            assert (part.norms_squared() <= Fraction(norm) ** 2).all(), request
            for numbers in filter(lambda one: one is not None, vars(part).values()):
                assert (numbers == np.rint(numbers)).all(), request


def _n_shown(asked: Any, table: Any) -> int:
    memory, _ = next(questions(asked, table))
    return sum(len(piece) for piece in whole_rows.whole_rows(memory).pieces())


@pytest.mark.parametrize("name", RUNS)
def test_questions_of_a_changed_server_change_by_at_most_their_own_norm(name):
    """Or are refused whatever the rows are: also where there is none."""
    run, rng, d = RUNS[name], np.random.default_rng(3), RUNS[name].n_columns
    rows = np.concatenate([blobs(30, d, seed=4), *(row[None] for row in odd_rows(d).values())])
    tables = ArrayTable(rows), ArrayTable(rows[:-1]), ArrayTable(rows[:0])
    n_asked = 0
    for trio in zip(*(questions(run.asked, table) for table in tables), strict=True):
        for request in [*changed(trio[0][1], rng), *reshaped(trio[0][1])]:
            found = [_sums_or_error(memory, request) for memory, _ in trio]
            assert len({isinstance(one, type) for one in found}) == 1, request
            if isinstance(found[0], list):
                n_asked += 1
                for at, norm in enumerate(request.norms):
                    assert squared_length(request, at, found[0][at] - found[1][at]) <= Fraction(norm) ** 2, request
    assert n_asked >= 10


def _sums_or_error(memory: Any, request: Any) -> Any:
    try:
        return exact_sums(memory, request)
    except Exception as problem:
        return type(problem)


@pytest.mark.parametrize("bad", [2.0, np.nan, np.inf, 0.9])
def test_the_exit_leaves_out_what_is_too_long_or_no_whole_number(bad, monkeypatch):
    run = next(iter(RUNS.values()))
    memory, request = next(pair for pair in questions(run.asked, ArrayTable(blobs(9, run.n_columns))))
    honest = CONTRIBUTIONS[type(request)]

    def lying(rows: Any, memory: Any, ask: Any) -> tuple[Any, ...]:
        numbers, *others = honest(rows, memory, ask)
        assert isinstance(numbers, Whole)
        return Whole(np.where(np.arange(len(rows))[:, None] == 4, bad, numbers.rows)), *others

    before = exact_sums(memory, request)
    monkeypatch.setitem(CONTRIBUTIONS, type(request), lying)
    after = exact_sums(memory, request)
    assert (int(before[0]), int(after[0])) == (9, 8)
    assert all((one == other).all() for one, other in zip(before[1:], after[1:], strict=True))


def test_rows_are_added_up_in_pieces_without_a_difference(monkeypatch):
    run = next(iter(RUNS.values()))
    rows = blobs(3000, run.n_columns, seed=5)
    before = sums_without_noise(run.asked, ArrayTable(rows))
    monkeypatch.setattr(whole_rows, "PIECE_ROWS", 7)
    monkeypatch.setattr(whole_rows, "KEPT_BYTES", 0)
    after = sums_without_noise(run.asked, ArrayTable(rows))
    assert all(
        (a == b).all() for one, other in zip(before, after, strict=True) for a, b in zip(one, other, strict=True)
    )


# ---------------------------------------------------------------- people


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("name", RUNS)
def test_a_person_with_many_rows_changes_every_answer_by_at_most_so_many_norms(name, most):
    run, rng = RUNS[name], np.random.default_rng(6)
    rows = np.concatenate([blobs(40, run.n_columns, seed=7), np.full((20, run.n_columns), HIGH)])
    people = np.append(rng.integers(0, 8, 40), np.full(20, 99))
    order = rng.permutation(60)
    rows, people = rows[order], people[order]
    everybody = sums_without_noise(run.asked, _bounded(rows, people, most))
    asked = [one for one in run.asked if isinstance(one, PrivateRequest)]
    for person in np.unique(people):
        others = people != person
        rest = sums_without_noise(run.asked, _bounded(rows[others], people[others], most))
        for request, with_, without in zip(asked, everybody, rest, strict=True):
            for at, norm in enumerate(request.norms):
                assert squared_length(request, at, with_[at] - without[at]) <= (most * Fraction(norm)) ** 2


def test_without_a_bound_a_person_changes_more():
    run = next(iter(RUNS.values()))
    rows, most = np.full((20, run.n_columns), HIGH), 3
    asked = [one for one in run.asked if isinstance(one, PrivateRequest)]
    all_rows = sums_without_noise(run.asked, ArrayTable(rows))
    assert any(
        squared_length(request, at, own[at]) > (most * Fraction(norm)) ** 2
        for request, own in zip(asked, all_rows, strict=True)
        for at, norm in enumerate(request.norms)
    )


def _bounded(rows: Any, people: Any, most: int) -> BoundedTable:
    table = ArrayTable(rows)
    table.units = Units("patient", people)
    return BoundedTable(table, most)


def test_those_rows_count_that_come_first():
    codes = np.array([5, 5, 2, 5, 2, 7, 5, -3])
    assert first_of_each(codes, 1).tolist() == [True, False, True, False, False, True, False, True]
    assert first_of_each(codes, 2).tolist() == [True, True, True, False, True, True, False, True]
    assert first_of_each(codes[:0], 2).tolist() == []
    for most, more in pairwise(range(1, 6)):
        assert (first_of_each(codes, most) <= first_of_each(codes, more)).all()


def test_every_kind_of_contribution_says_how_long_it_is():
    rows = np.array([[3.0, 4.0], [0.0, -2.0]])
    assert Whole(rows).norms_squared().tolist() == [25, 4]
    assert ByCell(np.array([1, 0])).norms_squared().tolist() == [1, 1]
    assert ByCell(np.array([1, 0]), rows).norms_squared().tolist() == [25, 4]
    assert Gram(rows).norms_squared().tolist() == [625, 16]
