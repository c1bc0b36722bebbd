"""Bodies, the requests inside questions: those that cannot be are neither read nor made."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedMessage
from coterie.messages import bodies, codec
from coterie.messages.schema import Request
from coterie.methods.shared.agreement import Agree
from coterie.methods.shared.lloyd import Assign
from coterie.methods.shared.preparation import SumColumns
from coterie.methods.shared.prepared import Prepare
from coterie.methods.shared.starts import Split

from .exchanges import ASSIGN, LIMITS, SAMPLES, body_of, read_body
from .samples import AskPacked, AskRounded, mutated


def test_an_unknown_request_is_read_as_none():
    data = b"\x0dfuture.Method" + msgspec.msgpack.encode([{}, 1])
    assert codec.decode_body(data) == (None, {})


@pytest.mark.parametrize("request_", SAMPLES.values(), ids=lambda request: request.kind)
@given(data=st.data())
def test_any_change_of_a_request_gives_a_message_or_one_clear_error(request_, data):
    read_body(data.draw(mutated(codec.encode_body(request_, LIMITS).data)))


PACKED_TOO_LONG = body_of(
    "samples.AskPacked", 3, 1, 1.0, "", True, b"", [], [[1], b"12"], [[0], b""], [[0, 2], b""], [[], bytes(8)]
)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "cut short"),
        (b"\x05lloy", "cut short"),
        (b"\x02\xff\xff", "name is not readable"),
        (body_of("shared.Assign"), "does not have the fields of its type"),
        (body_of("shared.Assign", [[1, 1], b"12345678"], 1), "does not have the fields of its type"),
        (body_of("shared.Assign", [[1, 1, 1, 1, 1], b"12345678"]), "does not have the fields of its type"),
        (body_of("shared.Assign", [[-1, 1], b""]), "does not have the fields of its type"),
        (body_of("shared.Assign", [[1, 1], b"1234567"]), "centers does not have the number of bytes of its shape"),
        (body_of("shared.Assign", [[1, 1], b"123456789"]), "centers does not have the number of bytes of its shape"),
        (body_of("shared.Assign", [[2**32, 2**32], b""]), "centers does not have the number of bytes of its shape"),
        (PACKED_TOO_LONG, "codes does not have the number of bytes of its shape"),
        (body_of("shared.Assign", [[1], b"12345678"]), "centers has 1 axes"),
        (body_of("shared.Assign", [[1, 1], struct.pack("<d", np.nan)]), "centers is not finite"),
        (body_of("shared.Assign", [[1, 1], struct.pack("<d", -np.inf)]), "centers is not finite"),
        (body_of("shared.Assign", [[0, 2**62], b""]), "centers is empty but has a long axis"),
        (body_of("shared.Assign", [[0, 2**64 - 1], b""]), "centers is empty but has a long axis"),
        (
            body_of("shared.Assign", [[0, 0], b""], declared={"rows": 0.0}),
            "limits must be at most 16 finite numbers above 0",
        ),
        (
            body_of("shared.Assign", [[0, 0], b""], declared={"rows": -1.0}),
            "limits must be at most 16 finite numbers above 0",
        ),
        (
            body_of("shared.Assign", [[0, 0], b""], declared={"rows": np.inf}),
            "limits must be at most 16 finite numbers above 0",
        ),
        (
            body_of("shared.Assign", [[0, 0], b""], declared={"rows": np.nan}),
            "limits must be at most 16 finite numbers above 0",
        ),
        (body_of("shared.Assign", [[0, 0], b""], declared={str(i): 1.0 for i in range(17)}), "fields of its type"),
        (body_of("shared.SumColumns", 1, [[0], b""]), "does not have the fields of its type"),
        (body_of("shared.Summarise", 1.0, 1, 1, 1), "does not have the fields of its type"),
        (body_of("samples.AskRounded", "float8", [[0], b""]), "values has an unknown type of number"),
        (body_of("samples.AskRounded", "{precision}", [[0], b""]), "values has an unknown type of number"),
        (
            body_of("shared.Prepare", "mean", True, *[[[n], bytes(8 * n)] for n in (1, 2, 2, 0, 0)]),
            "axis d is 2 long",
        ),
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
        bodies.unpack_arrays(msgspec.msgpack.encode([["int32", [0, length], b""]]))


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
