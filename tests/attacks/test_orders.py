"""Orders that nobody gave, or gave for something else: an installed site answers none of them."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from coterie.messages import codec
from coterie.messages.codec import Envelope
from coterie.messages.identity import Authority, Identity, Trust
from coterie.messages.refusals import Refusal
from coterie.messages.verbs import Seen
from coterie.methods.order import Order, SignedOrder, installed_versions
from coterie.methods.shared.agreement import Agree
from coterie.methods.shared.lloyd import Assign
from coterie.methods.shared.preparation import SumColumns
from coterie.methods.shared.prepared import Prepare
from coterie.secure.handshake import HELLO_BYTES, REPORT_BYTES, AskHello, SiteHello
from coterie.sites.approvals import Approvals, Decision
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.identities import AUTHORITY, identity
from tests.orders import ANA, ANALYST, an_order, signed

ROWS = np.random.default_rng(0).normal(size=(60, 2))
OPEN = Policy(per_site_results="averages")
LIMITS = {"rows": 1000.0, "box": 100.0}
SUMS = Assign(np.array([[0.0, 0.0], [1.0, 1.0]]))


class Server:
    """A server that puts whatever it likes to one installed site."""

    def __init__(self, folder, policy=OPEN, own=None):
        self.folder, self.policy, self.own = folder, policy, own or identity("north")
        self.approvals, self.round = Approvals(folder / "orders"), 0
        self.start()

    def start(self):
        table = ArrayTable(ROWS, columns=["a", "b"])
        ledger = SiteLedger(self.folder / "ledger.jsonl")
        self.site = Site(
            "north", table, policy=self.policy, ledger=ledger, identity=self.own, approvals=self.approvals
        )
        self.bodies = {}

    def restart(self):
        self.site.ledger.close()
        self.start()

    def envelope(self, run, method, digest):
        self.round += 1
        names = codec.roster_digest(["north"]), codec.site_tag("north")
        return Envelope(codec.FORMAT_VERSION, bytes.fromhex(run), self.round, 0, *names, digest, method)

    def ask(self, request, run, method="lloyd", limits=LIMITS):
        """What the site answers, or why it does not; it is brought up to date as a run does it."""
        body, known = codec.encode_body(request, limits), self.bodies.setdefault(run, [])
        script = codec.NO_TRANSCRIPT
        for before in known:
            script = codec.extend_transcript(script, before)
        envelope = self.envelope(run, method, body.digest)
        frame = self.site.answer(codec.encode_question(envelope, body, script, Seen.SINGLE))
        found = codec.decode_answer(frame, envelope, request.layout, request.layout.bounds(limits))
        if request.remembered and not isinstance(found, Refusal):
            known.append(body.data)
        return found

    def begin(self, order, *, run=None, method="lloyd", n_columns=2):
        """Put an order; what becomes of it."""
        raw = order if isinstance(order, bytes) else order.to_bytes()
        run = run or SignedOrder.from_bytes(raw).read().run
        return self.ask(AskHello(raw, HELLO_BYTES + REPORT_BYTES + n_columns), run, method, {})

    def recall(self, run, *requests, method="lloyd"):
        """Bring the site up to date with requests it never saw."""
        frame = codec.encode_recall(
            self.envelope(run, method, bytes(16)), [codec.encode_body(request, {}).data for request in requests]
        )
        envelope = codec.read_envelope(frame)[1]
        return codec.decode_answer(self.site.answer(frame), envelope, codec.EMPTY_LAYOUT, ())


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


def new_run(**options):
    return signed(an_order(run=None, **options))


def test_without_an_order_a_site_answers_nothing_but_the_first_question(server):
    run = "ab" * 16
    for request in (SUMS, SumColumns(False, np.zeros(2)), Agree(2, ("a", "b"), ("number", "number"))):
        assert server.ask(request, run) is Refusal.NOT_ORDERED
    assert server.ask(SUMS, run, limits={"rows": 1.0, "box": 100.0}) is Refusal.NOT_ORDERED  # says nothing of rows
    assert isinstance(server.ask(AskHello(b"", HELLO_BYTES), run, limits={}), SiteHello)
    assert server.ask(SUMS, run) is Refusal.NOT_ORDERED
    # a site says whether rows are in range
    prepare = Prepare("drop", True, np.zeros(2), np.zeros(2), np.ones(2), *np.zeros((2, 0)))
    assert server.recall(run, prepare) is Refusal.NOT_ORDERED
    assert server.ask(SUMS, run) in (Refusal.FORGOT, Refusal.NOT_ORDERED)
    assert server.site.ledger.total("floats_up") == 0


def test_with_an_order_it_answers_also_after_a_restart(server):
    order = new_run()
    assert isinstance(server.begin(order), SiteHello)
    run = order.read().run
    assert not isinstance(server.ask(SUMS, run), Refusal)
    server.restart()
    assert server.ask(SUMS, run) is not Refusal.NOT_ORDERED
    assert isinstance(server.begin(order), SiteHello)
    assert server.site.ledger.n_runs(ANA, "table") == 1


def forged(signer, *, role="analyst", name=ANA):
    """An order with another's signature, and the certificate that goes with it."""
    return SignedOrder.by(dataclasses.replace(signer, name=name), an_order(run=None))


