"""Messages to bytes and back; and bytes that are no messages."""

from __future__ import annotations

import ast
import contextlib
import struct
import time
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coterie.messages
from coterie.errors import BadAnswer, MalformedMessage
from coterie.messages import codec
from coterie.messages.codec import envelope, frames
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Nothing, Reply, Request, reply_type
from coterie.messages.verbs import Seen
from coterie.protocols.lloyd import Assign, Moments
from coterie.protocols.preparation import Agree, Prepare, SumColumns
from coterie.protocols.seeding import Split, Summarise

from .samples import (
    ALL_REQUESTS,
    DECLARED,
    AskPacked,
    AskRounded,
    Packed,
    Rounded,
    any_request,
    envelopes,
    limits,
    mutated,
    plain_envelope,
    random_numbers,
    random_reply,
    requests,
    same,
)

LIMITS = {"rows": 100.0, "box": 10.0}
TRANSCRIPTS = st.binary(min_size=8, max_size=8)
SEEN = st.sampled_from(Seen)

ASSIGN = Assign(np.array([[1.0, 2.0], [-3.0, 4.5], [0.0, 9.0]]))
PACKED = AskPacked(
    *(3, 5, 2.5, "label", True, b"salt", ("one", "two")),
    codes=np.arange(5),
    signs=np.array([-64, 63]),
    halves=np.ones((2, 2)),
    large=np.array(2**64 - 1, np.uint64),
)
SAMPLES = {
    Assign: ASSIGN,
    Agree: Agree(2, ("age", "größe"), ("number", "text")),
    SumColumns: SumColumns(True, np.arange(2.0), np.ones(2)),
    Prepare: Prepare("mean", False, np.zeros(2), np.ones(2), np.ones(2)),
    Split: Split(2, np.array([0]), np.array([1]), np.array([0.5]), np.zeros(2)),
    Summarise: Summarise(4, 2, 1, 2000, -5),
    AskPacked: PACKED,
    AskRounded: AskRounded("float32", np.arange(3.0)),
}


def question(request: Request[Any], seen: Seen = Seen.SUMMED) -> bytes:
    body = codec.encode_body(request, LIMITS)
    return codec.encode_question(plain_envelope(body.digest), body, bytes(range(8)), seen)


def recall(*asked: Request[Any]) -> bytes:
    return codec.encode_recall(plain_envelope(), [codec.encode_body(one, {}).data for one in asked])


QUESTIONS = [question(one) for one in SAMPLES.values()] + [recall(), recall(SAMPLES[Prepare], SAMPLES[AskRounded])]


def answer(request: Request[Any], seed: int = 0) -> tuple[bytes, tuple[Any, ...]]:
    """A valid answer, and all that is needed to read it."""
    expected, layout = plain_envelope(codec.encode_body(request, LIMITS).digest), request.layout
    bounds = layout.bounds(LIMITS)
    reply = random_reply(layout, bounds, np.random.default_rng(seed))
    return codec.encode_answer(expected, layout, reply, bounds), (expected, layout, bounds)


def resealed(frame: bytes) -> bytes:
    """The frame with a checksum that fits what it holds now."""
    return frame[:-4] + zlib.crc32(frame[:-4]).to_bytes(4, "little")


def with_digest(frame: bytes) -> bytes:
    """The question with a digest that fits the body it holds now."""
    form, said, start = codec.read_envelope(frame)
    body = frame[start + (9 if form is codec.Form.QUESTION else 0) :]
    return envelope.header(form, said._replace(request=envelope.request_digest(body))) + frame[start:]


# ---------------------------------------------------------------- there and back


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
    with pytest.raises(MalformedMessage, match="no question"):
        codec.decode_question(frame)


def test_a_refusal_of_an_unreadable_question_may_be_blank():
    expected = plain_envelope()
    blank = codec.Envelope(codec.FORMAT_VERSION, bytes(16), 0, 0, bytes(8), expected.site, bytes(16), "")
    frame = codec.encode_refusal(blank, Refusal.MALFORMED)
    assert codec.decode_answer(frame, expected, ASSIGN.layout, ()) is Refusal.MALFORMED


