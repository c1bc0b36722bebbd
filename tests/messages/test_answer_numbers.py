"""Numbers in answers: what is not finite, out of bounds or of another type neither leaves nor comes in."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from coterie.errors import BadAnswer
from coterie.messages import codec
from coterie.methods.shared.lloyd import Moments

from .exchanges import ASSIGN, PACKED, answer, resealed
from .samples import Packed, Rounded, same

COST = 100 * 2 * (10 + 9.0) ** 2
"""The largest cost: 100 rows of 2 columns up to 10, and a center at 9."""
NUMBERS = {"sums": (3, 2), "counts": (3,), "cost": ()}
BAD = {
    "sums": {"not finite": [np.nan, np.inf, -np.inf], "outside the declared bound": [1000.01, -1000.01, 1e300]},
    "counts": {"not finite": [np.nan, np.inf, -np.inf], "outside the declared bound": [100.001, -0.001]},
    "cost": {"not finite": [np.nan, np.inf, -np.inf], "outside the declared bound": [COST * 1.001, -0.001]},
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
    for name, high in (("sums", 1000.0), ("counts", 100.0), ("cost", COST)):
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
