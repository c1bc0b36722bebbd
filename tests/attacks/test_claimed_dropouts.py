"""A server that claims dropouts in verified runs: what it gets of a site by the rule of rosters, and who notes it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from coterie import DSPGDKernelPCA
from coterie.estimators.registry import make_estimator
from coterie.maths import clustering
from coterie.messages.refusals import Refusal
from coterie.methods.shared.lloyd import Assign, Close
from coterie.secure.replay import ProvenSum
from coterie.sites.policy import Policy
from tests.attacks.verified import VerifiedRun

SIX = tuple("abcdef")
ROWS = {name: np.random.default_rng(ord(name)).normal(size=(60, 2)) + ord(name) % 3 for name in SIX}
FOUR = {name: ROWS[name] for name in SIX[:4]}
KMEANS = make_estimator("lloyd", {"n_clusters": 2, "init": [[-1.0, 0.5], [1.0, -0.5]], "tol": 0.0, "max_rounds": 60})
"""Ends when it has converged: then the last two questions have the same centers."""


def until(kind, rows=FOUR, **options):
    """A run that has come to a question of this kind."""
    run = VerifiedRun(rows, KMEANS, **options)
    while not isinstance(run.replay.request, kind):
        run.next_sum()
    return run


def own_moments(run, name, centers):
    """What a site's groups add to the sum, by cell."""
    asker = run.askers[name]
    (block,) = asker.site._tables["groups"].blocks()
    return clustering.moments(block.rows, centers, block.weights), block.weights


def shift(run):
    """By how much the method's columns are shifted against the table's."""
    table = run.memory("a").table
    return 0.0 if table is None else np.asarray(table.preparation.shift)


def refused(asked):
    assert not asked.is_answered
    return asked.refusals


# ---------------------------------------------------------------- rosters = "fixed"


def test_where_rosters_are_fixed_no_claim_of_a_dropout_gets_a_sum():
    run, n_claims = VerifiedRun(FOUR, KMEANS, policy=Policy(rosters="fixed")), 0
    while len(run.sums) < 12:
        for gone in FOUR if run.sums else ():
            left = tuple(name for name in FOUR if name != gone)
            assert refused(run.upload(left)) == {Refusal.ROSTER_FORBIDDEN}
            n_claims += 1
        run.next_sum()
    assert n_claims == 44
    assert all(run.rosters(name) == [list(FOUR)] for name in FOUR)


def test_where_rosters_are_fixed_no_sum_is_given_up():
    run = VerifiedRun(FOUR, DSPGDKernelPCA(2, n_features=4, n_iter=2), policy=Policy(rosters="fixed"))
    while not run.replay.question.complete:
        run.next_sum()
    left = tuple("abc")
    broken = ProvenSum(run.replay.position, run.upload().round, 0, left)
    run.replay.take(broken)
    assert refused(run.upload(left, sums=[*run.sums, broken])) == {Refusal.ROSTER_FORBIDDEN}


# ---------------------------------------------------------------- rosters = "shrinking", the default


def test_a_claimed_dropout_gives_that_site_s_sums_over_groups_once_and_the_others_note_it(tmp_path):
    run = until(Close, folder=tmp_path)
    centers, everyone = run.replay.request.centers, run.results[-1]
    others = run.next_sum("abc")
    counts = everyone.counts - others.counts
    own, weights = own_moments(run, "d", centers + shift(run))
    np.testing.assert_allclose(counts, own.counts, atol=1e-3)  # the control: it is the site's own
    assert weights.min() >= 5  # over groups
    for roster in ("abcd", "abd", "bcd", "ab", "a"):  # there is no second one
        asked = run.upload(tuple(roster), run.asked_last(tuple(roster)))
        assert all(isinstance(one, Refusal) for name, one in asked.found.items() if name != "d")
    for name in "abc":
        assert run.rosters(name) == [list("abcd"), list("abc")]
        lines = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        summed = [line["with"] for line in lines if line["event"] == "answer" and line.get("with")]
        assert summed[-1] == list("abc")
        assert summed[-2] == list("abcd")
        notes = [line["what"] for line in lines if line["event"] == "note"]
        assert notes.count("roster") == 2
    assert run.rosters("d") == [list("abcd")]
    for name in "abcd":
        run.site(name).ledger.close()


