"""Small frames that claim to hold much: reading them takes little memory and time."""

from __future__ import annotations

import struct
import time
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest

from coterie.errors import MalformedMessage
from coterie.messages import bodies, codec

from .exchanges import body_of, read_body, read_question
from .samples import AskPacked, plain_envelope


def claims() -> dict[str, bytes]:
    """Bodies of a few bytes that claim to hold millions."""
    huge = b"\xff\xff\xff\xff"

    def raw(kind: str, data: bytes) -> bytes:
        return bytes([len(kind)]) + kind.encode() + data

    return {
        "a long axis": body_of("shared.Assign", [[2**40, 1], b"12345678"]),
        "axes whose product wraps to nothing": body_of("shared.Assign", [[2**32, 2**32], b""]),
        "axes whose product wraps to one": body_of("shared.Assign", [[2**64 - 1, 2**64 - 1], b"12345678"]),
        "four long axes": body_of("shared.Assign", [[2**64 - 1] * 4, b""]),
        "an empty array with a long axis": body_of("shared.Assign", [[0, 2**45], b""]),
        "packed numbers": body_of(
            "samples.AskPacked", 1, 2**40, 1.0, "", True, b"", [], [[2**40], b"1"], *[[[0], b""]] * 3
        ),
        "a long list": raw("shared.Agree", b"\x94\x80\x01\xdd" + huge),
        "a long map": raw("shared.Assign", b"\x92\xdf" + huge),
        "long bytes": raw("shared.Assign", b"\x92\x80\x92\x92\x01\x01\xc6" + huge),
        "a long text": raw("shared.Prepare", b"\x96\x80\xdb" + huge),
        "deep nesting": raw("shared.Assign", b"\x91" * 100_000),
        "deep nesting of maps": raw("shared.Assign", b"\x92" + b"\x81\xa0" * 100_000),
        "too many names": raw("shared.Agree", b"\x94\x80\x01\xdd" + struct.pack(">I", 500_000) + b"\xa0" * 500_000),
        "a large whole number": body_of("shared.Summarise", *[2**64 - 1] * 4),
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
        assert time.monotonic() - began < 60  # what is claimed would take hours


@pytest.mark.parametrize("what", claims())
def test_a_claim_of_much_takes_little_memory_and_time(what):
    data = claims()[what]
    assert peak_of(read_body, data) < 1_000_000 + 4 * len(data)
    head = codec.header(codec.Form.QUESTION, plain_envelope(codec.request_digest(data))) + bytes(9)
    frame = head + zlib.crc32(head).to_bytes(4, "little") + data
    assert peak_of(read_question, frame) < 1_000_000 + 4 * len(data)


@pytest.mark.parametrize("data", [b"\xdd\xff\xff\xff\xff", b"\x91\xc6\xff\xff\xff\xff", b"\x91" * 100_000, b"\xc1"])
def test_a_recall_that_claims_much_takes_little_memory_and_time(data):
    frame = codec.header(codec.Form.RECALL, plain_envelope(codec.request_digest(data))) + data
    assert peak_of(read_question, frame) < 1_000_000
    with pytest.raises(MalformedMessage, match="recalled requests cannot be read"):
        codec.decode_question(frame)


@pytest.mark.parametrize(
    "data", [b"\xdd\xff\xff\xff\xff", b"\x91\x93\xa7float64\x91\xcf" + b"\x01" * 8 + b"\xc4\x00", b"\x91" * 100_000]
)
def test_recorded_arrays_that_claim_much_take_little_memory_and_time(data):
    def read() -> None:
        with pytest.raises(MalformedMessage):
            bodies.unpack_arrays(data)

    assert peak_of(read) < 1_000_000


def test_packed_numbers_take_memory_for_the_numbers_not_for_their_bits():
    count = 100_000
    ask = AskPacked(33, count, 1.0, "", True, b"", (), np.arange(count), np.zeros(0), np.zeros((0, 2)), np.array(0))
    data = codec.encode_body(ask, {}).data
    in_memory = 8 * count
    assert peak_of(codec.decode_body, data) < 4 * (len(data) + in_memory)
    assert peak_of(codec.encode_body, ask, {}) < 4 * (len(data) + in_memory)
