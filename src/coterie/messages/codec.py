"""Messages to bytes and back: the only place where either happens.

A frame is a fixed header, the method's name, and one of four forms:

- question: ``transcript`` (8 bytes), ``seen`` (1), then the request's body;
- recall: the bodies of the run's remembered requests, to bring a site up to date; its answer is empty;
- answer: a tag of the answer's form (4), then its numbers and nothing else: sizes are fixed by the question;
- refusal: one code (1).

Any byte string decodes to a valid message or raises :class:`MalformedMessage` (:class:`BadAnswer` for answers).
Nothing is allocated that the frame does not already hold.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.errors import BadAnswer, MalformedMessage
from coterie.messages.numbers import wire
from coterie.messages.refusals import Refusal
from coterie.messages.schema import (
    LaidField,
    Layout,
    Nothing,
    Reply,
    Request,
    message_fields,
    reply_type,
    request_type,
)
from coterie.messages.verbs import Seen

__all__ = [
    "EMPTY_LAYOUT",
    "FORMAT_VERSION",
    "MAX_ANSWER_BYTES",
    "MAX_FRAME_BYTES",
    "NO_TRANSCRIPT",
    "Body",
    "Decoded",
    "Envelope",
    "Form",
    "answer_header_bytes",
    "decode_answer",
    "decode_body",
    "decode_question",
    "encode_answer",
    "encode_body",
    "encode_question",
    "encode_recall",
    "encode_refusal",
    "extend_transcript",
    "pack_arrays",
    "question_header_bytes",
    "read_envelope",
    "roster_digest",
    "site_tag",
    "unpack_arrays",
]

FORMAT_VERSION = 1
MAX_FRAME_BYTES = 1 << 28
MAX_ANSWER_BYTES = 1 << 28
MAX_METHOD_BYTES = 32
MAX_ITEMS = 1 << 17
NO_TRANSCRIPT = bytes(8)

Array = npt.NDArray[Any]
Bounds = Sequence[tuple[float, float]]


class Form(IntEnum):
    """What a frame is."""

    QUESTION = 1
    RECALL = 2
    ANSWER = 3
    REFUSAL = 4


class Envelope(NamedTuple):
    """What every message says of itself."""

    version: int
    run: bytes
    round: int
    attempt: int
    roster: bytes
    """Digest of the names of the sites asked in this exchange."""
    site: bytes
    """Digest of the one site this message goes to or comes from."""
    request: bytes
    """Digest of the request's body."""
    method: str


class Body(NamedTuple):
    """An encoded request with its limits, and its digest."""

    data: bytes
    digest: bytes


@dataclass(frozen=True)
class Decoded:
    """A question or a recall as a site reads it."""

    envelope: Envelope
    form: Form
    bodies: tuple[bytes, ...]
    request: Request[Any] | None
    limits: Mapping[str, float]
    seen: Seen
    transcript: bytes


# version, form, run, round, attempt, roster, site, request, length of the method's name
_HEADER = struct.Struct("<BB16sIH8s8s16sB")
_QUESTION = struct.Struct("<8sB")
_TAG_BYTES = 4


def site_tag(name: str) -> bytes:
    """Eight bytes that stand for a site in every envelope."""
    return _tag(name)


@lru_cache(maxsize=4096)
def _tag(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8, person=b"coterie-site").digest()


def roster_digest(names: Iterable[str]) -> bytes:
    """Eight bytes that stand for the set of sites asked in one exchange."""
    tags = b"".join(sorted(map(_tag, names)))
    return hashlib.blake2b(tags, digest_size=8, person=b"coterie-roster").digest()


def extend_transcript(transcript: bytes, body: bytes) -> bytes:
    """The digest of all remembered requests so far, after one more."""
    return hashlib.blake2b(transcript + body, digest_size=8, person=b"coterie-script").digest()


def answer_header_bytes(method: str) -> int:
    """What an answer weighs besides its numbers."""
    return _HEADER.size + len(method) + _TAG_BYTES


def question_header_bytes(method: str) -> int:
    """What a question weighs besides its request's body."""
    return _HEADER.size + len(method) + _QUESTION.size


# ---------------------------------------------------------------- requests


class _Packed(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    shape: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=4)]
    data: memoryview


_MANY = msgspec.Meta(max_length=MAX_ITEMS)
_LIMITS = Annotated[dict[str, float], msgspec.Meta(max_length=16)]


class _Coder(NamedTuple):
    struct: type[Any]
    decoder: msgspec.msgpack.Decoder[Any]


def _coder(kind: Any) -> _Coder:
    return _coder_of(kind)


