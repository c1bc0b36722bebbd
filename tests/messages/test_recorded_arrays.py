"""Arrays as a journal records them: back to the last bit, or refused."""

from __future__ import annotations

import contextlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedMessage
from coterie.messages import bodies
from coterie.messages.numbers import wire
from coterie.methods.shared.lloyd import Assign, Moments

from .samples import mutated, random_numbers, same


@given(st.data())
def test_recorded_arrays_come_back_with_shapes_and_bits(data):
    names = st.sampled_from(["float16", "float32", "float64", "int64", "uint64"])
    shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    wanted = data.draw(st.lists(st.tuples(names, shapes), max_size=4))
    arrays = [random_numbers(rng, wire(name), shape) for name, shape in wanted]
    back = bodies.unpack_arrays(bodies.pack_arrays(arrays))
    assert [(a.dtype, a.shape, a.tobytes()) for a in back] == [(a.dtype, a.shape, a.tobytes()) for a in arrays]


def test_a_recorded_reply_has_all_its_arrays():
    made = Moments(np.ones((2, 1)), np.ones(2), 3.0)
    back = bodies.unpack_reply(Assign, bodies.pack_arrays(made.arrays()))
    assert same(back, made)
    with pytest.raises(MalformedMessage, match="a recorded Moments has 1 arrays"):
        bodies.unpack_reply(Assign, bodies.pack_arrays([np.ones(2)]))


@pytest.mark.parametrize(
    "fields", [["uint3", [1], b"12"], ["uint3", [6], b"12"], ["float64", [1], b""], ["float64", [2, 1], bytes(24)]]
)
def test_recorded_arrays_with_more_or_fewer_bytes_than_their_shape_needs_are_refused(fields):
    with pytest.raises(MalformedMessage, match="recorded numbers are truncated"):
        bodies.unpack_arrays(msgspec.msgpack.encode([fields]))


@given(st.data())
def test_any_change_of_recorded_arrays_gives_arrays_or_one_clear_error(data):
    frame = bodies.pack_arrays([np.arange(6.0).reshape(2, 3), np.arange(3), np.array(7, np.uint64)])
    with contextlib.suppress(MalformedMessage):
        bodies.unpack_arrays(data.draw(mutated(frame)))
