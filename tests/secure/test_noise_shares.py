"""Noise of enough sites is in every sum that is unmasked, whoever drops out when; no two sums share it."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import FederatedKMeans, Privacy
from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import QuorumLost, RunError
from coterie.estimators.fitting import fit_over
from coterie.maths.thresholds import may_tolerate
from coterie.messages import codec
from coterie.messages.refusals import Refusal
from coterie.messages.site_api import Column
from coterie.messages.verbs import Question, total
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.privacy import Releases
from coterie.methods.shared.private_sums import SumRows
from coterie.methods.shared.whole_rows import ShowWhole
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.certificates import PRIVATELY_SIGNED_BYTES, Conclude
from coterie.secure.layer import MaskedSums
from coterie.secure.masked_sums import AskMasked
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.federations import Tampered
from tests.identities import identity
from tests.maths.test_thresholds import can_unmask

METHOD = "federated-kmeans"
ROWS = np.random.default_rng(0).uniform(size=(40, 2))
SHOW = ShowWhole(1e-3, 1.0, np.zeros(2), np.zeros(0), np.zeros((0, 0)))
POLICY = Policy(protection="noise", privacy=PrivacyRules(1.0), verification="off", min_roster=1)
EPSILON = 1.0


def names(n):
    return [f"s-{i}" for i in range(n)]


@dataclass
class Seen:
    """What a run showed: to the server, and in a test of the sites themselves."""

    noisy: dict[tuple[str, bytes], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """By site and question all noisy integers that were computed for it."""
    asked: dict[str, tuple[bytes, tuple[str, ...]]] = field(default_factory=dict)
    """By round and attempt the question, and of whom it was asked."""
    revealing: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By round and attempt the sites that revealed their shares of masks, whether or not that arrived."""

    def listen(self, name, question, frame):
        decoded = codec.decode_question(question)
        request, envelope = decoded.request, decoded.envelope
        if isinstance(request, AskMasked) and request.body:
            asked = codec.decode_body(request.body)[0].identity, request.roster
            self.asked[f"reveal {envelope.round} {envelope.attempt}"] = asked
        return frame

    @property
    def revealed(self) -> dict[bytes, set[tuple[str, ...]]]:
        """By question the rosters whose sum somebody can unmask who is told everything that was revealed."""
        found = defaultdict(set)
        for what, sites in self.revealing.items():
            question, roster = self.asked[what]
            if can_unmask(frozenset(roster), frozenset(sites), frozenset()):
                found[question].add(roster)
        return found

    @contextmanager
    def watching(self):
        """Keep what sites compute before they mask it, and who reveals masks."""
        evaluate, once = Site.evaluate, Site.once

        def noted(site: Site, run: bytes, what: str) -> bool:
            is_first = once(site, run, what)
            if is_first and what.startswith("reveal"):
                self.revealing[what].add(site.name)
            return is_first

        def kept(site: Site, envelope: Any, request: Any, limits: Any) -> Any:
            answer = evaluate(site, envelope, request, limits)
            if isinstance(request, SumRows):
                said = b"".join(part.tobytes() for part in answer.arrays())
                self.noisy[site.name, request.identity].append(said)
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Site, "evaluate", kept)
            patch.setattr(Site, "once", noted)
            yield

    def sum_over(self, roster, identity):
        """Of the noisy integers of these sites."""
        parts = [np.frombuffer(self.noisy[name, identity][0], np.int64) for name in roster]
        return np.sum(parts, axis=0)


def a_private_order(privacy):
    options = PreparationOptions(ranges=([0.0, 0.0], [1.0, 1.0]))
    return Order.of(FederatedKMeans(2, privacy=privacy), (Column("a"), Column("b")), options)


def asking(n, privacy, questions, found):
    """Show rows, and ask so many private questions."""
    releases = Releases(privacy, n)
    yield from total(SHOW)
    for _ in range(questions):
        asked = yield from releases.ask(SumRows, "sums", 1 / questions, (0.2, 0.4, 0.4), 2, 1000)
        found.append(np.concatenate([np.ravel(part) for part in asked.reply.arrays()]))


def federation_of(n, order, *, policy=POLICY, faults=()):
    channel = in_process(
        {name: ArrayTable(ROWS[i::n]) for i, name in enumerate(names(n))},
        policy=policy,
        schedule=Schedule(list(faults)) if faults else None,
    )
    signed = SignedOrder.by(identity("ana", role="analyst"), order).to_bytes()
    for site in channel.members.values():
        site.ledger.begin(order.identity, signed, "ana", "table")
    return channel


def check(seen, channel, order, n, tolerated, found, questions):
    """What holds of every run, however it ended."""
    most = order.privacy.mu_squared
    for rosters in seen.revealed.values():
        assert len(rosters) == 1  # one roster a question
        assert len(next(iter(rosters))) >= n - tolerated
    for said in seen.noisy.values():
        assert len(set(said)) == 1  # the same integers, however often they are asked for
    for name, site in channel.members.items():
        of_site = {identity_ for site_name, identity_ in seen.noisy if site_name == name}
        assert set(site.ledger._charges.get(order.identity, {})) == of_site  # each once
        assert site.ledger.charged_to(order.identity) <= most * (1 + 1e-12)
    sums = [seen.sum_over(next(iter(rosters)), one) for one, rosters in seen.revealed.items()]
    for value in found:  # a sum the server has is over all noise of its roster
        assert any(np.array_equal(value, one) for one in sums)


