"""Messages are what their types declare."""

from __future__ import annotations

import math
import types
from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import pytest

from coterie.errors import MalformedMessage
from coterie.messages import schema
from coterie.messages.schema import (
    Floats,
    Integers,
    Nothing,
    Reply,
    Request,
    array,
    doing_of,
    message_fields,
    reply_type,
    request_type,
)
from coterie.messages.site_api import answers, remembers


class Found(Reply, content="sums"):
    """Sums of every sort of axis."""

    sums: Floats = array("k", "d", bound="rows * box")
    counts: Floats = array("k", bound="rows", nonnegative=True)
    pair: Floats = array(2, "n", bound="weight")
    single: Floats = array()


class Find(Request[Found]):
    """Axes by arrays (k, d) and by number (n)."""

    n: int
    weight: float
    centers: Floats = array("k", "d")
    scales: Floats = array("d")


class Coded(Reply):
    """Numbers whose width is a field of the request."""

    codes: Integers = array("n", dtype="uint{bits}", bound="n")
    values: Floats = array("n", dtype="{precision}", bound="box")


class Code(Request[Coded]):
    """How many, how wide, how precise."""

    n: int
    bits: int
    precision: str


def find(k: int = 3, d: int = 2, n: int = 4) -> Find:
    return Find(n, 2.5, np.zeros((k, d)), np.ones(d))


# ---------------------------------------------------------------- axes


def test_axes_are_found_from_numbers_and_shapes():
    assert find(3, 2, 4).axes == {"n": 4, "k": 3, "d": 2}
    assert find(0, 0, 0).axes == {"n": 0, "k": 0, "d": 0}


def test_an_array_that_contradicts_an_axis_is_refused():
    with pytest.raises(ValueError, match=r"Find\.scales: axis d is 3 long, not 2"):
        Find(4, 1.0, np.zeros((3, 2)), np.ones(3))


def test_an_array_with_more_or_fewer_axes_than_declared_is_refused():
    with pytest.raises(ValueError, match=r"Find\.centers has 1 axes; declared are k, d"):
        Find(4, 1.0, np.zeros(3), np.ones(3))
    with pytest.raises(ValueError, match=r"Find\.scales has 0 axes"):
        Find(4, 1.0, np.zeros((3, 2)), np.float64(1))


def test_a_number_and_an_array_must_agree_on_an_axis_they_share():
    class CountFirst(Request[Nothing]):
        k: int
        centers: Floats = array("k")

    assert CountFirst(3, np.zeros(3)).axes == {"k": 3}
    with pytest.raises(ValueError, match="axis k is 4 long, not 3"):
        CountFirst(3, np.zeros(4))


def test_a_number_and_an_array_must_agree_in_whichever_order_they_are_declared():
    class CountLast(Request[Nothing]):
        centers: Floats = array("k")
        k: int

    with pytest.raises(ValueError, match="is 3, not 4"):
        CountLast(np.zeros(4), 3)


def test_an_axis_of_fixed_length_is_checked():
    class AskPair(Request[Nothing]):
        pair: Floats = array(2)

    assert AskPair(np.zeros(2)).axes == {}
    with pytest.raises(ValueError, match="axis 2 is 3 long, not 2"):
        AskPair(np.zeros(3))


def test_an_array_has_at_most_four_axes():
    array("a", "b", "c", "d")
    with pytest.raises(TypeError, match="at most 4 axes, not 5"):
        array("a", "b", "c", "d", "e")


def test_a_reply_whose_axis_the_request_does_not_state_is_a_type_error():
    class Loose(Reply):
        values: Floats = array("k", "m")

    class AskLoose(Request[Loose]):
        k: int

    class AskFirm(Request[Loose]):
        k: int
        other: Floats = array("m")

    with pytest.raises(TypeError, match=r"Loose\.values: AskLoose does not state the size of axis 'm'"):
        reply_type(AskLoose)
    with pytest.raises(TypeError, match="'m'"):
        answers(AskLoose)
    with pytest.raises(TypeError, match="'m'"):
        _ = AskLoose(3).layout
    assert reply_type(AskFirm) is Loose


def test_a_field_that_is_no_whole_number_states_no_axis():
    class Sized(Reply):
        values: Floats = array("k")

    class AskFloat(Request[Sized]):
        k: float

    class AskBool(Request[Sized]):
        k: bool

    for kind in (AskFloat, AskBool):
        with pytest.raises(TypeError, match="does not state the size of axis 'k'"):
            reply_type(kind)