@given(st.data())
def test_recorded_arrays_come_back_with_shapes_and_bits(data):
    names = st.sampled_from(["float16", "float32", "float64", "int64", "uint64"])
    shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    wanted = data.draw(st.lists(st.tuples(names, shapes), max_size=4))
    arrays = [random_numbers(rng, codec.arrays.wire(name), shape) for name, shape in wanted]
    back = codec.unpack_arrays(codec.pack_arrays(arrays))
    assert [(a.dtype, a.shape, a.tobytes()) for a in back] == [(a.dtype, a.shape, a.tobytes()) for a in arrays]


def test_a_recorded_reply_has_all_its_arrays():
    made = Moments(np.ones((2, 1)), np.ones(2), 3.0)
    back = codec.reply_from_arrays(Assign, codec.unpack_arrays(codec.pack_arrays(made.arrays())))
    assert same(back, made)
    with pytest.raises(MalformedMessage, match="a recorded Moments has 1 arrays"):
        codec.reply_from_arrays(Assign, [np.ones(2)])


def test_an_unknown_request_is_read_as_none():
    data = b"\x0dfuture.Method" + msgspec.msgpack.encode([{}, 1])
    assert codec.decode_body(data) == (None, {})


# ---------------------------------------------------------------- bytes that are no question


def read_question(frame: bytes) -> None:
    """Either a message that can be asked again, or MalformedMessage; anything else is raised."""
    try:
        decoded = codec.decode_question(frame)
    except MalformedMessage:
        return
    for data in decoded.bodies:
        read_body(data)


def read_body(data: bytes) -> None:
    try:
        request, declared = codec.decode_body(data)
    except MalformedMessage:
        return
    if request is not None:
        again, limits_again = codec.decode_body(codec.encode_body(request, declared).data)
        assert type(again) is type(request)
        assert (again.axes, limits_again) == (request.axes, declared)


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


@pytest.mark.parametrize("request_", SAMPLES.values(), ids=lambda request: request.kind)
@given(data=st.data())
def test_any_change_of_a_request_gives_a_message_or_one_clear_error(request_, data):
    read_body(data.draw(mutated(codec.encode_body(request_, LIMITS).data)))


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
    start += 9 if frame[1] == codec.Form.QUESTION else 0
    for place in range(start, len(frame)):
        for changed in (frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :], frame[:place]):
            with pytest.raises(MalformedMessage, match=r"do(es)? not match (its|their) digest"):
                codec.decode_question(changed)


def test_a_frame_lies_as_documented():
    """The bytes themselves, so that two versions that both agree with themselves also agree with each other."""
    said = codec.Envelope(1, b"r" * 16, 0x01020304, 0x0506, b"o" * 8, b"s" * 8, b"d" * 16, "lloyd")
    common = b"r" * 16 + b"\x04\x03\x02\x01" + b"\x06\x05" + b"o" * 8 + b"s" * 8 + b"d" * 16 + b"\x05lloyd"
    body = codec.encode_body(Assign(np.array([[1.0]])), {"rows": 2.0})
    fields = b"\x92\x81\xa4rows\xcb" + struct.pack(">d", 2.0) + b"\x92\x92\x01\x01\xc4\x08" + struct.pack("<d", 1.0)
    assert body.data == b"\x0clloyd.Assign" + fields
    assert (
        codec.encode_question(said, body, b"t" * 8, Seen.MASKED)
        == b"\x01\x01" + common + b"t" * 8 + b"\x02" + body.data
    )
    assert codec.encode_refusal(said, Refusal.STALE) == b"\x01\x04" + common + b"\x04"
    ask = Assign(np.zeros((1, 1)))
    frame = codec.encode_answer(said, ask.layout, Moments([[1.0]], [2.0], 3.0), ask.layout.bounds({}))
    whole = b"\x01\x03" + common + ask.layout.tag + struct.pack("<3d", 1.0, 2.0, 3.0)
    assert frame == whole + zlib.crc32(whole).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (0, 2, "message format 2 is not known here; this end speaks 1"),
        (1, 0, "no message has form 0"),
        (1, 9, "no message has form 9"),
        (1, codec.Form.ANSWER, "the message is no question"),
        (56, 33, "the method's name is not readable"),
        (56, 255, "the method's name is not readable"),
        (57, 0x80, "the method's name is not readable"),
        (57, 10, "the method's name is not readable"),
        (70, 3, "nobody sees an answer in way 3"),
    ],
)
def test_a_header_field_that_means_nothing_is_named(place, value, text):
    frame = bytearray(question(ASSIGN))
    frame[place] = value
    with pytest.raises(MalformedMessage, match=text):
        codec.decode_question(bytes(frame))


