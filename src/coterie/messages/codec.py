"""Encoding and decoding of messages.

A frame is a fixed header, the method's name, and one of four forms:

- question: ``transcript`` (8 bytes), ``seen`` (1), the length of an attachment (4), the attachment, then the
  request's body;
- recall: the bodies of the run's remembered requests, to bring a site up to date; the answer is empty;
- answer: a tag of the answer's layout (4), its numbers, a checksum (4); the question fixes all sizes;
- refusal: one code (1).

Any byte string decodes to a valid message or raises :class:`MalformedMessage` (:class:`BadAnswer` for answers).
No more memory is allocated than the frame holds.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from coterie.arrays import Array
from coterie.errors import BadAnswer, MalformedMessage
from coterie.messages.bodies import MANY
from coterie.messages.bodies import Body as Body
from coterie.messages.bodies import decode_body as decode_body
from coterie.messages.bodies import encode_body as encode_body
from coterie.messages.bodies import kind_of as kind_of
from coterie.messages.bodies import request_digest as request_digest
from coterie.messages.bounds import Limits, Magnitude
from coterie.messages.refusals import Refusal
from coterie.messages.schema import LaidField, Layout, Nothing, Reply, Request
from coterie.messages.verbs import Seen

FORMAT_VERSION = 2
MAX_FRAME_BYTES = 1 << 28
MAX_ANSWER_BYTES = 1 << 28
MAX_METHOD_BYTES = 32
NO_TRANSCRIPT = bytes(8)

Bounds = Sequence[tuple[Magnitude, Magnitude]]

_QUESTION = struct.Struct("<8sBI")
_BODIES = msgspec.msgpack.Decoder(Annotated[list[bytes], MANY])
_TAG_BYTES = 4
_SUM_BYTES = 4


class Form(IntEnum):
    """What a frame is."""

    QUESTION = 1
    RECALL = 2
    ANSWER = 3
    REFUSAL = 4


class Envelope(NamedTuple):
    """The header of every message."""

    version: int
    run: bytes
    round: int
    attempt: int
    roster: bytes
    """Digest of the names of the sites asked in this exchange."""
    site: bytes
    """Digest of the site this message is sent to or comes from."""
    request: bytes
    """Digest of the request's body."""
    method: str


# version, form, run, round, attempt, roster, site, request, length of the method's name
HEADER = struct.Struct("<BB16sIH8s8s16sB")
_FORMS = frozenset(int(form) for form in Form)


@lru_cache(maxsize=4096)
def site_tag(name: str) -> bytes:
    """Eight bytes that stand for a site in every envelope."""
    return hashlib.blake2b(name.encode(), digest_size=8, person=b"coterie-site").digest()


def roster_digest(names: Iterable[str]) -> bytes:
    """Eight bytes that stand for the set of sites asked in one exchange."""
    tags = b"".join(sorted(map(site_tag, names)))
    return hashlib.blake2b(tags, digest_size=8, person=b"coterie-roster").digest()


def extend_transcript(transcript: bytes, body: bytes) -> bytes:
    """The digest of all remembered requests so far, after one more."""
    return hashlib.blake2b(transcript + body, digest_size=8, person=b"coterie-script").digest()


def header(form: Form, envelope: Envelope) -> bytes:
    """The bytes every frame of that form begins with."""
    name = envelope.method.encode("ascii")
    return HEADER.pack(envelope.version, form, *envelope[1:-1], len(name)) + name


def read_envelope(frame: bytes) -> tuple[Form, Envelope, int]:
    """The form and envelope of any frame, and where the rest begins."""
    if len(frame) > MAX_FRAME_BYTES:
        raise MalformedMessage(f"the message has more than {MAX_FRAME_BYTES} bytes")
    if len(frame) < HEADER.size:
        raise MalformedMessage("the message is shorter than its header")
    version, form, *fields, length = HEADER.unpack_from(frame)
    if version != FORMAT_VERSION:
        raise MalformedMessage(
            f"message format {version} is not supported; this version uses format {FORMAT_VERSION}"
        )
    if form not in _FORMS:
        raise MalformedMessage(f"form {form} of a message is unknown")
    start = HEADER.size + length
    name = frame[HEADER.size : start]
    if length > MAX_METHOD_BYTES or len(name) != length or not (name.isascii() and name.decode().isprintable()):
        raise MalformedMessage("the method's name is not readable")
    return Form(form), Envelope._make([version, *fields, name.decode()]), start


