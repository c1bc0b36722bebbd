"""The server's book."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest

import coterie
from coterie.engines.inprocess import Fault, Schedule
from coterie.errors import LedgerBroken
from coterie.estimators.kmeans import LloydKMeans
from coterie.messages.chain import read_chain
from coterie.messages.refusals import Refusal
from coterie.messages.verbs import total
from coterie.methods.shared.lloyd import Assign, lloyd
from coterie.report.outputs import result_of
from coterie.runtime.ledger import Exchange, Ledger, SiteCount
from coterie.runtime.outcomes import OutcomeKind, SiteOutcome
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.sites.policy import Policy
from tests.federations import blobs, federation, split_evenly


@pytest.fixture
def book():
    rows, ledger = blobs(100, 3, 2), Ledger()
    with federation(rows, 3) as channel:
        run(lloyd(rows[:2]), channel, method="lloyd", ledger=ledger)
    return ledger


def test_totals_by_site_add_up(book):
    for what in ("floats_up", "bytes_up", "bytes_down"):
        assert sum(book.total(what, site) for site in book.sites()) == book.total(what)
    assert book.total("rounds") == book.total("rounds", "site-0") == len(book.exchanges)
    assert book.total("rounds_masking") == 0
    assert book.total("bytes_up", "nobody") == 0


def test_an_unknown_total_names_the_known_ones(book):
    with pytest.raises(ValueError, match="floats_up, bytes_up"):
        book.total("megabytes")


def test_what_is_written_holds_and_says_what_was_seen(book, tmp_path):
    book.write(tmp_path)
    lines = read_chain(tmp_path / "ledger.jsonl")
    assert len(lines) == book.total("rounds")
    assert {line["asked"] for line in lines} == {"shared.Assign", "shared.Close"}
    assert {line["seen"] for line in lines} == {"summed"}
    assert sum(line["sites"]["site-1"][1] for line in lines) == book.total("floats_up", "site-1")
    assert json.loads((tmp_path / "ledger.json").read_text()) == book.summary()
    book.write(tmp_path)
    assert len(read_chain(tmp_path / "ledger.jsonl")) == len(lines)


def test_a_changed_line_is_noticed(book, tmp_path):
    book.write(tmp_path)
    path = tmp_path / "ledger.jsonl"
    path.write_text(path.read_text().replace('"round":1,', '"round":7,'))
    with pytest.raises(LedgerBroken, match="line 2"):
        read_chain(path)


def test_who_was_lost_since_when_and_who_only_declined_or_came_back():
    ledger = Ledger()
    answered, unreachable = SiteOutcome(OutcomeKind.ANSWERED), SiteOutcome(OutcomeKind.UNREACHABLE)
    declined = SiteOutcome(OutcomeKind.REFUSED, Refusal.TOO_LARGE)
    for number, outcomes in enumerate(
        [
            {"a": answered, "b": answered, "c": answered, "d": declined},
            {"a": answered, "b": unreachable, "c": SiteOutcome(OutcomeKind.LATE), "d": answered},
            {"a": answered, "c": SiteOutcome(OutcomeKind.RECALLED), "d": declined},
            {"a": SiteOutcome(OutcomeKind.REFUSED, Refusal.FAILED), "c": answered},
        ]
    ):
        sites = {name: SiteCount(outcome, 0, 0, 0) for name, outcome in outcomes.items()}
        ledger.record(Exchange(number, 0, "algorithm", "shared.Assign", "Moments", "sums", "masked", sites))
    assert ledger.lost() == {"b": 1, "a": 3}


def test_a_result_says_who_was_lost(tmp_path):
    tables = split_evenly(blobs(120, 3, 3, seed=1), 5)
    gone = Schedule([Fault("site-1", "drop", frozenset(range(6, 1000)))])
    found = coterie.fit(
        LloydKMeans(3, random_state=0), tables, policy=Policy.simulation(), schedule=gone, terms=Terms(quorum=0.6)
    )
    result = result_of(found, ["x", "y", "z"], {})
    assert result["lost"] == {"site-1": 6}
    assert "Dropped out: site-1 in round 6; earlier sums include their rows." in result["summary"]


def test_a_thousand_rounds_alike_take_little_memory():
    questions = 1000

    def protocol():
        for _ in range(questions):
            yield from total(Assign(np.zeros((10, 24))))

    channel = federation(np.zeros((10, 24)), 5)
    ledger = Ledger()
    run(protocol(), channel, method="lloyd", ledger=Ledger())  # what is kept once, whatever is asked
    tracemalloc.start()
    run(protocol(), channel, method="lloyd", ledger=ledger)
    kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/runtime/*")])
    tracemalloc.stop()
    assert len(ledger.exchanges) == questions
    assert sum(one.size for one in kept.statistics("filename")) < 500 * questions
