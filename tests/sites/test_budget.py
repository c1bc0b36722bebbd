"""A table's privacy budget: what questions cost, once, over restarts, crashes, runs and analysts."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import FederatedKMeans, Privacy
from coterie.errors import LedgerBroken
from coterie.maths.accounting import epsilon_of, mu_of, variance_for
from coterie.messages import codec
from coterie.messages.codec import Envelope
from coterie.messages.refusals import Refusal
from coterie.messages.site_api import Column
from coterie.messages.verbs import Seen
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.private_sums import SumRows
from coterie.methods.shared.whole_rows import ShowWhole
from coterie.sites.budget import charges_in
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.identities import identity

METHOD, TABLE, DELTA = "federated-kmeans", "patients", 1e-6
ROWS = np.random.default_rng(0).uniform(size=(30, 2))
RULES = PrivacyRules(1.0, DELTA)
SHOW = ShowWhole(1e-3, 1.0, np.zeros(2), np.zeros(0), np.zeros((0, 0)))
WHOLE = mu_of(1.0, DELTA) ** 2


class Killed(BaseException):
    """Stands for a kill."""


class Analyst:
    """Asks a site what it likes in the runs that were ordered of it."""

    def __init__(self, ledger: SiteLedger, rows: Any = ROWS, *, rules: PrivacyRules = RULES) -> None:
        policy = Policy(
            protection="noise", privacy=rules, verification="off", per_site_results="averages", min_roster=1
        )
        self.ledger, self.round, self.shown = ledger, 0, dict[bytes, bytes]()
        self.site = Site("here", ArrayTable(rows), policy=policy, ledger=ledger, table_name=TABLE)

    def order(self, epsilon: float = 1.0, name: str = "ana", **more: Any) -> bytes:
        """A run whose order is accepted, and whose rows are shown."""
        estimator = FederatedKMeans(2, privacy=Privacy(epsilon, DELTA, **more))
        options = PreparationOptions(ranges=([0.0, 0.0], [1.0, 1.0]))
        order = Order.of(estimator, (Column("a"), Column("b")), options)
        signed = SignedOrder.by(identity(name, role="analyst"), order)
        self.ledger.begin(order.identity, signed.to_bytes(), name, TABLE)
        self.show(order.identity)
        return order.identity

    def show(self, run: bytes, how: ShowWhole = SHOW) -> None:
        before = self.shown.get(run, codec.NO_TRANSCRIPT)
        assert not isinstance(self.put(run, how), Refusal)
        self.shown[run] = codec.extend_transcript(before, codec.encode_body(how, {}).data)

    def put(self, run: bytes, request: Any, *, round_: int | None = None) -> Any:
        """The site's answer to a request, or its refusal."""
        self.round = self.round + 1 if round_ is None else round_
        body = codec.encode_body(request, {})
        envelope = Envelope(
            codec.FORMAT_VERSION, run, self.round, 0, bytes(8), codec.site_tag("here"), body.digest, METHOD
        )
        frame = codec.encode_question(envelope, body, self.shown.get(run, codec.NO_TRANSCRIPT), Seen.SINGLE)
        return codec.decode_answer(self.site.answer(frame), envelope, request.layout, request.layout.bounds({}))

    @property
    def spent(self) -> float:
        """As a share of the budget of 1."""
        return self.ledger.charged(TABLE) / WHOLE


def sums(share: float, reach: int = 1000) -> SumRows:
    """A question that takes a share of the budget: each of its three arrays a third."""
    variances = np.array([variance_for(norm, WHOLE * share / 3) for norm in (1.0, reach, reach**2)])
    return SumRows(1, 0, 64, variances, 2, reach)


def numbers(reply: Any) -> list[int]:
    assert not isinstance(reply, Refusal), reply
    return [int(n) for part in reply.arrays() for n in part.ravel()]


@pytest.fixture
def ana() -> Analyst:
    return Analyst(SiteLedger())


def test_a_question_costs_what_its_noise_is_worth(ana):
    run = ana.order()
    numbers(ana.put(run, sums(0.25)))
    assert ana.spent == pytest.approx(0.25, rel=0.01)
    assert ana.spent <= 0.25 * (1 + 1e-9)
    standing = ana.site._orders.budget.standing()
    assert standing.spent == epsilon_of((WHOLE * ana.spent) ** 0.5, DELTA)
    assert standing.left == pytest.approx(epsilon_of((WHOLE * (1 - ana.spent)) ** 0.5, DELTA))
    assert ana.ledger.charged_to(run) == pytest.approx(ana.ledger.charged(TABLE), rel=1e-15)


