"""Numbers of every width, to bytes and back."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.messages.numbers import Wire, wire

from .samples import random_numbers

INTEGERS = [f"uint{bits}" for bits in range(1, 65)] + [f"int{bits}" for bits in range(2, 65)]
FLOATS = ["float16", "float32", "float64"]


def memory_kind(number: Wire) -> type[np.generic]:
    return np.uint64 if number.name == "uint64" else np.int64


def obvious_bytes(number: Wire, values: list[int]) -> bytes:
    """The packing as one would explain it: one long binary number, the first value in its lowest digits."""
    long = 0
    for place, value in enumerate(values):
        long |= (value % (1 << number.bits)) << (place * number.bits)
    return long.to_bytes(-(-len(values) * number.bits // 8), "little")


def obvious_values(number: Wire, data: bytes, count: int) -> list[int]:
    """The values of :func:`obvious_bytes`, digit by digit."""
    found, long = [], int.from_bytes(data, "little")
    for place in range(count):
        value = (long >> (place * number.bits)) % (1 << number.bits)
        is_negative = number.family == "int" and value >= 1 << (number.bits - 1)
        found.append(value - (1 << number.bits) if is_negative else value)
    return found


@pytest.mark.parametrize("name", INTEGERS)
def test_the_ends_of_every_integer_come_back(name):
    number = wire(name)
    values = np.array([number.lowest, number.highest, 0, 1, number.highest, number.lowest], memory_kind(number))
    back = number.from_bytes(number.to_bytes(values), values.shape)
    assert back.tolist() == values.tolist()
    assert back.dtype == memory_kind(number)


@pytest.mark.parametrize("name", FLOATS)
def test_the_ends_of_every_float_come_back_to_the_bit(name):
    number = wire(name)
    limits = np.finfo(number.memory_dtype)
    ends = [0.0, -0.0, 1.0, limits.max, -limits.max, limits.tiny, limits.smallest_subnormal, np.inf, -np.inf, np.nan]
    values = np.array(ends, number.memory_dtype)
    back = number.from_bytes(number.to_bytes(values), values.shape)
    assert back.dtype == number.memory_dtype
    assert back.tobytes() == values.tobytes()


@pytest.mark.parametrize("name", INTEGERS + FLOATS)
def test_random_numbers_of_every_width_come_back(name):
    number, rng = wire(name), np.random.default_rng(7)
    for shape in [(), (0,), (1,), (7,), (8,), (3, 5), (2, 0, 3), (2, 3, 2, 5)]:
        values = random_numbers(rng, number, shape)
        back = number.from_bytes(number.to_bytes(values), shape)
        assert back.shape == shape
        assert back.dtype == values.dtype
        assert back.tobytes() == values.tobytes()


@pytest.mark.parametrize("name", INTEGERS + FLOATS)
def test_numbers_take_exactly_their_bits_rounded_up_to_a_byte(name):
    number, rng = wire(name), np.random.default_rng(8)
    for count in [*range(18), 63, 64, 65]:
        size = -(-count * number.bits // 8)
        assert number.n_bytes(count) == size
        assert len(number.to_bytes(random_numbers(rng, number, (count,)))) == size


@pytest.mark.parametrize("name", INTEGERS)
def test_packing_agrees_with_the_obvious_packer_bit_for_bit(name):
    number, rng = wire(name), np.random.default_rng(9)
    for count in (0, 1, 2, 7, 8, 9, 33):
        values = random_numbers(rng, number, (count,))
        data = number.to_bytes(values)
        assert data == obvious_bytes(number, values.tolist())
        assert number.from_bytes(data, (count,)).tolist() == obvious_values(number, data, count)


@given(st.data())
def test_any_integers_are_packed_as_the_obvious_packer_packs_them(data):
    number = wire(data.draw(st.sampled_from(INTEGERS)))
    values = data.draw(st.lists(st.integers(number.lowest, number.highest), max_size=20))
    packed = number.to_bytes(np.array(values, memory_kind(number)))
    assert packed == obvious_bytes(number, values)
    assert number.from_bytes(packed, (len(values),)).tolist() == values


@given(st.data())
def test_any_bytes_of_the_right_length_are_integers_within_range(data):
    number = wire(data.draw(st.sampled_from(INTEGERS)))
    count = data.draw(st.integers(0, 20))
    size = number.n_bytes(count)
    packed = data.draw(st.binary(min_size=size, max_size=size))
    values = number.from_bytes(packed, (count,)).tolist()
    assert values == obvious_values(number, packed, count)
    assert all(number.lowest <= value <= number.highest for value in values)


@pytest.mark.parametrize(("name", "letter"), [("float16", "e"), ("float32", "f"), ("float64", "d")])
def test_floats_lie_as_ieee_numbers_little_end_first(name, letter):
    values = [0.5, -1.25, 3.0, -0.0]
    assert wire(name).to_bytes(np.array(values)) == struct.pack(f"<4{letter}", *values)


@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_one_beyond_either_end_is_refused(name):
    number = wire(name)
    for beyond in (number.lowest - 1, number.highest + 1):
        if -(2**63) <= beyond < 2**64:
            kind = np.uint64 if beyond >= 2**63 else np.int64
            with pytest.raises(ValueError, match=f"outside {name}"):
                number.to_bytes(np.array([0, beyond], kind))
        with pytest.raises(ValueError, match=f"outside {name}"):
            number.to_bytes(np.array([float(beyond) * 1.01]).round())


@pytest.mark.parametrize("name", INTEGERS)
def test_what_is_no_whole_number_is_refused_as_an_integer(name):
    for bad in (0.5, -1e-9, 3e38, np.nan, np.inf, -np.inf):
        for kind in (np.float32, np.float64):
            with pytest.raises(ValueError, match=name):
                wire(name).to_bytes(np.array([0.0, 1.0, bad], kind))


@pytest.mark.parametrize("value", [1.0, np.inf])
def test_half_precision_numbers_are_read_as_integers_without_a_warning(value):
    values = np.array([value], np.float16)
    if np.isfinite(value):
        assert wire("uint8").to_bytes(values) == b"\x01"
    else:
        with pytest.raises(ValueError, match="uint8"):
            wire("uint8").to_bytes(values)


def test_whole_floats_and_truth_values_are_integers():
    assert wire("uint2").to_bytes(np.array([0.0, 1.0, 2.0, 3.0])) == bytes([0b11100100])
    assert wire("uint1").to_bytes(np.array([True, False, True])) == bytes([0b101])
    assert wire("int8").to_bytes(np.array([-1.0])) == b"\xff"


@pytest.mark.parametrize("name", ["uint3", "int13", "uint8", "int32", "uint64", "float16", "float32", "float64"])
def test_how_an_array_lies_in_memory_does_not_change_its_bytes(name):
    number, rng = wire(name), np.random.default_rng(10)
    values = random_numbers(rng, number, (4, 6))
    expected = number.to_bytes(values)
    assert number.to_bytes(np.asfortranarray(values)) == expected
    assert number.to_bytes(np.repeat(values, 2, axis=1)[:, ::2]) == expected
    assert number.to_bytes(values.astype(values.dtype.newbyteorder(">"))) == expected
    assert number.to_bytes(values[2, 3]) == number.to_bytes(values[2:3, 3])


def test_a_float_too_large_for_its_width_becomes_infinite_in_silence():
    assert np.isinf(wire("float16").rounded(np.array([1e9, -1e9]))).all()
    assert np.isinf(wire("float32").rounded(np.array([1e99]))).all()


def test_rounding_gives_what_the_other_end_reads():
    for name in FLOATS:
        number, values = wire(name), np.random.default_rng(11).standard_normal(50)
        assert number.rounded(values).tobytes() == number.from_bytes(number.to_bytes(values), (50,)).tobytes()


@pytest.mark.parametrize(
    "name",
    [
        *[
            "",
            "float",
            "float8",
            "float17",
            "float128",
            "uint0",
            "uint01",
            "uint65",
            "uint100",
            "int1",
            "int65",
            "int-8",
        ],
        *["Uint8", " uint8", "uint8\n", "uint٣", "bool", "complex64", "uint8uint8", "float64'; drop"],
    ],
)
def test_a_number_nobody_declared_has_no_width(name):
    with pytest.raises(ValueError, match="the type of number"):
        wire(name)


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("offset", range(9))
def test_numbers_are_aligned_wherever_their_bytes_lie_in_a_message(name, offset):
    values = np.arange(36.0).reshape(6, 6).astype(name)
    message = bytes(offset) + values.tobytes()
    read = wire(name).from_bytes(memoryview(message)[offset:], (6, 6))
    assert read.flags.aligned
    np.testing.assert_array_equal(read, values)
