"""Frames of questions: how their bytes lie, and bytes that are no question."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import BadAnswer, MalformedMessage
from coterie.messages import codec
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Request
from coterie.messages.verbs import Seen
from coterie.methods.shared.lloyd import Assign, Moments
from coterie.methods.shared.prepared import Prepare

from .exchanges import ASSIGN, LIMITS, SAMPLES, read_body, read_question
from .samples import AskRounded, mutated, plain_envelope

HEAD, CHECKSUM = 8 + 1 + 4, 4
"""Of a question, between its method's name and its attachment; between its attachment and its body."""


def question(request: Request[Any], seen: Seen = Seen.SUMMED, attached: bytes = b"") -> bytes:
    body = codec.encode_body(request, LIMITS)
    return codec.encode_question(plain_envelope(body.digest), body, bytes(range(8)), seen, attached)


def head_of(frame: bytes) -> int:
    """Where the checksum of a question begins."""
    start = codec.read_envelope(frame)[2]
    return start + HEAD + int.from_bytes(frame[start + HEAD - 4 : start + HEAD], "little")


def recall(*asked: Request[Any]) -> bytes:
    return codec.encode_recall(plain_envelope(), [codec.encode_body(one, {}).data for one in asked])


QUESTIONS = [
    *[question(one) for one in SAMPLES.values()],
    question(ASSIGN, attached=b"attached"),
    recall(),
    recall(SAMPLES[Prepare], SAMPLES[AskRounded]),
]


def with_digest(frame: bytes) -> bytes:
    """The question with a digest that fits the body it holds now."""
    form, said, start = codec.read_envelope(frame)
    body = frame[head_of(frame) + CHECKSUM if form is codec.Form.QUESTION else start :]
    head = codec.header(form, said._replace(request=codec.request_digest(body)))
    return resealed(head + frame[start:]) if form is codec.Form.QUESTION else head + frame[start:]


def resealed(frame: bytes) -> bytes:
    """The question with a checksum that fits its head."""
    ends = head_of(frame)
    return frame[:ends] + zlib.crc32(frame[:ends]).to_bytes(4, "little") + frame[ends + 4 :]


def test_a_frame_lies_as_documented():
    """The bytes themselves, so that two versions that both agree with themselves also agree with each other."""
    said = codec.Envelope(codec.FORMAT_VERSION, b"r" * 16, 0x01020304, 0x0506, b"o" * 8, b"s" * 8, b"d" * 16, "lloyd")
    common = b"r" * 16 + b"\x04\x03\x02\x01" + b"\x06\x05" + b"o" * 8 + b"s" * 8 + b"d" * 16 + b"\x05lloyd"
    body = codec.encode_body(Assign(np.array([[1.0]])), {"rows": 2.0})
    fields = b"\x92\x81\xa4rows\xcb" + struct.pack(">d", 2.0) + b"\x92\x92\x01\x01\xc4\x08" + struct.pack("<d", 1.0)
    assert body.data == b"\x0dshared.Assign" + fields
    for attached in (b"", b"attached"):
        head = b"\x02\x01" + common + b"t" * 8 + b"\x02" + struct.pack("<I", len(attached)) + attached
        asked = codec.encode_question(said, body, b"t" * 8, Seen.MASKED, attached)
        assert asked == head + zlib.crc32(head).to_bytes(4, "little") + body.data
    assert codec.encode_refusal(said, Refusal.STALE) == b"\x02\x04" + common + b"\x04"
    ask = Assign(np.zeros((1, 1)))
    frame = codec.encode_answer(said, ask.layout, Moments([[1.0]], [2.0], 3.0), ask.layout.bounds({}))
    whole = b"\x02\x03" + common + ask.layout.tag + struct.pack("<3d", 1.0, 2.0, 3.0)
    assert frame == whole + zlib.crc32(whole).to_bytes(4, "little")


