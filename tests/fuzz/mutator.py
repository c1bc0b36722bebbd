"""Bytes that are nearly messages, the same ones for the same seed."""

from __future__ import annotations

import importlib
import math
import pkgutil
import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

import coterie.methods
import coterie.secure
from coterie.errors import MalformedMessage
from coterie.messages.codec import _QUESTION, HEADER, NO_TRANSCRIPT, Form, header, read_envelope, request_digest
from coterie.messages.refusals import Refusal
from coterie.messages.schema import _KINDS

NUMBERS = (0, 1, 2, 3, 4, 5, 8, -1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**32, 2**53, 2**63 - 1, 2**64 - 1)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-310, 1e300, -1e300, float("nan"), float("inf"), 5e4)
TEXTS = ("", "mean", "drop", "refuse", "float16", "uint3", "x0", "x1", "{seed}", "../x", "größe", "\0", "rows", "box")
SUM_BYTES = 4


def _kinds() -> tuple[bytes, ...]:
    """The names of all of coterie's own requests: not those of other tests, and all, whatever was imported before."""
    for package in (coterie.methods, coterie.secure):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
    own = [kind for kind, request in _KINDS.items() if request.__module__.startswith("coterie.")]
    return tuple(kind.encode() for kind in sorted(own))


KINDS = _kinds()


def mutations(corpus: list[bytes], count: int, seed: int) -> Iterator[bytes]:
    """``count`` inputs, made from valid frames by small and by knowing changes."""
    rng = random.Random(seed)
    for _ in range(count):
        yield mutated(rng, rng.choice(corpus), corpus)