def test_all_of_the_budget_can_be_used_and_not_one_question_more(ana):
    run = ana.order()
    for reach in range(1000, 1007):
        numbers(ana.put(run, sums(1 / 7, reach)))
    assert 0.98 < ana.spent <= 1 + 1e-12
    other = ana.ledger
    assert other.charged(TABLE) <= WHOLE * (1 + 1e-12)
    assert ana.put(run, sums(0.1)) is Refusal.NOT_ORDERED
    ana.ledger.begin(b"2" * 16, ana.ledger.notes(run, "order")[0], "eve", TABLE)
    ana.show(b"2" * 16)
    before = ana.ledger.charged(TABLE)
    assert ana.put(b"2" * 16, sums(0.1)) is Refusal.BUDGET_SPENT
    assert ana.ledger.charged(TABLE) == before


def test_a_budget_is_not_exceeded_by_more_than_rounding(ana):
    budget = ana.site._orders.budget
    assert budget.allows(WHOLE * (1 + 1e-13))
    assert not budget.allows(WHOLE * (1 + 1e-11))


def test_what_a_broken_ledger_says_of_charges_can_still_be_read(tmp_path):
    path = tmp_path / "a.jsonl"
    ledger = SiteLedger(path)
    for place, amount in enumerate((0.25, 0.5)):
        ledger.charge(b"r" * 16, bytes([place]), TABLE, amount, 3)
    ledger.charge(b"r" * 16, b"x", "other", 1.0, 3)
    ledger.reset_budget(TABLE, "written by whoever broke it")
    ledger.close()
    path.write_bytes(b"no line\n" + path.read_bytes()[:-9])
    with pytest.raises(LedgerBroken):
        SiteLedger(path)
    assert charges_in(path) == {TABLE: 0.75, "other": 1.0}
    assert charges_in(tmp_path / "none") == {}


def test_the_same_question_again_is_free_and_gets_the_same_numbers(ana):
    run = ana.order()
    first, spent = numbers(ana.put(run, sums(0.25))), ana.spent
    assert numbers(ana.put(run, sums(0.25), round_=ana.round)) == first  # resent
    assert numbers(ana.put(run, sums(0.25))) == first  # in another round
    assert ana.spent == spent


CHANGES = {
    "a reach": lambda ask: replace(ask, reach=ask.reach + 1),
    "the last bit of a variance": lambda ask: replace(
        ask, variances=np.array([*ask.variances[:2], np.nextafter(ask.variances[2], np.inf)])
    ),
    "a bit of the ring": lambda ask: replace(ask, bits=63),
    "a site more": lambda ask: replace(ask, sites=2, tolerated=0, variances=2 * ask.variances),
}


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "a site more"])
def test_a_changed_question_costs_and_has_other_noise(change, ana):
    run = ana.order()
    first = numbers(ana.put(run, sums(0.25)))
    other = numbers(ana.put(run, CHANGES[change](sums(0.25))))
    assert first[1:] != other[1:]
    assert ana.spent == pytest.approx(0.5, rel=0.01)


def test_one_sites_share_of_the_noise_is_not_enough_by_itself(ana):
    assert ana.put(ana.order(), CHANGES["a site more"](sums(0.25))) is Refusal.NOT_PRIVATE
    assert ana.spent == 0


def test_the_same_question_about_rows_shown_otherwise_is_refused_whatever_they_hold(ana):
    """It would be free, and at other sites have the noise it had before."""
    for rows in (ROWS, np.zeros((0, 2))):
        asker = Analyst(SiteLedger(), rows)
        run = asker.order()
        numbers(asker.put(run, sums(0.25)))
        asker.show(run, replace(SHOW, origin=np.array([0.5, 0.0])))
        assert asker.put(run, sums(0.25)) is Refusal.NOT_ORDERED
        numbers(asker.put(run, sums(0.25, reach=999)))


def test_a_run_takes_no_more_than_its_order_asks_whatever_is_left(ana):
    run = ana.order(epsilon=0.3)
    most = mu_of(0.3, DELTA) ** 2 / WHOLE
    assert ana.put(run, sums(1.01 * most)) is Refusal.NOT_ORDERED
    numbers(ana.put(run, sums(0.6 * most)))
    assert ana.put(run, sums(0.5 * most, reach=999)) is Refusal.NOT_ORDERED
    numbers(ana.put(run, sums(0.4 * most, reach=998)))
    assert ana.spent <= most * (1 + 1e-12)


def test_noise_is_made_for_as_many_missing_sites_as_the_order_says(ana):
    run = ana.order(tolerated=1)
    assert ana.put(run, sums(0.25)) is Refusal.NOT_ORDERED
    numbers(ana.put(run, replace(sums(0.25), sites=2, tolerated=1)))


def test_other_analysts_and_runs_take_from_the_same_budget(ana):
    for place, name in enumerate(("ana", "eve", "kim")):
        numbers(ana.put(ana.order(name=name), sums(0.3, 1000 + place)))
    assert ana.put(ana.order(name="sue"), sums(0.3)) is Refusal.BUDGET_SPENT
    assert ana.spent == pytest.approx(0.9, rel=0.01)