KINDS = st.sampled_from(["drop", "vanish", "duplicate", "replay", "garble", "corrupt"])


@st.composite
def schedules(draw, n):
    """Faults of some sites in some rounds, lasting or not."""
    faults = []
    for _ in range(draw(st.integers(0, 5))):
        first = draw(st.integers(2, 10))
        rounds = frozenset(range(first, draw(st.sampled_from([first + 1, first + 2, 99]))))
        faults.append(Fault(f"s-{draw(st.integers(0, n - 1))}", draw(KINDS), rounds))
    return faults


@settings(max_examples=60)
@given(st.data())
def test_whoever_drops_out_when_no_sum_has_fewer_shares_of_noise_and_none_shares_it(data):
    n = data.draw(st.integers(2, 6))
    tolerated = data.draw(st.sampled_from([t for t in range(n - 1) if may_tolerate(n, t)]))
    faults = data.draw(schedules(n))
    privacy, found, seen = Privacy(EPSILON, tolerated=tolerated), [], Seen()
    order = a_private_order(privacy)
    with federation_of(n, order, faults=faults) as channel, seen.watching():
        terms = Terms(quorum=0.01, resends=data.draw(st.integers(0, 1)))
        with suppress(RunError):
            run(
                asking(n, privacy, 3, found),
                Tampered(channel, seen.listen),
                method=METHOD,
                layers=[MaskedSums()],
                terms=terms,
                identity=order.identity,
            )
        check(seen, channel, order, n, tolerated, found, 3)
    if not faults:
        assert len(found) == 3


@pytest.mark.parametrize(
    ("n", "tolerated", "gone"), [(5, 1, 1), (6, 1, 1), (5, 1, 2), (4, 0, 1), (3, 2, 2), (7, 2, 2)]
)
def test_a_sum_goes_on_without_as_many_sites_as_are_tolerated_and_not_without_more(n, tolerated, gone):
    """The same numbers are sent again, masked for those left, and nothing is charged for it."""
    privacy, found, seen = Privacy(EPSILON, tolerated=tolerated), [], Seen()
    order = a_private_order(privacy)
    faults = [Fault(name, "drop", frozenset(range(3, 99))) for name in names(n)[:gone]]
    with federation_of(n, order, faults=faults) as channel, seen.watching():
        protocol = asking(n, privacy, 2, found)
        listened = Tampered(channel, seen.listen)
        given = {"method": METHOD, "layers": [MaskedSums()], "identity": order.identity}
        if gone <= tolerated:
            run(protocol, listened, terms=Terms(quorum=0.01, resends=0), **given)
            assert len(found) == 2
            left = tuple(names(n)[gone:])
            if tolerated < n - 1:
                assert all(rosters == {left} for rosters in seen.revealed.values())
        else:
            with pytest.raises(QuorumLost) as caught:
                run(protocol, listened, terms=Terms(quorum=0.01, resends=0), **given)
            assert Refusal.NOT_ORDERED in {outcome.refusal for outcome in caught.value.outcomes.values()}
            assert not seen.revealed
        if tolerated < n - 1:
            check(seen, channel, order, n, tolerated, found, 2)


class Greedy(MaskedSums):
    """A server that asks for the same noise over another roster, too."""

    def __init__(self, change, roster):
        super().__init__()
        self.change, self.roster, self.second = change, roster, None

    def _sum(self, question, layout, roster, **more):
        first = yield from super()._sum(question, layout, roster, **more)
        self.second = yield from super()._sum(self.change(question), layout, self.roster(roster), **more)
        return first


SAME = {
    "the same bytes": lambda question: question,
    "other limits beside it": lambda question: replace(question, limits={"rows": 5.0}),
}


def greedy(change, roster, *, n=5, tolerated=1):
    privacy, found = Privacy(EPSILON, tolerated=tolerated), []
    order, layer = a_private_order(privacy), Greedy(change, roster)
    with federation_of(n, order) as channel:
        try:
            run(
                asking(n, privacy, 2, found),
                channel,
                method=METHOD,
                layers=[layer],
                terms=Terms(quorum=0.01, resends=0),
                identity=order.identity,
            )
        except QuorumLost as problem:
            codes = {outcome.refusal for outcome in problem.outcomes.values()}
            assert Refusal.NOT_ORDERED in codes
        charged = [site.ledger.charged_to(order.identity) / privacy.mu_squared for site in channel.members.values()]
        counts = [len(site.ledger._charges[order.identity]) for site in channel.members.values()]
    return layer.second, charged, counts


@pytest.mark.parametrize("change", SAME)
def test_a_server_sees_the_same_noise_over_one_roster_alone(change):
    """The difference of both sums would be one site's rows, with its noise alone."""
    second, _, counts = greedy(SAME[change], lambda roster: roster[:-1])
    assert second is None
    assert set(counts) == {1}