def answer_header_bytes(method: str) -> int:
    """Bytes of an answer besides its numbers."""
    return HEADER.size + len(method) + _TAG_BYTES + _SUM_BYTES


def question_header_bytes(method: str) -> int:
    """Bytes of a question besides the body of its request."""
    return HEADER.size + len(method) + _QUESTION.size + _SUM_BYTES


@dataclass(frozen=True)
class Decoded:
    """A question or a recall as a site reads it."""

    envelope: Envelope
    form: Form
    bodies: tuple[bytes, ...]
    request: Request[Any] | None
    limits: Limits
    seen: Seen
    transcript: bytes
    attached: bytes = b""
    """What came with the question, besides the request."""


def encode_question(envelope: Envelope, body: Body, transcript: bytes, seen: Seen, attached: bytes = b"") -> bytes:
    """A question to one site. The digest in the envelope protects the body, a checksum protects what comes before."""
    head = header(Form.QUESTION, envelope) + _QUESTION.pack(transcript, seen, len(attached)) + attached
    return _sized(head + _checksum(head) + body.data)


def encode_recall(envelope: Envelope, bodies: Sequence[bytes]) -> bytes:
    """All remembered requests of a run, to bring a site up to date."""
    data = msgspec.msgpack.encode(list(bodies))
    return _sized(header(Form.RECALL, envelope._replace(request=request_digest(data))) + data)


def _sized(frame: bytes) -> bytes:
    if len(frame) > MAX_FRAME_BYTES:
        raise MalformedMessage(f"a message of {len(frame)} bytes exceeds the limit of {MAX_FRAME_BYTES}")
    return frame


def encode_refusal(envelope: Envelope, code: Refusal) -> bytes:
    """A refusal: its code is one byte."""
    return header(Form.REFUSAL, envelope) + bytes([code])


def decode_question(frame: bytes) -> Decoded:
    """A question or recall as a site reads it; ``request`` is None if its kind is unknown."""
    form, envelope, start = read_envelope(frame)
    if form is Form.RECALL:
        data = memoryview(frame)[start:]
        if request_digest(data) != envelope.request:
            raise MalformedMessage("the recalled requests do not match their digest")
        try:
            bodies = tuple(_BODIES.decode(data))
        except (msgspec.DecodeError, RecursionError):
            raise MalformedMessage("the recalled requests cannot be read") from None
        return Decoded(envelope, form, bodies, None, {}, Seen.SINGLE, NO_TRANSCRIPT)
    ends = start + _QUESTION.size
    if form is not Form.QUESTION or len(frame) < ends + _SUM_BYTES:
        raise MalformedMessage("the message is not a question")
    transcript, seen, length = _QUESTION.unpack_from(frame, start)
    attached, ends = frame[ends : ends + length], ends + length
    if _checksum(frame[:ends]) != frame[ends : ends + _SUM_BYTES]:
        raise MalformedMessage("the head of the question arrived damaged")
    body = frame[ends + _SUM_BYTES :]
    if request_digest(body) != envelope.request:
        raise MalformedMessage("the request does not match its digest")
    try:
        seen = Seen(seen)
    except ValueError:
        raise MalformedMessage(f"the question does not say how its answer is seen ({seen})") from None
    request, limits = decode_body(body)
    return Decoded(envelope, form, (body,), request, limits, seen, transcript, attached)


def encode_answer(envelope: Envelope, layout: Layout, reply: Reply, bounds: Bounds) -> bytes:
    """An answer's bytes; :class:`BadAnswer` unless it fits its request and is finite and within bounds."""
    if type(reply) is not layout.reply:
        raise BadAnswer(f"the answer is {type(reply).__name__}, not {layout.reply.__name__}")
    parts = [header(Form.ANSWER, envelope), layout.tag]
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
    frame = b"".join(parts)
    return frame + _checksum(frame)


def payload_of(frame: bytes) -> bytes:
    """The numbers of an answer that a site keeps in its own ledger, as they left."""
    return frame[read_envelope(frame)[2] + _TAG_BYTES : -_SUM_BYTES]


