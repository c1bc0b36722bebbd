"""Questions and answers, declared as types.

A request is a frozen dataclass that names the type of its reply. Every array declares its axes, its type of number
and, if possible, a bound. Every axis of a reply is stated by its request, so the size of an answer is known in
advance and discloses nothing about the site's rows.

>>> class Counts(Reply, content="sums"):
...     counts: Floats = array("k", bound="rows", nonnegative=True)
>>> class CountNearest(Request[Counts]):
...     centers: Floats = array("k", "d")
>>> ask = CountNearest(np.zeros((3, 2)))
>>> ask.axes
{'k': 3, 'd': 2}
>>> ask.layout.numbers, ask.layout.n_bytes
(3, 24)
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar, dataclass_transform

import numpy as np

from coterie.arrays import Array
from coterie.arrays import Floats as Floats
from coterie.arrays import Integers as Integers
from coterie.errors import MalformedMessage
from coterie.messages.bounds import Bound, Limits, Magnitude
from coterie.messages.numbers import Wire, wire

Content = Literal["nothing", "schema", "noisy", "sums", "composition", "grams", "averages", "rows"]
"""The content of an answer, from harmless to disclosing. Noisy sums are differentially private. A composition is how
many rows of a site are in each final cluster. Grams are sums of products of features: enough of them disclose the
rows of a site's view, groups by default."""

SCALARS = (int, float, str, bool, bytes, tuple[str, ...])
MAX_AXES = 4

R = TypeVar("R", bound="Reply")
Of = TypeVar("Of")


def cached(function: Callable[[Any], Of]) -> Callable[[Any], Of]:
    """``functools.cache`` for functions of a type, which mypy does not consider hashable."""
    return cache(function)


@dataclass(frozen=True)
class ArraySpec:
    """The declaration of an array of a message."""

    axes: tuple[str | int, ...]
    dtype: str
    bound: Bound | None
    nonnegative: bool
    is_counted: bool = True
    """Whether these are values of the algorithm; keys and shares of masks are not."""
    norm: Bound | None = None
    """Of noisy sums: how long what a row adds is at most, in the Euclidean norm."""
    is_gram: bool = False
    """Whether these are products of pairs, the triangle of a matrix row by row; a pair counts twice in its norm."""

    def range(self, names: Limits, shape: tuple[int, ...]) -> tuple[Magnitude, Magnitude]:
        """The lowest and the highest value allowed, given the values of names in the bound."""
        high = math.inf if self.bound is None else self.bound.value(names)
        if isinstance(high, np.ndarray) and 0 in shape:
            high = float(high.max(initial=0.0))
        if isinstance(high, np.ndarray) and shape[-1:] != high.shape:
            raise MalformedMessage(f"{len(high)} limits for an array of shape {shape}")
        high = np.maximum(0.0, high) if isinstance(high, np.ndarray) else max(0.0, high)
        return 0.0 if self.nonnegative else -high, high

    def wire(self, request: Request[Any]) -> Wire:
        """The type of number, with ``{names}`` replaced by fields of the request."""
        return wire(self.dtype.format_map(request.__dict__)) if "{" in self.dtype else wire(self.dtype)


def array(
    *axes: str | int,
    dtype: str = "float64",
    bound: str | None = None,
    nonnegative: bool = False,
    is_counted: bool = True,
) -> Any:
    """Declare an array of a message.

    ``dtype`` may name fields of the request, as in ``"uint{bits}"``. ``bound`` is a
    :class:`~coterie.messages.bounds.Bound`.
    """
    if len(axes) > MAX_AXES:
        raise TypeError(f"an array has at most {MAX_AXES} axes, not {len(axes)}")
    limit = None if bound is None else Bound(bound)
    if limit is not None and not set(limit.axes.values()) <= set(axes[-1:]):
        raise TypeError(f"the bound {bound!r} may differ along the last axis only, of {', '.join(map(str, axes))}")
    spec = ArraySpec(axes, dtype, limit, nonnegative, is_counted)
    return field(metadata={"array": spec})


class FieldSpec(NamedTuple):
    """One field of a message: an array with its declaration, or a plain value with its type."""

    name: str
    array: ArraySpec | None
    type: Any


