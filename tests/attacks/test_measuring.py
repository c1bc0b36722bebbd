"""What a site refuses, or marks, at which limit: asked at many, the answers measure what nobody was to see."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.messages.refusals import Refusal
from coterie.methods.kmeans.federated import Train
from coterie.methods.shared.limits import ReportMagnitude
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import OFF, ON, ROW, Asker, MaskedAsker
from tests.identities import identity

ROWS = np.random.default_rng(9).normal(size=(40, 1))


def halved(low, high, is_below):
    """Close in on a number that is below ``middle`` where ``is_below(middle)`` says so."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if is_below(middle) else (middle, high)
    return high


def marked(made):
    """Where the largest value is, by marks about ever other origins: is it within 16 of this one?"""

    def is_below(value):
        marks = made.ask(ReportMagnitude(1, np.full(1, value - 16.0)))
        return not isinstance(marks, Refusal) and not marks.box[0, 18:].any()

    return halved(0.0, 15.0, is_below)


@pytest.mark.parametrize(("policy", "is_told"), [(OFF, True), (ON, False)], ids=["off", "on"])
def test_the_largest_value_by_marks_about_many_origins(policy, is_told):
    guess = marked(Asker.of(ROWS, policy))
    assert (abs(guess - ROWS.max()) < ROW) == is_told
    assert (np.abs(guess - ROWS).min() < ROW) == is_told


def measured(rosters):
    """One site's own sum, behind its masks: within which declared limit does it answer?"""
    ask = Train(1, 0, 1.0, 0, 0, np.zeros((1, 1)))  # a sum is at most rows * box

    def is_below(value):
        found = rosters.upload(ask, "abc", {"rows": 100.0, "box": value / 100}).found["c"]
        return not isinstance(found, Refusal)

    return halved(1e-6, 1000.0, is_below)


@pytest.mark.parametrize(
    "policy", [Policy(verification="off", protection="none"), Policy(verification="off")], ids=["rows", "groups"]
)
def test_one_site_s_masked_sum_by_many_declared_limits(policy):
    """Refusals tell, as the threat model says: a server that lies about limits gets a site's own sum of all its rows,
    whatever protects these. It is a function of the site's groups all the same."""
    rng = np.random.default_rng(10)
    rows = {name: rng.normal(size=(40, 1)) + 3 for name in "abc"}
    sites = {name: Site(name, ArrayTable(own), policy=policy, identity=identity(name)) for name, own in rows.items()}
    guess = measured(MaskedAsker(sites, method="federated-kmeans"))
    assert abs(guess - rows["c"].sum()) < ROW