def test_whether_a_question_is_left_in_the_budget_says_nothing_of_rows():
    said = set()
    for rows in (ROWS, np.zeros((0, 2)), np.full((1, 2), np.nan), np.full((5, 2), 1e300)):
        asker = Analyst(SiteLedger(), rows)
        run = asker.order()
        codes = [asker.put(run, ask) for ask in (sums(0.9), sums(0.2), replace(sums(0.1), d=3), sums(0.05, 10**9))]
        said.add(tuple(code if isinstance(code, Refusal) else "answered" for code in codes))
    assert len(said) == 1


def test_a_data_officer_begins_the_budget_anew_and_it_is_written_down(tmp_path):
    ana = Analyst(SiteLedger(tmp_path / "a.jsonl"))
    numbers(ana.put(ana.order(), sums(0.9)))
    spent = ana.ledger.charged(TABLE)
    assert ana.put(ana.order(), sums(0.2)) is Refusal.BUDGET_SPENT
    ana.ledger.reset_budget("another table", "no reason")
    assert ana.put(ana.order(), sums(0.2)) is Refusal.BUDGET_SPENT
    ana.ledger.reset_budget(TABLE, "new consent")
    numbers(ana.put(ana.order(), sums(0.2)))
    ana.ledger.close()
    again = SiteLedger(tmp_path / "a.jsonl")
    assert again.resets(TABLE) == 1
    assert again.charged(TABLE) == pytest.approx(0.2 * WHOLE, rel=0.01)
    line = next(line for line in lines(tmp_path / "a.jsonl") if line["event"] == "budget" and line["table"] == TABLE)
    assert (line["why"], line["spent"]) == ("new consent", spent)


# ---------------------------------------------------------------- restarts and crashes


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def charges(path):
    return [line for line in lines(path) if line["event"] == "charge"]


def restarted(ana: Analyst, run: bytes) -> Analyst:
    """The site again, over the same files."""
    ana.ledger.close()
    other = Analyst(SiteLedger(ana.ledger.path))
    other.round = ana.round + 10
    other.show(run)
    return other


def test_a_site_that_starts_again_knows_what_is_spent_and_gives_the_same_numbers_for_nothing(tmp_path):
    ana = Analyst(SiteLedger(tmp_path / "a.jsonl"))
    run = ana.order()
    first = numbers(ana.put(run, sums(0.25)))
    again = restarted(ana, run)
    assert again.spent == ana.spent
    assert numbers(again.put(run, sums(0.25))) == first
    assert again.spent == ana.spent
    assert len(charges(tmp_path / "a.jsonl")) == 1


@pytest.mark.parametrize("step", ["charge", "pin", "answer"])
def test_a_site_killed_between_the_charge_and_the_answer_has_charged_and_charges_once(step, tmp_path, monkeypatch):
    ana = Analyst(SiteLedger(tmp_path / "a.jsonl"))
    run = ana.order()

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if step == "charge":  # right after the line is in the file
            patch.setattr(SiteLedger, "_count_charge", killed)
        elif step == "pin":
            patch.setattr(Site, "pin", killed)
        else:
            patch.setattr(SiteLedger, "answer", killed)
        with pytest.raises(Killed):
            ana.put(run, sums(0.25))
    assert len(charges(tmp_path / "a.jsonl")) == 1
    again = restarted(ana, run)
    assert again.spent == pytest.approx(0.25, rel=0.01)
    numbers(again.put(run, sums(0.25)))
    assert len(charges(tmp_path / "a.jsonl")) == 1


def test_no_answer_leaves_whose_charge_was_not_written(tmp_path, monkeypatch):
    ana = Analyst(SiteLedger(tmp_path / "a.jsonl"))
    run = ana.order()
    with monkeypatch.context() as patch:
        patch.setattr(SiteLedger, "_remark", lambda *_, **__: (_ for _ in ()).throw(OSError("no space left")))
        assert isinstance(ana.put(run, sums(0.25)), Refusal)
    assert ana.spent == 0
    numbers(ana.put(run, sums(0.25)))
    assert len(charges(tmp_path / "a.jsonl")) == 1


