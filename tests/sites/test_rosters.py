"""The rule of rosters: with whom a site's answers are summed up and unmasked."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply
from coterie.methods.shared.lloyd import Assign
from coterie.secure.masked_sums import Masked, Revealed
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import MaskedAsker
from tests.identities import identity

LIMITS = {"rows": 100.0, "box": 100.0}
ASSIGN = Assign(np.zeros((1, 2)))


TABLES = {
    name: ArrayTable(rows)
    for name, rows in zip("abcde", np.random.default_rng(8).normal(size=(5, 30, 2)), strict=True)
}


def sites(policy, names="abcde", folder=None):
    return {
        name: Site(
            name,
            TABLES[name],
            policy=policy,
            ledger=SiteLedger(None if folder is None else folder / f"{name}.jsonl"),
            identity=identity(name),
        )
        for name in names
    }


@pytest.mark.parametrize(
    ("rosters", "fewer", "others", "again"),
    [("fixed", False, False, True), ("shrinking", True, False, False), ("any", True, True, True)],
)
def test_who_is_summed_up_with_whom(rosters, fewer, others, again):
    """Five sites, then four of them, then four others, then all five again."""
    made = MaskedAsker(sites(Policy(verification="off", rosters=rosters)))
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)
    assert _is_answered(made.upload(ASSIGN, "abcd", LIMITS).found) == fewer
    assert _is_answered(made.upload(ASSIGN, "abce", LIMITS).found, "abc") == others
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found, "abcd") == again


def _is_answered(found, names=None):
    """Whether all of these sites uploaded; all refuse by the same code otherwise."""
    kinds = {type(one) if isinstance(one, Reply) else one for name, one in found.items() if name in (names or found)}
    assert kinds in ({Masked}, {Revealed}, {Refusal.ROSTER_FORBIDDEN}, {Refusal.UNMASKING_FORBIDDEN})
    return not kinds <= {Refusal.ROSTER_FORBIDDEN, Refusal.UNMASKING_FORBIDDEN}


@pytest.mark.parametrize(("rosters", "fewer", "all_"), [("fixed", 0, 1), ("shrinking", 1, 0), ("any", 1, 1)])
def test_what_a_dropout_does_to_the_unmasking(rosters, fewer, all_, tmp_path):
    """Those left are asked again, or not; once they answered, the first roster is not unmasked."""
    made = MaskedAsker(
        sites(Policy(verification="off", rosters=rosters), folder=tmp_path)
    )  # files know all uploads of a run
    first = made.upload(ASSIGN, "abcde", LIMITS)
    second = made.upload(ASSIGN, "abcd", LIMITS)
    assert _is_answered(second.found) == fewer
    assert _is_answered(made.reveal(first), "abcd") == all_
    if rosters == "shrinking":  # who dropped out stays out
        assert _is_answered(made.reveal(second))
        assert not _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found, "abcd")
        assert _is_answered(made.upload(ASSIGN, "abcd", LIMITS).found)


@pytest.mark.parametrize("rosters", ["fixed", "shrinking", "any"])
def test_with_everybody_there_every_policy_unmasks(rosters):
    made = MaskedAsker(sites(Policy(verification="off", rosters=rosters)))
    for _ in range(2):
        assert _is_answered(made.reveal(made.upload(ASSIGN, "abcde", LIMITS)))


def test_rosters_are_remembered_over_a_restart(tmp_path):
    made = MaskedAsker(sites(Policy(verification="off", rosters="fixed"), folder=tmp_path))
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)
    for name, one in made.askers.items():
        one.table = TABLES[name]
        one.restart()
    assert not _is_answered(made.upload(ASSIGN, "abcd", LIMITS).found)
    assert _is_answered(made.upload(ASSIGN, "abcde", LIMITS).found)
    for one in made.askers.values():
        one.site.ledger.close()


@pytest.mark.parametrize(("fewest", "n", "is_answered"), [(1, 1, True), (2, 1, False), (3, 2, False), (3, 3, True)])
def test_rosters_below_the_smallest_are_refused(fewest, n, is_answered):
    made = MaskedAsker(sites(Policy(verification="off", min_roster=fewest)))
    assert _is_answered(made.upload(ASSIGN, "abcde"[:n], LIMITS).found) == is_answered
