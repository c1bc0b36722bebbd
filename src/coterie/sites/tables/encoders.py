"""Which columns of a source make a table, and how each becomes one or more columns of numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from coterie.arrays import Integers, Mask
from coterie.errors import InputError
from coterie.messages.site_api import Rows
from coterie.sites.tables.phrases import IGNORE_IT, listed, no_column, quoted
from coterie.sites.tables.sources import Source, check_names
from coterie.text import count_of

LARGEST = 2**53
OTHER = "other"
"""The category of values that are none of the others."""
LOOK = 1 << 14
"""Rows per batch when a source is checked."""
Categories = Mapping[str, Sequence[object]]
PANDAS_INDEX = re.compile(r"__index_level_\d+__")


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

    def complaint(self, first: int, value: object, _n_rows: int) -> str:
        return too_large(self.column, first, value)


def too_large(column: str, row: int, value: object) -> str:
    """The error message for an integer that float64 cannot hold."""
    seen = quoted(value)[1:-1]
    return (
        f"column {column!r} holds whole numbers beyond 2**53 ({seen} in row {row}), which float64 would round; "
        f"if it is an identifier, {IGNORE_IT}, otherwise store it as floating point"
    )


@dataclass(frozen=True)
class CategoryEncoder:
    """A column of categories as one column of 0 and 1 for each."""

    column: str
    kind: Any
    categories: tuple[str, ...]
    is_open: bool = False
    """Whether a value that is none of them is of the category ``other``, or of none; otherwise it is an error."""
    single = False

    @property
    def suspect(self) -> bool:
        """Whether a value may be an error."""
        return not self.is_open

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.column}={category}" for category in self.categories)

    def put(self, values: Any, out: Rows) -> None:
        """Write 1 where the value is the category, 0 elsewhere, NaN where it is missing."""
        places, there = self._places(values)
        out[:] = places[:, None] == np.arange(len(self.categories))
        out[~there if self.is_open else places < 0] = np.nan

    def faulty(self, values: Any) -> Mask:
        places, there = self._places(values)
        return there & (places < 0) & (not self.is_open)

    def complaint(self, first: int, value: object, n_rows: int) -> str:
        return (
            f"column {self.column!r} holds values outside its declared categories in {count_of(n_rows, 'row')} "
            f"(first {quoted(value)} in row {first}; declared: {listed(self.categories)}); declare every category, "
            f"correct the rows, or {IGNORE_IT}"
        )

    def _places(self, values: Any) -> tuple[Integers, Mask]:
        """The place of each value's category, -1 for none, and whether there is a value."""
        texts, declared = as_text(values, self.kind), as_text(pa.array(self.categories, pa.large_string()), self.kind)
        places = np.array(pc.index_in(texts, value_set=declared).fill_null(-1))
        there: Mask = texts.is_valid().to_numpy(zero_copy_only=False)
        if self.is_open and OTHER in self.categories:
            places[there & (places < 0)] = self.categories.index(OTHER)
        return places, there


Encoder = NumberEncoder | CategoryEncoder


@dataclass(frozen=True)
class Choice:
    """Exactly ``columns``, or all but those to ``ignore``; text columns by their declared categories, or by the
    ``levels`` that sites agreed on. A column without a category is to have levels, too, even if it holds numbers."""

    columns: Sequence[str] | None = None
    ignore: Collection[str] = ()
    categories: Categories | None = None
    levels: Categories | None = None

    def __post_init__(self) -> None:
        for option in ("columns", "ignore"):
            if isinstance(getattr(self, option), str):
                raise InputError(f"{option}={getattr(self, option)!r} is text; give a list of names")
        for column, values in (self.categories or {}).items():
            texts = [] if isinstance(values, str) else [str(value) for value in values]
            if isinstance(values, str) or len(set(texts)) < len(texts):
                raise InputError(f"the categories of {column!r} are {values!r}; give a list of distinct values")

    @property
    def declared(self) -> dict[str, tuple[str, ...]]:
        """The declared categories by column."""
        given = {column: tuple(str(v) for v in values) for column, values in (self.categories or {}).items()}
        return {column: values for column, values in given.items() if values}

    def without(self, column: str) -> Choice:
        if self.columns is None:
            return replace(self, ignore=[*self.ignore, column])
        return replace(self, columns=[c for c in self.columns if c != column])


