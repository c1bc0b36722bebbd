"""Messages made up for these tests, and random valid messages of every declared type."""

from __future__ import annotations

import importlib
import pkgutil
import string
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

import coterie.methods
from coterie.messages.codec import FORMAT_VERSION, Envelope, roster_digest, site_tag
from coterie.messages.numbers import Wire, wire
from coterie.messages.schema import (
    _KINDS,
    Floats,
    Integers,
    Layout,
    Reply,
    Request,
    array,
    message_fields,
    reply_type,
)

Array = npt.NDArray[Any]


class Packed(Reply, content="sums"):
    """Numbers of uneven widths."""

    codes: Integers = array("n", dtype="uint{bits}")
    signs: Integers = array("m", "n", dtype="int5")
    halves: Floats = array("m", dtype="float16", bound="box")
    whole: Integers = array(dtype="uint64")
    positive: Floats = array(3, dtype="float32", bound="box", nonnegative=True)


class AskPacked(Request[Packed]):
    """Every kind of field there is."""

    bits: int
    n: int
    weight: float
    label: str
    flag: bool
    salt: bytes
    names: tuple[str, ...]
    codes: Integers = array("n", dtype="uint{bits}")
    signs: Integers = array("m", dtype="int7")
    halves: Floats = array("m", 2, dtype="float16")
    large: Integers = array(dtype="uint64")


class Rounded(Reply, content="averages"):
    """Numbers as wide as asked."""

    values: Floats = array("n", dtype="{precision}")


class AskRounded(Request[Rounded], remembered=True):
    """Numbers of a width the request names."""

    precision: str
    values: Floats = array("n", dtype="{precision}")


def _declared() -> tuple[type[Request[Any]], ...]:
    for module in pkgutil.walk_packages(coterie.methods.__path__, "coterie.methods."):
        importlib.import_module(module.name)
    found = [_KINDS[kind] for kind in sorted(_KINDS)]
    return tuple(kind for kind in found if kind.__module__.startswith("coterie.methods."))


DECLARED = _declared()
"""Every request of every protocol."""

ALL_REQUESTS = (*DECLARED, AskPacked, AskRounded)


def random_numbers(rng: np.random.Generator, number: Wire, shape: tuple[int, ...]) -> Array:
    """Numbers over the whole range of their kind, its ends among them."""
    if number.is_float:
        limits = np.finfo(number.memory_dtype)
        plain = rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 4, shape)
        ends = np.array([0.0, -0.0, limits.max, -limits.max, limits.smallest_subnormal])
        chosen = np.where(rng.random(shape) < 0.3, rng.choice(ends, shape), plain)
        return np.asarray(chosen).astype(number.memory_dtype)
    kind = np.uint64 if number.name == "uint64" else np.int64
    plain = rng.integers(number.lowest, number.highest, shape, dtype=kind, endpoint=True)
    ends = np.array([number.lowest, number.highest], kind)
    return np.asarray(np.where(rng.random(shape) < 0.3, rng.choice(ends, shape), plain))


def _template_names(kind: type) -> set[str]:
    dtypes = [item.array.dtype for item in message_fields(kind) if item.array]
    return {name for dtype in dtypes for _, name, _, _ in string.Formatter().parse(dtype) if name}


def _axis_names(kind: type) -> set[str | int]:
    return {axis for item in message_fields(kind) if item.array for axis in item.array.axes}


@st.composite
def requests(draw: st.DrawFn, kind: type[Request[Any]]) -> Request[Any]:
    """Random valid requests of one type, found from its declaration alone."""
    reply = reply_type(kind)
    templates = _template_names(kind) | _template_names(reply)
    axes = _axis_names(kind) | _axis_names(reply)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values: dict[str, Any] = {}
    for item in message_fields(kind):
        if item.array is None:
            values[item.name] = draw(_plain_values(item.type, item.name in templates, item.name in axes))
    sizes: dict[str | int, int] = {name: value for name, value in values.items() if type(value) is int}
    for item in message_fields(kind):
        if item.array is not None:
            shape = tuple(
                sizes.setdefault(axis, draw(st.integers(0, 4))) if isinstance(axis, str) else axis
                for axis in item.array.axes
            )
            values[item.name] = random_numbers(rng, wire(item.array.dtype.format_map(values)), shape)
    return kind(**values)


