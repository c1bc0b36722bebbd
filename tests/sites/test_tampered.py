"""Questions of a real run, changed on their way: none gets an answer, and the run goes on as if nothing had been."""

from __future__ import annotations

import json

import numpy as np

import coterie
from coterie.messages import codec
from coterie.messages.codec import HEADER
from coterie.messages.refusals import Refusal
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.identities import identity

POLICY = Policy(verification="off", protection="none", min_roster=3, min_rows=5, max_questions=100_000)
ROWS = {f"s{i}": np.random.default_rng(i).normal(size=(40, 3)) for i in range(3)}
REFUSAL_BYTES = len(
    codec.encode_refusal(codec.Envelope(codec.FORMAT_VERSION, bytes(16), 0, 0, bytes(8), bytes(8), bytes(16), ""), 1)
)


def fitted():
    return coterie.fit(coterie.FederatedKMeans(n_clusters=3, random_state=0), ROWS, policy=POLICY)


def body_start(frame: bytes) -> int:
    return codec.question_header_bytes(codec.read_envelope(frame)[1].method)


def flipped(frame: bytes, place: int, bit: int = 1) -> bytes:
    return frame[:place] + bytes([frame[place] ^ bit]) + frame[place + 1 :]


def recorded(monkeypatch, disturb) -> list[bytes]:
    """The questions put to the first site in a run, each disturbed before it is answered."""
    frames, answer = [], Site.answer

    def wrapped(self, frame):
        if self.name == "s0":
            frames.append(frame)
            disturb(lambda changed: answer(self, changed), self, frame)
        return answer(self, frame)

    monkeypatch.setattr(Site, "answer", wrapped)
    return frames


def is_bare(answer: bytes) -> bool:
    form, envelope, _ = codec.read_envelope(answer)
    return form is codec.Form.REFUSAL and len(answer) == REFUSAL_BYTES + len(envelope.method)


def test_a_changed_body_is_refused_and_the_run_ends_as_if_nothing_had_been(monkeypatch):
    expected, codes = fitted(), []

    def disturb(answer, site, frame):
        start = body_start(frame)
        before, left = site.ledger.total("floats_up"), site.ledger.total("answers")
        for place in np.unique(np.linspace(start, len(frame) - 1, 12).astype(int)):
            given = answer(flipped(frame, place, 1 << int(place) % 8))
            assert is_bare(given)
            codes.append(Refusal(given[-1]))
        for made in (frame[:-1], frame + b"\0", frame[:start], frame[: HEADER.size], b"", b"garbage" * 30):
            assert is_bare(answer(made))
        assert (site.ledger.total("floats_up"), site.ledger.total("answers")) == (before, left)

    frames = recorded(monkeypatch, disturb)
    found = fitted()
    assert len(frames) > 5
    assert set(codes) == {Refusal.MALFORMED}
    np.testing.assert_array_equal(found.cluster_centers_, expected.cluster_centers_)


def test_another_body_under_the_same_header_is_refused(monkeypatch):
    frames = recorded(monkeypatch, lambda *_: None)
    fitted()
    starts = [body_start(frame) for frame in frames]
    site = Site("s0", ArrayTable(ROWS["s0"]), policy=POLICY)
    for frame, start, other, begins in zip(frames, starts, frames[1:], starts[1:], strict=False):
        if frame[start:] != other[begins:]:
            given = site.answer(frame[:start] + other[begins:])
            assert is_bare(given)
            assert given[-1] == Refusal.MALFORMED


def test_a_question_for_another_site_is_refused_and_the_ledger_says_so(monkeypatch, tmp_path):
    frames = recorded(monkeypatch, lambda *_: None)
    fitted()
    ledger = SiteLedger(tmp_path / "ledger.jsonl")
    other = Site("s1", ArrayTable(ROWS["s1"]), policy=POLICY, ledger=ledger, identity=identity("s1"))
    for frame in frames:
        given = other.answer(frame)
        assert is_bare(given)
        assert given[-1] == Refusal.FOREIGN
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    refusals = [line for line in lines if line["event"] == "refusal"]
    assert {(line["code"], line["floats"]) for line in refusals} == {("FOREIGN", 0)}
    assert len(refusals) == len(frames)
    assert {line["event"] for line in lines} <= {"refusal", "note"}
    own = Site("s0", ArrayTable(ROWS["s0"]), policy=POLICY, identity=identity("s0"))
    assert own.answer(frames[0])[-1] == Refusal.UNTRUSTED  # its own, by a foreign analyst


def test_a_changed_header_is_refused(monkeypatch):
    """Run, round, attempt, roster, addressee and what is said of the answer: a checksum covers them all."""
    frames = recorded(monkeypatch, lambda *_: None)
    fitted()
    for place in range(body_start(frames[0])):
        given = Site("s0", ArrayTable(ROWS["s0"]), policy=POLICY).answer(flipped(frames[0], place))
        assert is_bare(given)
        assert given[-1] == Refusal.MALFORMED