FORGED = {
    "no signature": lambda: msgspec.structs.replace(new_run(), signature=bytes(64)),
    "a site's own": lambda: forged(identity("south"), name="south"),
    "a site's in an analyst's name": lambda: forged(identity("south")),
    "an analyst of another federation": lambda: forged(Identity.certified_by(Authority(), ANA, bytes(32), "analyst")),
    "another analyst's name": lambda: msgspec.structs.replace(new_run(), analyst="eve@university.example"),
    "an ended certificate": lambda: forged(identity(ANA, ends=1, role="analyst")),
    "a certificate that is none": lambda: msgspec.structs.replace(new_run(), certificate=b"x"),
}


@pytest.mark.parametrize("way", FORGED)
def test_an_order_that_no_analyst_of_the_federation_signed_is_refused(server, way):
    order = FORGED[way]()
    assert server.begin(order) is Refusal.UNTRUSTED
    assert server.ask(SUMS, order.read().run) is Refusal.NOT_ORDERED


def test_a_revoked_analyst_s_order_is_refused(tmp_path):
    gone = identity(ANA, serial=b"revoked!", role="analyst")
    own = dataclasses.replace(identity("north"), trust=Trust(AUTHORITY.public, AUTHORITY.revoke([b"revoked!"], 1)))
    server = Server(tmp_path, own=own)
    assert server.begin(signed(an_order(run=None), gone)) is Refusal.UNTRUSTED
    assert isinstance(server.begin(new_run()), SiteHello)


def test_an_order_with_one_byte_changed_is_refused(server):
    raw, run = (order := new_run()).to_bytes(), order.read().run
    for place in range(0, len(raw), 7):
        spoiled = bytearray(raw)
        spoiled[place] ^= 1
        found = server.begin(bytes(spoiled), run=run)
        assert found in (Refusal.UNTRUSTED, Refusal.MALFORMED), place
    assert isinstance(server.begin(order), SiteHello)


def test_an_order_is_for_its_own_run_and_method_only(server):
    order = new_run()
    assert server.begin(order, run="cd" * 16) is Refusal.NOT_ORDERED
    assert server.begin(order, method="federated-kmeans") is Refusal.NOT_ORDERED
    assert isinstance(server.begin(order), SiteHello)
    run = order.read().run
    assert server.ask(SUMS, run, method="federated-kmeans") is Refusal.NOT_ORDERED
    assert not isinstance(server.ask(SUMS, run), Refusal)


def test_a_run_has_one_order(server):
    first = new_run()
    other = signed(an_order(parameters={"n_clusters": 3}, run=first.read().run))
    assert isinstance(server.begin(first), SiteHello)
    assert server.begin(other) is Refusal.NOT_ORDERED
    server.restart()
    assert server.begin(other) is Refusal.NOT_ORDERED
    assert isinstance(server.begin(first), SiteHello)


def changed(**fields):
    return signed(msgspec.structs.replace(an_order(run=None), **fields))


def test_an_order_for_other_versions_is_refused_with_the_reason_in_the_log(server, caplog):
    here = installed_versions()["numpy"]
    assert server.begin(changed(versions={"numpy": ("1", "2")})) is Refusal.OTHER_VERSIONS
    assert f"the order needs numpy from 1 up to, not including, 2; here is {here}" in caplog.text
    assert server.begin(changed(versions={"numpy": (here, here)})) is Refusal.OTHER_VERSIONS  # high is excluded
    assert server.begin(changed(versions={"torch": ("1", "2")})) is Refusal.OTHER_VERSIONS
    assert isinstance(server.begin(changed(versions={"numpy": (here, "999")})), SiteHello)  # low is included


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "nothing"},
        {"settings": "FederatedSettings"},
        {"parameters": {"n_clusters": 2, "evil": 1}},
        {"run": "x" * 32},
    ],
)
def test_an_order_that_means_nothing_is_refused(server, fields):
    order = changed(**fields)
    method = fields.get("method", "lloyd")
    assert server.begin(order, run="ab" * 16, method=method) in (Refusal.NOT_ORDERED, Refusal.METHOD_FORBIDDEN)


CHOICES = {
    "points": {"parameters": {"init": [[0.0, 0.0], [1.0, 1.0]]}},
    "parameters": {"parameters": {"tol": 0.5}},
    "ranges": {"scale": "minmax", "ranges": ([0.0, 0.0], [1.0, 1.0])},
}


