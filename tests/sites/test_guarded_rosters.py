"""The guard of rosters: with whom a site's answers are summed up and unmasked."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply
from coterie.protocols.lloyd import Assign
from coterie.secure.masked_sums import Masked, Revealed, threshold
from coterie.sites.policy import Policy
from tests.attacks.asker import MaskedAsker

from .guarded_sites import LIMITS, sites

ASSIGN, OTHERWISE = Assign(np.zeros((1, 2))), Assign(np.array([[0.0, -9.0], [0.0, 0.0], [0.0, 9.0]]))


@pytest.mark.parametrize(
    ("rosters", "fewer", "others", "again"),
    [("fixed", False, False, True), ("shrinking", True, False, False), ("any", True, True, True)],
)
def test_who_is_summed_up_with_whom(rosters, fewer, others, again):
    """Five sites, then four of them, then four others, then all five again."""
    made = MaskedAsker(sites(Policy(rosters=rosters, min_count=1)))
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)
    assert _is_answered(made.upload(OTHERWISE, "abcd", LIMITS).found) == fewer
    assert _is_answered(made.upload(OTHERWISE, "abce", LIMITS).found, "abc") == others
    assert _is_answered(made.upload(OTHERWISE, "abcde", LIMITS).found, "abcd") == again


def _is_answered(found, names=None):
    """Whether all of these sites uploaded; all refuse by the same code otherwise."""
    kinds = {type(one) if isinstance(one, Reply) else one for name, one in found.items() if name in (names or found)}
    assert kinds in ({Masked}, {Revealed}, {Refusal.ROSTER_FORBIDDEN}, {Refusal.UNMASKING_FORBIDDEN})
    return not kinds <= {Refusal.ROSTER_FORBIDDEN, Refusal.UNMASKING_FORBIDDEN}


@pytest.mark.parametrize(("rosters", "is_unmasked"), [("fixed", False), ("shrinking", True), ("any", True)])
def test_what_a_dropout_does_to_the_unmasking(rosters, is_unmasked):
    made = MaskedAsker(sites(Policy(rosters=rosters, min_count=1)))
    upload = made.upload(ASSIGN, "abcde", LIMITS)
    assert _is_answered(made.reveal(upload, "abcd")) == is_unmasked
    if rosters == "shrinking":  # who dropped out stays out
        assert not _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found, "abcd")
        assert _is_answered(made.upload(ASSIGN, "abcd", LIMITS).found)


@pytest.mark.parametrize("rosters", ["fixed", "shrinking", "any"])
def test_with_everybody_there_every_policy_unmasks(rosters):
    made = MaskedAsker(sites(Policy(rosters=rosters)))
    for _ in range(2):
        assert _is_answered(made.reveal(made.upload(ASSIGN, "abcde", LIMITS), "abcde"))


def test_rosters_are_remembered_over_a_restart(tmp_path):
    made = MaskedAsker(sites(Policy(rosters="fixed", min_count=1), folder=tmp_path))
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)
    for one in made.askers.values():
        one.restart()
    assert not _is_answered(made.upload(ASSIGN, "abcd", LIMITS).found)
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)
    for one in made.askers.values():
        one.site.ledger.close()


@pytest.mark.parametrize(("fewest", "n", "is_answered"), [(1, 1, True), (2, 1, False), (3, 2, False), (3, 3, True)])
def test_rosters_below_the_smallest_are_refused(fewest, n, is_answered):
    made = MaskedAsker(sites(Policy(min_roster=fewest)))
    assert _is_answered(made.upload(ASSIGN, "abcde"[:n], LIMITS).found) == is_answered


@pytest.mark.parametrize(("fewest", "is_unmasked"), [(4, True), (5, False)])
def test_too_few_survivors_for_the_smallest_roster_are_not_unmasked(fewest, is_unmasked):
    made = MaskedAsker(sites(Policy(min_roster=fewest)))
    upload = made.upload(ASSIGN, "abcde", LIMITS)
    assert _is_answered(made.reveal(upload, "abcd")) == is_unmasked


@pytest.mark.parametrize("nudge", [0.0, 1e-9])
def test_the_same_sets_are_not_summed_up_with_fewer_sites(nudge):
    made, centers = MaskedAsker(sites(Policy())), np.array([[0.0, -1.0], [0.0, 1.0]])
    made.reveal(made.upload(Assign(centers), "abcde", LIMITS), "abcde")
    found = made.upload(Assign(centers + nudge), "abcd", LIMITS).found
    assert {*found.values()} == {Refusal.REPEATS}
    again = made.upload(Assign(centers[:, ::-1]), "abcd", LIMITS).found  # other sets are
    assert _is_answered(again)


CENTERS = np.array([[0.0, -1.0], [0.0, 1.0]])


def test_what_nobody_unmasked_may_be_summed_up_with_fewer_sites_and_then_with_no_others(tmp_path):
    """A site was lost on the way: one of the two sums stays masked. Sites with a book remember every upload."""
    made = MaskedAsker(sites(Policy(), folder=tmp_path))
    with_all = made.upload(Assign(CENTERS), "abcde", LIMITS)
    without_one = made.upload(Assign(CENTERS), "abcd", LIMITS)
    assert _is_answered(made.reveal(without_one, "abcd"))
    assert _is_answered(made.reveal(made.upload(Assign(CENTERS), "abcd", LIMITS), "abcd"))  # nothing new in it
    late = made.reveal(with_all, "abcde")
    assert [late[name] for name in "abcd"] == [Refusal.REPEATS] * 4
    for one in made.askers.values():
        one.site.ledger.close()


def test_of_two_sums_that_differ_by_a_site_one_stays_masked_whichever_is_unmasked_first(tmp_path):
    made = MaskedAsker(sites(Policy(), folder=tmp_path))
    with_all = made.upload(Assign(CENTERS), "abcde", LIMITS)
    without_one = made.upload(Assign(CENTERS), "abcd", LIMITS)
    assert not _is_answered(made.reveal(with_all, "abcde", ask="abcd"))  # e is gone for them
    assert _is_answered(made.reveal(without_one, "abcd"))
    for one in made.askers.values():
        one.site.ledger.close()


def test_who_did_not_help_to_unmask_may_be_asked_with_fewer_sites_but_those_who_did_are_not():
    made = MaskedAsker(sites(Policy()))
    first = made.upload(Assign(CENTERS), "abcde", LIMITS)
    assert _is_answered(made.reveal(first, "abcde", ask="abce"))  # enough of them: d is not asked
    found = made.upload(Assign(CENTERS), "abcd", LIMITS).found  # e is said to be gone
    assert {name for name, one in found.items() if one is Refusal.REPEATS} == set("abc")


def test_what_was_told_with_whom_is_remembered_over_a_restart(tmp_path):
    made = MaskedAsker(sites(Policy(), folder=tmp_path))
    made.reveal(made.upload(Assign(CENTERS), "abcde", LIMITS), "abcde")
    for one in made.askers.values():
        one.restart()
    assert {*made.upload(Assign(CENTERS), "abcd", LIMITS).found.values()} == {Refusal.REPEATS}
    for one in made.askers.values():
        one.site.ledger.close()


def test_what_was_seen_by_itself_may_be_summed_up_with_anybody():
    made = MaskedAsker(sites(Policy(single_answers="averages")))
    made.each(ASSIGN)
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)


def test_of_four_sites_all_must_have_uploaded_so_that_no_stories_give_a_sum_over_two():
    """With half of them enough, a would tell its story of abd, b of abc, c of acd, d of bcd: together a + b."""
    made = MaskedAsker(sites(Policy(), names="abcd"))
    upload = made.upload(ASSIGN, "abcd", LIMITS)
    for name, story in {"a": "abd", "b": "abc", "c": "acd", "d": "bcd"}.items():
        assert made.reveal(upload, story, ask=name) == {name: Refusal.MALFORMED}
    assert threshold(4) == 3
    assert all(2 * threshold(n) > n for n in range(3, 200))
