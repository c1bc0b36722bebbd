"""Questions that are well-formed and ill-meant."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest

from coterie.messages import codec
from coterie.messages.codec import Body, request_digest
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply, Request
from coterie.messages.verbs import Seen
from coterie.methods.kmeans.federated import Train
from coterie.methods.shared.agreement import Agree
from coterie.methods.shared.lloyd import Assign
from coterie.methods.shared.preparation import SumColumns
from coterie.methods.shared.starts import Split, Summarise
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable

from .target import ROWS, SITE, answered, envelope, new_site, question, shown_table

MEGABYTE = 1 << 20


def body(request: Request[Any]) -> Body:
    return codec.encode_body(request, {})


def raw_body(kind: str, *fields: Any) -> Body:
    data = bytes([len(kind)]) + kind.encode() + msgspec.msgpack.encode([{}, *fields])
    return Body(data, request_digest(data))


def asked(data: Body, seen: Seen = Seen.SUMMED) -> bytes:
    return codec.encode_question(envelope(data.digest), data, codec.NO_TRANSCRIPT, seen)


def peak_while_answering(site: Site, frame: bytes) -> tuple[int, bytes]:
    """The most memory a site takes at once for a question, and its answer."""
    tracemalloc.start()
    try:
        answer = site.answer(frame)
        return tracemalloc.get_traced_memory()[1], answer
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "request_",
    [
        Summarise(2**40, 2, 10, 0),
        Summarise(2**20, 2**20, 10, 0),
        Agree(2**40, (), ()),
        Split(2**40, np.zeros(0, int), np.zeros(0, int), np.zeros(0), np.zeros(2), np.zeros((0, 2))),
        Summarise(2**64 - 1, 2**64 - 1, 10, 0),
    ],
    ids=lambda request: request.kind,
)
def test_a_question_for_more_than_a_site_ever_sends_is_refused_before_anything_is_computed(request_):
    site = new_site(ROWS)
    peak, answer = peak_while_answering(site, asked(body(request_)))
    assert answer[-1] == Refusal.TOO_LARGE
    assert peak < MEGABYTE
    assert site.compute_seconds == 0


@pytest.mark.parametrize("d", [-1, -(2**63)])
def test_a_question_for_less_than_nothing_is_refused(d):
    assert answered(new_site(ROWS), asked(body(Summarise(2, d, 10, 0)))) is Refusal.MALFORMED
    assert answered(new_site(ROWS), asked(body(Agree(d, (), ())))) is Refusal.MALFORMED


def test_a_question_of_a_hundred_bytes_does_not_take_a_site_s_memory():
    """Two bits on the wire are 26 bytes while they are packed: 2**30 columns fit an answer and not a machine."""
    frame = asked(body(Agree(1 << 22, (), ())))  # an answer of one megabyte
    peak, _ = peak_while_answering(new_site(ROWS), frame)
    assert len(frame) < 110
    assert peak < 20 * MEGABYTE


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["shared.Assign"])
def test_an_empty_array_with_a_long_axis_does_not_take_a_site_s_memory(kind):
    """No centers of 2**30 columns take no bytes to send; their mean takes eight gigabytes."""
    frame = asked(raw_body(kind, [[0, 1 << 22], b""]))
    peak, answer = peak_while_answering(new_site(ROWS), frame)
    assert codec.read_envelope(answer)[0] is codec.Form.REFUSAL
    assert peak < 4 * MEGABYTE


def test_a_question_does_not_keep_a_site_busy_for_ever():
    """A site answers one question at a time: whoever asks for 2**40 epochs must not shut out everybody else."""
    site = new_site(ROWS, Policy.simulation())
    site.answer(question(Train(2**40, 0, 1.0, 0, 0, np.zeros((1, 2))), {}))
    table = shown_table(site)
    assert table.passes <= table.patience


@pytest.mark.parametrize("request_", [Assign(np.zeros((2, 2))), SumColumns(False, np.zeros(2))], ids=lambda r: r.kind)
@pytest.mark.parametrize("seen", [Seen.SINGLE, Seen.SUMMED])
def test_a_site_s_own_policy_keeps_sums_from_being_seen_by_themselves(request_, seen):
    site = Site(SITE, ArrayTable(ROWS))
    assert answered(site, asked(body(request_), seen)) is Refusal.SINGLE_ANSWER_FORBIDDEN


def test_saying_masked_does_not_make_a_site_send_its_plain_sums():
    """Whoever writes 2 where 1 stood must not see more for it."""
    site = Site(SITE, ArrayTable(ROWS))
    found = answered(site, asked(body(SumColumns(False, np.zeros(2))), Seen.MASKED))
    assert not (isinstance(found, Reply) and np.allclose(found.sums, ROWS.sum(axis=0)))
