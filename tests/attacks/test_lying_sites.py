"""A site that lies: 60 rows of extreme values, a flood of rows, numbers that no row could give.

Handwritten digits at ten sites, and one that lies. What a lie within the declared ranges does is not stopped, only
bounded.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import coterie
from coterie import FederatedKMeans, FederatedPCA, VerticalKernelPCA
from coterie.errors import BadAnswer, InputError, QuorumLost
from coterie.maths.clustering import nearest
from coterie.maths.masks import FixedPoint
from coterie.messages.refusals import Refusal
from coterie.messages.site_api import CARRIERS
from coterie.methods.kmeans.federated import Train
from coterie.methods.shared.halves import FEW_ROWS, SHARE_FACTOR, Half, Halves, drawn_halves
from coterie.methods.shared.preparation import SumColumns
from coterie.secure import layer, replay
from coterie.secure.masked_sums import AskMasked
from coterie.secure.replay import Replay
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.attacks.liars import (
    DIGITS,
    HONEST,
    LIES,
    N_SITES,
    RANGES,
    captured,
    cost_of_honest,
    fitted,
    outside,
    with_liar,
)
from tests.federations import blobs

HALVES = Policy(halves=True)


@pytest.fixture(scope="module")
def honest():
    return fitted(HONEST)


@pytest.fixture(scope="module")
def attacked():
    return fitted(with_liar(LIES))


def test_without_ranges_60_rows_capture_a_center_and_raise_the_others_cost(honest, attacked):
    assert len(captured(honest)) == 0
    (own,) = captured(attacked)
    assert outside(attacked) == own
    assert attacked.counts_[own] == pytest.approx(60)
    assert cost_of_honest(attacked) > 1.025 * cost_of_honest(honest)


def test_with_ranges_no_center_leaves_them(honest, attacked):
    model = fitted(with_liar(LIES), ranges=RANGES)
    assert len(outside(model)) == 0
    assert cost_of_honest(model) < 1.035 * cost_of_honest(honest)
    same = fitted(HONEST, ranges=RANGES)  # who does not lie notices nothing
    np.testing.assert_allclose(same.cluster_centers_, honest.cluster_centers_, rtol=1e-6, atol=1e-6)


def test_a_lie_at_the_ends_of_the_ranges_still_captures_a_center_and_halves_show_it():
    """What ranges do not promise: a corner of the box is as far from the rows as declared ranges let it be."""
    model = fitted(with_liar(LIES), ranges=RANGES, policy=HALVES, halves=True)
    (own,) = captured(model)
    assert model.halves_.clusters == [own]


@pytest.mark.parametrize("n_lies", [10, 60])
def test_a_liar_moves_a_center_at_most_by_its_share_of_the_cluster_times_the_range(n_lies):
    """What ranges promise: m rows among n of a cluster move its mean by m / (m + n) of the range."""
    rng = np.random.default_rng(0)
    rows, lies = rng.random((300, 3)), np.full((n_lies, 3), 1e9)
    start = np.full((1, 3), 0.5)
    options = {"policy": Policy(), "ranges": (np.zeros(3), np.ones(3))}
    model = FederatedKMeans(1, init=start, random_state=0)
    tables = {str(i): rows[i::3] for i in range(3)}
    true = coterie.fit(model, tables, **options).cluster_centers_
    moved = np.abs(coterie.fit(model, {**tables, "liar": lies}, **options).cluster_centers_ - true).max()
    assert moved <= n_lies / (300 + n_lies) + 1e-6
    free = coterie.fit(model, {**tables, "liar": lies}).cluster_centers_
    assert np.abs(free - true).max() > 1e6


# ------------------------------------------------------------------------------------------- a site that dominates


def flood(n_rows):
    rng = np.random.default_rng(1)
    return with_liar(np.clip(rng.normal(16, 1, size=(n_rows, 64)), *RANGES))


def test_max_share_stops_a_site_that_dominates_and_nobody_else():
    tables = flood(3000)
    assert fitted(tables).counts_.sum() == 4797  # without it the run goes through
    with pytest.raises(QuorumLost) as caught:
        fitted(tables, max_share=0.5)
    refused = {name: outcome.refusal for name, outcome in caught.value.outcomes.items() if not outcome.is_good}
    assert refused == {"liar": Refusal.SHARE_TOO_LARGE}
    assert fitted(flood(1500), max_share=0.5).counts_.sum() == 3297


@pytest.mark.parametrize("share", [0.0, -1.0, 1.1, float("nan")])
def test_a_share_is_above_0_and_at_most_1(share):
    with pytest.raises(InputError, match="max_share="):
        fitted(HONEST, max_share=share)


def test_a_share_that_no_split_keeps_to_is_refused_before_anything_is_asked():
    with pytest.raises(InputError, match="cannot hold for 10 sites"):
        fitted(HONEST, max_share=0.05)


def test_a_share_counts_rows_as_prepared_and_sites_of_equal_size_pass():
    rows = blobs(80, 3, seed=1)
    rows[:10, 0] = np.nan  # of the first site
    tables = {str(i): rows[20 * i : 20 * i + 20] for i in range(4)}
    model, options = FederatedKMeans(2, random_state=0), {"policy": Policy.simulation(), "missing": "drop"}
    coterie.fit(model, tables, max_share=20 / 70, **options)
    with pytest.raises(QuorumLost):
        coterie.fit(model, tables, max_share=20 / 71, **options)


# ------------------------------------------------------------------------------------------- halves


def test_halves_disagree_about_what_one_site_makes_up(attacked):
    assert attacked.halves_ is None
    model = fitted(with_liar(LIES), policy=HALVES, halves=True)
    (lies,) = captured(model)
    assert model.halves_.disagree
    assert int(lies) in model.halves_.clusters
    one, other = model.halves_.halves
    assert {*one.sites} | {*other.sites} == {*with_liar(LIES)}
    np.testing.assert_allclose(one.counts + other.counts, model.counts_, atol=1e-6)
    assert one.cost + other.cost == pytest.approx(model.inertia_)


def test_halves_of_like_sites_agree_and_are_drawn_from_the_public_seed():
    model = fitted(HONEST, policy=HALVES, halves=True)
    assert not model.halves_.disagree
    assert tuple(h.sites for h in model.halves_.halves) == drawn_halves(tuple(HONEST), model.public_seed_)


def test_a_comparison_changes_nothing_else(honest):
    np.testing.assert_array_equal(
        fitted(HONEST, policy=HALVES, halves=True).cluster_centers_, honest.cluster_centers_
    )


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Policy(), "a site's policy does not allow it"),
        (Policy(halves=True, min_roster=6), "10 sites are too few for two halves of at least 6"),
        ({**dict.fromkeys(HONEST, HALVES), "site-3": Policy()}, "a site's policy does not allow it"),
    ],
)
def test_halves_are_not_asked_for_where_they_would_be_refused(policy, why):
    model = fitted(HONEST, policy=policy, halves=True)
    assert (model.halves_.halves, model.halves_.why_not) == (None, why)
    assert not [e for e in model.ledger_.exchanges if "Half" in e.asked]


def test_halves_need_clusters_and_sites_with_rows_of_their_own():
    for estimator in (FederatedPCA(2), VerticalKernelPCA(2)):
        with pytest.raises(InputError, match=r"^halves"):
            coterie.fit(estimator, HONEST, halves=True, policy=Policy.simulation(), sums="plain")


def test_a_cluster_is_flagged_beyond_the_factor_and_not_before():
    def halves(count):
        return Halves(
            (Half(("a",), np.array([995.0, 5.0]), 1.0), Half(("b",), np.array([1000.0 - count, count]), 1.0))
        )

    edge = SHARE_FACTOR * 2 * FEW_ROWS - FEW_ROWS
    assert halves(edge).clusters == []
    assert halves(edge + 1).clusters == [1]
    assert Halves((Half(("a",), np.ones(2), 1.0), Half(("b",), np.ones(2), 2.1))).costs_differ


# ------------------------------------------------------------------------------------------- which rosters


ALL = tuple("abcdef")
HALF, OTHER, SMALL = ("a", "b", "c"), ("a", "d", "e"), ("a", "b")


def joining(policy, *steps):
    """What a site says to rosters, one after the other: None, or its refusal."""
    site = Site("a", ArrayTable(blobs(30, 2)), policy=policy, ledger=SiteLedger())
    said = []
    for kind, roster, *question in steps:
        try:
            getattr(site, kind)(bytes(16), roster, *question)
            said.append(None)
        except Exception as problem:
            said.append(problem.code)
    return said


NO, NOT_UNMASKED = Refusal.ROSTER_FORBIDDEN, Refusal.UNMASKING_FORBIDDEN


@pytest.mark.parametrize("rosters", ["fixed", "shrinking"])
def test_one_half_is_let_through_once_and_nothing_else(rosters):
    policy = Policy(halves=True, rosters=rosters)
    all_, half = ("join", ALL), ("join", HALF, b"question")
    assert joining(policy, all_, half, ("unmask", HALF), half) == [None] * 4
    assert joining(policy, all_, half, ("join", HALF, b"another")) == [None, None, NO]
    assert joining(policy, all_, half, ("join", OTHER, b"question")) == [None, None, NO]
    assert joining(policy, all_, half, ("unmask", OTHER))[-1] == (NOT_UNMASKED if rosters == "fixed" else None)
    assert joining(policy, half) == [NO]  # half of what?
    assert joining(policy, all_, ("join", SMALL, b"question")) == [None, NO]
    assert joining(policy, ("join", ALL[:5]), half) == [None, NO]  # the others would be two
    assert joining(policy, all_, ("join", ALL, b"question")) == [None, NO]
    assert joining(policy, all_, half, all_, ("unmask", ALL)) == [None] * 4


def test_a_policy_that_does_not_allow_halves_refuses_them():
    assert joining(Policy(rosters="any"), ("join", ALL), ("join", HALF, b"question")) == [None, NO]


# ------------------------------------------------------------------------------------------- changed software


def puts_into_the_ring(lie, kind=SumColumns):
    """Site 0 adds a number to all it sends in the first sum of a kind, and tags it as its own."""
    honestly, encode, done = CARRIERS[AskMasked], FixedPoint.encode, []

    def lying(exit_, memory, envelope, ask):
        if exit_.name != "0" or ask.subject is not kind or (done and done[0] != ask.position):
            return honestly(exit_, memory, envelope, ask)
        done.append(ask.position)
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(FixedPoint, "encode", lambda self, v: encode(self, v) + np.uint64(lie % 2**64))
            return honestly(exit_, memory, envelope, ask)

    return lying


def cluster_blobs(**options):
    rows = blobs(120, 3, seed=2)
    model = FederatedKMeans(2, init=rows[:2], random_state=0)
    return coterie.fit(model, {str(i): rows[i::4] for i in range(4)}, **options)


BEYOND = [
    (7 << 60, "more than 4 sites can send"),
    (-(7 << 60), "more than 4 sites can send"),
    (-(1 << 61), "below 0"),
]


@pytest.mark.parametrize("policy", [Policy(), Policy(verification="off")], ids=["verified", "not verified"])
@pytest.mark.parametrize(("lie", "says"), BEYOND)
def test_a_sum_that_no_honest_sites_could_send_is_refused_by_the_server(monkeypatch, policy, lie, says):
    monkeypatch.setitem(CARRIERS, AskMasked, puts_into_the_ring(lie))
    with pytest.raises(BadAnswer, match=f"{says}.*did not keep to its bound"):
        cluster_blobs(policy=policy)


@pytest.mark.parametrize(("lie", "says"), BEYOND)
def test_and_by_every_site_that_verifies_where_the_server_lets_it_pass(monkeypatch, lie, says):
    monkeypatch.setitem(CARRIERS, AskMasked, puts_into_the_ring(lie))
    monkeypatch.setattr(layer, "decoded_sum", unchecked)
    monkeypatch.setattr(layer, "Replay", Trusting)
    with pytest.raises(QuorumLost) as caught:
        cluster_blobs()
    assert {outcome.refusal for outcome in caught.value.outcomes.values()} == {Refusal.NOT_ORDERED}


class Trusting(Replay):
    """The ordered method as a server steps it that does not look at sums."""

    def take(self, proven):
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(replay, "decoded_sum", unchecked)
            super().take(proven)


def unchecked(numbers, layout, coded):
    """What a server reads that does not look."""
    arrays, start = [], 0
    for item, coding in zip(layout.fields, coded, strict=True):
        part = numbers[start : start + item.size].view(np.int64).reshape(item.shape)
        arrays.append(np.maximum(part / coding.scale, 0.0) if item.spec.nonnegative else part / coding.scale)
        start += item.size
    return layout.reply(*arrays)


def test_a_lie_that_all_sites_together_could_have_told_passes():
    """What is not promised: within n bounds nothing is seen, so changed software gives a site the weight of all."""
    rows = np.full((120, 1), 0.5)
    tables = {str(i): rows[i::4] for i in range(4)}
    model, options = FederatedKMeans(1, init=np.zeros((1, 1)), max_rounds=1), {"ranges": ([0.0], [1.0])}
    assert coterie.fit(model, tables, **options).cluster_centers_ == pytest.approx(0.5)
    with pytest.MonkeyPatch.context() as changed:
        changed.setitem(CARRIERS, AskMasked, puts_into_the_ring(1 << 58, Train))
        lied = coterie.fit(model, tables, **options).cluster_centers_
    assert lied > 0.6


def test_the_data_of_the_attack_is_what_it_says():
    assert len(HONEST) == N_SITES
    assert sum(map(len, HONEST.values())) == len(DIGITS) == len(load_digits().data)
    assert LIES.shape == (60, 64)
    assert nearest(LIES, DIGITS)[1].min() > 0