def encoders_of(source: Source, choice: Choice) -> tuple[Encoder, ...]:
    """The encoders of the chosen columns; the source will return those with categories as text."""
    names = chosen(source, choice)
    declared, levels = choice.declared, choice.levels or {}
    source.texts = {
        **source.texts,
        **{name: frozenset[str]() for name in levels},
        **{name: frozenset(values) for name, values in declared.items()},
    }
    encoders = tuple(
        CategoryEncoder(name, source.schema.field(name).type, tuple(map(str, levels[name])), is_open=True)
        if name in levels
        else _encoder(source, name, declared.get(name))
        for name in names
    )
    check_names(source.name, [name for encoder in encoders for name in encoder.names])
    return encoders


def chosen(source: Source, choice: Choice) -> list[str]:
    """The names of the chosen columns, in order."""
    there = list(source.schema.names)
    for name in (*(choice.columns or ()), *choice.ignore, *(choice.categories or ())):
        if name not in there:
            raise no_column(source.name, name, there)
    if choice.columns is not None:
        _check_columns(source.name, choice)
        return list(choice.columns)
    names = [n for n in there if n not in choice.ignore and not PANDAS_INDEX.fullmatch(n)]
    if not names:
        raise InputError(f"{source.name}: no columns are left of its {len(there)}; ignore fewer columns, or add some")
    if "" in names:
        raise InputError(
            f"{source.name}: column {there.index('') + 1} has no name (pandas writes its index so; use index=False); "
            f"name it, or {IGNORE_IT}"
        )
    return names


def _check_columns(table: str, choice: Choice) -> None:
    columns = list(choice.columns or ())
    both = [name for name in columns if name in choice.ignore]
    twice = [name for name in columns if columns.count(name) > 1]
    if not columns:
        raise InputError(f"{table}: 'columns' is empty; name at least one column")
    if both:
        raise InputError(f"{table}: column {both[0]!r} is in both 'columns' and 'ignore'; remove it from one")
    if twice:
        raise InputError(f"{table}: column {twice[0]!r} is named {columns.count(twice[0])} times; name it once")


def _encoder(source: Source, name: str, categories: tuple[str, ...] | None) -> Encoder:
    kind = source.schema.field(name).type
    holds = kind_of(kind)
    if categories is not None and holds in (Kind.NUMBER, Kind.TEXT, Kind.DATE):
        return CategoryEncoder(name, kind, categories)
    if holds is Kind.NUMBER:
        return NumberEncoder(name, kind)
    raise InputError(f"{source.name}: column {name!r} holds {_refusal(source, name, kind)}")


def _refusal(source: Source, name: str, kind: Any) -> str:
    holds = kind_of(kind)
    if holds is Kind.DATE:
        return f"dates or times ({kind}), not numbers; convert it to a number, such as days, or {IGNORE_IT}"
    if holds is Kind.OTHER:
        return f"{quoted(kind)[1:-1]}, neither numbers nor text; {IGNORE_IT}"
    remedy = f"declare its values in 'categories', or {IGNORE_IT}"
    source.texts = {**source.texts, name: frozenset()}
    start = 0
    for batch in source.batches([name], LOOK):
        for place, text in enumerate(as_text(batch.column(name), kind).to_pylist()):
            if text is not None and number_in(text) is None:
                return f"text ({quoted(text)} in row {start + place + 1}); {remedy}"
        start += batch.num_rows
    return f"text; {remedy}"
