"""Asking, waiting, giving up: what a run does when sites misbehave."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from coterie.engines import inprocess
from coterie.engines.inprocess import Fault, InProcess, Schedule, in_process
from coterie.errors import QuorumLost, RosterChanged
from coterie.messages import bodies, codec
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import answers
from coterie.messages.verbs import each, present, total
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.methods.shared.lloyd import Assign, Moments, lloyd
from coterie.methods.shared.prepared import Prepare
from coterie.runtime.channel import Outcome
from coterie.runtime.journal import Journal
from coterie.runtime.layers import PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.outcomes import OutcomeKind
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from tests.declared import Declared
from tests.federations import Tampered, blobs, federation, split_evenly


class Sum(Reply):
    value: Floats = array("n", bound="n * box")


class AskSum(Request[Sum]):
    n: int


class Slow(Request[Sum]):
    n: int


@answers(AskSum)
def local_sum(table, memory, ask):
    return Sum(np.full(ask.n, float(table.n_rows)))


DOOR = threading.Event()


@answers(Slow)
def local_slow_sum(table, memory, ask):
    if table.n_rows == 1:
        DOOR.wait()
    return Sum(np.full(ask.n, float(table.n_rows)))


@pytest.fixture(autouse=True)
def _trial(monkeypatch):
    monkeypatch.setitem(METHODS, "trial", Method("trial", "a trial", (AskSum, Slow), "n", "nothing"))


def ask_times(times, **options):
    """Ask for the sum of rows several times; return what was seen each time."""
    seen = []
    for _ in range(times):
        reply = yield from total(AskSum(1), **options)
        seen.append(float(reply.value[0]))
    return seen


ROWS = np.ones((12, 2))  # four rows at each of three sites


def go(protocol, *, faults=(), change=None, ledger=None, n_sites=3, seed=0, **terms):
    with federation(ROWS, n_sites, schedule=Schedule(faults, seed=seed) if faults else None) as channel:
        wire = channel if change is None else Tampered(channel, change)
        return run(protocol, wire, method="trial", terms=Terms(**terms), ledger=ledger)


def test_total_is_the_sum_and_each_is_by_site_in_roster_order():
    def protocol():
        summed = yield from total(AskSum(2))
        single = yield from each(AskSum(1))
        some = yield from each(AskSum(1), to=["site-2", "site-0"])
        return summed, single, some, (yield from present())

    summed, single, some, names = go(protocol())
    np.testing.assert_array_equal(summed.value, [12.0, 12.0])
    assert list(single) == ["site-0", "site-1", "site-2"]
    assert list(some) == ["site-0", "site-2"]
    assert names == ("site-0", "site-1", "site-2")


def test_one_request_per_site():
    def protocol():
        return (yield from each({"site-0": AskSum(1), "site-2": AskSum(3)}))

    found = go(protocol())
    assert {site: reply.value.shape for site, reply in found.items()} == {"site-0": (1,), "site-2": (3,)}


def test_a_lost_answer_is_asked_for_again_and_gets_the_stored_bytes():
    ledger = Ledger()
    fault = Fault("site-1", "vanish", frozenset({0}), times=1)
    assert go(ask_times(1), faults=[fault], ledger=ledger) == [12.0]
    counts = ledger.exchanges[0].sites
    assert counts["site-1"].bytes_down == 2 * counts["site-0"].bytes_down


@pytest.mark.parametrize("kind", ["corrupt", "garble"])
@pytest.mark.parametrize("seed", range(5))
def test_damage_on_the_way_is_noticed_and_mended(kind, seed):
    assert go(ask_times(2), faults=[Fault("site-1", kind, times=2)], seed=seed) == [12.0, 12.0]


@pytest.mark.parametrize("kind", ["duplicate", "replay"])
def test_questions_that_arrive_twice_or_late_do_no_harm(kind):
    assert go(ask_times(3), faults=[Fault("site-0", kind)]) == [12.0] * 3


def test_a_site_that_is_down_stops_the_run_and_is_named():
    with pytest.raises(
        QuorumLost, match=r"2 of 3 sites answered, 3 are needed\. site-1 could not be reached\."
    ) as lost:
        go(ask_times(1), faults=[Fault("site-1", "drop")])
    kinds = {name: outcome.kind for name, outcome in lost.value.outcomes.items()}
    answered, unreachable = OutcomeKind.ANSWERED, OutcomeKind.UNREACHABLE
    assert kinds == {"site-0": answered, "site-1": unreachable, "site-2": answered}


def test_with_a_lower_quorum_the_run_goes_on_and_the_site_is_let_in_again():
    faults = [Fault("site-1", "drop", frozenset({1}))]
    # Missed in round 1, it sits out round 2 and is asked again in round 3.
    assert go(ask_times(5), faults=faults, quorum=0.6) == [12.0, 8.0, 8.0, 12.0, 12.0]


def test_a_site_that_keeps_missing_is_asked_ever_more_rarely():
    ledger = Ledger()
    go(ask_times(12), faults=[Fault("site-1", "drop")], quorum=0.6, ledger=ledger)
    assert [e.round for e in ledger.exchanges if "site-1" in e.sites] == [0, 2, 5, 10]


def test_late_is_late_and_the_deadline_is_named():
    with pytest.raises(QuorumLost, match=r"site-2 was late \(deadline 300 s\)"):
        go(ask_times(1), faults=[Fault("site-2", "delay", seconds=301.0)], deadline=300.0)
    assert go(ask_times(1), faults=[Fault("site-2", "delay", seconds=100.0)], deadline=300.0) == [12.0]


def test_a_site_that_really_takes_too_long_does_not_hold_up_the_others(monkeypatch):
    """The deadline is over once the others have answered, however long that takes here."""
    tables = split_evenly(ROWS, 3) | split_evenly(np.ones((1, 2)), 1)  # site-0 has one row: the slow one
    wait, deadlines = inprocess.wait, []

    def wait_for_the_others(futures, timeout):
        deadlines.append(timeout)
        wait(list(futures)[1:])
        return wait(futures, 0.0)

    def protocol():
        return (yield from total(Slow(1)))

    monkeypatch.setattr(inprocess, "wait", wait_for_the_others)
    with in_process(tables, threads=3) as channel:
        reply = run(protocol(), channel, method="trial", terms=Terms(deadline=300.0, quorum=0.5))
    DOOR.set()
    assert [0 < deadline <= 300 for deadline in deadlines] == [True]
    assert reply.value[0] == 8.0


def test_an_algorithm_may_catch_a_lost_quorum():
    def protocol():
        try:
            yield from total(AskSum(1))
        except QuorumLost as lost:
            reply = yield from total(AskSum(1), to=[s for s, outcome in lost.outcomes.items() if outcome.is_good])
            return float(reply.value[0])

    assert go(protocol(), faults=[Fault("site-1", "drop")]) == 8.0


def test_a_question_that_needs_every_site_says_when_one_is_lost():
    def protocol():
        yield from total(AskSum(1), complete=True)

    with pytest.raises(RosterChanged) as changed:
        go(protocol(), faults=[Fault("site-1", "drop")], quorum=0.5)
    assert [name for name, outcome in changed.value.outcomes.items() if not outcome.is_good] == ["site-1"]


def test_no_site_at_all_is_a_lost_quorum():
    with pytest.raises(QuorumLost, match="There is no site"):
        run(ask_times(1), InProcess([]), method="trial")


def test_a_site_that_is_not_of_this_run_is_named():
    with pytest.raises(QuorumLost, match="nowhere is not a site of this run"):
        go(ask_times(1, to=["site-0", "nowhere"]))


def test_a_refusal_for_good_is_not_asked_again():
    ledger = Ledger()
    policies = {"site-1": Policy(methods=frozenset({"lloyd"}))}
    with in_process(split_evenly(ROWS, 3), policy=policies) as channel:
        seen = run(ask_times(4), channel, method="trial", terms=Terms(quorum=0.5), ledger=ledger)
        assert seen == [8.0] * 4
        assert sum("site-1" in e.sites for e in ledger.exchanges) == 1
        assert ledger.exchanges[0].sites["site-1"].outcome.refusal is Refusal.METHOD_FORBIDDEN
        with pytest.raises(QuorumLost, match="site-1 failed: the site's policy does not allow"):
            run(ask_times(1), channel, method="trial")


# ---------------------------------------------------------------- sites that lie


def resealed(frame: bytes, payload: bytes) -> bytes:
    """The same answer with other numbers and a checksum that fits them."""
    import zlib

    head = frame[: len(frame) - 4 - len(payload)]
    return head + payload + zlib.crc32(head + payload).to_bytes(4, "little")


def lie(number):
    return lambda name, _, frame: resealed(frame, np.float64(number).tobytes()) if name == "site-1" else frame


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lie(np.nan), "its value is not finite"),
        (lie(np.inf), "its value is not finite"),
        (lambda n, q, f: resealed(f + bytes(8), f[-12:-4] * 2) if n == "site-1" else f, "bytes of numbers, not 8"),
        (lambda n, q, f: f[:-6] if n == "site-1" else f, "bytes of numbers, not 8"),
        (lambda n, q, f: f[:-5] + bytes([f[-5] ^ 1]) + f[-4:] if n == "site-1" else f, "arrived damaged"),
        (lambda n, q, f: q if n == "site-1" else f, "its message is a question, not an answer"),
        (lambda n, q, f: b"" if n == "site-1" else f, "cannot be read"),
        (lambda n, q, f: b"\x00" * 200 if n == "site-1" else f, "cannot be read"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_is_refused_and_named(change, told):
    with pytest.raises(QuorumLost, match="site-1 failed: ") as lost:
        go(ask_times(1), change=change)
    assert lost.value.outcomes["site-1"].kind is OutcomeKind.INVALID
    assert told in lost.value.outcomes["site-1"].sentence
    assert go(ask_times(1), change=change, quorum=0.5) == [8.0]


def test_an_answer_beyond_its_declared_bound_is_refused_and_named():
    with (
        federation(ROWS) as channel,
        pytest.raises(QuorumLost, match="site-1 failed: its value is outside the declared"),
    ):
        lying = Tampered(channel, lie(1e6))
        run(ask_times(1), lying, method="trial", layers=[Declared({"box": 100.0, "rows": 50}), PlainSums()])


@pytest.mark.parametrize("part", ["run", "round", "attempt", "roster", "request", "method", "site"])
def test_an_answer_to_another_question_or_of_another_site_is_refused_and_named(part):
    def change(name, question, frame):
        if name != "site-1":
            return frame
        form, envelope, start = codec.read_envelope(frame)
        value = getattr(envelope, part)
        other = value + 1 if isinstance(value, int) else value[::-1] if isinstance(value, str) else bytes(len(value))
        layout = AskSum(1).layout
        return codec.encode_answer(envelope._replace(**{part: other}), layout, Sum(np.ones(1)), layout.bounds({}))

    told = "from another site" if part == "site" else f"belongs to another {part}"
    with pytest.raises(QuorumLost, match=told):
        go(ask_times(1), change=change)


def test_an_answer_swapped_between_sites_is_refused():
    frames = {}

    def change(name, question, frame):
        frames[name] = frame
        return frames.get("site-0", frame) if name == "site-1" else frame

    with pytest.raises(QuorumLost, match="site-1 failed: its answer is from another site"):
        go(ask_times(1), change=change)


def test_an_answer_of_another_type_is_refused():
    def change(name, question, frame):
        envelope = codec.read_envelope(frame)[1]
        layout = Assign(np.zeros((1, 1))).layout
        return codec.encode_answer(envelope, layout, Moments.zeros({"k": 1, "d": 1}), layout.bounds({}))

    with pytest.raises(QuorumLost, match="its answer is not of the type Sum"):
        go(ask_times(1), change=change)


def test_a_stranger_who_answers_unasked_is_ignored_and_written_down():
    class Crowded(Tampered):
        def exchange(self, payloads, timeout):
            return {**super().exchange(payloads, timeout), "stranger": Outcome("answered", b"hello")}

    ledger = Ledger()
    with federation(ROWS) as channel:
        crowded = Crowded(channel, lambda n, q, f: f)
        assert run(ask_times(1), crowded, method="trial", ledger=ledger) == [12.0]
    assert ledger.exchanges[0].sites["stranger"].outcome.kind is OutcomeKind.UNASKED
    assert ledger.total("bytes_up", "stranger") == 5


@pytest.mark.parametrize("layer", [PlainSums(), MaskedSums()], ids=["plain", "masked"])
def test_a_request_is_encoded_once_for_the_journal_the_layers_and_all_sites(layer, tmp_path, monkeypatch):
    """Also one that sites remember, which the run keeps for those who join later."""
    encode, encoded = bodies._encode, []

    def counting(request, limits):
        encoded.append(request)
        return encode(request, limits)

    monkeypatch.setattr(bodies, "_encode", counting)
    rows = blobs(60, 3, 2)

    def protocol():
        yield from total(Prepare("refuse", False, *np.ones((3, 3)), *np.zeros((2, 0))))
        yield from lloyd(rows[:2], max_rounds=3)

    with federation(rows) as channel:
        layers = [Declared({"rows": 1000, "box": 1e3}), layer]
        run(protocol(), channel, method="lloyd", layers=layers, journal=Journal(tmp_path / "journal"))
    kinds = {type(request).__name__ for request in encoded}
    assert {"Prepare", "Assign", "Close"} <= kinds
    assert len({id(request) for request in encoded}) == len(encoded)


# ---------------------------------------------------------------- books


def test_the_sites_books_add_up_to_the_servers():
    ledger = Ledger()
    rows = blobs(300, 5, 3)
    with federation(rows, 4) as channel:
        run(lloyd(rows[:3]), channel, method="lloyd", ledger=ledger)
        books = {name: site.ledger for name, site in channel.members.items()}
    for what in ("floats_up", "bytes_up"):
        assert sum(book.total(what) for book in books.values()) == ledger.total(what)
        for name, book in books.items():
            assert book.total(what) == ledger.total(what, name)


def test_the_books_add_up_when_sites_refuse_forget_and_are_down():
    ledger = Ledger()
    faults = [Fault("site-1", "drop", frozenset({1})), Fault("site-2", "corrupt", frozenset({2}), times=1)]
    with federation(ROWS, schedule=Schedule(faults)) as channel:
        run(ask_times(5), channel, method="trial", terms=Terms(quorum=0.3), ledger=ledger)
        assert sum(s.ledger.total("bytes_up") for s in channel.members.values()) == ledger.total("bytes_up")
        assert sum(s.ledger.total("floats_up") for s in channel.members.values()) == ledger.total("floats_up")


def test_whoever_watches_is_told_of_every_exchange():
    seen = []
    with federation(ROWS) as channel:
        run(
            ask_times(3),
            channel,
            method="trial",
            watch=lambda p: seen.append((p.exchange.round, p.ledger.total("rounds"))),
        )
    assert seen == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("bad", [{"quorum": 0.0}, {"quorum": 1.5}, {"deadline": 0.0}, {"resends": -1}])
def test_impossible_terms_are_an_input_error(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Terms(**bad)
