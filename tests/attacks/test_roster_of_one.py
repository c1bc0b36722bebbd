"""A sum over one site is that site's own, masked or not."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import in_process
from coterie.errors import QuorumLost
from coterie.messages.refusals import Refusal
from coterie.messages.verbs import each, total
from coterie.methods.shared.lloyd import Assign
from coterie.runtime.layers import PlainSums
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from tests.attacks.asker import ROW, nearest_row
from tests.declared import Declared
from tests.federations import split_evenly

ROWS = np.random.default_rng(3).normal(size=(200, 3))
ROWS[190] = [30.0, 20.0, -10.0]  # at the last site
ASSIGN = Assign(np.array([np.zeros(3), ROWS[190] + 1.0]))
NAMES = tuple(f"site-{i}" for i in range(4))
NO_GUARD = Policy(verification="off", protection="none", min_roster=1, rosters="any")
"""Nothing is seen by itself, and no other rule holds."""


def summed(roster):
    """The sum over a roster of the attacker's choice; the mean of every cell."""
    m = yield from total(ASSIGN, to=roster)
    return [s / c for s, c in zip(m.sums, m.counts, strict=True) if c > 0]


def seen_alone(name):
    """The plain answer of one site."""
    m = (yield from each(ASSIGN, to=(name,)))[name]
    return [s / c for s, c in zip(m.sums, m.counts, strict=True) if c > 0]


def best(protocol, policy, layer):
    """How near the best guess comes to a row."""
    layers = [Declared({"rows": 100, "box": 100.0}), layer]
    with in_process(split_evenly(ROWS, 4), policy=policy) as channel:
        guesses = run(protocol, channel, method="lloyd", layers=layers)
    return min(nearest_row(guess, ROWS) for guess in guesses)


def stopped(protocol, policy, layer):
    """Why the last site did not answer."""
    with pytest.raises(QuorumLost) as caught:
        best(protocol, policy, layer)
    return caught.value.outcomes[NAMES[-1]].refusal


def test_a_masked_sum_over_one_site_is_its_row_where_any_roster_will_do():
    assert best(summed(NAMES[-1:]), NO_GUARD, MaskedSums()) < ROW


@pytest.mark.parametrize("n", [1, 2])
def test_small_rosters_are_refused(n):
    refusal = stopped(summed(NAMES[-n:]), Policy(verification="off", protection="none", rosters="any"), MaskedSums())
    assert refusal is Refusal.ROSTER_FORBIDDEN


def test_a_roster_that_is_large_enough_hides_only_whose_row_it_is():
    """The smallest roster says nothing of counts: where all other sites have no row there, the sum is still a row."""
    assert best(summed(NAMES[1:]), Policy(verification="off", protection="none"), MaskedSums()) < ROW
    assert best(summed(NAMES[1:]), Policy(verification="off"), MaskedSums()) > 1000 * ROW


def test_the_guard_of_small_counts_holds_for_a_roster_of_one_too():
    assert best(summed(NAMES[-1:]), Policy(verification="off", min_roster=1), MaskedSums()) > 1000 * ROW


@pytest.mark.parametrize("layer", [PlainSums(), MaskedSums()], ids=["plain", "masked"])
def test_a_single_answer_is_a_row_where_single_answers_may_be_seen(layer):
    assert best(seen_alone(NAMES[-1]), Policy(per_site_results="averages", protection="none"), layer) < ROW
    assert stopped(seen_alone(NAMES[-1]), NO_GUARD, layer) is Refusal.SINGLE_ANSWER_FORBIDDEN


def test_plain_sums_are_single_answers():
    """The server says it only adds up; it could as well not."""
    assert best(summed(NAMES[-1:]), Policy(per_site_results="averages", protection="none"), PlainSums()) < ROW
    assert stopped(summed(NAMES), NO_GUARD, PlainSums()) is Refusal.SINGLE_ANSWER_FORBIDDEN
