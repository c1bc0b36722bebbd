"""Single claims about who stays, who is let in, and when a run stops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import QuorumLost, RosterChanged
from coterie.messages import codec
from coterie.messages.codec import read_envelope
from coterie.messages.heads import Head
from coterie.messages.verbs import total
from coterie.methods.shared.lloyd import Close, lloyd
from coterie.methods.shared.prepared import Prepare
from coterie.runtime.journal import Journal
from coterie.runtime.layers import Layer, PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.outcomes import OutcomeKind
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.handshake import Hello, Introduce
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.declared import Declared
from tests.faults.lives import MOST, Setting
from tests.faults.methods import DEFAULT, QUICK
from tests.faults.wires import Wire
from tests.federations import blobs, split_evenly
from tests.identities import identity

ROWS = blobs(100, 3, 3, seed=5)
LIMITS = Declared({"rows": 100, "box": 64.0})


def layers(is_masked: bool) -> list[Layer]:
    return [LIMITS, MaskedSums() if is_masked else PlainSums()]


def gone(name: str, at: int) -> Fault:
    return Fault(name, "drop", frozenset(range(at, at + 1000)))


@pytest.mark.parametrize("is_masked", [False, True])
def test_a_quorum_is_of_all_sites_however_few_are_left(is_masked):
    """Four of five are needed: one may be lost, and another later is one too many, masked or not."""
    first, second = (4, 8) if is_masked else (1, 3)

    def life(*faults):
        with in_process(split_evenly(ROWS, 5), schedule=Schedule(faults)) as channel:
            protocol = lloyd(ROWS[:3], max_rounds=9, tol=0.0)
            return run(protocol, channel, method="lloyd", layers=layers(is_masked), terms=Terms(quorum=0.75))

    assert life(gone("site-1", first)).counts.sum() == pytest.approx(80)
    with pytest.raises(QuorumLost, match=r"site-[13].*site-[13]") as lost:
        life(gone("site-1", first), gone("site-3", second))
    assert not lost.value.outcomes["site-3"].is_good


def test_a_site_that_missed_an_unmasking_is_asked_again_where_all_are_needed():
    """Its numbers were in the sum, and the others could unmask it: nothing was lost but a reply."""

    def life(*faults):
        with in_process(split_evenly(ROWS, 5), schedule=Schedule(faults)) as channel:
            protocol = lloyd(ROWS[:3], max_rounds=4, tol=0.0)
            return run(protocol, channel, method="lloyd", layers=layers(True), terms=Terms(quorum=1.0))

    reveal = frozenset({5})  # keys, introductions, upload, reveal, upload, reveal
    np.testing.assert_array_equal(life(Fault("site-1", "drop", reveal)).centers, life().centers)


def test_a_site_lost_while_unmasking_may_come_back_to_a_run_that_waited_for_it(tmp_path):
    """Nobody was summed up without it, so that sites who let rosters shrink only still take it in."""
    rules = Policy(verification="off", protection="none", min_roster=3, min_rows=1, rosters="shrinking")

    def life(journal, *faults, resume=False):
        made = in_process(split_evenly(ROWS, 5), policy=rules, folder=journal / "sites", schedule=Schedule(faults))
        with made as channel:
            return run(
                lloyd(ROWS[:3], max_rounds=4, tol=0.0), channel, method="lloyd", layers=layers(True),
                terms=Terms(quorum=1.0), journal=Journal(journal, resume=resume),
            )  # fmt: skip

    whole = life(tmp_path / "whole")
    with pytest.raises(QuorumLost, match="site-1"):
        life(tmp_path / "lost", gone("site-1", 5))
    np.testing.assert_array_equal(life(tmp_path / "lost", resume=True).centers, whole.centers)


def test_a_site_that_does_not_tell_its_key_is_done_without():
    ledger = Ledger()
    with in_process(split_evenly(ROWS, 5), schedule=Schedule([gone("site-1", 0)])) as channel:
        fit = run(lloyd(ROWS[:3], tol=0.0), channel, method="lloyd", layers=layers(True), terms=MOST, ledger=ledger)
    assert fit.counts.sum() == pytest.approx(80)
    assert ["site-1" in e.sites for e in ledger.exchanges[:3]] == [
        True,
        False,
        False,
    ]  # its deadline is waited for once


def test_a_site_away_when_keys_are_told_is_introduced_after_the_others():
    """It misses the run's very first question, sits out the next, and is there for the first sum."""

    def protocol():
        yield from total(Prepare("refuse", False, *np.ones((3, 3)), *np.zeros((2, 0))))
        return (yield from lloyd(ROWS[:3], tol=0.0))

    with in_process(split_evenly(ROWS, 5), schedule=Schedule([Fault("site-1", "drop", frozenset({0}))])) as channel:
        fit = run(protocol(), channel, method="lloyd", layers=layers(True), terms=MOST)
    assert fit.counts.sum() == pytest.approx(100)


