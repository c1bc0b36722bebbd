"""Messages to bytes and back: questions, recalls, answers and refusals come back as they were sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedMessage
from coterie.messages import codec
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Nothing
from coterie.messages.verbs import Seen
from coterie.methods.shared.agreement import Agree
from coterie.methods.shared.lloyd import Assign
from coterie.methods.shared.preparation import SumColumns
from coterie.methods.shared.prepared import Prepare
from coterie.methods.shared.starts import Split, Summarise

from .exchanges import ASSIGN, SAMPLES
from .samples import (
    ALL_REQUESTS,
    DECLARED,
    any_request,
    envelopes,
    limits,
    plain_envelope,
    random_reply,
    requests,
    same,
)

TRANSCRIPTS = st.binary(min_size=8, max_size=8)
SEEN = st.sampled_from(Seen)


def test_every_request_of_every_protocol_is_among_those_tried():
    assert {Assign, Agree, SumColumns, Prepare, Split, Summarise} <= set(DECLARED)
    assert {*SAMPLES} <= {*ALL_REQUESTS}


@pytest.mark.parametrize("kind", ALL_REQUESTS, ids=lambda kind: kind.kind)
@given(data=st.data())
def test_a_question_comes_back_as_it_was_sent(kind, data):
    request, said, declared = data.draw(requests(kind)), data.draw(envelopes()), data.draw(limits())
    seen, transcript = data.draw(SEEN), data.draw(TRANSCRIPTS)
    body = codec.encode_body(request, declared)
    said = said._replace(request=body.digest)
    frame = codec.encode_question(said, body, transcript, seen)
    decoded = codec.decode_question(frame)
    assert same(decoded.request, request)
    assert decoded.request.axes == request.axes
    assert (decoded.envelope, decoded.form, decoded.limits) == (said, codec.Form.QUESTION, declared)
    assert (decoded.seen, decoded.transcript, decoded.bodies) == (seen, transcript, (body.data,))
    assert codec.encode_body(decoded.request, decoded.limits) == body
    assert len(frame) == codec.question_header_bytes(said.method) + len(body.data)


@given(envelopes(), st.lists(any_request(), max_size=4))
def test_a_recall_comes_back_as_it_was_sent(said, asked):
    sent = tuple(codec.encode_body(one, {}).data for one in asked)
    decoded = codec.decode_question(codec.encode_recall(said, sent))
    assert (decoded.form, decoded.bodies, decoded.request) == (codec.Form.RECALL, sent, None)
    assert decoded.envelope._replace(request=said.request) == said
    for one, body in zip(asked, decoded.bodies, strict=True):
        assert same(codec.decode_body(body)[0], one)


@pytest.mark.parametrize("kind", ALL_REQUESTS, ids=lambda kind: kind.kind)
@given(data=st.data())
def test_an_answer_comes_back_as_it_was_sent_and_is_as_long_as_the_question_says(kind, data):
    request, said = data.draw(requests(kind)), data.draw(envelopes())
    layout = request.layout
    bounds = layout.bounds(data.draw(st.sampled_from([{}, {"rows": 1e4}, {"rows": 1e4, "box": 100.0}])))
    reply = random_reply(layout, bounds, np.random.default_rng(data.draw(st.integers(0, 2**32))))
    frame = codec.encode_answer(said, layout, reply, bounds)
    assert same(codec.decode_answer(frame, said, layout, bounds), reply)
    assert len(frame) == codec.answer_header_bytes(said.method) + layout.n_bytes


@given(envelopes())
def test_an_empty_answer_comes_back_as_nothing(said):
    frame = codec.encode_answer(said, codec.EMPTY_LAYOUT, Nothing(), ())
    assert type(codec.decode_answer(frame, said, codec.EMPTY_LAYOUT, ())) is Nothing


@given(envelopes(), st.sampled_from(Refusal))
def test_a_refusal_comes_back_as_it_was_sent_and_is_one_byte_of_it(said, code):
    frame = codec.encode_refusal(said, code)
    assert codec.decode_answer(frame, said, ASSIGN.layout, ASSIGN.layout.bounds({})) is code
    assert len(frame) == codec.answer_header_bytes(said.method) - 8 + 1
    with pytest.raises(MalformedMessage, match="not a question"):
        codec.decode_question(frame)


def test_a_refusal_of_an_unreadable_question_may_be_blank():
    expected = plain_envelope()
    blank = codec.Envelope(codec.FORMAT_VERSION, bytes(16), 0, 0, bytes(8), expected.site, bytes(16), "")
    frame = codec.encode_refusal(blank, Refusal.MALFORMED)
    assert codec.decode_answer(frame, expected, ASSIGN.layout, ()) is Refusal.MALFORMED