@pytest.mark.parametrize("choice", CHOICES)
def test_what_an_order_may_not_choose_is_refused(tmp_path, choice, caplog):
    allowed = frozenset(CHOICES) - {choice}
    server = Server(tmp_path, dataclasses.replace(OPEN, orders_may_choose=allowed))
    assert server.begin(new_run(**CHOICES[choice])) is Refusal.CHOICE_FORBIDDEN
    assert f"({choice})" in caplog.text
    for other in allowed:
        assert isinstance(server.begin(new_run(**CHOICES[other])), SiteHello)
    assert isinstance(server.begin(new_run(parameters={"init": "random", "max_rounds": 7})), SiteHello)


def test_the_hundred_and_first_run_of_an_analyst_is_refused_and_another_s_first_is_not(tmp_path):
    server = Server(tmp_path, dataclasses.replace(OPEN, max_runs=100))
    first = new_run()
    for order in (first, *(new_run() for _ in range(99))):
        assert isinstance(server.begin(order), SiteHello)
    assert server.begin(new_run()) is Refusal.TOO_MANY_QUESTIONS
    server.restart()
    assert server.begin(new_run()) is Refusal.TOO_MANY_QUESTIONS
    assert isinstance(server.begin(first), SiteHello)  # one that was begun goes on
    eve = identity("eve@university.example", role="analyst")
    assert isinstance(server.begin(signed(an_order(run=None), eve)), SiteHello)


# ---------------------------------------------------------------- approval


def waits(tmp_path, approval="always", **rules):
    return Server(tmp_path, dataclasses.replace(OPEN, approval=approval, **rules))


def test_an_order_that_waits_gets_nothing_until_it_is_approved(tmp_path):
    server, order = waits(tmp_path), new_run()
    run = order.read().run
    for _ in range(2):
        assert server.begin(order) is Refusal.WAITING
        assert server.ask(SUMS, run) is Refusal.NOT_ORDERED
        assert server.recall(run, AskHello(order.to_bytes(), HELLO_BYTES)) is Refusal.WAITING
        assert server.ask(SUMS, run) is Refusal.NOT_ORDERED
        server.restart()
    other = signed(an_order(parameters={"n_clusters": 5}, run=run))
    assert server.begin(other) is Refusal.NOT_ORDERED  # the first is kept, and not replaced
    Approvals(tmp_path / "orders").decide(run[:6], Decision.APPROVED)  # by another process, as it were
    assert server.begin(other) is Refusal.NOT_ORDERED
    assert isinstance(server.begin(order), SiteHello)
    assert not isinstance(server.ask(SUMS, run), Refusal)


@pytest.mark.parametrize("named", [False, True])
def test_a_declined_order_gets_nothing_ever(tmp_path, named):
    server, order = waits(tmp_path, name_decisions=named), new_run()
    run = order.read().run
    assert server.begin(order) is (Refusal.WAITING_HERE if named else Refusal.WAITING)
    server.approvals.decide(run, Decision.DECLINED)
    for _ in range(2):
        assert server.begin(order) is (Refusal.DECLINED_HERE if named else Refusal.DECLINED)
        assert server.ask(SUMS, run) is Refusal.NOT_ORDERED
        server.policy = dataclasses.replace(server.policy, approval="automatic")
        server.restart()  # a decision stands, also under other rules
    assert server.site.ledger.total("floats_up") == 0
    assert server.site.ledger.n_runs(ANA, "table") == 0


def test_with_first_an_analyst_s_later_orders_for_a_method_do_not_wait(tmp_path):
    server, first = waits(tmp_path, "first"), new_run()
    assert server.begin(first) is Refusal.WAITING
    assert server.begin(new_run()) is Refusal.WAITING  # nothing was approved yet
    server.approvals.decide(first.read().run, Decision.APPROVED)
    assert isinstance(server.begin(new_run()), SiteHello)
    another = new_run(method="one-shot")
    assert server.begin(another, method="one-shot") is Refusal.WAITING
    eve = identity("eve@university.example", role="analyst")
    assert server.begin(signed(an_order(run=None), eve)) is Refusal.WAITING


def test_a_forged_order_does_not_even_wait(tmp_path):
    server = waits(tmp_path)
    assert server.begin(FORGED["a site's own"]()) is Refusal.UNTRUSTED
    assert server.begin(changed(versions={"numpy": ("1", "2")})) is Refusal.OTHER_VERSIONS
    assert server.approvals.all() == []


def test_an_order_for_sites_with_columns_of_their_own_names_none():
    order = an_order("vertical-kernel-pca", columns=[], run=None)
    assert Order.from_bytes(order.to_bytes()) == order
    assert order.columns == []
    assert ANALYST.name == signed(order).analyst
