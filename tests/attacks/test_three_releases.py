"""What the guard of small counts does not stop: it holds releases against each other two by two, never three."""

from __future__ import annotations

import numpy as np

from coterie.protocols.seeding import Split
from tests.attacks.asker import ON, ROW, TAU, Asker

ROWS = np.sort(np.random.default_rng(7).normal(size=(60, 1)), axis=0)


def cut_before(*places):
    """Split the rows before these."""
    n, cuts = len(places), [(ROWS[i - 1, 0] + ROWS[i, 0]) / 2 for i in places]
    return Split(n + 1, np.arange(n), np.zeros(n, int), np.array(cuts), np.zeros(1))


def test_three_releases_that_pass_the_guard_still_add_up_to_a_row():
    """Rows 0-19, rows 0-9 and rows 10-20: any two differ by ten rows or more, all three by one. A server that picks
    its cells so is not held up by the guard; it is made for one that runs the method it says it runs."""
    made = Asker.of(ROWS, ON)
    first = made.ask(cut_before(20))
    second = made.ask(cut_before(10))
    third = made.ask(cut_before(10, 21, 40))
    assert [first.counts[0], second.counts[0], third.counts[1]] == [20, 10, 11]
    assert min(first.counts.min(), second.counts.min()) >= TAU
    guess = second.sums[0] + third.sums[1] - first.sums[0]
    assert np.abs(guess - ROWS[20]).max() < ROW
