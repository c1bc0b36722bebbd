"""Cells that are chosen so that any two releases differ by many rows, and three of them by one."""

from __future__ import annotations

import numpy as np

from coterie.methods.shared.starts import Split
from tests.attacks.asker import OFF, ON, ROW, Asker, nearest_row

ROWS = np.sort(np.random.default_rng(7).normal(size=(60, 1)), axis=0)


def cut_before(*places):
    """Split the rows before these."""
    n, cuts = len(places), [(ROWS[i - 1, 0] + ROWS[i, 0]) / 2 for i in places]
    return Split(n + 1, np.arange(n), np.zeros(n, int), np.array(cuts), np.zeros(1), np.zeros((0, 1)))


def guessed(policy):
    """Rows 0-19, rows 0-9 and rows 10-20: any two differ by ten rows or more, all three by one."""
    made = Asker.of(ROWS, policy)
    first, second, third = (made.ask(ask) for ask in (cut_before(20), cut_before(10), cut_before(10, 21, 40)))
    return second.sums[0] + third.sums[1] - first.sums[0]


def test_three_releases_over_rows_add_up_to_one():
    assert np.abs(guessed(OFF) - ROWS[20]).max() < ROW


def test_three_releases_over_groups_add_up_to_none():
    assert nearest_row(guessed(ON), ROWS) > ROW
