"""Conversion of CSV cells to numbers."""

from __future__ import annotations

import re
from collections.abc import Set
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coterie.errors import InputError
from coterie.sites.tables.encoders import LARGEST, too_large
from coterie.sites.tables.phrases import IGNORE_IT, quoted

MISSING = ("", "NA", "NaN", "nan", "null")
"""Cells that stand for a missing value."""

SAMPLE = 1000
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"
DATE = r"^\d{4}-\d\d?-\d\d?([T ].*)?$|^\d\d?[/.]\d\d?[/.]\d{2,4}( .*)?$"
TRUTH = r"^(?i:true|false)$"
WHOLE = r"^[+-]?\d+$"

Where = tuple[str, str]
"""The table's name and the column's."""


def present(cells: Any, *, declared: Set[str] = frozenset()) -> Any:
    """The cells, with null for missing values, unless the cell is a declared category."""
    missing = pa.array([token for token in MISSING if token not in declared], cells.type)
    return pc.if_else(pc.is_in(cells, value_set=missing), pa.scalar(None, cells.type), cells)


def form_of(cells: Any) -> Any:
    """The Arrow type of a column, guessed from its first cells; half of them numbers make it a column of numbers."""
    if _cast(cells.slice(0, SAMPLE)) is not None:  # the common case
        return pa.float64()
    seen = _trimmed(cells.slice(0, SAMPLE)).drop_null()
    if not len(seen) or 2 * _matching(seen, NUMBER) >= len(seen):
        return pa.float64()
    if _matching(seen, TRUTH) == len(seen):
        return pa.bool_()
    return pa.date32() if _matching(seen, DATE) == len(seen) else pa.string()


def as_number(cells: Any, where: Where, start: int) -> Any:
    """The cells as float64; ``InputError`` with the row of a cell that is neither a number nor missing."""
    values = _cast(cells)
    if values is None:
        cells = _trimmed(cells)
        values = _cast(cells)
    if values is None:
        place = _first_stray(cells)
        raise _stray(where, start + place + 1, cells[place].as_py(), "numbers")
    _check_digits(cells, values, where, start)
    return values


def as_truth(cells: Any, where: Where, start: int) -> Any:
    """Cells of true and false as 1 and 0."""
    cells = _trimmed(cells)
    truths = pc.index_in(pc.utf8_lower(cells), value_set=pa.array(["false", "true"], cells.type))
    stray = pc.index(pc.and_(cells.is_valid(), truths.is_null()), True).as_py()
    if stray >= 0:
        raise _stray(where, start + stray + 1, cells[stray].as_py(), "true and false")
    return truths


def _cast(cells: Any) -> Any:
    """The cells as float64; None if one is not a number."""
    with suppress(pa.ArrowInvalid):
        return cells.cast(pa.float64())
    return None


def _trimmed(cells: Any) -> Any:
    return present(pc.utf8_trim_whitespace(cells))


def _matching(cells: Any, pattern: str) -> int:
    return int(pc.sum(pc.match_substring_regex(cells, pattern)).as_py())


def _first_stray(cells: Any) -> int:
    """The position of the first cell that is not a number, by bisection."""
    good, bad = 0, len(cells)
    while bad - good > 1:
        middle = (good + bad) // 2
        if _cast(cells.slice(good, middle - good)) is None:
            bad = middle
        else:
            good = middle
    return good


def _stray(where: Where, row: int, text: str, expected: str) -> InputError:
    table, column = where
    comma = "write decimals with a point, " if re.fullmatch(r"[+-]?\d+,\d+", text) else ""
    return InputError(
        f"{table}: column {column!r} holds {quoted(text)} in row {row} among {expected}; correct it, {comma}"
        f"leave the cell empty if the value is missing, or {IGNORE_IT}"
    )


def _check_digits(cells: Any, values: Any, where: Where, start: int) -> None:
    """Refuse whole numbers that float64 would round."""
    large = np.abs(values.to_numpy(zero_copy_only=False)) >= LARGEST
    if not large.any():
        return
    whole = pc.match_substring_regex(cells, WHOLE).fill_null(False).to_numpy(zero_copy_only=False)
    for place in np.flatnonzero(large & whole).tolist():
        text = cells[place].as_py()
        digits = text.lstrip("+-0")
        if len(digits) > len(str(LARGEST)) or int(digits) > LARGEST:
            raise InputError(f"{where[0]}: {too_large(where[1], start + place + 1, text)}")