@cached
def message_fields(message: Any) -> tuple[FieldSpec, ...]:
    """The fields of a message type, in order."""
    name: str = message.__name__
    hints = typing.get_type_hints(message)
    specs = []
    for item in dataclasses.fields(message):
        spec = item.metadata.get("array")
        if spec is None and hints[item.name] not in SCALARS:
            raise TypeError(
                f"{name}.{item.name}: a message holds arrays, int, float, str, bool, bytes "
                f"and tuple[str, ...], not {hints[item.name]}"
            )
        specs.append(FieldSpec(item.name, spec, hints[item.name]))
    return tuple(specs)


@dataclass_transform(frozen_default=True, field_specifiers=(array,))
class Fields:
    """Base of messages and of fields that requests share: every subclass is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True)(cls)


class Reply(Fields):
    """The answer of a site. Replies of one type can be added."""

    content: ClassVar[Content] = "sums"

    def __init_subclass__(cls, content: Content | None = None) -> None:
        super().__init_subclass__()
        if content is not None:
            cls.content = content

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            if type(value) is not np.ndarray:
                object.__setattr__(self, name, np.asarray(value))

    def arrays(self) -> Iterable[Array]:
        return self.__dict__.values()

    @classmethod
    def zeros(cls, axes: Mapping[str, int]) -> Self:
        """The answer of a site without rows, and the start of a sum over blocks."""
        shapes = [_shape(_spec(item).axes, axes) for item in message_fields(cls)]
        return cls(*[np.zeros(shape) for shape in shapes])

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        return type(self)(*[_sum(a, b) for a, b in zip(self.arrays(), other.arrays(), strict=True)])


class Nothing(Reply, content="nothing"):
    """An acknowledgement: no numbers at all."""


class Request(Fields, Generic[R]):
    """A question to sites. ``Request[Moments]`` can be answered by ``Moments`` only.

    ``remembered=True`` marks a request that changes a site's memory. The run keeps these requests and sends them
    again to a site that restarted, dropped out for some rounds or joined late. ``doing="assigning rows"`` is shown
    in progress lines.
    """

    kind: ClassVar[str]
    remembered: ClassVar[bool] = False
    of_half: ClassVar[bool] = False
    """Whether it is asked of half of the sites at a time, which their policies must allow."""
    doing: ClassVar[str]
    """What a round with this request does, for people who watch a run: declared, or the docstring's first clause."""

    def __init_subclass__(cls, remembered: bool = False, doing: str = "", of_half: bool = False) -> None:
        cls.doing = doing or _first_clause(cls)
        super().__init_subclass__()
        cls.remembered, cls.of_half = remembered, of_half
        cls.kind = f"{_package_of(cls.__module__)}.{cls.__name__}"
        known = _KINDS.get(cls.kind)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"two requests are named {cls.kind}: in {known.__module__} and {cls.__module__}")
        _KINDS[cls.kind] = cls

    def __post_init__(self) -> None:
        for item in message_fields(type(self)):
            if item.array is None and isinstance(getattr(self, item.name), np.generic):
                object.__setattr__(self, item.name, getattr(self, item.name).item())
            elif item.array is not None:
                value = np.asarray(getattr(self, item.name))
                number = item.array.wire(self)  # rounded here, so that both ends see the same numbers
                value = np.ascontiguousarray(number.rounded(value), number.memory_dtype).reshape(value.shape)
                object.__setattr__(self, item.name, value)
        _ = self.axes

    @cached_property
    def axes(self) -> dict[str, int]:
        """The sizes this request states: its integer fields and the axes of its arrays."""
        sizes: dict[str, int] = {}
        for item in message_fields(type(self)):
            value = getattr(self, item.name)
            if item.array is None:
                if item.type is int and sizes.setdefault(item.name, int(value)) != value:
                    raise ValueError(f"{type(self).__name__}.{item.name} is {value}, not {sizes[item.name]}")
                continue
            if value.ndim != len(item.array.axes):
                raise ValueError(
                    f"{type(self).__name__}.{item.name} has {value.ndim} axes; "
                    f"declared are {', '.join(map(str, item.array.axes)) or 'none'}"
                )
            for axis, length in zip(item.array.axes, value.shape, strict=True):
                expected = sizes.setdefault(axis, length) if isinstance(axis, str) else axis
                if expected != length:
                    raise ValueError(
                        f"{type(self).__name__}.{item.name}: axis {axis} is {length} long, not {expected}"
                    )
        return sizes

    @property
    def subject(self) -> type[Request[Any]]:
        """The type of this request, or of the request it carries in its body."""
        return type(self)

    @property
    def tells_nothing(self) -> bool:
        """Whether what a site does for it, which has no answer, is never refused for what rows hold."""
        return False

    @property
    def measure(self) -> Request[Any] | None:
        """The request that asks sites for the limits this one's bounds lack.

        None: the number of rows of a site's view, and their largest magnitude.
        """
        return None

    def limits_after(self, limits: Limits) -> Limits:
        """The limits that still hold after this request, or that it sets."""
        return {} if self.remembered else limits

    @property
    def ring(self) -> int | None:
        """Bits of a ring that holds the sum of all sites' integers, if this request ensures that; None: large enough
        for the number of sites."""
        return None

    @cached_property
    def layout(self) -> Layout:
        """The layout of the answer to this request, from the types and the request alone."""
        kind = type(self)
        plain = [getattr(self, item.name) for item in message_fields(kind) if item.type in (int, float, str)]
        key = (kind, *self.axes.items(), *plain)
        known = _LAYOUTS.get(key)
        if known is None:
            if len(_LAYOUTS) >= MANY_LAYOUTS:
                _LAYOUTS.clear()
            known = _LAYOUTS[key] = _laid_out(self)
        largest = _largest(self)
        return known if not largest else dataclasses.replace(known, names={**largest, **known.names}, _bounds={})


