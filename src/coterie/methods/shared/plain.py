"""Dataclasses of arrays as plain values, and back: for model files, and for models in an order."""

from __future__ import annotations

import typing
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np

T = TypeVar("T")


def written(value: Any, kind: type[Any]) -> dict[str, Any]:
    """A value's fields as plain values; fields that are declared to be left out of models are left out."""
    items = [item for item in fields(kind) if item.metadata.get("in_model", True)]
    return {item.name: plain(getattr(value, item.name)) for item in items}


def plain(value: Any) -> Any:
    """Any value as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return written(value, type(value))
    return msgspec.to_builtins(value, enc_hook=listed)


def listed(value: Any) -> Any:
    """An array as lists."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a model holds no {type(value).__name__}")


def read(raw: Any, kind: type[T]) -> T:
    """A value of this kind, of plain values; every number in it is finite."""
    return msgspec.convert(raw, kind, dec_hook=_array)


def _array(kind: Any, value: Any) -> Any:
    """An array of the kind of number its annotation says."""
    number = typing.get_args(typing.get_args(kind)[1])[0]
    values = np.array(value, number)
    if not np.isfinite(values).all():
        raise ValueError("a number is not finite")
    return values