@cache
def _coder_of(kind: Any) -> _Coder:
    """The wire form of a request: its limits, then its fields in order."""
    fields: list[tuple[str, Any]] = [("limits_", _LIMITS)]
    for item in message_fields(kind):
        plain = Annotated[item.type, _MANY] if item.type == tuple[str, ...] else item.type
        fields.append((item.name, plain if item.array is None else _Packed))
    made = msgspec.defstruct(kind.__name__, fields, array_like=True, forbid_unknown_fields=True)
    return _Coder(made, msgspec.msgpack.Decoder(made))


def encode_body(request: Request[Any], limits: Mapping[str, float]) -> Body:
    """The bytes of a request and the limits it is asked under."""
    kind = type(request)
    values: list[Any] = [dict(limits)]
    for item in message_fields(kind):
        value = getattr(request, item.name)
        if item.array is not None:
            value = _Packed(list(value.shape), memoryview(item.array.wire(request).to_bytes(value)))
        values.append(value)
    name = kind.kind.encode()
    data = bytes([len(name)]) + name + msgspec.msgpack.encode(_coder(kind).struct(*values))
    if len(data) > MAX_FRAME_BYTES:
        raise MalformedMessage(f"{kind.kind} takes {len(data)} bytes; a message has at most {MAX_FRAME_BYTES}")
    return Body(data, _digest(data))


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).digest()[:16]


def decode_body(data: bytes) -> tuple[Request[Any] | None, Mapping[str, float]]:
    """The request in ``data`` and its limits; None for a request this installation does not know."""
    return _decode_body(_digest(data), _Carried(data))


class _Carried:
    """Bytes that ride along with a cache key without being part of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Carried)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=16)  # in one process many sites are asked the same; the digest stands for the bytes
def _decode_body(digest: bytes, carried: _Carried) -> tuple[Request[Any] | None, Mapping[str, float]]:  # noqa: ARG001
    data = carried.data
    if len(data) < 2 or len(data) < 1 + data[0]:
        raise MalformedMessage("the request is cut short")
    try:
        name = data[1 : 1 + data[0]].decode("ascii")
    except UnicodeDecodeError:
        raise MalformedMessage("the request's name is not readable") from None
    kind = request_type(name)
    if kind is None:
        return None, {}
    coder = _coder(kind)
    try:
        raw = coder.decoder.decode(memoryview(data)[1 + data[0] :])
    except (msgspec.DecodeError, RecursionError):
        raise MalformedMessage(f"{name} does not have the fields of its type") from None
    return _request(kind, raw), raw.limits_


def _request(kind: type[Request[Any]], raw: Any) -> Request[Any]:
    plain = {i.name: getattr(raw, i.name) for i in message_fields(kind) if i.array is None}
    values: dict[str, Any] = dict(plain)
    for item in message_fields(kind):
        if item.array is None:
            continue
        packed: _Packed = getattr(raw, item.name)
        try:
            number = wire(item.array.dtype.format_map(plain))
        except (ValueError, KeyError):
            raise MalformedMessage(f"{kind.kind}.{item.name} has no such kind of number") from None
        count = 1
        for length in packed.shape:
            count *= length
        if len(packed.data) != number.n_bytes(count):
            raise MalformedMessage(f"{kind.kind}.{item.name} has not the bytes its shape needs")
        try:
            value = number.from_bytes(packed.data, tuple(packed.shape))
        except ValueError:  # an empty array with an axis numpy cannot hold
            raise MalformedMessage(f"{kind.kind}.{item.name} has an impossible shape") from None
        if number.is_float and not np.isfinite(value).all():
            raise MalformedMessage(f"{kind.kind}.{item.name} is not finite")
        values[item.name] = value
    try:
        return kind(**values)
    except (ValueError, KeyError, TypeError, OverflowError) as problem:
        raise MalformedMessage(f"{kind.kind}: {problem}") from None


# ---------------------------------------------------------------- frames


def _header(form: Form, envelope: Envelope) -> bytes:
    name = envelope.method.encode("ascii")
    version, run, round_, attempt, roster, site, request, _ = envelope
    return _HEADER.pack(version, form, run, round_, attempt, roster, site, request, len(name)) + name


def encode_question(envelope: Envelope, body: Body, transcript: bytes, seen: Seen) -> bytes:
    """A request on its way to one site."""
    return _header(Form.QUESTION, envelope) + _QUESTION.pack(transcript, seen) + body.data


def encode_recall(envelope: Envelope, bodies: Sequence[bytes]) -> bytes:
    """All remembered requests of a run, for a site that has to be brought up to date."""
    data = msgspec.msgpack.encode(list(bodies))
    return _header(Form.RECALL, envelope._replace(request=_digest(data))) + data


def encode_refusal(envelope: Envelope, code: Refusal) -> bytes:
    """A site's no: one byte of it."""
    return _header(Form.REFUSAL, envelope) + bytes([code])