def _laid_out(request: Request[Any]) -> Layout:
    reply = reply_type(type(request))
    laid, start, numbers, entries = [], 0, 0, 0
    for item in message_fields(reply):
        spec = _spec(item)
        shape, number = _shape(spec.axes, request.axes), spec.wire(request)
        count = math.prod(shape)
        stop = start + number.n_bytes(count)
        laid.append(LaidField(item.name, shape, number, count, start, stop, spec))
        start, numbers, entries = stop, numbers + count * spec.is_counted, entries + count
    text = f"{reply.__name__}|" + "|".join(f"{f.name}:{f.shape}:{f.wire.name}" for f in laid)
    tag = hashlib.blake2b(text.encode(), digest_size=4).digest()
    values = [item.name for item in message_fields(type(request)) if item.type in (int, float)]
    names = {**request.axes, **{name: float(getattr(request, name)) for name in values}}
    return Layout(reply, tuple(laid), numbers, entries, start, tag, names)


MANY_LAYOUTS = 256
_LAYOUTS: dict[tuple[Any, ...], Layout] = {}
"""Known layouts: rounds of one method ask for the same one, and what is derived from it is kept with it."""
_KINDS: dict[str, type[Request[Any]]] = {}


def _first_clause(request: type) -> str:
    """``Put every row to its nearest center: ...`` as ``put every row to its nearest center``."""
    text = " ".join((request.__doc__ or request.__name__).split("\n\n")[0].split()).replace("``", "")
    clause = re.split(r"(?<=\?)|[.:;](?:\s|$)|\s\(", text)[0]
    return clause[:1].lower() + clause[1:]


def _package_of(module: str) -> str:
    """The prefix of a request's kind: its family of methods or package in coterie; elsewhere its module."""
    first, *inner = module.removeprefix("coterie.methods.").split(".")
    return (
        inner[0] if first == "coterie" else first if module.startswith("coterie.methods.") else module.split(".")[-1]
    )


def request_type(kind: str) -> type[Request[Any]] | None:
    """The request called ``kind``, if there is one."""
    return _KINDS.get(kind)


def doing_of(kinds: str) -> str:
    """What a round with requests of these kinds (joined by ``+``) does; an unknown kind is shown by its name."""
    known = {kind: request_type(kind) for kind in kinds.split("+")}
    return ", ".join(dict.fromkeys(kind.rpartition(".")[2] if t is None else t.doing for kind, t in known.items()))


