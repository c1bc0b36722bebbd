"""An attacker who knows that columns are whole numbers finds values of columns, and rows only where all are equal."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement, permutations, product

import numpy as np
import pytest
from benchmarks.integer_attack import (
    Group,
    assignments_differ,
    certain_rows,
    fits,
    groups_of,
    last_row,
    multisets,
    solve,
)

from coterie.sites.views import store
from coterie.sites.views.forming import OwnScale

VALUES = tuple(range(7))


@pytest.fixture(autouse=True)
def _columns_of_different_units(monkeypatch):
    """Else the squares of all columns are whole numbers of one scale, and no sum of them can be taken apart."""

    def standard(table):
        (block,) = table.raw_blocks()
        deviation = block.rows.std(axis=0)
        return OwnScale(block.rows.mean(axis=0), np.where(deviation > 0, deviation, 1.0))

    monkeypatch.setattr(store, "own_scale", standard)


WIDE = tuple(range(90))


def shown(rows, min_group=5, values=VALUES):
    """The groups of a made-up table of whole numbers."""
    rows = np.asarray(rows, np.float64)
    return groups_of(rows, np.ones(rows.shape[1]), [values] * rows.shape[1], min_group)


def mixed(seed, n=60, d=3, values=VALUES):
    return np.random.default_rng(seed).choice(values, size=(n, d)).astype(np.float64)


def sets_of_rows(rows):
    """All sets of rows with the same values in every column."""
    first, *others = rows.T.tolist()
    return {tuple(sorted(zip(first, *choice, strict=True))) for choice in product(*map(permutations, others))}


def solutions(group: Group):
    """All choices of one multiset a cell that fit sums and the group's one number."""
    cells = list(group.cells.values())
    choices = []
    for cell in cells:
        every = combinations_with_replacement(cell.values[::-1], cell.count)
        choices.append([chosen for chosen in every if sum(chosen) == cell.total])
    for choice in product(*choices):
        squares = [sum(v * v for v in chosen) for chosen in choice]
        number = sum(float(cell.part(q)) for cell, q in zip(cells, squares, strict=True))
        if abs(number - group.within) <= 1e-12:
            yield choice


@pytest.mark.parametrize("values", [VALUES, (3, 6, 7), tuple(range(-4, 7))])
def test_multisets_are_those_that_exist(values):
    for count in (1, 3, 4):
        every = [chosen[::-1] for chosen in combinations_with_replacement(values, count)]
        for total, square in {(sum(c), sum(v * v for v in c)) for c in every} | {(2, 999), (10**6, 3)}:
            by_sum = {c for c in every if sum(c) == total}
            by_both = {c for c in by_sum if sum(v * v for v in c) == square}
            assert set(multisets(values, count, total, most=10**6)) == by_sum
            assert set(multisets(values, count, total, square, 10**6)) == by_both
            assert len(multisets(values, count, total, square)) == min(2, len(by_both))


def test_values_of_a_single_column_are_found_where_sum_and_squares_leave_one_choice():
    groups = [group for seed in range(5) for group in shown(mixed(seed, d=1, values=WIDE), values=WIDE)]
    said = Counter()
    for group in groups:
        for column, is_determined in solve(group).items():
            cell = group.cells[column]
            choices = multisets(cell.values, cell.count, cell.total, cell.square, 10**6)
            assert is_determined == (len(choices) == 1)
            assert tuple(sorted(group.rows[:, column], reverse=True)) in choices
            said[is_determined, cell.is_determined_by_sum()] += 1
    assert said[True, False] >= 5  # the group's one number is what determines them
    assert said[False, False] >= 5


def two_alike(seed):
    """Two columns of the same values in another order: of one scale, so what one adds the other may add as well."""
    rng = np.random.default_rng(seed)
    column = rng.integers(0, 12, size=60)
    return np.column_stack([column, rng.permutation(column)])


@pytest.mark.parametrize(("made", "values"), [(mixed, VALUES), (two_alike, tuple(range(12)))])
def test_what_several_columns_leave_open_is_what_no_choice_decides(made, values):
    said = Counter()
    for group in (group for seed in range(6) for group in shown(made(seed), 4, values)):
        solved, found = solve(group), list(solutions(group))
        for place, (column, cell) in enumerate(group.cells.items()):
            assert solved[column] == (len({choice[place] for choice in found}) == 1)
            said[solved[column], cell.is_determined_by_sum()] += 1
    assert said[True, False] >= 5
    assert said[False, False] >= 5


def test_a_search_that_is_cut_short_says_so_and_says_nothing_false():
    rows = mixed(4, n=90, d=4)
    said = Counter((solve(g)[c], solve(g, most=3)[c]) for g in shown(rows) for c in g.cells)
    assert said[True, None] >= 3
    assert said[True, False] == said[False, True] == 0


def test_rows_of_a_group_of_equal_rows_are_found():
    kinds = np.array([[0, 0, 4], [4, 1, 0], [2, 4, 2], [0, 3, 0]], np.float64)
    groups = shown(np.repeat(kinds, 5, axis=0))
    assert len(groups) == 4
    for group in groups:
        assert all(solve(group)[column] for column in range(3))
        assert not assignments_differ(group.rows)
        assert certain_rows(group.rows) == 5
        (choice,) = solutions(group)
        assert sets_of_rows(np.array(choice).T) == {tuple(map(tuple, group.rows.tolist()))}


def test_rows_of_mixed_groups_are_not_determined():
    groups = [group for seed in range(5) for group in shown(mixed(seed, values=WIDE), 3, WIDE)]
    assert all(assignments_differ(group.rows) for group in groups)
    assert sum(certain_rows(group.rows) for group in groups) == 0
    assert any(
        solve(group) == dict.fromkeys(range(3), True) for group in groups
    )  # though all values of each column are


@pytest.mark.parametrize("seed", range(40))
def test_certain_rows_are_those_of_every_set(seed):
    rng = np.random.default_rng(seed)
    rows = (rng.random((int(rng.integers(3, 6)), 3)) < rng.random(3)).astype(float) * rng.integers(1, 3, size=3)
    every = sets_of_rows(rows)
    common = Counter(min(every))
    for other in every:
        common &= Counter(other)
    assert assignments_differ(rows) == (len(every) > 1)
    assert certain_rows(rows) == common.total()


def test_who_knows_all_other_rows_of_a_group_has_the_last():
    for group in shown(mixed(0, values=WIDE), values=WIDE):
        for place, row in enumerate(group.rows):
            assert last_row(group, place) == dict(enumerate(row))


@pytest.mark.parametrize("by_square", [False, True])
def test_a_row_fits_its_own_group_and_not_all_others(by_square):
    groups = shown(mixed(1, values=WIDE), values=WIDE)
    for place, group in enumerate(groups):
        for row in group.rows:
            fitting = [fits(other, row, [0, 1], by_square=by_square) for other in groups]
            assert fitting[place]
            assert sum(fitting) < len(groups)
