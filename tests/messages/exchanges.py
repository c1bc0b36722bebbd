"""A request of each sort, answers to them, and reading whatever bytes arrive."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import numpy as np

from coterie.errors import MalformedMessage
from coterie.messages import codec
from coterie.messages.schema import Request
from coterie.methods.shared.agreement import Agree
from coterie.methods.shared.lloyd import Assign
from coterie.methods.shared.preparation import SumColumns
from coterie.methods.shared.prepared import Prepare
from coterie.methods.shared.profiles import CountByCluster, SumByCluster
from coterie.methods.shared.starts import Split, Summarise

from .samples import AskPacked, AskRounded, plain_envelope, random_reply

LIMITS = {"rows": 100.0, "box": 10.0}

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
    SumColumns: SumColumns(True, np.arange(2.0)),
    Prepare: Prepare("mean", False, np.zeros(2), np.ones(2), np.ones(2), *np.zeros((2, 0))),
    SumByCluster: SumByCluster(("a", "b"), *np.zeros((2, 0)), np.ones((3, 2)), np.zeros(2), 3),
    CountByCluster: CountByCluster(
        ("a",), np.zeros(1), np.ones(1), 4, np.full(3, 0.5), np.ones((3, 2)), *np.ones((2, 3, 1))
    ),
    Split: Split(2, np.array([0]), np.array([1]), np.array([0.5]), np.zeros(2), np.ones((3, 2))),
    Summarise: Summarise(4, 2, 2000, -5),
    AskPacked: PACKED,
    AskRounded: AskRounded("float32", np.arange(3.0)),
}


def body_of(kind: str, *fields: Any, declared: Any = None) -> bytes:
    return bytes([len(kind)]) + kind.encode() + msgspec.msgpack.encode([declared or {}, *fields])


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


def answer(request: Request[Any], seed: int = 0) -> tuple[bytes, tuple[Any, ...]]:
    """A valid answer, and all that is needed to read it."""
    expected, layout = plain_envelope(codec.encode_body(request, LIMITS).digest), request.layout
    bounds = layout.bounds(LIMITS)
    reply = random_reply(layout, bounds, np.random.default_rng(seed))
    return codec.encode_answer(expected, layout, reply, bounds), (expected, layout, bounds)


def resealed(frame: bytes) -> bytes:
    """The frame with a checksum that fits what it holds now."""
    return frame[:-4] + zlib.crc32(frame[:-4]).to_bytes(4, "little")
