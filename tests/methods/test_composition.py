"""How many rows of each site are in each cluster: asked only where every site's policy allows it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import coterie
from coterie import FederatedKernelKMeans, FederatedKMeans, Privacy
from coterie.messages.refusals import Refusal
from coterie.methods.shared.composition import CountByCenter
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.policy_files import PRESETS, explain_policy, preset
from tests.attacks.asker import Asker
from tests.federations import blobs

ROWS = blobs(300, 3, 3, seed=4)
SITES = {"a": ROWS[:50], "b": ROWS[50:180], "c": ROWS[180:]}
OPEN = Policy.simulation()
QUESTION = "shared.CountByCenter"


def fitted(kind=FederatedKMeans, policy=OPEN, **options):
    given = {"profile": True, "sums": "plain", **options}
    return coterie.fit(kind(3, random_state=0), SITES, policy=policy, **given)


def asked(model):
    return {exchange.asked for exchange in model.ledger_.exchanges}


@pytest.mark.parametrize("kind", [FederatedKMeans, FederatedKernelKMeans])
def test_over_rows_it_counts_the_labels(kind):
    model = fitted(kind)
    found = model.composition_
    assert (found.sites, found.over_groups) == (("a", "b", "c"), False)
    for site, column in zip(found.sites, found.rows.T, strict=True):
        assert column.tolist() == np.bincount(model.labels_by_site_[site], minlength=3).tolist()
    np.testing.assert_allclose(found.rows.sum(axis=1), model.profiles_.rows)
    assert found.shares.sum(axis=1) == pytest.approx(1)
    assert list(found.to_frame().columns) == ["a", "b", "c"]


def test_over_groups_it_counts_whole_groups():
    model = fitted(policy=preset("research"), sums="masked")
    found = model.composition_
    assert found.over_groups
    assert found.rows.sum(axis=0).tolist() == [50, 130, 120]
    held = found.rows[found.rows > 0]
    assert held.min() >= 5
    np.testing.assert_allclose(found.rows.sum(axis=1), model.profiles_.rows, atol=1e-3)


def test_one_site_that_does_not_allow_it_keeps_it_from_being_asked():
    research = preset("research")
    policies = {"a": research, "b": replace(research, composition=False), "c": research}
    for policy in (policies, Policy(), preset("standard")):
        model = fitted(policy=policy, sums="masked")
        assert model.composition_ is None
        assert QUESTION not in asked(model)
    assert QUESTION in asked(fitted())


def test_it_is_asked_for_with_profiles_alone():
    model = fitted(profile=False)
    assert model.composition_ is None
    assert QUESTION not in asked(model)


def test_a_verified_run_answers_sums_alone():
    policy = Policy(composition=True)
    assert policy.verifies
    model = fitted(policy=policy, sums="masked")
    assert model.composition_ is None
    assert QUESTION not in asked(model)
    assert any("has no effect here" in sentence for sentence in explain_policy(policy))


def test_a_private_run_does_not_ask_it():
    policy = Policy(protection="noise", privacy=PrivacyRules(100.0), verification="off", composition=True)
    ranges = np.full(3, -30.0), np.full(3, 30.0)
    model = coterie.fit(FederatedKMeans(3, privacy=Privacy(50.0)), SITES, policy=policy, ranges=ranges, profile=True)
    assert model.composition_ is None
    assert QUESTION not in asked(model)


@pytest.mark.parametrize(
    ("policy", "is_answered"),
    [
        (Policy(verification="off", composition=True), True),
        (Policy(verification="off"), False),
        (Policy(per_site_results="rows"), False),
        (Policy(protection="noise", privacy=PrivacyRules(8.0), verification="off", composition=True), False),
    ],
)
def test_a_site_decides_for_itself(policy, is_answered):
    """Whatever else its policy lets be seen of it."""
    asker = Asker.of(coterie.open_table(ROWS), policy, method="lloyd")
    reply = asker.ask(CountByCenter(ROWS[:2]), {"rows": 1e6})
    if is_answered:
        assert reply.rows.sum() == len(ROWS)
    else:
        assert reply in (Refusal.SINGLE_ANSWER_FORBIDDEN, Refusal.NOT_PRIVATE)


def test_of_the_presets_research_allows_it():
    assert [name for name in PRESETS if preset(name).shows_composition] == ["research"]
