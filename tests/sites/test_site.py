"""The one exit of a site."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest

from coterie.messages import codec
from coterie.messages.codec import Envelope
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Floats, Nothing, Reply, Request, array
from coterie.messages.site_api import answers, remembers
from coterie.messages.verbs import Seen
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable

SECRET = 31415.9265358979


class Told(Reply, content="averages"):
    value: Floats = array("n", bound="box")


class Tell(Request[Told]):
    n: int
    what: str


class PerRow(Reply, content="rows"):
    values: Floats = array("rows")


class TellRows(Request[PerRow]):
    rows: int


class Keep(Request[Nothing], remembered=True):
    add: float


CALLS = []


@answers(Tell)
def local_told(table, memory, ask):
    CALLS.append(ask.what)
    made = {
        "count": lambda: Told(np.full(ask.n, float(table.n_rows))),
        "nan": lambda: Told(np.full(ask.n, np.nan)),
        "inf": lambda: Told(np.full(ask.n, np.inf)),
        "shape": lambda: Told(np.zeros(ask.n + 1)),
        "text": lambda: Told(np.array(["a"] * ask.n)),
        "type": lambda: Nothing(),
        "far": lambda: Told(np.full(ask.n, 1e9)),
        "memory": lambda: Told(np.full(ask.n, memory.get("kept", 0.0))),
        "fail": lambda: table.no_such_thing,
        "quote": lambda: float(f"the row {SECRET} in /data/patients.csv"),
        "exhausted": lambda: (_ for _ in ()).throw(MemoryError("out of memory")),
    }
    return made[ask.what]()


@answers(TellRows)
def local_rows(table, memory, ask):
    return PerRow(np.zeros(ask.rows))


@remembers(Keep)
def keep_kept(table, memory, ask):
    if ask.add < 0:
        memory["kept"] = 1e9  # half done, then it fails
        raise RuntimeError(f"cannot keep {SECRET}")
    memory["kept"] = memory.get("kept", 0.0) + ask.add


@answers(Keep)
def local_kept(table, memory, ask):
    return Nothing()


@pytest.fixture(autouse=True)
def _trial(monkeypatch):
    monkeypatch.setitem(METHODS, "trial", Method("trial", "", (Tell, TellRows, Keep), "", ""))
    CALLS.clear()


def site(**options) -> Site:
    options.setdefault("policy", Policy.simulation())
    return Site("here", ArrayTable(np.full((5, 2), SECRET)), **options)


def question(
    request,
    *,
    run=b"r" * 16,
    round=0,
    attempt=0,
    method="trial",
    to="here",
    transcript=None,
    limits=None,
    seen=Seen.SINGLE,
):
    body = codec.encode_body(request, limits or {})
    envelope = Envelope(codec.FORMAT_VERSION, run, round, attempt, bytes(8), codec.site_tag(to), body.digest, method)
    return codec.encode_question(envelope, body, transcript or codec.NO_TRANSCRIPT, seen), envelope, request


def put(site, asked):
    """What the site says to a question: a reply or a refusal."""
    frame, envelope, request = asked
    return codec.decode_answer(site.answer(frame), envelope, request.layout, request.layout.bounds({}))


def test_a_question_gets_its_answer():
    reply = put(site(), question(Tell(3, "count")))
    np.testing.assert_array_equal(reply.value, [5.0, 5.0, 5.0])


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("nan", Refusal.INVALID_ANSWER),
        ("inf", Refusal.INVALID_ANSWER),
        ("shape", Refusal.INVALID_ANSWER),
        ("text", Refusal.INVALID_ANSWER),
        ("type", Refusal.INVALID_ANSWER),
        ("fail", Refusal.FAILED),
        ("quote", Refusal.FAILED),
        ("exhausted", Refusal.FAILED),
        ("no such key", Refusal.FAILED),
    ],
)
def test_what_must_not_leave_becomes_a_bare_code_and_the_log_has_the_reason(what, code, caplog):
    made = site()
    frame, envelope, request = question(Tell(2, what))
    with caplog.at_level(logging.WARNING):
        answer = made.answer(frame)
    assert codec.decode_answer(answer, envelope, request.layout, request.layout.bounds({})) is code
    assert len(answer) == len(codec.encode_refusal(envelope, code))
    assert b"patients" not in answer
    assert str(SECRET).encode() not in answer
    assert caplog.records
    assert made.ledger.total("floats_up") == 0


def test_an_answer_beyond_its_declared_bound_stays():
    asked = question(Tell(1, "far"), limits={"box": 100.0})
    assert put(site(), asked) is Refusal.INVALID_ANSWER
    assert put(site(), question(Tell(1, "count"), limits={"box": 100.0})).value[0] == 5.0


def test_a_site_with_more_rows_than_declared_says_so():
    assert put(site(), question(Tell(1, "count"), limits={"rows": 4})) is Refusal.OUT_OF_RANGE


def test_a_repeated_question_gets_the_same_bytes_and_is_not_computed_again():
    made = site()
    frame, *_ = question(Tell(1, "count"))
    first = made.answer(frame)
    assert made.answer(frame) == first
    assert CALLS == ["count"]
    assert made.ledger.total("bytes_up") == 2 * len(first)
    assert made.ledger.total("floats_up") == 1


def test_the_same_question_at_once_from_many_threads_is_computed_once():
    made = site()
    frame, *_ = question(Tell(1, "count"))
    found = []
    threads = [threading.Thread(target=lambda: found.append(made.answer(frame))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert CALLS == ["count"]


def test_a_site_that_starts_again_finds_its_answers(tmp_path):
    path = tmp_path / "ledger.jsonl"
    asked = [question(Tell(1, "count"), round=r) for r in range(3)]
    first = site(ledger=SiteLedger(path))
    frames = [first.answer(frame) for frame, *_ in asked]
    first.ledger.close()
    again = site(ledger=SiteLedger(path))
    assert [again.answer(frame) for frame, *_ in asked] == frames
    assert len(CALLS) == 3


def test_another_question_under_the_same_number_is_a_conflict():
    made = site()
    put(made, question(Tell(1, "count")))
    assert put(made, question(Tell(2, "count"))) is Refusal.CONFLICT


def test_a_question_of_an_earlier_round_that_was_never_answered_is_stale():
    made = site()
    put(made, question(Tell(1, "count"), round=5))
    assert put(made, question(Tell(1, "count"), round=3)) is Refusal.STALE
    assert put(made, question(Tell(1, "count"), round=5, attempt=1)).value[0] == 5.0
    assert CALLS == ["count", "count"]


def test_a_question_for_another_site_is_foreign():
    frame, *_ = question(Tell(1, "count"), to="elsewhere")
    answer = site().answer(frame)
    _, envelope, _ = codec.read_envelope(answer)
    assert envelope.site == codec.site_tag("here")
    assert answer[-1] == Refusal.FOREIGN
    assert CALLS == []


def test_runs_do_not_mix():
    made = site()
    assert put(made, question(Keep(2.0), run=b"a" * 16)) == Nothing()
    body = codec.encode_body(Keep(2.0), {}).data
    known = codec.extend_transcript(codec.NO_TRANSCRIPT, body)
    assert put(made, question(Tell(1, "memory"), run=b"a" * 16, round=1, transcript=known)).value[0] == 2.0
    assert put(made, question(Tell(1, "memory"), run=b"b" * 16)).value[0] == 0.0


@pytest.mark.parametrize(
    ("policy", "request_", "options", "code"),
    [
        (
            Policy(methods=frozenset({"lloyd"}), per_site_results="rows"),
            Tell(1, "count"),
            {},
            Refusal.METHOD_FORBIDDEN,
        ),
        (Policy.simulation(), Tell(1, "count"), {"method": "lloyd"}, Refusal.UNKNOWN_QUESTION),
        (Policy.simulation(), Tell(1, "count"), {"method": "made-up"}, Refusal.UNKNOWN_QUESTION),
        (Policy(), Tell(1, "count"), {}, Refusal.SINGLE_ANSWER_FORBIDDEN),
        (Policy(), Tell(1, "count"), {"seen": Seen.SUMMED}, Refusal.SINGLE_ANSWER_FORBIDDEN),
        (Policy(per_site_results="averages"), TellRows(5), {}, Refusal.SINGLE_ANSWER_FORBIDDEN),
        (Policy(), Tell(1, "count"), {"seen": Seen.MASKED}, Refusal.SINGLE_ANSWER_FORBIDDEN),
        (Policy(per_site_results="rows", min_rows=6), Tell(1, "count"), {}, Refusal.TOO_FEW_ROWS),
        (Policy(per_site_results="rows", max_questions=0), Tell(1, "count"), {}, Refusal.TOO_MANY_QUESTIONS),
        (Policy.simulation(), TellRows(1 << 40), {}, Refusal.TOO_LARGE),
        (Policy.simulation(), TellRows(-1), {}, Refusal.MALFORMED),
    ],
)
def test_the_site_decides(policy, request_, options, code):
    frame, envelope, _ = question(request_, **options)
    answer = site(policy=policy).answer(frame)
    assert answer[-1] == code
    assert len(answer) == len(codec.encode_refusal(envelope, code))
    assert CALLS == []


@pytest.mark.parametrize(
    ("policy", "request_"),
    [
        (Policy(per_site_results="averages"), Tell(1, "count")),
        (Policy(per_site_results="rows"), TellRows(5)),
        (Policy(verification="off"), Keep(1.0)),
    ],
)
def test_what_the_policy_allows_is_answered(policy, request_):
    assert isinstance(put(site(policy=policy), question(request_)), Reply)


def test_the_number_of_questions_is_counted_over_restarts(tmp_path):
    policy = Policy(per_site_results="rows", max_questions=2)
    for round_, expected in enumerate([True, True, False]):
        made = site(policy=policy, ledger=SiteLedger(tmp_path / "l.jsonl"))
        found = put(made, question(Tell(1, "count"), round=round_))
        assert (found is not Refusal.TOO_MANY_QUESTIONS) is expected
        made.ledger.close()


def test_a_site_that_forgot_says_so_and_is_brought_up_to_date():
    made = site()
    bodies = [codec.encode_body(Keep(a), {}).data for a in (1.0, 4.0)]
    known = codec.NO_TRANSCRIPT
    for body in bodies:
        known = codec.extend_transcript(known, body)
    asked = question(Tell(1, "memory"), round=7, transcript=known)
    assert put(made, asked) is Refusal.FORGOT
    recall = codec.encode_recall(asked[1], bodies)
    recalled = codec.read_envelope(recall)[1]
    assert codec.decode_answer(made.answer(recall), recalled, codec.EMPTY_LAYOUT, ()) == Nothing()
    assert put(made, asked).value[0] == 5.0


def test_a_memory_that_could_not_be_updated_is_dropped_as_a_whole():
    made = site()
    put(made, question(Keep(2.0)))
    known = codec.extend_transcript(codec.NO_TRANSCRIPT, codec.encode_body(Keep(2.0), {}).data)
    assert put(made, question(Keep(-1.0), round=1, transcript=known)) is Refusal.FAILED
    assert put(made, question(Tell(1, "memory"), round=2, transcript=known)) is Refusal.FORGOT


def test_a_recall_may_hold_remembered_requests_only():
    made = site()
    asked = question(Tell(1, "count"))
    recall = codec.encode_recall(asked[1], [codec.encode_body(Tell(1, "count"), {}).data])
    assert made.answer(recall)[-1] == Refusal.UNKNOWN_QUESTION
    assert CALLS == []


def test_a_ledger_that_cannot_be_written_lets_nothing_out_but_a_code(tmp_path, monkeypatch):
    made = site(ledger=SiteLedger(tmp_path / "l.jsonl"))
    with monkeypatch.context() as broken:
        broken.setattr("os.write", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        assert put(made, question(Tell(1, "count"))) is Refusal.FAILED
    assert put(made, question(Tell(1, "count"))).value[0] == 5.0
