"""Who can unmask what: every schedule of a few sites, beside the formula."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.maths.thresholds import may_tolerate, most_tolerated, threshold


def can_unmask(roster, revealing, colluding):
    """Whether somebody who has these sites' shares, and knows the colluders' own masks, has all masks of a roster."""
    sharing = (revealing | colluding) & roster
    return all(len(sharing - {owner}) >= threshold(len(roster)) for owner in roster - colluding)


def two_rosters_are_seen(n_sites, tolerated):
    """Whether any server, with any colluders, any two rosters and any shares revealed, unmasks both.

    An honest site reveals for one of them. Each roster has as many honest sites as the noise needs.
    """
    for n_colluding in range(tolerated + 1):
        colluding = frozenset(range(n_colluding))
        honest = frozenset(range(n_colluding, n_sites))
        needed = n_sites - tolerated
        rosters = [
            frozenset(chosen)
            for size in range(1, n_sites + 1)
            for chosen in combinations(range(n_sites), size)
            if len(honest & frozenset(chosen)) >= needed
        ]
        for one, other in combinations(rosters, 2):
            if any(
                can_unmask(one, frozenset(s for s, first in zip(honest, choice, strict=True) if first), colluding)
                and can_unmask(
                    other, frozenset(s for s, first in zip(honest, choice, strict=True) if not first), colluding
                )
                for choice in product((True, False), repeat=len(honest))
            ):
                return True
    return False


@pytest.mark.parametrize(("n_sites", "tolerated"), [(n, t) for n in range(1, 7) for t in range(n - 1)])
def test_no_schedule_shows_two_rosters_where_the_formula_says_so_and_some_does_elsewhere(n_sites, tolerated):
    assert may_tolerate(n_sites, tolerated) is not two_rosters_are_seen(n_sites, tolerated)


@given(st.integers(1, 200))
def test_all_but_one_and_none_may_always_be_missing_and_the_most_is_the_most(n_sites):
    assert may_tolerate(n_sites, n_sites - 1)
    assert may_tolerate(n_sites, 0)
    most = most_tolerated(n_sites)
    assert may_tolerate(n_sites, most)
    assert not any(may_tolerate(n_sites, t) for t in range(most + 1, n_sites - 1))


@given(st.integers(2, 300), st.data())
def test_whoever_may_be_missing_fewer_than_the_sites_that_reveal_are_left_out(n_sites, data):
    """Two sets of honest sites that unmask two rosters have a site in common; colluders alone unmask nothing."""
    tolerated = data.draw(st.integers(0, n_sites - 2))
    if not may_tolerate(n_sites, tolerated):
        return
    for colluding in range(tolerated + 1):
        smallest = n_sites - tolerated + colluding
        revealing = threshold(smallest) + 1 - colluding
        assert colluding < threshold(smallest)
        assert 2 * revealing > n_sites - colluding


@given(st.integers(3, 1000))
def test_a_threshold_is_a_majority_that_the_other_sites_can_reach(n_sites):
    assert n_sites / 2 < threshold(n_sites) <= n_sites - 1 or n_sites == 3
    assert threshold(n_sites) <= threshold(n_sites + 1) <= threshold(n_sites) + 1