@cached
def reply_type(request: Any) -> type[Reply]:
    """The reply type of a request type; ``TypeError`` unless the request states every axis of the reply."""
    for base in request.__orig_bases__:
        if issubclass(typing.get_origin(base) or object, Request):
            reply: type[Reply] = typing.get_args(base)[0]
            break
    else:
        raise TypeError(f"{request.__name__} must derive from Request[<its reply>]")
    stated = {item.name for item in message_fields(request) if item.type is int}
    for item in message_fields(request):
        stated.update(axis for axis in (item.array.axes if item.array else ()) if isinstance(axis, str))
    for item in message_fields(reply):
        loose = [axis for axis in _spec(item).axes if isinstance(axis, str) and axis not in stated]
        if loose:
            raise TypeError(
                f"{reply.__name__}.{item.name}: {request.__name__} does not state the size of axis {loose[0]!r}"
            )
    return reply


class LaidField(NamedTuple):
    """One array of an answer: its position, its type and its declaration."""

    name: str
    shape: tuple[int, ...]
    wire: Wire
    size: int
    start: int
    stop: int
    spec: ArraySpec


@dataclass(frozen=True)
class Layout:
    """The exact layout of the answer to a request."""

    reply: type[Reply]
    fields: tuple[LaidField, ...]
    numbers: int
    """Values of the algorithm in an answer."""
    size: int
    """Entries of any kind."""
    n_bytes: int
    tag: bytes
    """Four bytes that identify the layout, so that two versions of an answer are not confused."""
    names: Limits
    _bounds: dict[Any, tuple[tuple[Magnitude, Magnitude], ...]] = field(default_factory=dict)

    def bounds(self, limits: Limits) -> tuple[tuple[Magnitude, Magnitude], ...]:
        """Lowest and highest allowed value of each array under these limits."""
        key = tuple(limits.items())
        known = self._bounds.get(key)
        if known is None:
            if len(self._bounds) >= MANY_LAYOUTS:
                self._bounds.clear()
            names = {**self.names, **limits}
            known = self._bounds[key] = tuple(item.spec.range(names, item.shape) for item in self.fields)
        return known

    def is_bounded(self, limits: Limits) -> bool:
        """Whether every number of an answer has a bound under these limits."""
        known = self.names.keys() | limits.keys()
        return all(item.spec.bound is not None and item.spec.bound.names <= known for item in self.fields)


@cached
def _named_arrays(request: Any) -> tuple[tuple[FieldSpec, bool], ...]:
    """The arrays of a request that bounds of its answer name, and whether by the last axis."""
    specs = [_spec(item) for item in message_fields(reply_type(request))]
    bounds = [bound for spec in specs for bound in (spec.bound, spec.norm) if bound is not None]
    used, axes = {name for bound in bounds for name in bound.names}, dict[str, str]()
    for bound in bounds:
        axes |= bound.axes
    arrays = [item for item in message_fields(request) if item.array and item.name in used]
    return tuple((i, i.array is not None and i.array.axes[-1:] == (axes.get(i.name),)) for i in arrays)


def _largest(request: Request[Any]) -> dict[str, float | tuple[float, ...]]:
    """The largest magnitudes of the arrays that bounds of the answer name."""
    largest: dict[str, float | tuple[float, ...]] = {}
    for item, is_by_axis in _named_arrays(type(request)):
        sizes = np.abs(getattr(request, item.name))
        most = sizes.max(axis=tuple(range(sizes.ndim - 1)) if is_by_axis else None, initial=0.0)
        largest[item.name] = tuple(most.tolist()) if is_by_axis else float(most)
    return largest


def _spec(item: FieldSpec) -> ArraySpec:
    if item.array is None:
        raise TypeError(f"{item.name}: a reply holds arrays only")
    return item.array


def _shape(axes: tuple[str | int, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = tuple(sizes[axis] if isinstance(axis, str) else axis for axis in axes)
    if any(length < 0 for length in shape):
        raise MalformedMessage(f"an axis cannot be {min(shape)} long")
    return shape


def _sum(a: Array, b: Array) -> Array:
    kind = np.float64 if a.dtype.kind == "f" or b.dtype.kind == "f" else np.int64
    return np.add(a, b, dtype=kind)