@given(st.binary(max_size=300))
def test_any_bytes_decode_to_a_message_or_one_clear_error(frame):
    read_question(frame)
    read_body(frame)
    with pytest.raises(BadAnswer):
        codec.decode_answer(frame, plain_envelope(), ASSIGN.layout, ASSIGN.layout.bounds(LIMITS))


@pytest.mark.parametrize("frame", QUESTIONS)
@given(data=st.data())
def test_any_change_of_a_question_gives_a_message_or_one_clear_error(frame, data):
    changed = data.draw(mutated(frame))
    read_question(changed)
    if len(changed) >= 57:
        try:
            fitting = with_digest(changed)
        except MalformedMessage:
            return
        read_question(fitting)


@pytest.mark.parametrize("frame", QUESTIONS)
def test_no_flipped_bit_and_no_cut_of_a_question_raises_anything_else(frame):
    for place in range(len(frame)):
        read_question(frame[:place])
        for bit in range(8):
            changed = frame[:place] + bytes([frame[place] ^ 1 << bit]) + frame[place + 1 :]
            read_question(changed)
            if place >= 57:
                read_question(with_digest(changed) if place >= 62 else changed)


@pytest.mark.parametrize("frame", QUESTIONS)
def test_a_body_that_was_changed_or_cut_never_passes_for_the_one_sent(frame):
    _, _, start = codec.read_envelope(frame)
    start = head_of(frame) + CHECKSUM if frame[1] == codec.Form.QUESTION else start
    for place in range(start, len(frame)):
        for changed in (frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :], frame[:place]):
            with pytest.raises(MalformedMessage, match=r"do(es)? not match (its|their) digest"):
                codec.decode_question(changed)


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (0, 1, "message format 1 is not supported; this version uses format 2"),
        (1, 0, "form 0 of a message is unknown"),
        (1, 9, "form 9 of a message is unknown"),
        (1, codec.Form.ANSWER, "the message is not a question"),
        (56, 33, "the method's name is not readable"),
        (56, 255, "the method's name is not readable"),
        (57, 0x80, "the method's name is not readable"),
        (57, 10, "the method's name is not readable"),
        (70, 3, "does not say how its answer is seen"),
    ],
)
def test_a_header_field_that_means_nothing_is_named(place, value, text):
    frame = bytearray(question(ASSIGN))
    frame[place] = value
    changed = bytes(frame) if place < 62 else resealed(bytes(frame))
    with pytest.raises(MalformedMessage, match=text):
        codec.decode_question(changed)


def test_no_flipped_bit_before_the_body_of_a_question_passes():
    frame = question(ASSIGN, attached=b"attached")
    for place in range(head_of(frame) + CHECKSUM):
        for bit in range(8):
            with pytest.raises(MalformedMessage):
                codec.decode_question(frame[:place] + bytes([frame[place] ^ 1 << bit]) + frame[place + 1 :])


def test_a_method_s_name_has_at_most_32_letters():
    for length, is_read in ((32, True), (33, False), (255, False)):
        frame = codec.header(codec.Form.QUESTION, plain_envelope()._replace(method="m" * length)) + bytes(99)
        with pytest.raises(MalformedMessage, match="damaged" if is_read else "method's name is not readable"):
            codec.decode_question(frame)


def test_a_frame_beyond_the_largest_is_refused_unread(monkeypatch):
    frame = question(ASSIGN)
    monkeypatch.setattr(codec, "MAX_FRAME_BYTES", len(frame) - 1)
    with pytest.raises(MalformedMessage, match=f"more than {len(frame) - 1} bytes"):
        codec.decode_question(frame)


@pytest.mark.parametrize("make", [question, lambda request: recall(*[request] * 20)], ids=["question", "recall"])
def test_no_frame_is_made_that_the_other_end_refuses_as_too_large(monkeypatch, make):
    size = len(codec.encode_body(ASSIGN, LIMITS).data)
    monkeypatch.setattr(codec, "MAX_FRAME_BYTES", size)
    with pytest.raises(MalformedMessage, match=f"exceeds the limit of {size}"):
        make(ASSIGN)