def test_a_negative_axis_makes_no_answer():
    with pytest.raises(MalformedMessage, match="cannot be -1 long"):
        _ = find(n=-1).layout


# ---------------------------------------------------------------- replies


def test_zeros_have_the_shapes_the_request_states():
    zeros = Found.zeros(find(3, 2, 4).axes)
    assert [a.shape for a in zeros.arrays()] == [(3, 2), (3,), (2, 4), ()]
    assert all(a.dtype == np.float64 and not a.any() for a in zeros.arrays())


def test_replies_of_one_type_add_up_array_by_array():
    rng, axes = np.random.default_rng(1), find().axes
    one, two, three = (Found(*[rng.standard_normal(a.shape) for a in Found.zeros(axes).arrays()]) for _ in range(3))
    summed = one + two + three
    assert type(summed) is Found
    for a, b, c, total in zip(one.arrays(), two.arrays(), three.arrays(), summed.arrays(), strict=True):
        assert np.array_equal(a + b + c, total)
    for a, b in zip(one.arrays(), (one + Found.zeros(axes)).arrays(), strict=True):
        assert np.array_equal(a, b)


def test_narrow_numbers_add_up_in_sixty_four_bits():
    small = Coded(np.array([255], np.uint8), np.array([6e4], np.float16))
    summed = small + small
    assert summed.codes.tolist() == [510]
    assert summed.codes.dtype == np.int64
    assert summed.values.dtype == np.float64
    assert summed.values.tolist() == [2 * float(np.float16(6e4))]


def test_replies_of_different_types_do_not_add_up():
    with pytest.raises(TypeError):
        Found.zeros(find().axes) + Nothing()


def test_a_reply_holds_arrays_whatever_it_was_made_of():
    reply = Found([[1, 2]], [3], ((1,), (2,)), 4.0)
    assert all(type(a) is np.ndarray for a in reply.arrays())
    assert reply.single.shape == ()


def test_a_reply_says_what_it_is_made_of():
    class Unsaid(Reply):
        """Nobody said what it is made of."""

    assert (Found.content, Nothing.content, Unsaid.content) == ("sums", "nothing", "sums")


def test_a_reply_holds_nothing_but_arrays():
    class Plain(Reply):
        count: int

    class AskPlain(Request[Plain]):
        pass

    with pytest.raises(TypeError, match="count: a reply holds arrays only"):
        reply_type(AskPlain)


# ---------------------------------------------------------------- declarations


@pytest.mark.parametrize("kind", [list, dict, object, complex, np.ndarray, tuple[int, ...], list[str], int | None])
def test_a_field_of_another_type_is_refused(kind):
    made = dataclass(frozen=True)(type("Wrong", (), {"__annotations__": {"field": kind}}))
    with pytest.raises(TypeError, match=r"Wrong\.field: a message holds arrays, int, float, str, bool, bytes"):
        message_fields(made)


def test_a_message_is_a_frozen_dataclass():
    class Plain(Reply):
        count: Floats = array()

    with pytest.raises(FrozenInstanceError):
        Plain(np.ones(())).count = np.zeros(())


def test_a_request_names_its_reply():
    class Vague(Request):
        """Does not say what answers it."""

    with pytest.raises(TypeError, match=r"Vague must derive from Request\[<its reply>\]"):
        reply_type(Vague)


def declare(name: str, module: str) -> type:
    return types.new_class(name, (Request[Nothing],), exec_body=lambda names: names.update(__module__=module))


def test_two_requests_of_one_name_are_refused(monkeypatch):
    monkeypatch.setattr(schema, "_KINDS", dict(schema._KINDS))
    first = declare("Twin", "here.twins")
    with pytest.raises(TypeError, match=r"two requests are named twins\.Twin: in here\.twins and there\.twins"):
        declare("Twin", "there.twins")
    assert request_type("twins.Twin") is first
    assert request_type("twins.Other") is None
    again = declare("Twin", "here.twins")  # a module that is loaded again replaces its own
    assert request_type("twins.Twin") is again


def test_a_request_says_what_a_round_with_it_does(monkeypatch):
    monkeypatch.setattr(schema, "_KINDS", dict(schema._KINDS))

    class Ask(Request[Nothing]):
        """How many ``rows`` are there? Or more."""

    class Tell(Request[Nothing]):
        """Walk every row
        down a tree: step 2 of the paper."""

    class Reveal(Request[Nothing], doing="unmasking a sum"):
        """Give shares."""

    class Bare(Request[Nothing]):
        pass

    expected = ["how many rows are there?", "walk every row down a tree", "unmasking a sum", "bare"]
    assert [request.doing for request in (Ask, Tell, Reveal, Bare)] == expected
    assert doing_of(f"{Reveal.kind}+{Reveal.kind}+{Tell.kind}") == "unmasking a sum, walk every row down a tree"
    assert doing_of("elsewhere.Unknown") == "Unknown"