def test_a_dropout_claimed_after_the_sum_gives_that_site_s_sums_and_no_other_s():
    """A site may die while a sum is unmasked, so those left are asked again; a server may lie."""
    run = until(Assign)
    whole = run.upload()
    everyone = run.decoded(whole, run.reveal(whole))
    fewer = run.upload(tuple("abc"))
    others = run.decoded(fewer, run.reveal(fewer))
    assert (everyone.counts - others.counts).sum() >= 5  # over groups
    for left in ("abd", "bcd", "abcd", "ab"):
        found = run.upload(tuple(left)).found
        assert {one for name, one in found.items() if name != "d"} <= {Refusal.ROSTER_FORBIDDEN}
    for name in "abc":
        assert run.rosters(name) == [list("abcd"), list("abc")]


def test_the_smaller_roster_alone_is_unmasked():
    """The control: where the site did drop out of the question."""
    run = until(Assign)
    run.upload()
    fewer = run.upload(tuple("abc"))
    found = run.decoded(fewer, run.reveal(fewer))
    assert found.counts.sum() < sum(map(len, FOUR.values()))


# ---------------------------------------------------------------- two stories


def test_two_halves_that_are_told_of_each_other_s_dropout_are_two_rosters_for_good():
    """Each half gives a sum over its three; nothing over fewer, and nothing over both any more."""
    run = VerifiedRun(ROWS, KMEANS)
    halves = SIX[:3], SIX[3:]
    for half in halves:
        asked = run.upload(half)
        assert asked.is_answered
        run.decoded(asked, run.reveal(asked))
    assert refused(run.upload(SIX)) <= {Refusal.NOT_ORDERED, Refusal.ROSTER_FORBIDDEN}
    for a in halves[0]:
        for pair in ((a, "d", "e"), (a, "d"), (a, "b" if a != "b" else "c")):
            asked = run.upload(tuple(sorted(pair)))
            assert all(isinstance(one, Refusal) for one in asked.found.values())
    assert [run.rosters(name) for name in SIX] == [[list(half)] for half in halves for _ in half]


@pytest.mark.parametrize("rosters", ["fixed", "shrinking", "any"])
def test_no_sum_is_over_fewer_than_the_smallest_roster(rosters):
    run, n_asked = VerifiedRun(FOUR, KMEANS, policy=Policy(rosters=rosters)), 0
    while len(run.sums) < 8:
        for roster in ("ab", "cd", "ad", "b"):
            assert refused(run.upload(tuple(roster))) == {Refusal.ROSTER_FORBIDDEN}
            n_asked += 1
        run.next_sum()
    assert n_asked == 32
    assert all(run.rosters(name) == [list(FOUR)] for name in FOUR)


def test_different_rosters_and_rounds_for_different_sites_give_no_sum():
    """Masks of other rosters, or of other rounds, do not cancel: the tag does not fit what comes out."""
    run = VerifiedRun(FOUR, KMEANS)
    run.next_sum()
    one, other = run.upload(tuple("abcd")), run.upload(tuple("abcd"))
    mixed = other._replace(found={**other.found, "a": one.found["a"]})
    revealed = run.reveal(other)
    proven = run.proven(mixed, revealed)
    right = run.proven(other, revealed)
    assert proven.numbers != right.numbers
    run.replay.take(right)
    assert refused(run.upload(sums=[*run.sums, proven])) == {Refusal.NOT_ORDERED}
    assert run.upload(sums=[*run.sums, right]).is_answered