def test_a_method_s_name_has_at_most_32_letters():
    for length, is_read in ((32, True), (33, False), (255, False)):
        frame = envelope.header(codec.Form.QUESTION, plain_envelope()._replace(method="m" * length)) + bytes(99)
        with pytest.raises(MalformedMessage, match="digest" if is_read else "method's name is not readable"):
            codec.decode_question(frame)


def body_of(kind: str, *fields: Any, declared: Any = None) -> bytes:
    return bytes([len(kind)]) + kind.encode() + msgspec.msgpack.encode([declared or {}, *fields])


PACKED_TOO_LONG = body_of(
    "samples.AskPacked", 3, 1, 1.0, "", True, b"", [], [[1], b"12"], [[0], b""], [[0, 2], b""], [[], bytes(8)]
)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "cut short"),
        (b"\x05lloy", "cut short"),
        (b"\x02\xff\xff", "name is not readable"),
        (body_of("lloyd.Assign"), "does not have the fields of its type"),
        (body_of("lloyd.Assign", [[1, 1], b"12345678"], 1), "does not have the fields of its type"),
        (body_of("lloyd.Assign", [[1, 1, 1, 1, 1], b"12345678"]), "does not have the fields of its type"),
        (body_of("lloyd.Assign", [[-1, 1], b""]), "does not have the fields of its type"),
        (body_of("lloyd.Assign", [[1, 1], b"1234567"]), "centers has not the bytes its shape needs"),
        (body_of("lloyd.Assign", [[1, 1], b"123456789"]), "centers has not the bytes its shape needs"),
        (body_of("lloyd.Assign", [[2**32, 2**32], b""]), "centers has not the bytes its shape needs"),
        (PACKED_TOO_LONG, "codes has not the bytes its shape needs"),
        (body_of("lloyd.Assign", [[1], b"12345678"]), "centers has 1 axes"),
        (body_of("lloyd.Assign", [[1, 1], struct.pack("<d", np.nan)]), "centers is not finite"),
        (body_of("lloyd.Assign", [[1, 1], struct.pack("<d", -np.inf)]), "centers is not finite"),
        (body_of("lloyd.Assign", [[0, 2**62], b""]), "centers is empty and claims a long axis"),
        (body_of("lloyd.Assign", [[0, 2**64 - 1], b""]), "centers is empty and claims a long axis"),
        (
            body_of("lloyd.Assign", [[0, 0], b""], declared={"rows": 0.0}),
            "limits are at most 16 finite numbers above 0",
        ),
        (
            body_of("lloyd.Assign", [[0, 0], b""], declared={"rows": -1.0}),
            "limits are at most 16 finite numbers above 0",
        ),
        (
            body_of("lloyd.Assign", [[0, 0], b""], declared={"rows": np.inf}),
            "limits are at most 16 finite numbers above 0",
        ),
        (
            body_of("lloyd.Assign", [[0, 0], b""], declared={"rows": np.nan}),
            "limits are at most 16 finite numbers above 0",
        ),
        (body_of("lloyd.Assign", [[0, 0], b""], declared={str(i): 1.0 for i in range(17)}), "fields of its type"),
        (body_of("preparation.SumColumns", 1, [[0], b""]), "does not have the fields of its type"),
        (body_of("seeding.Summarise", 1.0, 1, 1, 1, 1), "does not have the fields of its type"),
        (body_of("samples.AskRounded", "float8", [[0], b""]), "values has no such kind of number"),
        (body_of("samples.AskRounded", "{precision}", [[0], b""]), "values has no such kind of number"),
        (body_of("preparation.Prepare", "mean", True, *[[[n], bytes(8 * n)] for n in (1, 2, 2)]), "axis d is 2 long"),
    ],
)
def test_a_request_that_cannot_be_is_refused_and_says_why(data, text):
    with pytest.raises(MalformedMessage, match=text):
        codec.decode_body(data)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1])
def test_whole_numbers_in_a_shape_no_array_can_have_are_refused_without_a_warning(length):
    empty = [[0], b""]
    packed = body_of(
        "samples.AskPacked", 3, 0, 1.0, "", True, b"", [], [[0], b""], empty, [[0, 2], b""], [[0, length], b""]
    )
    with pytest.raises(MalformedMessage):
        codec.decode_body(packed)
    with pytest.raises(MalformedMessage):
        codec.unpack_arrays(msgspec.msgpack.encode([["int32", [0, length], b""]]))