def test_a_request_is_known_by_module_and_name():
    assert Find.kind == "test_schema.Find"
    assert request_type("test_schema.Find") is Find
    assert request_type("test_schema.Absent") is None


def test_only_a_remembered_request_can_be_remembered():
    assert not Find.remembered
    with pytest.raises(TypeError, match=r"declare class Find\(Request\[...\], remembered=True\) first"):
        remembers(Find)


def test_requests_round_their_floats_to_the_width_that_travels():
    class AskHalf(Request[Nothing]):
        values: Floats = array("n", dtype="float16")

    ask = AskHalf(np.array([0.1, 1 / 3]))
    assert ask.values.dtype == np.float16
    assert ask.values.tolist() == np.array([0.1, 1 / 3]).astype(np.float16).tolist()


# ---------------------------------------------------------------- layouts


def test_a_layout_has_the_size_of_every_array_in_order():
    layout = find(3, 2, 4).layout
    assert [(f.name, f.shape, f.size, f.start, f.stop) for f in layout.fields] == [
        ("sums", (3, 2), 6, 0, 48),
        ("counts", (3,), 3, 48, 72),
        ("pair", (2, 4), 8, 72, 136),
        ("single", (), 1, 136, 144),
    ]
    assert (layout.numbers, layout.n_bytes, layout.reply) == (18, 144, Found)


def test_each_packed_array_begins_at_a_byte():
    layout = Code(5, 3, "float16").layout
    assert [(f.wire.name, f.start, f.stop) for f in layout.fields] == [("uint3", 0, 2), ("float16", 2, 12)]
    assert (layout.numbers, layout.n_bytes) == (10, 12)


@pytest.mark.parametrize("bits", [1, 7, 8, 33, 64])
@pytest.mark.parametrize("precision", ["float16", "float32", "float64"])
def test_widths_are_filled_in_from_the_request(bits, precision):
    codes, values = Code(9, bits, precision).layout.fields
    assert (codes.wire.name, values.wire.name) == (f"uint{bits}", precision)
    assert Code(9, bits, precision).layout.n_bytes == -(-9 * bits // 8) + 9 * int(precision[5:]) // 8


@pytest.mark.parametrize(("bits", "precision"), [(0, "float64"), (65, "float64"), (-1, "float64"), (8, "double")])
def test_a_width_that_does_not_exist_makes_no_layout(bits, precision):
    with pytest.raises(ValueError, match="the type of number"):
        _ = Code(9, bits, precision).layout


def test_a_huge_answer_is_sized_without_being_made():
    layout = find(1, 1, 2**62).layout
    assert layout.n_bytes == 8 + 8 + 2 * 2**62 * 8 + 8


def test_the_tag_differs_wherever_the_form_does():
    forms = [
        find(3, 2, 4),
        find(2, 3, 4),
        find(3, 2, 5),
        Code(4, 3, "float32"),
        Code(4, 4, "float32"),
        Code(4, 3, "float64"),
    ]
    tags = {form.layout.tag for form in forms}
    assert len(tags) == len(forms)
    assert find(3, 2, 4).layout.tag == Find(4, 9.0, np.ones((3, 2)), np.zeros(2)).layout.tag
    assert all(len(tag) == 4 for tag in tags)


def test_bounds_come_from_limits_axes_and_the_request_s_own_numbers():
    layout = find(3, 2, 4).layout
    assert layout.bounds({"rows": 10.0, "box": 2.0}) == (
        (-20.0, 20.0),
        (0.0, 10.0),
        (-2.5, 2.5),
        (-math.inf, math.inf),
    )
    assert layout.bounds({"rows": 10.0}) == ((-math.inf, math.inf), (0.0, 10.0), (-2.5, 2.5), (-math.inf, math.inf))
    assert layout.bounds({})[1] == (0.0, math.inf)
    assert Code(7, 3, "float32").layout.bounds({"box": 4.0}) == ((-7.0, 7.0), (-4.0, 4.0))
    assert layout.bounds({"rows": 10.0, "box": 3.0})[0] == (-30.0, 30.0)


def test_nothing_takes_no_bytes():
    class AskNothing(Request[Nothing]):
        pass

    layout = AskNothing().layout
    assert (layout.numbers, layout.n_bytes, layout.fields) == (0, 0, ())
