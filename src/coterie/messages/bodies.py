"""As bytes: requests with the limits they are asked under, and the arrays that a journal records."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from coterie.arrays import Array
from coterie.errors import MalformedMessage
from coterie.messages.bounds import Limits
from coterie.messages.numbers import wire
from coterie.messages.schema import Reply, Request, cached, message_fields, reply_type, request_type

MAX_ITEMS = 1 << 17
"""The most strings or recalled requests in one message."""
MAX_LIMITS = 16


class Body(NamedTuple):
    """An encoded request with its limits, and its digest."""

    data: bytes
    digest: bytes


_Shape = Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=4)]


class _Packed(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    shape: _Shape
    data: memoryview


MANY = msgspec.Meta(max_length=MAX_ITEMS)
_LIMITS = Annotated[dict[str, float | Annotated[tuple[float, ...], MANY]], msgspec.Meta(max_length=MAX_LIMITS)]


class _Coder(NamedTuple):
    struct: type[Any]
    decoder: msgspec.msgpack.Decoder[Any]


@cached
def _coder(kind: Any) -> _Coder:
    """The wire form of a request: its limits, then its fields in order."""
    fields: list[tuple[str, Any]] = [("limits_", _LIMITS)]
    for item in message_fields(kind):
        plain = Annotated[item.type, MANY] if item.type == tuple[str, ...] else item.type
        fields.append((item.name, plain if item.array is None else _Packed))
    struct = msgspec.defstruct(kind.__name__, fields, array_like=True, forbid_unknown_fields=True)
    return _Coder(struct, msgspec.msgpack.Decoder(struct))


def request_digest(data: bytes | memoryview) -> bytes:
    """Sixteen bytes that stand for an encoded request."""
    return hashlib.sha256(data).digest()[:16]


def encode_body(request: Request[Any], limits: Limits) -> Body:
    """The bytes of a request and its limits; ``MalformedMessage`` for a request that no site would accept.

    A request keeps its bytes: the journal, a layer and the run all need them, and it is encoded once.
    """
    kept: tuple[Limits, Body] | None = vars(request).get("_encoded")
    if kept is None or kept[0] != limits:
        kept = vars(request)["_encoded"] = dict(limits), _encode(request, limits)
    return kept[1]


def _encode(request: Request[Any], limits: Limits) -> Body:
    kind = type(request)
    _check_limits(kind.kind, limits)
    values: list[Any] = [dict(limits)]
    for item in message_fields(kind):
        value = getattr(request, item.name)
        if item.array is not None:
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise MalformedMessage(f"{kind.kind}.{item.name} is not finite")
            value = _Packed(list(value.shape), memoryview(item.array.wire(request).to_bytes(value)))
        values.append(value)
    name = kind.kind.encode()
    data = bytes([len(name)]) + name + msgspec.msgpack.encode(_coder(kind).struct(*values))
    return Body(data, request_digest(data))


def kind_of(data: bytes) -> type[Request[Any]] | None:
    """The type of the request in these bytes, by its name; None if it is unknown."""
    return request_type(data[1 : 1 + data[0]].decode(errors="replace")) if data else None


@lru_cache(maxsize=16)  # sites in one process get the same bytes
def decode_body(data: bytes) -> tuple[Request[Any] | None, Limits]:
    """The request in ``data`` and its limits; None for an unknown request."""
    if len(data) < 2 or len(data) < 1 + data[0]:
        raise MalformedMessage("the request is cut short")
    try:
        name = data[1 : 1 + data[0]].decode("ascii")
    except UnicodeDecodeError:
        raise MalformedMessage("the request's name is not readable") from None
    kind = request_type(name)
    if kind is None:
        return None, {}
    coder = _coder(kind)
    try:
        raw = coder.decoder.decode(memoryview(data)[1 + data[0] :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MalformedMessage(f"{name} does not have the fields of its type") from None
    _check_limits(name, raw.limits_)
    return _request(kind, raw), raw.limits_


def _check_limits(name: str, limits: Limits) -> None:
    numbers = [n for limit in limits.values() for n in (limit if isinstance(limit, tuple) else (limit,))]
    if len(limits) > MAX_LIMITS or not all(math.isfinite(number) and number > 0 for number in numbers):
        raise MalformedMessage(f"{name}: limits must be at most {MAX_LIMITS} finite numbers above 0")


def _request(kind: type[Request[Any]], raw: Any) -> Request[Any]:
    plain = {i.name: getattr(raw, i.name) for i in message_fields(kind) if i.array is None}
    values = dict(plain)
    for item in message_fields(kind):
        if item.array is None:
            continue
        packed: _Packed = getattr(raw, item.name)
        try:
            number = wire(item.array.dtype.format_map(plain))
        except (ValueError, KeyError):
            raise MalformedMessage(f"{kind.kind}.{item.name} has an unknown type of number") from None
        count = math.prod(packed.shape)
        if len(packed.data) != number.n_bytes(count):
            raise MalformedMessage(f"{kind.kind}.{item.name} does not have the number of bytes of its shape")
        if not count and any(length > MAX_ITEMS for length in packed.shape):  # such axes cost nothing to send
            raise MalformedMessage(f"{kind.kind}.{item.name} is empty but has a long axis")
        try:
            value = number.from_bytes(packed.data, tuple(packed.shape))
        except (ValueError, OverflowError):  # an empty array with an axis numpy cannot hold
            raise MalformedMessage(f"{kind.kind}.{item.name} has an impossible shape") from None
        if number.is_float and not np.isfinite(value).all():
            raise MalformedMessage(f"{kind.kind}.{item.name} is not finite")
        value.flags.writeable = False  # shared by the sites of one process
        values[item.name] = value
    try:
        return kind(**values)
    except (ValueError, KeyError, TypeError, OverflowError) as problem:
        raise MalformedMessage(f"{kind.kind}: {problem}") from None


class _Recorded(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    number: str
    shape: _Shape
    data: bytes


def pack_arrays(arrays: Iterable[Array]) -> bytes:
    """Arrays with their shapes and exact numbers."""
    packed = []
    for value in arrays:
        name = {"f": "float", "i": "int", "u": "uint"}[value.dtype.kind] + str(value.dtype.itemsize * 8)
        packed.append(_Recorded(name, list(value.shape), wire(name).to_bytes(value)))
    return msgspec.msgpack.encode(packed)


def unpack_arrays(data: bytes) -> list[Array]:
    """The arrays of :func:`pack_arrays`; :class:`MalformedMessage` for anything else."""
    try:
        arrays = []
        for item in msgspec.msgpack.decode(data, type=list[_Recorded]):
            number = wire(item.number)
            if len(item.data) != number.n_bytes(math.prod(item.shape)):
                raise MalformedMessage("recorded numbers are truncated")
            arrays.append(number.from_bytes(item.data, tuple(item.shape)))
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
        raise MalformedMessage("recorded numbers cannot be read") from None
    return arrays


def unpack_reply(request: type[Request[Any]], data: bytes) -> Reply:
    """The recorded reply to a request of that type."""
    kind, arrays = reply_type(request), unpack_arrays(data)
    if len(arrays) != len(message_fields(kind)):
        raise MalformedMessage(f"a recorded {kind.__name__} has {len(arrays)} arrays")
    return kind(*arrays)