def _plain_values(kind: Any, is_template: bool, is_axis: bool) -> st.SearchStrategy[Any]:
    if kind is int:
        return (
            st.integers(2, 64) if is_template else st.integers(0, 5) if is_axis else st.integers(-(2**63), 2**64 - 1)
        )
    if kind is str:
        return st.sampled_from(["float16", "float32", "float64"]) if is_template else st.text(max_size=8)
    return {
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        bytes: st.binary(max_size=8),
        tuple[str, ...]: st.lists(st.text(max_size=4), max_size=4).map(tuple),
    }[kind]


def any_request() -> st.SearchStrategy[Request[Any]]:
    """Random valid requests of any type."""
    return st.sampled_from(ALL_REQUESTS).flatmap(requests)


def limits() -> st.SearchStrategy[dict[str, float]]:
    """Limits a run may declare."""
    positive = st.floats(min_value=1e-300, max_value=1e300)
    names = st.sampled_from(["rows", "box"]) | st.text(max_size=5)
    return st.dictionaries(names, positive, max_size=16)


def envelopes() -> st.SearchStrategy[Envelope]:
    """Envelopes of any run, site and method."""
    printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=32)
    eight, sixteen = st.binary(min_size=8, max_size=8), st.binary(min_size=16, max_size=16)
    rounds, attempts = st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1)
    return st.builds(Envelope, st.just(FORMAT_VERSION), sixteen, rounds, attempts, eight, eight, sixteen, printable)


def plain_envelope(request: bytes = bytes(16), *, site: str = "a", round: int = 3) -> Envelope:
    """The envelope of a question that might well be asked."""
    roster = roster_digest(["a", "b"])
    return Envelope(FORMAT_VERSION, bytes(range(16)), round, 1, roster, site_tag(site), request, "lloyd")


def random_reply(layout: Layout, bounds: tuple[tuple[float, float], ...], rng: np.random.Generator) -> Reply:
    """A reply that is all its layout and bounds ask for."""
    values = []
    for item, (low, high) in zip(layout.fields, bounds, strict=True):
        value = random_numbers(rng, item.wire, item.shape)
        if item.wire.is_float:  # half of what is allowed, so that rounding cannot carry a number beyond it
            value = np.clip(value, np.maximum(low / 2, -6e4), np.minimum(high / 2, 6e4)).astype(
                item.wire.memory_dtype
            )
        elif high < np.inf:
            value = np.clip(value, int(low), int(high)).astype(value.dtype)
        values.append(value)
    return layout.reply(*values)


def same(one: Any, other: Any) -> bool:
    """Whether two messages hold the same, to the last bit (so that -0.0 is not 0.0)."""
    if type(one) is not type(other):
        return False
    for item in message_fields(type(one)):
        a, b = getattr(one, item.name), getattr(other, item.name)
        if item.array is None:
            if a != b or type(a) is not type(b):
                return False
        elif a.shape != b.shape or a.dtype != b.dtype or a.tobytes() != b.tobytes():
            return False
    return True


@st.composite
def mutated(draw: st.DrawFn, frame: bytes) -> bytes:
    """A few flips, cuts and insertions in a frame."""
    data = bytearray(frame)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        what = draw(st.sampled_from(["flip", "set", "cut", "drop", "insert", "extend"]))
        if what == "extend":
            data += draw(st.binary(min_size=1, max_size=9))
        elif what == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=9))
        elif what == "cut":
            del data[place:]
        elif what == "drop":
            del data[place : place + draw(st.integers(1, 9))]
        elif data:
            data[place] = (
                data[place] ^ (1 << draw(st.integers(0, 7))) if what == "flip" else draw(st.integers(0, 255))
            )
    return bytes(data)