def test_the_same_question_over_the_same_roster_is_the_same_sum_and_free():
    second, charged, counts = greedy(SAME["the same bytes"], lambda roster: roster)
    assert second is not None
    assert set(counts) == {2}
    assert max(charged) <= 1


def test_a_changed_question_costs_and_is_refused_once_the_run_has_what_it_ordered():
    def changed(question):
        return replace(question, request=replace(question.request, reach=question.request.reach + 1))

    second, charged, counts = greedy(changed, lambda roster: roster)
    assert second is not None  # of the first question: both took half
    assert set(counts) == {2}
    assert 0.99 < min(charged) <= max(charged) <= 1 + 1e-12


def test_a_server_that_asks_for_less_noise_than_the_order_says_is_refused():
    """Noise for no missing site, in a run that is to bear one."""

    def changed(question):
        return replace(question, request=replace(question.request, tolerated=0))

    second, _, counts = greedy(changed, lambda roster: roster)
    assert second is None
    assert set(counts) == {1}


def test_questions_of_a_run_never_have_the_same_bytes_so_that_no_two_have_the_same_noise():
    n, privacy, found, seen = 3, Privacy(EPSILON), [], Seen()
    order = a_private_order(privacy)
    with federation_of(n, order) as channel, seen.watching():
        listened = Tampered(channel, seen.listen)
        run(asking(n, privacy, 3, found), listened, method=METHOD, layers=[MaskedSums()], identity=order.identity)
    assert len(seen.revealed) == 3
    assert not any(np.array_equal(one, other) for one, other in pairwise(found))


@pytest.mark.parametrize("round_", [3, 5, 6, 8])
def test_a_verified_private_run_bears_a_dropout_and_every_site_is_charged_what_was_ordered_at_most(round_):
    rows = np.random.default_rng(1).uniform(size=(4000, 2))
    tables = {name: ArrayTable(rows[i::5]) for i, name in enumerate(names(5))}
    policy = Policy(protection="noise", privacy=PrivacyRules(EPSILON))
    faults = [Fault("s-3", "drop", frozenset(range(round_, 99)))]
    estimator = FederatedKMeans(2, privacy=Privacy(EPSILON, tolerated=1))
    with in_process(tables, policy=policy, schedule=Schedule(faults)) as channel:
        columns = {name: table.columns for name, table in tables.items()}
        options, terms = PreparationOptions(ranges=([0.0, 0.0], [1.0, 1.0])), Terms(quorum=0.5, resends=0)
        fitted = fit_over(channel, estimator, columns, options, order=channel.analyst, terms=terms)
        for name, site in channel.members.items():
            share = site.ledger.charged("table") / estimator.privacy.mu_squared
            assert share <= 1 + 1e-12
            assert share > 0.97 or name == "s-3"
    assert fitted.cluster_centers_.shape == (2, 2)


class TwoRosters(MaskedSums):
    """A server that asks the same question over two rosters of nine sites, which have one site in common."""

    def _sum(self, question, layout, roster, **more):
        more["is_for_all"] = False
        first = yield from super()._sum(question, layout, tuple(names(9)[:5]), **more)
        yield from super()._sum(question, layout, tuple(names(9)[4:]), **more)
        return first


def test_noise_is_for_all_sites_of_the_run_so_that_no_two_rosters_can_share_it():
    """Else a site in both would have its row in two sums that differ in noise by less than was charged."""
    privacy, policy = Privacy(1.0), replace(POLICY, rosters="any", min_roster=3)
    order = a_private_order(privacy)

    def too_few():
        yield from total(SHOW)
        yield from Releases(privacy, 5).ask(SumRows, "sums", 1.0, (0.2, 0.4, 0.4), 2, 1000)

    with federation_of(9, order, policy=policy) as channel:
        terms = Terms(quorum=0.01, resends=0)
        with pytest.raises(QuorumLost):
            run(too_few(), channel, method=METHOD, layers=[TwoRosters()], terms=terms, identity=order.identity)
        assert all(site.ledger.charged_to(order.identity) == 0 for site in channel.members.values())


def test_after_the_certificate_of_a_run_nothing_more_is_spent():
    privacy = Privacy(1.0)
    order = a_private_order(privacy)

    def ends_early():
        releases = Releases(privacy, 3)
        yield from total(SHOW)
        yield from releases.ask(SumRows, "sums", 0.01, (0.2, 0.4, 0.4), 2, 1000)
        yield Question(Conclude(PRIVATELY_SIGNED_BYTES), phase="masking", needed=1)
        yield from releases.ask(SumRows, "sums", 0.99, (0.2, 0.4, 0.4), 2, 1001)

    with federation_of(3, order) as channel:
        terms = Terms(quorum=0.01, resends=0)
        with pytest.raises(QuorumLost):
            run(ends_early(), channel, method=METHOD, layers=[MaskedSums()], terms=terms, identity=order.identity)
        for site in channel.members.values():
            assert 0 < site.ledger.charged_to(order.identity) < 0.02 * privacy.mu_squared