def read_envelope(frame: bytes) -> tuple[Form, Envelope, int]:
    """The form and envelope of any frame, and where the rest begins."""
    if len(frame) > MAX_FRAME_BYTES:
        raise MalformedMessage(f"a message has at most {MAX_FRAME_BYTES} bytes")
    if len(frame) < _HEADER.size:
        raise MalformedMessage("the message is shorter than its header")
    version, form, run, round_, attempt, roster, site, request, length = _HEADER.unpack_from(frame)
    if version != FORMAT_VERSION:
        raise MalformedMessage(f"message format {version} is not known here; this end speaks {FORMAT_VERSION}")
    if form not in _FORMS:
        raise MalformedMessage(f"no message has form {form}")
    start = _HEADER.size + length
    name = frame[_HEADER.size : start]
    if length > MAX_METHOD_BYTES or len(name) != length or not (name.isascii() and name.decode().isprintable()):
        raise MalformedMessage("the method's name is not readable")
    return Form(form), Envelope(version, run, round_, attempt, roster, site, request, name.decode()), start


_FORMS = frozenset(int(form) for form in Form)
_BODIES = msgspec.msgpack.Decoder(Annotated[list[bytes], _MANY])


def decode_question(frame: bytes) -> Decoded:
    """A question or recall as a site reads it; ``request`` is None where its kind is unknown here."""
    form, envelope, start = read_envelope(frame)
    if form is Form.RECALL:
        data = memoryview(frame)[start:]
        if _digest(data) != envelope.request:
            raise MalformedMessage("the recalled requests do not match their digest")
        try:
            bodies = tuple(_BODIES.decode(data))
        except (msgspec.DecodeError, RecursionError):
            raise MalformedMessage("the recalled requests cannot be read") from None
        return Decoded(envelope, form, bodies, None, {}, Seen.SINGLE, NO_TRANSCRIPT)
    if form is not Form.QUESTION or len(frame) < start + _QUESTION.size:
        raise MalformedMessage("the message is no question")
    transcript, seen = _QUESTION.unpack_from(frame, start)
    body = frame[start + _QUESTION.size :]
    if _digest(body) != envelope.request:
        raise MalformedMessage("the request does not match its digest")
    try:
        seen = Seen(seen)
    except ValueError:
        raise MalformedMessage(f"nobody sees an answer in way {seen}") from None
    request, limits = _decode_body(envelope.request, _Carried(body))
    return Decoded(envelope, form, (body,), request, limits, seen, transcript)


# ---------------------------------------------------------------- answers


def encode_answer(envelope: Envelope, layout: Layout, reply: Reply, bounds: Bounds) -> bytes:
    """An answer's bytes; :class:`BadAnswer` unless it is what its request asked for, finite and within bounds."""
    if type(reply) is not layout.reply:
        raise BadAnswer(f"the answer is {type(reply).__name__}, not {layout.reply.__name__}")
    parts = [_header(Form.ANSWER, envelope), layout.tag]
    for item, value, bound in zip(layout.fields, reply.arrays(), bounds, strict=True):
        if value.shape != item.shape:
            raise BadAnswer(f"its {item.name} has shape {value.shape}, not {item.shape}")
        if value.dtype.kind not in "fiub":
            raise BadAnswer(f"its {item.name} does not hold numbers")
        try:
            rounded = item.wire.rounded(value)
        except ValueError as problem:
            raise BadAnswer(f"its {item.name}: {problem}") from None
        _check(item, rounded, bound)
        parts.append(item.wire.to_bytes(rounded))
    return b"".join(parts)


def decode_answer(frame: bytes, expected: Envelope, layout: Layout, bounds: Bounds) -> Reply | Refusal:
    """What a site sent, checked against what it was asked; :class:`BadAnswer` says what does not fit."""
    start = _HEADER.size + len(expected.method) + _TAG_BYTES
    if not frame.startswith(_header(Form.ANSWER, expected) + layout.tag):
        return _explain(frame, expected, layout)
    payload = memoryview(frame)[start:]
    if len(payload) != layout.n_bytes:
        raise BadAnswer(f"its answer holds {len(payload)} bytes of numbers, not {layout.n_bytes}")
    values = []
    for item, bound in zip(layout.fields, bounds, strict=True):
        value = item.wire.from_bytes(payload[item.start : item.stop], item.shape)
        _check(item, value, bound)
        values.append(value)
    return layout.reply(*values)


