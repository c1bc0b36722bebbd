"""The site's own book: what left, by question, also after a restart."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import LedgerBroken
from coterie.messages.chain import START, head_path, read_chain
from coterie.messages.codec import FORMAT_VERSION, Envelope, site_tag
from coterie.sites.ledger import MAX_RUNS, Key, SiteLedger


def envelope(run: int = 1, round: int = 0, attempt: int = 0, request: int = 7) -> Envelope:
    tag = site_tag("a")
    return Envelope(FORMAT_VERSION, run.to_bytes(16), round, attempt, bytes(8), tag, request.to_bytes(16), "lloyd")


def key(run: int = 1, round: int = 0, attempt: int = 0) -> Key:
    return Key(run.to_bytes(16), round, attempt)


def put(ledger: SiteLedger, frame: bytes, floats: int = 3, **at: int) -> None:
    ledger.answer(
        envelope(**at), frame, floats, asked="shared.Assign", answer="Moments", content="sums", seen="summed"
    )


def totals(ledger: SiteLedger) -> dict[str, int]:
    return {what: ledger.total(what) for what in ("floats_up", "bytes_up", "answers")}


@pytest.fixture(params=["memory", "file"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> SiteLedger:
    """A new ledger, without and with a file."""
    return SiteLedger() if request.param == "memory" else SiteLedger(tmp_path / "site.jsonl")


def test_a_new_ledger_holds_nothing(ledger):
    assert totals(ledger) == {"floats_up": 0, "bytes_up": 0, "answers": 0}
    assert ledger.stored(key()) is None
    assert ledger.newest(key().run) == (-1, -1)
    assert ledger.replies(key().run) == 0
    assert ledger._chain.head == START


def test_numbers_bytes_and_answers_add_up_over_all_runs(ledger):
    put(ledger, b"12345", floats=4)
    put(ledger, b"123", floats=2, round=1)
    put(ledger, b"1", floats=1, run=2)
    assert totals(ledger) == {"floats_up": 7, "bytes_up": 9, "answers": 3}
    assert (ledger.replies(key(1).run), ledger.replies(key(2).run), ledger.replies(key(3).run)) == (2, 1, 0)


def test_bytes_that_leave_without_an_answer_are_counted_as_bytes_only(ledger):
    put(ledger, b"12345", floats=4)
    ledger.resend(envelope(), 5)
    ledger.recall(envelope(round=1), 70)
    ledger.refusal(envelope(round=2), 60, "STALE")
    assert totals(ledger) == {"floats_up": 4, "bytes_up": 5 + 5 + 70 + 60, "answers": 1}
    assert ledger.newest(key().run) == (0, 0)
    assert ledger.replies(key().run) == 2


def test_the_newest_answer_is_found_by_its_question(ledger):
    put(ledger, b"first", request=11)
    assert ledger.stored(key()) == ((11).to_bytes(16), b"first")
    for other in (key(run=2), key(round=1), key(attempt=1)):
        assert ledger.stored(other) is None


def test_an_answer_is_told_apart_by_run_round_and_attempt(tmp_path):
    ledger = SiteLedger(tmp_path / "site.jsonl")
    places = [(run, round, attempt) for run in (1, 2) for round in (0, 1) for attempt in (0, 1)]
    for number, (run, round, attempt) in enumerate(places):
        put(ledger, bytes([number]) * 9, run=run, round=round, attempt=attempt, request=number)
    for number, place in enumerate(places):
        assert ledger.stored(key(*place)) == (number.to_bytes(16), bytes([number]) * 9)


def test_the_newest_question_is_of_the_latest_attempt_and_then_round(ledger):
    for round, attempt in [(0, 0), (2, 1), (1, 5), (2, 0)]:
        put(ledger, b"x", round=round, attempt=attempt)
    assert ledger.newest(key().run) == (5, 1)


def test_without_a_file_only_the_newest_answer_of_each_run_is_kept():
    ledger = SiteLedger()
    put(ledger, b"one", run=1, round=0)
    put(ledger, b"two", run=2, round=0)
    put(ledger, b"one again", run=1, round=1)
    assert ledger.stored(key(1, 0)) is None
    assert ledger.stored(key(1, 1)) == ((7).to_bytes(16), b"one again")
    assert ledger.stored(key(2, 0)) == ((7).to_bytes(16), b"two")
    assert ledger.replies(key(1).run) == 2


def test_without_a_file_the_run_not_heard_of_for_longest_goes_first():
    ledger = SiteLedger()
    for run in range(1, MAX_RUNS + 1):
        put(ledger, b"x", run=run)
    put(ledger, b"again", run=1, round=1)
    put(ledger, b"new", run=MAX_RUNS + 1)
    assert ledger.stored(key(2)) is None
    assert ledger.stored(key(1, 1)) == ((7).to_bytes(16), b"again")
    assert ledger.stored(key(MAX_RUNS + 1)) == ((7).to_bytes(16), b"new")
    assert ledger.total("answers") == MAX_RUNS + 2


def test_with_a_file_no_run_is_ever_forgotten(tmp_path):
    ledger = SiteLedger(tmp_path / "site.jsonl")
    for run in range(1, 3 * MAX_RUNS):
        put(ledger, b"%d" % run, run=run)
    for run in range(1, 3 * MAX_RUNS):
        assert ledger.stored(key(run)) == ((7).to_bytes(16), b"%d" % run)


def test_every_event_is_one_sealed_line_that_says_what_left(tmp_path):
    path = tmp_path / "site.jsonl"
    ledger = SiteLedger(path)
    put(ledger, b"12345", floats=4)
    ledger.resend(envelope(), 5)
    ledger.recall(envelope(round=1), 70)
    ledger.refusal(envelope(round=2), 60, "STALE")
    ledger.close()
    lines = read_chain(path)
    assert [line["event"] for line in lines] == ["answer", "resend", "recall", "refusal"]
    assert [(line["floats"], line["bytes"]) for line in lines] == [(4, 5), (0, 5), (0, 70), (0, 60)]
    assert {name: lines[0][name] for name in ("asked", "answer", "content", "seen", "method")} == {
        "asked": "shared.Assign",
        "answer": "Moments",
        "content": "sums",
        "seen": "summed",
        "method": "lloyd",
    }
    assert lines[3]["code"] == "STALE"
    assert all(line["run"] == key().run.hex() for line in lines)
    assert ledger._chain.head == lines[-1]["chain"]


def test_every_event_moves_the_head(ledger):
    heads = [ledger._chain.head]
    for act in (
        lambda: put(ledger, b"x"),
        lambda: ledger.resend(envelope(), 1),
        lambda: ledger.recall(envelope(), 1),
        lambda: ledger.refusal(envelope(), 1, "STALE"),
    ):
        act()
        heads.append(ledger._chain.head)
    assert len(set(heads)) == 5


events = st.lists(
    st.tuples(
        st.sampled_from(["answer", "resend", "recall", "refusal"]), *[st.integers(0, 2)] * 3, st.binary(max_size=40)
    ),
    max_size=12,
)


@given(events)
def test_a_ledger_opened_again_knows_what_it_knew(tmp_path_factory, done):
    path = tmp_path_factory.mktemp("ledger") / "site.jsonl"
    first = SiteLedger(path)
    for number, (event, run, round, attempt, frame) in enumerate(done):
        at = envelope(run, round, attempt, number)
        if event == "answer":
            put(first, frame, floats=number, run=run, round=round, attempt=attempt, request=number)
        elif event == "refusal":
            first.refusal(at, len(frame), "FAILED")
        else:
            getattr(first, event)(at, len(frame))
    first.close()
    again = SiteLedger(path)
    assert totals(again) == totals(first)
    assert again._chain.head == first._chain.head
    for run in range(3):
        assert again.newest(key(run).run) == first.newest(key(run).run)
        assert again.replies(key(run).run) == first.replies(key(run).run)
        for round in range(3):
            for attempt in range(3):
                assert again.stored(key(run, round, attempt)) == first.stored(key(run, round, attempt))


def test_a_ledger_opened_again_goes_on(tmp_path):
    path = tmp_path / "site.jsonl"
    for round in range(4):
        ledger = SiteLedger(path, durable=True)
        put(ledger, b"frame %d" % round, round=round, request=round)
        ledger.close()
    ledger = SiteLedger(path)
    for round in range(4):
        assert ledger.stored(key(round=round)) == (round.to_bytes(16), b"frame %d" % round)
    assert totals(ledger) == {"floats_up": 12, "bytes_up": 28, "answers": 4}
    assert len(read_chain(path)) == 4


def test_a_changed_ledger_is_not_opened(tmp_path):
    path = tmp_path / "site.jsonl"
    ledger = SiteLedger(path)
    put(ledger, b"12345", floats=4)
    put(ledger, b"12345", floats=4, round=1)
    ledger.close()
    whole = path.read_bytes()
    for changed in (whole.replace(b'"floats":4', b'"floats":3', 1), whole[: len(whole) // 2], b""):
        path.write_bytes(changed)
        with pytest.raises(LedgerBroken):
            SiteLedger(path)


def test_an_answer_torn_by_a_crash_never_left(tmp_path):
    path = tmp_path / "site.jsonl"
    ledger = SiteLedger(path)
    put(ledger, b"first")
    size, head = path.stat().st_size, head_path(path).read_bytes()
    put(ledger, b"second", round=1)
    ledger.close()
    os.truncate(path, size + 50)
    head_path(path).write_bytes(head)
    again = SiteLedger(path)
    assert again.stored(key(round=1)) is None
    assert again.newest(key().run) == (0, 0)
    assert totals(again) == {"floats_up": 3, "bytes_up": 5, "answers": 1}
    put(again, b"second anew", round=1)
    assert again.stored(key(round=1)) == ((7).to_bytes(16), b"second anew")


def test_an_answer_that_cannot_be_written_is_not_counted_and_not_stored(tmp_path, monkeypatch):
    def full(*given: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    ledger = SiteLedger(tmp_path / "site.jsonl")
    put(ledger, b"first")
    before = totals(ledger)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="no space left"):
            put(ledger, b"lost", round=1)
    assert totals(ledger) == before
    assert ledger.stored(key(round=1)) is None
    assert ledger.newest(key().run) == (0, 0)
    put(ledger, b"second", round=1)
    assert ledger.stored(key(round=1)) == ((7).to_bytes(16), b"second")
    assert ledger.stored(key()) == ((7).to_bytes(16), b"first")