def test_a_charge_torn_by_a_crash_was_never_acted_upon_and_one_cut_off_is_noticed(tmp_path):
    path = tmp_path / "a.jsonl"
    ana = Analyst(SiteLedger(path))
    run = ana.order()
    numbers(ana.put(run, sums(0.25)))
    ana.ledger.close()
    whole = path.read_bytes()
    place = next(i for i, line in enumerate(lines(path)) if line["event"] == "charge")
    starts = np.cumsum([0, *map(len, whole.splitlines(keepends=True))])
    head = path.with_name("a.jsonl.head").read_bytes()

    path.write_bytes(whole[: starts[place]])  # whoever cuts the ledger cannot hide it
    with pytest.raises(LedgerBroken):
        SiteLedger(path)

    before = json.loads(whole.splitlines()[place - 1])["chain"]
    path.with_name("a.jsonl.head").write_bytes(f"{place:020d} {before}\n".encode())
    path.write_bytes(whole[: starts[place] + 40])  # a crash while the charge was written: nothing had left
    torn = Analyst(SiteLedger(path))
    torn.round = ana.round + 10
    torn.show(run)
    assert torn.spent == 0
    numbers(torn.put(run, sums(0.25)))
    assert len(charges(path)) == 1
    assert head != path.with_name("a.jsonl.head").read_bytes()


def test_a_crash_after_the_charge_and_before_its_head_keeps_the_charge(tmp_path):
    path = tmp_path / "a.jsonl"
    ana = Analyst(SiteLedger(path))
    run = ana.order()
    numbers(ana.put(run, sums(0.25)))
    ana.ledger.close()
    whole = path.read_bytes().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines(path)) if line["event"] == "charge")
    path.write_bytes(b"".join(whole[: place + 1]))
    before = json.loads(whole[place - 1])["chain"]
    path.with_name("a.jsonl.head").write_bytes(f"{place:020d} {before}\n".encode())
    again = Analyst(SiteLedger(path))
    assert again.spent == pytest.approx(0.25, rel=0.01)


@pytest.mark.parametrize("lost", ["gone", "empty", "other"])
def test_a_run_whose_secret_of_noise_is_lost_gets_no_second_noise_for_the_same_question(lost, tmp_path):
    ana = Analyst(SiteLedger(tmp_path / "a.jsonl"))
    run = ana.order()
    numbers(ana.put(run, sums(0.25)))
    secret = tmp_path / "a.jsonl.noise" / run.hex()
    assert len(secret.read_bytes()) == 32
    secret.unlink()
    if lost != "gone":
        secret.write_bytes(b"" if lost == "empty" else bytes(32))
    again = restarted(ana, run)
    assert again.put(run, sums(0.25)) in (Refusal.NOT_ORDERED, Refusal.LEDGER_BROKEN)
    assert again.spent == ana.spent


def test_a_secret_torn_by_a_crash_makes_no_noise(tmp_path):
    ana = Analyst(SiteLedger(tmp_path / "a.jsonl"))
    run = ana.order()
    (tmp_path / "a.jsonl.noise").mkdir()
    (tmp_path / "a.jsonl.noise" / run.hex()).write_bytes(b"")
    assert ana.put(run, sums(0.25)) is Refusal.LEDGER_BROKEN


def test_runs_have_noise_of_their_own(ana):
    one, other = ana.order(epsilon=0.6), ana.order(epsilon=0.6)
    assert numbers(ana.put(one, sums(0.25)))[1:] != numbers(ana.put(other, sums(0.25)))[1:]
    assert ana.spent == pytest.approx(0.5, rel=0.01)


# ---------------------------------------------------------------- two runs at once


def test_two_runs_at_once_cannot_both_take_the_last_of_it(ana):
    runs = [ana.order(epsilon=0.9), ana.order(epsilon=0.9, name="eve")]
    numbers(ana.put(runs[0], sums(0.6)))
    assert ana.put(runs[1], sums(0.6)) is Refusal.BUDGET_SPENT
    numbers(ana.put(runs[1], sums(0.39, reach=999)))


def test_questions_that_arrive_at_the_same_time_take_no_more_than_there_is(tmp_path):
    ledger = SiteLedger(tmp_path / "a.jsonl")
    ana = Analyst(ledger)
    runs, found = [ana.order(name=f"a{i}") for i in range(8)], []
    barrier = threading.Barrier(8)

    def ask(i: int) -> None:
        asker = Analyst.__new__(Analyst)
        asker.site, asker.ledger, asker.round, asker.shown = ana.site, ledger, 100, ana.shown
        barrier.wait()
        found.append(asker.put(runs[i], sums(0.3, 1000 + i)))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one is Refusal.BUDGET_SPENT for one in found) == 5
    assert ledger.charged(TABLE) <= WHOLE
    ledger.close()
    assert SiteLedger(tmp_path / "a.jsonl").charged(TABLE) == ledger.charged(TABLE)


@given(st.lists(st.floats(1e-30, 1e3), max_size=60))
def test_a_sum_of_charges_is_never_rounded_down(amounts):
    ledger = SiteLedger()
    for place, amount in enumerate(amounts):
        ledger.charge(b"r" * 16, place.to_bytes(16, "big"), TABLE, amount, 1)
    assert Fraction(ledger.charged(TABLE)) >= sum(map(Fraction, amounts))
    assert ledger.charged(TABLE) <= float(sum(map(Fraction, amounts))) * (1 + 1e-13)