def arrays_of(request: Request[Any]) -> list[Any]:
    return [value for value in vars(request).values() if isinstance(value, np.ndarray)]


@pytest.mark.parametrize("kind", [Assign, SumColumns, Prepare, AskRounded], ids=lambda kind: kind.kind)
def test_floats_read_once_for_many_sites_cannot_be_changed_by_one_of_them(kind):
    request, _ = codec.decode_body(codec.encode_body(SAMPLES[kind], {}).data)
    assert not any(value.flags.writeable for value in arrays_of(request))


@pytest.mark.parametrize("kind", [Split, AskPacked], ids=lambda kind: kind.kind)
def test_whole_numbers_read_once_for_many_sites_cannot_be_changed_by_one_of_them(kind):
    request, _ = codec.decode_body(codec.encode_body(SAMPLES[kind], {}).data)
    assert not any(value.flags.writeable for value in arrays_of(request))


@pytest.mark.parametrize(
    "data",
    [
        codec.encode_body(SAMPLES[Agree], {}).data.replace(b"age", b"ag\xff"),
        codec.encode_body(SAMPLES[Prepare], {}).data.replace(b"mean", b"me\xc3("),
        codec.encode_body(ASSIGN, LIMITS).data.replace(b"rows", b"row\xcb"),
    ],
    ids=["names", "text", "limits"],
)
def test_a_text_that_is_no_text_is_refused_like_anything_malformed(data):
    with pytest.raises(MalformedMessage):
        codec.decode_body(data)


# ---------------------------------------------------------------- small frames that claim much


def claims() -> dict[str, bytes]:
    """Bodies of a few bytes that claim to hold millions."""
    huge = b"\xff\xff\xff\xff"

    def raw(kind: str, data: bytes) -> bytes:
        return bytes([len(kind)]) + kind.encode() + data

    return {
        "a long axis": body_of("lloyd.Assign", [[2**40, 1], b"12345678"]),
        "axes whose product wraps to nothing": body_of("lloyd.Assign", [[2**32, 2**32], b""]),
        "axes whose product wraps to one": body_of("lloyd.Assign", [[2**64 - 1, 2**64 - 1], b"12345678"]),
        "four long axes": body_of("lloyd.Assign", [[2**64 - 1] * 4, b""]),
        "an empty array with a long axis": body_of("lloyd.Assign", [[0, 2**45], b""]),
        "packed numbers": body_of(
            "samples.AskPacked", 1, 2**40, 1.0, "", True, b"", [], [[2**40], b"1"], *[[[0], b""]] * 3
        ),
        "a long list": raw("preparation.Agree", b"\x94\x80\x01\xdd" + huge),
        "a long map": raw("lloyd.Assign", b"\x92\xdf" + huge),
        "long bytes": raw("lloyd.Assign", b"\x92\x80\x92\x92\x01\x01\xc6" + huge),
        "a long text": raw("preparation.Prepare", b"\x96\x80\xdb" + huge),
        "deep nesting": raw("lloyd.Assign", b"\x91" * 100_000),
        "deep nesting of maps": raw("lloyd.Assign", b"\x92" + b"\x81\xa0" * 100_000),
        "too many names": raw(
            "preparation.Agree", b"\x94\x80\x01\xdd" + struct.pack(">I", 500_000) + b"\xa0" * 500_000
        ),
        "a large whole number": body_of("seeding.Summarise", *[2**64 - 1] * 5),
    }