def _checksum(frame: bytes | memoryview) -> bytes:
    """Four bytes against damage; the engine's encryption protects against attackers."""
    return zlib.crc32(frame).to_bytes(_SUM_BYTES, "little")


def decode_answer(frame: bytes, expected: Envelope, layout: Layout, bounds: Bounds) -> Reply | Refusal:
    """A site's answer, checked against its question; :class:`BadAnswer` says what does not fit."""
    start = HEADER.size + len(expected.method) + _TAG_BYTES
    if not frame.startswith(header(Form.ANSWER, expected) + layout.tag):
        return _explain(frame, expected, layout)
    view = memoryview(frame)
    payload = view[start:-_SUM_BYTES]
    if len(payload) != layout.n_bytes:
        raise BadAnswer(f"its answer holds {len(payload)} bytes of numbers, not {layout.n_bytes}")
    if _checksum(view[:-_SUM_BYTES]) != frame[-_SUM_BYTES:]:
        raise BadAnswer("its answer arrived damaged")
    values = []
    for item, bound in zip(layout.fields, bounds, strict=True):
        value = item.wire.from_bytes(payload[item.start : item.stop], item.shape)
        _check(item, value, bound)
        values.append(value)
    return layout.reply(*values)


def _explain(frame: bytes, expected: Envelope, layout: Layout) -> Refusal:
    """The refusal in a frame that is not the expected answer; :class:`BadAnswer` for anything else."""
    try:
        form, envelope, start = read_envelope(frame)
    except MalformedMessage as problem:
        raise BadAnswer(f"its answer cannot be read: {problem}") from None
    is_refusal = form is Form.REFUSAL and len(frame) == start + 1
    # A site that could not read a question, or that got another site's, leaves the envelope blank.
    blank = Envelope(expected.version, bytes(16), 0, 0, bytes(8), expected.site, bytes(16), "")
    is_blank = is_refusal and envelope == blank and frame[start] in (Refusal.MALFORMED, Refusal.FOREIGN)
    if envelope != expected and not is_blank:
        raise BadAnswer(_misfit(envelope, expected))
    if is_refusal:
        try:
            return Refusal(frame[start])
        except ValueError:
            raise BadAnswer(f"it refused with the unknown code {frame[start]}") from None
    if form is not Form.ANSWER:
        raise BadAnswer(f"its message is a {form.name.lower()}, not an answer")
    raise BadAnswer(f"its answer is not of the type {layout.reply.__name__}")


def _misfit(envelope: Envelope, expected: Envelope) -> str:
    if envelope.site != expected.site:
        return "its answer is from another site"
    for name in ("run", "round", "attempt", "roster", "request", "method"):
        if getattr(envelope, name) != getattr(expected, name):
            return f"its answer belongs to another {name}"
    return "its answer does not fit the question"


def _check(item: LaidField, value: Array, bound: tuple[Magnitude, Magnitude]) -> None:
    """Raise :class:`BadAnswer` unless every number is finite and within its declared bound."""
    if not item.size:
        return
    low, high = bound
    if isinstance(high, np.ndarray):  # bounds by column: compare in units of these
        value, low, high = value / high, 0.0 if item.spec.nonnegative else -1.0, 1.0
    assert not isinstance(low, np.ndarray)
    slack = _SLACK[item.wire.bits] * high if item.wire.is_float and high < math.inf else 0.0
    if value.ndim == 0:
        smallest = largest = value.item()
    else:  # faster than min() and max(); this runs for every site and round
        smallest = np.minimum.reduce(value, None).item()
        largest = np.maximum.reduce(value, None).item()
    # Comparisons with NaN are false, so this also finds NaN.
    if (
        (low - slack if low else low) <= smallest
        and largest <= high + slack
        and largest < math.inf
        and smallest > -math.inf
    ):
        return
    if item.wire.is_float and not np.isfinite(value).all():
        raise BadAnswer(f"its {item.name} is not finite")
    raise BadAnswer(f"its {item.name} is outside the declared bound")


# Rounding may carry a sum slightly beyond an exact bound: the relative slack, by width of the number.
_SLACK = {64: 1e-9, 32: 1e-5, 16: 2e-3}


class _Recalled(Request[Nothing]):
    """Stands for a recall, whose answer is empty."""


EMPTY_LAYOUT = _Recalled().layout