def _explain(frame: bytes, expected: Envelope, layout: Layout) -> Refusal:
    """The refusal in a frame that is not the answer expected, or :class:`BadAnswer` with what it is instead."""
    try:
        form, envelope, start = read_envelope(frame)
    except MalformedMessage as problem:
        raise BadAnswer(f"its answer cannot be read: {problem}") from None
    if form is Form.REFUSAL and len(frame) == start + 1:
        return _refusal(frame[start], envelope, expected)
    if envelope != expected:
        raise BadAnswer(_misfit(envelope, expected))
    if form is not Form.ANSWER:
        raise BadAnswer(f"its message is no answer but a {form.name.lower()}")
    raise BadAnswer(f"its answer is not the {layout.reply.__name__} asked for")


def _refusal(code: int, envelope: Envelope, expected: Envelope) -> Refusal:
    # A site that could not read the question cannot name it either: it may leave everything blank.
    if envelope.site != expected.site or (envelope.run != expected.run and code != Refusal.MALFORMED):
        raise BadAnswer(_misfit(envelope, expected))
    try:
        return Refusal(code)
    except ValueError:
        raise BadAnswer(f"it refused with code {code}, which means nothing here") from None


def _misfit(envelope: Envelope, expected: Envelope) -> str:
    if envelope.site != expected.site:
        return "its answer was made by another site"
    for name in ("run", "round", "attempt", "roster", "request", "method"):
        if getattr(envelope, name) != getattr(expected, name):
            return f"its answer belongs to another {name}"
    return "its answer does not fit the question"


def _check(item: LaidField, value: Array, bound: tuple[float, float]) -> None:
    """Raise :class:`BadAnswer` unless every number is finite and within its declared bound."""
    if not item.size:
        return
    low, high = bound
    slack = _SLACK[item.wire.bits] * high if item.wire.is_float and high < math.inf else 0.0
    if value.ndim == 0:
        smallest = largest = value.item()
    else:  # ufunc.reduce is what min() and max() come down to; here every microsecond is paid per site and round
        smallest = np.minimum.reduce(value, None)
        largest = np.maximum.reduce(value, None)
    # Comparisons with NaN are false, so this one line also finds what is not a number at all.
    if low - slack <= smallest and largest <= high + slack and largest < math.inf and smallest > -math.inf:
        return
    if item.wire.is_float and not np.isfinite(value).all():
        raise BadAnswer(f"its {item.name} is not finite")
    raise BadAnswer(f"its {item.name} is outside the declared bound")


# Rounding may carry a sum a hair beyond an exact bound; the hair is stated, by width of the number.
_SLACK = {64: 1e-9, 32: 1e-5, 16: 2e-3}


@dataclass(frozen=True)
class _Recalled(Request[Nothing]):
    """Stands for a recall where the form of its empty answer is needed."""


EMPTY_LAYOUT = _Recalled().layout


# ---------------------------------------------------------------- arrays by themselves (the journal)


class _Free(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    number: str
    shape: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=4)]
    data: bytes


_FREE = msgspec.msgpack.Decoder(list[_Free])


def pack_arrays(arrays: Iterable[Array]) -> bytes:
    """Arrays with their shapes and exact numbers, for a journal rather than for the wire."""
    packed = []
    for value in arrays:
        name = {"f": "float", "i": "int", "u": "uint"}[value.dtype.kind] + str(value.dtype.itemsize * 8)
        packed.append(_Free(name, list(value.shape), wire(name).to_bytes(value)))
    return msgspec.msgpack.encode(packed)


def unpack_arrays(data: bytes) -> list[Array]:
    """The arrays of :func:`pack_arrays`; :class:`MalformedMessage` for anything else."""
    try:
        free = _FREE.decode(data)
        found = []
        for item in free:
            number, count = wire(item.number), 1
            for length in item.shape:
                count *= length
            if len(item.data) != number.n_bytes(count):
                raise MalformedMessage("recorded numbers are cut short")
            found.append(number.from_bytes(item.data, tuple(item.shape)))
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise MalformedMessage("recorded numbers cannot be read") from None
    return found


def reply_from_arrays(request: type[Request[Any]], arrays: Sequence[Array]) -> Reply:
    """A recorded reply to a request of that type."""
    kind = reply_type(request)
    if len(arrays) != len(message_fields(kind)):
        raise MalformedMessage(f"a recorded {kind.__name__} has {len(arrays)} arrays")
    return kind(*arrays)