def test_a_sum_that_needs_every_site_says_which_one_was_away_before():
    def protocol():
        yield from total(Close(ROWS[:2]))
        return (yield from total(Close(ROWS[:2]), complete=True))

    with (
        in_process(split_evenly(ROWS, 5), schedule=Schedule([gone("site-1", 2)])) as channel,
        pytest.raises(RosterChanged, match="Not asked: site-1 takes no part any more"),
    ):
        run(protocol(), channel, method="lloyd", layers=layers(True), terms=MOST)


@pytest.mark.parametrize("asked", ["SumLengths", "SendGram"])
def test_sites_of_the_default_policy_go_on_where_one_is_away_for_a_step_and_comes_back(asked: str, tmp_path: Path):
    """Back with the others, it would make their roster grow, which each of them would refuse for good."""
    method = next(m for m in DEFAULT if m.name == "dspgd gram, centered PCA")
    whole = Setting(method, tmp_path / "whole").live()
    at = next(e.round for e in whole.exchanges if e.asked.endswith(asked))
    setting = Setting(method, tmp_path / "away")
    life = setting.live(setting.channel([Fault("site-1", "drop", frozenset({at}))]))
    assert life.stop is None, str(life.stop)
    refused = [c.outcome for e in life.exchanges for c in e.sites.values() if c.outcome.refusal is not None]
    assert not refused


def test_keys_a_site_s_owner_pinned_hold_when_it_is_brought_up_to_date_too():
    """A server that was refused must not get its own key in by the way back after a restart."""
    pinned = identity("b").card(b"b" * 32)
    site = Site(
        "a",
        ArrayTable(ROWS),
        policy=Policy(verification="off", peers={"b": pinned.masking_key}),
        identity=identity("a"),
    )
    for other, form in ((identity("b").card(b"e" * 32), codec.Form.REFUSAL), (pinned, codec.Form.ANSWER)):
        hellos = []
        for name, card in (("a", site.card()), ("b", other)):
            head = Head(bytes(16), 0, 0, bytes(32))
            head = head._replace(signature=identity(name).sign(head.signed()))
            blank = Hello(card, head, False, b"", b"")
            signed = identity(name).sign(blank.signed(bytes(16), b""))
            hellos.append(list(blank._replace(signature=signed).to_bytes()))
        body = codec.encode_body(Introduce(0, ("a", "b"), np.array(hellos)), {})
        names = codec.roster_digest(["a", "b"])
        envelope = codec.Envelope(
            codec.FORMAT_VERSION, bytes(16), 1, 0, names, codec.site_tag("a"), body.digest, "lloyd"
        )
        assert read_envelope(site.answer(codec.encode_recall(envelope, [body.data])))[0] is form


class DamagedRound(Wire):
    """The first time, the round's number arrives with one bit more."""

    def carry(self, number, payloads, timeout):
        sent = dict(payloads)
        if number == self.at and self.times == 1:
            data = bytearray(sent["site-1"])
            place = bytes(data).index(read_envelope(sent["site-1"])[1].run) + 16
            data[place + 1] ^= 1
            sent["site-1"] = bytes(data)
        return self.inner.exchange(sent, timeout)


def test_a_question_whose_header_was_damaged_is_not_taken_for_another(tmp_path: Path):
    setting = Setting(QUICK[2], tmp_path)
    life = setting.live(wire=lambda channel: DamagedRound(channel, 3))
    outcomes = {e.sites["site-1"].outcome.kind for e in life.exchanges if "site-1" in e.sites}
    assert outcomes == {OutcomeKind.ANSWERED}
