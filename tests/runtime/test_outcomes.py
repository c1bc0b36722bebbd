"""Outcomes of sites: decisions depend on values, never on sentences."""

from __future__ import annotations

import msgspec
import pytest

from coterie.messages.refusals import Refusal
from coterie.runtime.ledger import Exchange, SiteCount
from coterie.runtime.outcomes import GOOD, HEARD, OutcomeKind, SiteOutcome, outcome_sentence

SENTENCES = {
    SiteOutcome(OutcomeKind.ANSWERED): "answered",
    SiteOutcome(OutcomeKind.LATE): "was late",
    SiteOutcome(OutcomeKind.LATE, detail="deadline 5 s"): "was late (deadline 5 s)",
    SiteOutcome(OutcomeKind.UNREACHABLE): "could not be reached",
    SiteOutcome(OutcomeKind.REFUSED, Refusal.TOO_LARGE): f"failed: {Refusal.TOO_LARGE.sentence}",
    SiteOutcome(OutcomeKind.INVALID, detail="its cost is not finite"): "failed: its cost is not finite",
    SiteOutcome(OutcomeKind.LEFT, Refusal.TOO_FEW_ROWS): f"takes no part any more: {Refusal.TOO_FEW_ROWS.sentence}",
    SiteOutcome(OutcomeKind.PAUSED, detail="until round 4"): "sits out until round 4",
}


@pytest.mark.parametrize("outcome", SENTENCES, ids=lambda outcome: outcome.kind.name)
def test_a_sentence_continues_one_that_begins_with_the_site(outcome):
    assert str(outcome) == SENTENCES[outcome]


@pytest.mark.parametrize("kind", OutcomeKind)
def test_every_kind_has_a_sentence_and_is_told_by_its_value(kind):
    assert str(SiteOutcome(kind))
    assert outcome_sentence(kind.value) == SiteOutcome(kind).sentence


def test_what_a_file_says_is_told_by_its_code_and_an_older_file_as_it_is():
    assert outcome_sentence("refused", "TOO_LARGE") == Refusal.TOO_LARGE.sentence
    assert outcome_sentence("invalid", "its cost is not finite") == "its cost is not finite"
    assert outcome_sentence("was late (deadline 5 s)") == "was late (deadline 5 s)"


def test_who_may_come_back_and_who_has_decided():
    back = {kind for kind in OutcomeKind if SiteOutcome(kind).may_return}
    names = "LATE UNREACHABLE TURNED_AWAY PAUSED EXCLUDED"
    assert back == {OutcomeKind[name] for name in names.split()}
    assert not back & HEARD
    assert GOOD < HEARD


def test_no_decision_depends_on_a_sentence(monkeypatch):
    """Outcomes decide the same where every sentence is another one."""
    every = [SiteOutcome(kind, refusal) for kind in OutcomeKind for refusal in (None, *Refusal)]

    def decisions():
        return [(o.is_good, o.is_heard, o.may_return, o.is_final, o.has_declined, o.may_resend) for o in every]

    before = decisions()
    for told in (*OutcomeKind, *Refusal):
        monkeypatch.setattr(told, "sentence", "answered")
    assert decisions() == before


def test_an_exchange_comes_back_from_the_journal_as_it_was_and_is_projected():
    counts = {
        "a": SiteCount(SiteOutcome(OutcomeKind.ANSWERED), 3, 40, 50),
        "b": SiteCount(SiteOutcome(OutcomeKind.REFUSED, Refusal.TOO_LARGE), 0, 20, 50),
    }
    exchange = Exchange(4, 0, "algorithm", "shared.Assign", "Moments", "sums", "masked", counts, 0.25)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(exchange), type=Exchange) == exchange
    assert exchange.line()["sites"] == {"a": ["answered", 3, 40, 50], "b": ["refused", 0, 20, 50, "TOO_LARGE"]}
    assert "seconds" not in exchange.line()
    event = exchange.event()
    assert (event["bytes_up"], event["bytes_down"], event["floats_up"], event["seconds"]) == (60, 100, 3, 0.25)
    assert event["sites"]["b"] == {"outcome": "refused", "reason": "TOO_LARGE", "bytes_up": 20, "bytes_down": 50}