def peak_of(read: Any, *given: Any) -> int:
    """The most memory taken at once while ``read`` reads."""
    tracemalloc.start()
    began = time.monotonic()
    try:
        read(*given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("what", claims())
def test_a_claim_of_much_takes_little_memory_and_time(what):
    data = claims()[what]
    assert peak_of(read_body, data) < 1_000_000 + 4 * len(data)
    frame = envelope.header(codec.Form.QUESTION, plain_envelope(envelope.request_digest(data))) + bytes(9) + data
    assert peak_of(read_question, frame) < 1_000_000 + 4 * len(data)


@pytest.mark.parametrize("data", [b"\xdd\xff\xff\xff\xff", b"\x91\xc6\xff\xff\xff\xff", b"\x91" * 100_000, b"\xc1"])
def test_a_recall_that_claims_much_takes_little_memory_and_time(data):
    frame = envelope.header(codec.Form.RECALL, plain_envelope(envelope.request_digest(data))) + data
    assert peak_of(read_question, frame) < 1_000_000
    with pytest.raises(MalformedMessage, match="recalled requests cannot be read"):
        codec.decode_question(frame)


@pytest.mark.parametrize(
    "data", [b"\xdd\xff\xff\xff\xff", b"\x91\x93\xa7float64\x91\xcf" + b"\x01" * 8 + b"\xc4\x00", b"\x91" * 100_000]
)
def test_recorded_arrays_that_claim_much_take_little_memory_and_time(data):
    def read() -> None:
        with pytest.raises(MalformedMessage):
            codec.unpack_arrays(data)

    assert peak_of(read) < 1_000_000


def test_packed_numbers_take_memory_for_the_numbers_not_for_their_bits():
    count = 100_000
    ask = AskPacked(33, count, 1.0, "", True, b"", (), np.arange(count), np.zeros(0), np.zeros((0, 2)), np.array(0))
    data = codec.encode_body(ask, {}).data
    in_memory = 8 * count
    assert peak_of(codec.decode_body, data) < 4 * (len(data) + in_memory)
    assert peak_of(codec.encode_body, ask, {}) < 4 * (len(data) + in_memory)


@pytest.mark.parametrize(
    "fields", [["uint3", [1], b"12"], ["uint3", [6], b"12"], ["float64", [1], b""], ["float64", [2, 1], bytes(24)]]
)
def test_recorded_arrays_with_more_or_fewer_bytes_than_their_shape_needs_are_refused(fields):
    with pytest.raises(MalformedMessage, match="recorded numbers are cut short"):
        codec.unpack_arrays(msgspec.msgpack.encode([fields]))


@given(st.data())
def test_any_change_of_recorded_arrays_gives_arrays_or_one_clear_error(data):
    frame = codec.pack_arrays([np.arange(6.0).reshape(2, 3), np.arange(3), np.array(7, np.uint64)])
    with contextlib.suppress(MalformedMessage):
        codec.unpack_arrays(data.draw(mutated(frame)))


def test_a_frame_beyond_the_largest_is_refused_unread(monkeypatch):
    frame = question(ASSIGN)
    monkeypatch.setattr(envelope, "MAX_FRAME_BYTES", len(frame) - 1)
    with pytest.raises(MalformedMessage, match=f"at most {len(frame) - 1} bytes"):
        codec.decode_question(frame)


@pytest.mark.parametrize("make", [question, lambda request: recall(*[request] * 20)], ids=["question", "recall"])
def test_no_frame_is_made_that_the_other_end_refuses_as_too_large(monkeypatch, make):
    size = len(codec.encode_body(ASSIGN, LIMITS).data)
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", size)
    with pytest.raises(MalformedMessage, match=f"it may have at most {size}"):
        make(ASSIGN)


@pytest.mark.parametrize(
    ("centers", "declared"),
    [
        ([[np.nan]], {}),
        ([[np.inf]], {}),
        ([[1.0]], {"rows": 0.0}),
        ([[1.0]], {"rows": np.inf}),
        ([[1.0]], {str(name): 1.0 for name in range(17)}),
    ],
)
def test_no_request_is_encoded_that_the_other_end_cannot_decode(centers, declared):
    with pytest.raises((MalformedMessage, ValueError)):
        codec.encode_body(Assign(np.array(centers)), declared)


# ---------------------------------------------------------------- answers that do not fit


def read_answer(frame: bytes, expected: tuple[Any, ...]) -> Reply | Refusal | None:
    """A reply all of whose numbers are allowed, a refusal, or None for BadAnswer; anything else is raised."""
    try:
        found = codec.decode_answer(frame, *expected)
    except BadAnswer:
        return None
    if isinstance(found, Reply):
        _, layout, bounds = expected
        assert type(found) is layout.reply
        for value, item, (low, high) in zip(found.arrays(), layout.fields, bounds, strict=True):
            assert value.shape == item.shape
            assert not item.wire.is_float or np.isfinite(value).all()
            slack = 3e-3 * high if np.isfinite(high) else 0.0
            assert (value >= low - slack).all()
            assert (value <= high + slack).all()
    else:
        assert isinstance(found, Refusal)
    return found


@pytest.mark.parametrize("request_", SAMPLES.values(), ids=lambda request: request.kind)
@given(data=st.data())
def test_any_change_of_an_answer_gives_a_fitting_reply_a_refusal_or_one_clear_error(request_, data):
    frame, expected = answer(request_, data.draw(st.integers(0, 9)))
    changed = data.draw(mutated(frame))
    read_answer(changed, expected)
    read_answer(resealed(changed), expected)


@pytest.mark.parametrize("request_", SAMPLES.values(), ids=lambda request: request.kind)
def test_no_flipped_bit_and_no_cut_of_an_answer_passes(request_):
    frame, expected = answer(request_)
    for place in range(len(frame)):
        assert read_answer(frame[:place], expected) is None
        for bit in range(8):
            changed = frame[:place] + bytes([frame[place] ^ 1 << bit]) + frame[place + 1 :]
            assert read_answer(changed, expected) is None
            read_answer(resealed(changed), expected)


@given(st.sampled_from(Refusal), st.data())
def test_any_change_of_a_refusal_gives_a_refusal_or_one_clear_error(code, data):
    _, expected = answer(ASSIGN)
    frame = codec.encode_refusal(expected[0], code)
    found = read_answer(data.draw(mutated(frame)), expected)
    assert found is None or isinstance(found, Refusal)


OTHERS = {
    "run": bytes(16),
    "round": 4,
    "attempt": 0,
    "roster": bytes(8),
    "request": bytes(16),
    "method": "lloyx",
    "site": codec.site_tag("b"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_answer_of_another_exchange_is_refused_and_says_which(name):
    _, (expected, layout, bounds) = answer(ASSIGN)
    other = expected._replace(**{name: OTHERS[name]})
    frame = codec.encode_answer(other, layout, layout.reply.zeros(ASSIGN.axes), bounds)
    text = "made by another site" if name == "site" else f"belongs to another {name}"
    with pytest.raises(BadAnswer, match=f"its answer {'was ' if name == 'site' else ''}{text}"):
        codec.decode_answer(frame, expected, layout, bounds)


@pytest.mark.parametrize("name", ["", "one-shot", "lloyd-longer"])
def test_the_answer_of_a_method_with_a_longer_or_shorter_name_is_refused(name):
    _, (expected, layout, bounds) = answer(ASSIGN)
    frame = codec.encode_answer(expected._replace(method=name), layout, layout.reply.zeros(ASSIGN.axes), bounds)
    with pytest.raises(BadAnswer, match="belongs to another method"):
        codec.decode_answer(frame, expected, layout, bounds)


@pytest.mark.parametrize("name", ["site", "run"])
def test_the_refusal_of_another_site_or_run_is_refused_and_says_which(name):
    _, (expected, layout, bounds) = answer(ASSIGN)
    frame = codec.encode_refusal(expected._replace(**{name: OTHERS[name]}), Refusal.FAILED)
    with pytest.raises(BadAnswer, match=f"another {name}"):
        codec.decode_answer(frame, expected, layout, bounds)


@pytest.mark.parametrize("name", ["round", "attempt", "roster", "request", "method"])
def test_the_refusal_of_another_exchange_is_refused_and_says_which(name):
    _, (expected, layout, bounds) = answer(ASSIGN)
    frame = codec.encode_refusal(expected._replace(**{name: OTHERS[name]}), Refusal.FAILED)
    with pytest.raises(BadAnswer, match=f"another {name}"):
        codec.decode_answer(frame, expected, layout, bounds)


def test_a_refusal_with_no_meaning_is_refused():
    _, (expected, layout, bounds) = answer(ASSIGN)
    for code in set(range(256)) - {*Refusal}:
        frame = codec.encode_refusal(expected, Refusal.FAILED)[:-1] + bytes([code])
        with pytest.raises(BadAnswer, match=f"refused with code {code}, which means nothing here"):
            codec.decode_answer(frame, expected, layout, bounds)


def test_what_is_no_answer_at_all_is_refused_and_says_what_it_is():
    _, (expected, layout, bounds) = answer(ASSIGN)
    body = codec.encode_body(ASSIGN, LIMITS)
    cases = {
        "cannot be read: the message is shorter than its header": b"",
        "cannot be read: message format 7": b"\x07" + bytes(80),
        "is no answer but a question": codec.encode_question(expected, body, bytes(8), Seen.SINGLE),
        "is no answer but a refusal": codec.encode_refusal(expected, Refusal.FAILED) + b"\0",
    }
    for text, frame in cases.items():
        with pytest.raises(BadAnswer, match=text):
            codec.decode_answer(frame, expected, layout, bounds)


def test_the_answer_to_a_question_of_another_size_is_refused():
    _, (expected, layout, bounds) = answer(ASSIGN)
    other = Assign(np.zeros((2, 3)))
    frame = codec.encode_answer(expected, other.layout, Moments.zeros(other.axes), other.layout.bounds({}))
    with pytest.raises(BadAnswer, match="its answer is not the Moments asked for"):
        codec.decode_answer(frame, expected, layout, bounds)


def test_a_short_long_or_damaged_answer_is_refused_and_says_so():
    frame, expected = answer(ASSIGN)
    cases = {
        "holds 79 bytes of numbers, not 80": resealed(frame[:-5] + frame[-4:]),
        "holds 72 bytes of numbers, not 80": resealed(frame[:-12] + frame[-4:]),
        "holds 88 bytes of numbers, not 80": resealed(frame[:-4] + bytes(8) + frame[-4:]),
        "holds 0 bytes of numbers, not 80": frame[:66],
        "arrived damaged": frame[:-1] + bytes([frame[-1] ^ 1]),
        "its answer arrived damaged": frame[:70] + bytes([frame[70] ^ 1]) + frame[71:],
    }
    for text, changed in cases.items():
        with pytest.raises(BadAnswer, match=text):
            codec.decode_answer(changed, *expected)


NUMBERS = {"sums": (3, 2), "counts": (3,), "cost": ()}
BAD = {
    "sums": {"not finite": [np.nan, np.inf, -np.inf], "outside the declared bound": [1000.01, -1000.01, 1e300]},
    "counts": {"not finite": [np.nan, np.inf, -np.inf], "outside the declared bound": [100.001, -0.001]},
    "cost": {"not finite": [np.nan, np.inf, -np.inf], "outside the declared bound": [320001.0, -0.001]},
}
BAD_CASES = [(name, text, value) for name, cases in BAD.items() for text, values in cases.items() for value in values]


def with_number(name: str, value: float) -> Moments:
    """Moments whose array ``name`` ends in ``value``, all else zero."""
    arrays = {field: np.zeros(shape) for field, shape in NUMBERS.items()}
    arrays[name][(-1,) * arrays[name].ndim] = value
    return Moments(**arrays)


@pytest.mark.parametrize(("name", "text", "value"), BAD_CASES)
def test_a_number_that_is_not_allowed_does_not_leave_and_its_array_is_named(name, text, value):
    _, expected = answer(ASSIGN)
    with pytest.raises(BadAnswer, match=f"its {name} is {text}"):
        codec.encode_answer(*expected[:2], with_number(name, value), expected[2])


@pytest.mark.parametrize(("name", "text", "value"), BAD_CASES)
def test_a_number_that_is_not_allowed_does_not_come_in_and_its_array_is_named(name, text, value):
    _, (expected, layout, bounds) = answer(ASSIGN)
    unbounded = [(-np.inf, np.inf)] * 3
    frame = bytearray(codec.encode_answer(expected, layout, Moments.zeros(ASSIGN.axes), unbounded))
    stop = 66 + next(item.stop for item in layout.fields if item.name == name)
    frame[stop - 8 : stop] = struct.pack("<d", value)
    with pytest.raises(BadAnswer, match=f"its {name} is {text}"):
        codec.decode_answer(resealed(bytes(frame)), expected, layout, bounds)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_not_finite_is_refused_also_where_nothing_is_bounded(name, value):
    _, (expected, layout, _) = answer(ASSIGN)
    with pytest.raises(BadAnswer, match=f"its {name} is not finite"):
        codec.encode_answer(expected, layout, with_number(name, value), layout.bounds({}))


@pytest.mark.parametrize("pattern", [0x7FF0000000000001, 0xFFF8000000000000, 0x7FFFFFFFFFFFFFFF])
def test_every_sort_of_nan_is_refused_without_a_warning(pattern):
    frame, expected = answer(ASSIGN)
    changed = frame[:66] + struct.pack("<Q", pattern) + frame[74:]
    with pytest.raises(BadAnswer, match="its sums is not finite"):
        codec.decode_answer(resealed(changed), *expected)


def test_numbers_at_their_bound_pass_and_a_hair_beyond_from_rounding_too():
    _, (expected, layout, bounds) = answer(ASSIGN)
    for name, high in (("sums", 1000.0), ("counts", 100.0), ("cost", 320000.0)):
        for value in (high, high * (1 + 5e-10), 0.0):
            frame = codec.encode_answer(expected, layout, with_number(name, value), bounds)
            assert same(codec.decode_answer(frame, expected, layout, bounds), with_number(name, value))


@pytest.mark.parametrize(("rows", "count"), [(1e9, -0.5), (1e12, -900.0)])
def test_what_cannot_be_negative_is_not_negative_by_a_hair(rows, count):
    _, (expected, layout, _) = answer(ASSIGN)
    with pytest.raises(BadAnswer, match="counts is outside"):
        codec.encode_answer(expected, layout, with_number("counts", count), layout.bounds({"rows": rows}))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("codes", np.array([0, 1, 2, 3, 8]), "its codes: a number is outside uint3, 0 to 7"),
        ("codes", np.array([0, 1, 2, 3, -1]), "its codes: a number is outside uint3"),
        ("codes", np.array([0, 1, 2, 3, 0.5]), "its codes: uint3 holds whole numbers only"),
        ("codes", np.array([0, 1, 2, 3, np.nan]), "its codes: uint3"),
        ("codes", np.array([0, 1, 2, 3, np.inf]), "its codes: "),
        ("signs", np.full((2, 5), 16), "its signs: a number is outside int5"),
        ("halves", np.array([1.0, 1e9]), "its halves is not finite"),
        ("halves", np.array([1.0, 11.0]), "its halves is outside the declared bound"),
        ("halves", np.array([1.0, 2.0, 3.0]), r"its halves has shape \(3,\), not \(2,\)"),
        ("whole", np.array(-1), "its whole: a number is outside uint64"),
        ("positive", np.array([1.0, 2.0, -0.5]), "its positive is outside the declared bound"),
        ("positive", np.array([1, 2, 3j]), "its positive does not hold numbers"),
        ("positive", np.array(["1", "2", "3"]), "its positive does not hold numbers"),
        ("positive", np.array([1, 2, None]), "its positive does not hold numbers"),
    ],
)
def test_packed_answers_are_checked_before_they_leave(name, value, text):
    _, (expected, layout, bounds) = answer(PACKED)
    fine = Packed(np.zeros(5, int), np.zeros((2, 5), int), np.zeros(2), np.array(0), np.zeros(3))
    codec.encode_answer(expected, layout, fine, bounds)
    with pytest.raises(BadAnswer, match=text):
        codec.encode_answer(expected, layout, Packed(**{**vars(fine), name: value}), bounds)


def test_a_reply_of_another_type_does_not_leave():
    _, (expected, layout, bounds) = answer(ASSIGN)
    with pytest.raises(BadAnswer, match="the answer is Rounded, not Moments"):
        codec.encode_answer(expected, layout, Rounded(np.zeros(3)), bounds)


# ---------------------------------------------------------------- what the code itself does not do


def test_messages_need_no_pickle_and_nothing_like_it():
    forbidden = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "copyreg", "yaml"}
    functions, methods = {"eval", "exec", "compile", "__import__"}, {"load", "loads", "fromstring", "eval", "exec"}
    folder = Path(coterie.messages.__file__).parent
    files = sorted(folder.rglob("*.py"))
    assert len(files) >= 10
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = set()
            if isinstance(node, ast.Import):
                names = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").partition(".")[0]}
            assert not names & forbidden, f"{file} imports {names & forbidden}"
            if isinstance(node, ast.Call):
                where = f"{file}, line {node.lineno}"
                assert getattr(node.func, "id", "") not in functions, where
                assert getattr(node.func, "attr", "") not in methods, where
                assert all(word.arg != "allow_pickle" for word in node.keywords)


def test_every_refusal_has_a_sentence_fit_for_anyone():
    assert all(code.sentence and "\n" not in code.sentence for code in Refusal)
    assert len({code.sentence for code in Refusal}) == len(Refusal)
    assert all(0 < code < 256 for code in Refusal)


def test_every_reply_names_its_request():
    assert all(issubclass(reply_type(kind), Reply) for kind in ALL_REQUESTS)
