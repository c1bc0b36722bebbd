"""Encoding a column of a source as one or more columns of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from coterie.arrays import Integers, Mask
from coterie.messages.site_api import Rows
from coterie.sites.tables.kinds import as_text, is_wide
from coterie.sites.tables.phrases import IGNORE_IT, listed, quoted
from coterie.text import count_of

LARGEST = 2**53


@dataclass(frozen=True)
class Fault:
    """Values that cannot be encoded: the number of rows, and the first row and value."""

    rows: int
    first: int
    value: object


@dataclass(frozen=True)
class NumberEncoder:
    """A column of numbers; booleans become 0 and 1."""

    column: str
    kind: Any

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def single(self) -> bool:
        """Whether float32 is enough."""
        return bool(kinds.is_float32(self.kind) or kinds.is_float16(self.kind))

    @property
    def suspect(self) -> bool:
        """Whether values may be impossible to encode, so that all must be checked."""
        return is_wide(self.kind)

    def put(self, values: Any, out: Rows) -> None:
        """Write the values into ``out``, missing ones as NaN."""
        if not kinds.is_floating(values.type):
            values = values.cast(pa.float64(), safe=False)
        out[:, 0] = values.to_numpy(zero_copy_only=False)

    def faulty(self, values: Any) -> Mask:
        if not is_wide(values.type):
            return np.zeros(len(values), bool)
        signed = not kinds.is_uint64(values.type)  # unsigned numbers compare with their own kind
        largest = LARGEST if signed else pa.scalar(LARGEST, values.type)
        bad = pc.greater(values, largest)
        bad = pc.or_(bad, pc.less(values, -LARGEST)) if signed else bad
        return np.asarray(bad.fill_null(False).to_numpy(zero_copy_only=False))

    def complaint(self, fault: Fault) -> str:
        return too_large(self.column, fault.first, fault.value)


def too_large(column: str, row: int, value: object) -> str:
    """The error message for an integer that float64 cannot hold."""
    seen = quoted(value)[1:-1]
    return (
        f"column {column!r} holds whole numbers beyond 2**53 ({seen} in row {row}), which float64 would round; "
        f"if it is an identifier, {IGNORE_IT}, otherwise store it as floating point"
    )


@dataclass(frozen=True)
class CategoryEncoder:
    """A column of declared categories as one column of 0 and 1 for each."""

    column: str
    kind: Any
    categories: tuple[str, ...]
    single = False
    suspect = True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.column}={category}" for category in self.categories)

    def put(self, values: Any, out: Rows) -> None:
        """Write 1 where the value is the category, 0 elsewhere, NaN where it is missing."""
        places = self._places(values)
        out[:] = places[:, None] == np.arange(len(self.categories))
        out[places < 0] = np.nan

    def faulty(self, values: Any) -> Mask:
        there: Mask = as_text(values, self.kind).is_valid().to_numpy(zero_copy_only=False)
        return there & (self._places(values) < 0)

    def complaint(self, fault: Fault) -> str:
        rows = count_of(fault.rows, "row")
        first = f"first {quoted(fault.value)} in row {fault.first}"
        return (
            f"column {self.column!r} holds values outside its declared categories in {rows} ({first}; declared: "
            f"{listed(self.categories)}); declare every category, correct the rows, or {IGNORE_IT}"
        )

    def _places(self, values: Any) -> Integers:
        indices = pc.index_in(as_text(values, self.kind), value_set=self._declared)
        return np.asarray(indices.fill_null(-1).to_numpy(zero_copy_only=False))

    @cached_property
    def _declared(self) -> Any:
        return pa.array(self.categories, pa.large_string())


Encoder = NumberEncoder | CategoryEncoder
