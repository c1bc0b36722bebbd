"""Kinds of Arrow types: number, text, date or other."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds


class Kind(Enum):
    """What a column holds."""

    NUMBER = "number"
    TEXT = "text"
    DATE = "dates or times"
    OTHER = "other"


def kind_of(kind: Any) -> Kind:
    """The kind of a column of this Arrow type; dictionaries count as text."""
    numbers = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal, kinds.is_null)
    texts = (kinds.is_string, kinds.is_large_string, kinds.is_string_view, kinds.is_dictionary)
    if any(test(kind) for test in numbers):
        return Kind.NUMBER
    if any(test(kind) for test in texts):
        return Kind.TEXT
    return Kind.DATE if kinds.is_temporal(kind) else Kind.OTHER


def is_wide(kind: Any) -> bool:
    """Whether this type has integers that float64 cannot hold."""
    return bool(kinds.is_int64(kind) or kinds.is_uint64(kind) or (kinds.is_decimal(kind) and kind.scale <= 0))


def as_text(values: Any, kind: Any) -> Any:
    """The values as text, NaN as missing; an integer in a column of type ``kind`` has no '.0'."""
    if kinds.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kinds.is_float16(values.type):
        values = values.cast(pa.float32())
    if kinds.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    text = values.cast(pa.large_string())
    return (
        pc.replace_substring_regex(text, pattern=r"\.0*$", replacement="") if kind_of(kind) is Kind.NUMBER else text
    )


def owners(values: Any, kind: Any) -> Any:
    """The names of sites in a column, null if empty."""
    text = pc.utf8_trim_whitespace(as_text(values, kind))
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)


def number_in(text: str) -> float | None:
    """The number in a text, None if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return None