def mutated(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """The frame with a few changes; half of the questions with digests and checksums that fit."""
    ways = (_bits, _splice, _cut, _noise, _envelope, _envelope, *[_body] * 3, *[_fields] * 4, _attached, _answer)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(ways)(rng, data, corpus)
    return _with_digest(data) if rng.random() < 0.5 else data


def in_turn(data: bytes, number: int, transcript: bytes) -> bytes:
    """The frame as the next question of a run of forty, so that most, not all, are neither stale nor repeated.

    What was asked after an introduction is asked after that of this run, whose transcript is given.
    """
    try:
        form, said, start = read_envelope(data)
    except MalformedMessage:
        return data
    round = max(0, number % 40 - (2 if number % 7 == 0 else 0))
    if number % 5 == 0:
        return data
    rest = data[start:]
    if form is Form.QUESTION and not rest.startswith(NO_TRANSCRIPT):
        rest = transcript + rest[len(transcript) :]
    return _sealed(header(form, said._replace(run=run_of(number), round=round)) + rest)


def run_of(number: int) -> bytes:
    """The name of the run that the input of this number belongs to."""
    return (number // 40).to_bytes(16, "big")


def _bits(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _splice(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    other = rng.choice(corpus)
    start, place = rng.randrange(len(other)), rng.randrange(len(data) + 1)
    piece = other[start : start + rng.choice((1, 4, 8, 60, 1000))]
    return data[:place] + piece + data[place + rng.choice((0, len(piece), 1000)) :]


def _cut(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    place = rng.randrange(len(data) + 1)
    return rng.choice((data[:place], data[place:], data + rng.randbytes(rng.randrange(1, 20))))


def _noise(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    return rng.choice((rng.randbytes(rng.randrange(200)), data[: HEADER.size + 5] + rng.randbytes(rng.randrange(60))))


def _envelope(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """Another run, round, attempt, roster, site, request, method or form."""
    try:
        form, said, start = read_envelope(data)
    except MalformedMessage:
        return data
    name = rng.choice(said._fields)
    new: dict[str, Any] = {
        "version": rng.randrange(4),
        "round": rng.choice((0, 1, 2, 2**32 - 1)),
        "attempt": rng.choice((0, 1, 2**16 - 1)),
        "method": rng.choice(("", "lloyd", "one-shot", "dspgd", "x" * 32, "x" * 33)),
    }
    old = getattr(said, name)
    value = new[name] if name in new else rng.randbytes(len(old))
    form = rng.choice((form, form, form, rng.choice(list(Form))))
    return _sealed(header(form, said._replace(**{name: value})) + data[start:])


def _body(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """A question whose body is changed blindly and whose digest fits it again."""
    parts = _parts(data)
    if parts is None:
        return data
    before, body = parts
    for _ in range(rng.choice((1, 1, 2, 4))):
        body = rng.choice((_bits, _bits, _bits, _splice, _cut))(rng, body, corpus)
    return _with_digest(before + body)


def _fields(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """A question one of whose fields is changed for something a field may be."""
    parts = _parts(data)
    if parts is None or not parts[1]:
        return data
    before, body = parts
    changed = _other_fields(rng, body)
    return data if changed is None else _with_digest(before + changed)


def _other_fields(rng: random.Random, body: bytes) -> bytes | None:
    """A request's body with a field changed; None for what is no body."""
    name, packed = body[1 : 1 + body[0]], body[1 + body[0] :]
    if rng.random() < 0.05:
        name = rng.choice(KINDS)
    try:
        fields = msgspec.msgpack.decode(packed)
        packed = msgspec.msgpack.encode(_changed(rng, fields))
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, ValueError, TypeError):
        return None
    return bytes([len(name)]) + name + packed


def _changed(rng: random.Random, value: Any) -> Any:
    if _is_array(value) and rng.random() < 0.4:
        shape = [rng.randrange(4) for _ in range(rng.choice((len(value[0]), 1, 2)))]
        return [shape, struct.pack("<d", rng.uniform(0, 1e5)) * math.prod(shape)]
    if isinstance(value, list) and value and rng.random() < 0.95:
        place = rng.randrange(len(value))
        return [*value[:place], _changed(rng, value[place]), *value[place + 1 :]]
    if isinstance(value, list):
        return rng.choice((value[:-1], [*value, rng.choice(NUMBERS)], [*value, *value[:1]], []))
    if isinstance(value, dict):
        return {**value, rng.choice(TEXTS): rng.choice(FLOATS)}
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((rng.choice(NUMBERS), value + 1, value - 1, rng.randrange(20)))
    if isinstance(value, bytes):
        carries = bool(value) and value[1 : 1 + value[0]] in KINDS
        carried = _other_fields(rng, value) if carries else None
        return _other_numbers(rng, value) if carried is None else carried
    return rng.choice((*TEXTS, value)) if isinstance(value, str) else rng.choice((*NUMBERS, *FLOATS, *TEXTS, None))


def _attached(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """A question that comes with something else: with a field of it changed, or what came with another question."""
    parts, other = _with_attached(data), _with_attached(rng.choice(corpus))
    if parts is None:
        return data
    before, attached, after = parts
    try:
        attached = msgspec.msgpack.encode(_changed(rng, msgspec.msgpack.decode(attached)))
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, ValueError, TypeError):
        attached = b"" if other is None else other[1]
    return _sealed(before[:-4] + len(attached).to_bytes(4, "little") + attached + after)


def _with_attached(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """What comes with a question besides its request, and what stands before and after that."""
    parts = _parts(data)
    if parts is None or read_envelope(data)[0] is not Form.QUESTION:
        return None
    place, ends = read_envelope(data)[2] + _QUESTION.size, len(parts[0]) - SUM_BYTES
    return (data[:place], data[place:ends], data[ends:]) if place <= ends else None


def _is_array(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], list) and isinstance(value[1], bytes)


def _other_numbers(rng: random.Random, value: bytes) -> bytes:
    place = rng.randrange(0, len(value) + 1, 8)
    number = struct.pack("<d", rng.choice((*FLOATS, rng.uniform(0, 1e5), rng.gauss(0, 1))))
    return rng.choice(
        (value[:place] + number + value[place + 8 :], value[:-8], value + number, rng.randbytes(len(value)))
    )


def _answer(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """An answer whose numbers are changed and whose checksum fits them again, or another refusal."""
    try:
        form, _, start = read_envelope(data)
    except MalformedMessage:
        return data
    if form is Form.REFUSAL:
        return data[:start] + bytes([rng.choice((*Refusal, 0, 99, 255))])
    if form is not Form.ANSWER or len(data) < start + 16:
        return data
    numbers = _other_numbers(rng, data[start + 4 : -4])
    whole = data[: start + 4] + numbers
    return whole + zlib.crc32(whole).to_bytes(4, "little")


def _parts(data: bytes) -> tuple[bytes, bytes] | None:
    """What lies before a question's or recall's body, and the body."""
    try:
        form, _, start = read_envelope(data)
    except MalformedMessage:
        return None
    if form not in (Form.QUESTION, Form.RECALL):
        return None
    if form is Form.QUESTION:
        start = _head_ends(data, start) + SUM_BYTES
    return data[:start], data[start:]


def _head_ends(data: bytes, start: int) -> int:
    """Where the checksum of a question's head stands."""
    ends = start + _QUESTION.size
    return ends + _QUESTION.unpack_from(data, start)[2] if len(data) >= ends else ends


def _with_digest(data: bytes) -> bytes:
    """A question or recall with the digest of the body it holds now; anything else as it is."""
    parts = _parts(data)
    if parts is None:
        return data
    form, said, start = read_envelope(data)
    return _sealed(header(form, said._replace(request=request_digest(parts[1]))) + data[start:])


def _sealed(data: bytes) -> bytes:
    """A question with a checksum that fits its head; anything else as it is."""
    try:
        form, _, start = read_envelope(data)
    except MalformedMessage:
        return data
    ends = _head_ends(data, start)
    if form is not Form.QUESTION or len(data) < ends + SUM_BYTES:
        return data
    return data[:ends] + zlib.crc32(data[:ends]).to_bytes(SUM_BYTES, "little") + data[ends + SUM_BYTES :]
