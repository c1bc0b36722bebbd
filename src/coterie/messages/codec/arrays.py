"""Arrays with their shapes and exact numbers, for the journal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec

from coterie.arrays import Array
from coterie.errors import MalformedMessage
from coterie.messages.numbers import wire
from coterie.messages.schema import Reply, Request, message_fields, reply_type


class _Free(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    number: str
    shape: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=4)]
    data: bytes


_FREE = msgspec.msgpack.Decoder(list[_Free])


def pack_arrays(arrays: Iterable[Array]) -> bytes:
    """Arrays with their shapes and exact numbers."""
    packed = []
    for value in arrays:
        name = {"f": "float", "i": "int", "u": "uint"}[value.dtype.kind] + str(value.dtype.itemsize * 8)
        packed.append(_Free(name, list(value.shape), wire(name).to_bytes(value)))
    return msgspec.msgpack.encode(packed)


def unpack_arrays(data: bytes) -> list[Array]:
    """The arrays of :func:`pack_arrays`; :class:`MalformedMessage` for anything else."""
    try:
        free = _FREE.decode(data)
        arrays = []
        for item in free:
            number = wire(item.number)
            if len(item.data) != number.n_bytes(math.prod(item.shape)):
                raise MalformedMessage("recorded numbers are truncated")
            arrays.append(number.from_bytes(item.data, tuple(item.shape)))
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
        raise MalformedMessage("recorded numbers cannot be read") from None
    return arrays


def reply_from_arrays(request: type[Request[Any]], arrays: Sequence[Array]) -> Reply:
    """A recorded reply to a request of that type."""
    kind = reply_type(request)
    if len(arrays) != len(message_fields(kind)):
        raise MalformedMessage(f"a recorded {kind.__name__} has {len(arrays)} arrays")
    return kind(*arrays)
