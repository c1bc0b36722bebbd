"""What groups of rows show of every column."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coterie.maths.group_cells import GroupCells, group_cells


def _labels(rng: np.random.Generator, n_groups: int, tau: int) -> np.ndarray:
    sizes = rng.integers(tau, 2 * tau, n_groups)
    return rng.permutation(np.repeat(np.arange(n_groups), sizes))


def _table(seed: int, tau: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns of every kind: dense numbers, rare ones, few distinct values, missing ones, constants."""
    rng = np.random.default_rng(seed)
    labels = _labels(rng, int(rng.integers(1, 12)), tau)
    n = len(labels)
    rows = rng.normal(size=(n, 6))
    rows[:, 1] = rng.random(n) < rng.choice([0.02, 0.1, 0.5])
    rows[:, 2] = rng.integers(0, 3, n)
    rows[rng.random(n) < rng.choice([0.2, 0.8, 0.97]), 3] = np.nan
    rows[:, 4] = 7.0
    rows[:, 5] = np.where(rng.random(n) < 0.5, np.nan, rng.random(n) < 0.1)
    return rows, labels


def _modes(rows: np.ndarray, tau: int) -> list[float]:
    """The most frequent value of each column, where as many rows as a group hold it."""
    found = []
    for column in rows.T:
        values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
        found.append(values[np.argmax(counts)] if len(values) and counts.max() >= tau else np.nan)
    return found


@given(st.integers(0, 10_000), st.sampled_from([3, 5, 10]))
def test_no_cell_shows_fewer_values_or_rows_off_the_mode_than_it_may(seed: int, tau: int) -> None:
    rows, labels = _table(seed, tau)
    cells = group_cells(rows, labels, tau)
    for column, mode in enumerate(_modes(rows, tau)):
        x = rows[:, column]
        shown: dict[float, set[int]] = {}  # groups by what they show: a pool shows one mean
        for group in range(len(cells)):
            if cells.present[group, column] > 0:
                key = float(group) if cells.full[group, column] else float(cells.means[group, column]) + 1e6
                shown.setdefault(key, set()).add(group)
        for groups in shown.values():
            behind = x[np.isin(labels, list(groups))]
            behind = behind[~np.isnan(behind)]
            assert len(behind) >= tau
            off = behind != mode
            mean = cells.means[next(iter(groups)), column]
            if 0 < off.sum() <= 2:  # then they count as the mode: the mean does not know them
                np.testing.assert_allclose(mean, mode)
                assert (x == mode).sum() >= tau


@given(st.integers(0, 10_000), st.sampled_from([3, 5, 10]))
def test_sums_over_groups_are_those_of_the_values_they_show(seed: int, tau: int) -> None:
    rows, labels = _table(seed, tau)
    weights = np.random.default_rng(seed).uniform(0.5, 2, len(rows))
    cells = group_cells(rows, labels, tau, weights)
    dense = 0  # a column of plain numbers is shown whole
    np.testing.assert_allclose((cells.present * cells.means)[:, dense].sum(), weights @ rows[:, dense])
    squares = (cells.squares + cells.present * cells.means**2)[:, dense].sum()
    np.testing.assert_allclose(squares, weights @ rows[:, dense] ** 2)
    sparse = 3  # with missing values: where anything is shown, of all values
    there = ~np.isnan(rows[:, sparse])
    if there.sum() >= 2 * tau and np.isclose(cells.present[:, sparse].sum(), weights @ there):
        x = rows[there, sparse]
        np.testing.assert_allclose(
            np.nansum(cells.present[:, sparse] * cells.means[:, sparse]), weights[there] @ x, atol=1e-9
        )
        held = cells.squares[:, sparse] + cells.present[:, sparse] * np.nan_to_num(cells.means[:, sparse]) ** 2
        np.testing.assert_allclose(held.sum(), weights[there] @ x**2)


def test_a_single_row_off_the_mode_of_a_column_is_not_shown_and_nothing_goes_missing() -> None:
    rows = np.zeros((20, 1))
    rows[7] = 1.0
    cells = group_cells(rows, np.repeat(np.arange(4), 5), 5)
    assert (cells.means == 0).all()
    assert (cells.present == 5).all()
    assert (cells.squares == 0).all()


def test_thin_cells_show_the_mean_of_all_of_them() -> None:
    rows = np.zeros((30, 1))
    rows[[0, 5, 10, 11]] = 1.0  # one, one, two rows off the mode in three of six groups
    cells = group_cells(rows, np.repeat(np.arange(6), 5), 5)
    np.testing.assert_allclose(cells.means[:, 0], [4 / 15, 4 / 15, 4 / 15, 0, 0, 0])
    np.testing.assert_allclose(cells.squares.sum() + (cells.present * cells.means**2).sum(), 4.0)
    assert cells.full[:, 0].tolist() == [False, False, False, True, True, True]


def test_a_column_with_too_few_values_shows_none() -> None:
    rows = np.full((20, 1), np.nan)
    rows[:4, 0] = [1.0, 2.0, 3.0, 4.0]
    cells = group_cells(rows, np.repeat(np.arange(4), 5), 5)
    assert (cells.present == 0).all()
    assert np.isnan(cells.means).all()


def test_hiding_and_joining_keep_the_groups() -> None:
    rows, labels = _table(3, 5)
    cells = group_cells(rows, labels, 5)
    hidden = cells.without(np.ones_like(cells.full))
    assert (hidden.present == 0).all()
    both = GroupCells.joined([cells, hidden])
    assert len(both) == 2 * len(cells)
    np.testing.assert_array_equal(both.taken(np.arange(len(cells))).means, cells.means)
