"""Which columns of a source make a table, and how each becomes one or more columns of numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from coterie.arrays import Integers, Mask
from coterie.errors import InputError
from coterie.messages.site_api import Rows
from coterie.sites.tables.phrases import listed, no_column, quoted
from coterie.sites.tables.problems import Problem, Remedy
from coterie.sites.tables.reading import Reading, divided_name, number_in, transformed_name
from coterie.sites.tables.sources import Source, check_names
from coterie.sites.tables.transforms import divide, transformed
from coterie.text import count_of

LARGEST = 2**53
OTHER = "other"
"""The category of values that are none of the others."""
LOOK = 1 << 14
"""Rows per batch when a source is checked."""
Levels = Mapping[str, Sequence[str]]
"""By column the categories that sites agreed on."""
MOST_VALUES = 20
"""A column of text with more values is none of categories."""
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


@dataclass(frozen=True)
class NumberEncoder:
    """A column of numbers; booleans become 0 and 1."""

    column: str
    kind: Any
    transform: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (transformed_name(self.column, self.transform),)

    @property
    def single(self) -> bool:
        """Whether float32 is enough."""
        return bool(kinds.is_float32(self.kind) or kinds.is_float16(self.kind))

    @property
    def suspect(self) -> bool:
        """Whether values may be impossible to encode, so that all must be checked."""
        return is_wide(self.kind) or self.transform is not None

    def put(self, values: Any, out: Rows) -> None:
        """Write the values into ``out``, missing ones as NaN; so are those that have no transform."""
        numbers = as_floats(values)
        out[:, 0] = numbers if self.transform is None else transformed(numbers.astype(np.float64), self.transform)

    def faulty(self, values: Any) -> Mask:
        if self.transform is not None:
            numbers = as_floats(values).astype(np.float64)
            return np.isnan(transformed(numbers, self.transform)) & ~np.isnan(numbers)
        if not is_wide(values.type):
            return np.zeros(len(values), bool)
        signed = not kinds.is_uint64(values.type)  # unsigned numbers compare with their own kind
        largest = LARGEST if signed else pa.scalar(LARGEST, values.type)
        bad = pc.greater(values, largest)
        bad = pc.or_(bad, pc.less(values, -LARGEST)) if signed else bad
        return np.asarray(bad.fill_null(False).to_numpy(zero_copy_only=False))

    def complaint(self, table: str, first: int, value: object, n_rows: int) -> Problem:
        if self.transform is None:
            return too_large(table, self.column, first, value)
        return Problem(
            table,
            f"column {self.column!r} holds {count_of(n_rows, 'value')} without a {self.transform} (first "
            f"{quoted(value)} in row {first})",
            f"use another transform{', such as log1p' if self.transform == 'log' else ''}, or {{na}} if it stands "
            "for a missing one",
            Remedy.CODE,
            self.column,
            (str(value),),
        )


def as_floats(values: Any) -> Rows:
    """Numbers and booleans in floating point, missing ones as NaN."""
    if not kinds.is_floating(values.type):
        values = values.cast(pa.float64(), safe=False)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def too_large(table: str, column: str, row: int, value: object) -> Problem:
    """The problem of an integer that float64 cannot hold."""
    seen = quoted(value)[1:-1]
    return Problem(
        table,
        f"column {column!r} holds whole numbers beyond 2**53 ({seen} in row {row}), which float64 would round",
        "if it is an identifier, {ignore}, otherwise store it as floating point",
        Remedy.IGNORE,
        column,
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

    def complaint(self, table: str, first: int, value: object, n_rows: int) -> Problem:
        return Problem(
            table,
            f"column {self.column!r} holds values outside its declared categories in {count_of(n_rows, 'row')} "
            f"(first {quoted(value)} in row {first}; declared: {listed(self.categories)})",
            "declare every category, correct the rows, or {ignore}",
            Remedy.CODE,
            self.column,
            (str(value),),
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
class Encoding:
    """How the chosen columns of a source become the columns of a table."""

    encoders: tuple[Encoder, ...]
    normalise_rows: str | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return [encoder.column for encoder in self.encoders]

    @cached_property
    def names(self) -> list[str]:
        """The columns of the table."""
        own = [(encoder, name) for encoder in self.encoders for name in encoder.names]
        norm, n = self.normalise_rows, len(self._divided)
        return [
            name if norm is None or isinstance(encoder, CategoryEncoder) else divided_name(name, norm, n)
            for encoder, name in own
        ]

    @property
    def single(self) -> bool:
        """Whether float32 is enough."""
        return all(encoder.single for encoder in self.encoders)

    @property
    def is_plain(self) -> bool:
        """Whether numbers stay as they are."""
        plain = all(isinstance(encoder, NumberEncoder) and encoder.transform is None for encoder in self.encoders)
        return plain and self.normalise_rows is None

    @property
    def blocks(self) -> Iterator[tuple[Encoder, slice]]:
        """Every encoder with the columns that it writes."""
        start = 0
        for encoder in self.encoders:
            yield encoder, slice(start, start + len(encoder.names))
            start += len(encoder.names)

    @property
    def categories(self) -> tuple[tuple[int, int, int | None], ...]:
        """First column and end of each column of categories, and the column of the category ``other``, if any."""
        found = []
        for encoder, own in self.blocks:
            if isinstance(encoder, CategoryEncoder):
                named = [value.lower() for value in encoder.categories]
                found.append((own.start, own.stop, own.start + named.index("other") if "other" in named else None))
        return tuple(found)

    def fill(self, out: Rows, batch: Any) -> None:
        """Write the rows of a batch."""
        for encoder, own in self.blocks:
            encoder.put(batch.column(encoder.column), out[:, own])
        if self.normalise_rows is not None:
            divide(out, self._divided, self.normalise_rows)

    @cached_property
    def _divided(self) -> list[int]:
        """The columns of numbers, which rows are divided by."""
        return [own.start for encoder, own in self.blocks if isinstance(encoder, NumberEncoder)]


def encoding_of(source: Source, reading: Reading, levels: Levels) -> tuple[Encoding, list[Problem]]:
    """The encoding of the chosen columns, as far as they can be encoded, and what is wrong with the others.

    The source will return columns with categories as text. ``levels`` are the categories that sites agreed on: other
    values are no error there.
    """
    names, problems = chosen(source, reading)
    declared = reading.declared
    source.texts = {
        **source.texts,
        **{name: frozenset[str]() for name in levels},
        **{name: frozenset(values) for name, values in declared.items()},
    }
    encoders = list[Encoder]()
    for name in names:
        encoder = _encoder(source, name, declared.get(name), reading.transforms.get(name))
        if name in levels:
            encoder = CategoryEncoder(name, source.schema.field(name).type, tuple(levels[name]), is_open=True)
        (encoders if isinstance(encoder, Encoder) else problems).append(encoder)  # type: ignore[arg-type]
    encoding = Encoding(tuple(encoders), reading.normalise_rows)
    if reading.normalise_rows is not None and not any(isinstance(e, NumberEncoder) for e in encoders):
        problems.append(Problem(source.name, f"there is no column of numbers for {reading.normalise_rows} of rows"))
    check_names(source.name, encoding.names)
    return encoding, problems


def chosen(source: Source, reading: Reading) -> tuple[list[str], list[Problem]]:
    """The names of the chosen columns, in order, and what is wrong with the choice."""
    there = list(source.schema.names)
    problems = [no_column(source.name, name, there) for name in reading.named if name not in there]
    if reading.columns is not None:
        _check_columns(source.name, reading)
        return [name for name in reading.columns if name in there], problems
    names = [n for n in there if n not in reading.ignore and not PANDAS_INDEX.fullmatch(n)]
    if not names:
        raise InputError(f"{source.name}: no columns are left of its {len(there)}; ignore fewer columns, or add some")
    if "" in names:
        fault = f"column {there.index('') + 1} has no name (pandas writes its index so; use index=False)"
        problems.append(Problem(source.name, fault, "name it, or {ignore}"))
    return [name for name in names if name], problems


def _check_columns(table: str, reading: Reading) -> None:
    columns = list(reading.columns or ())
    both = [name for name in columns if name in reading.ignore]
    twice = [name for name in columns if columns.count(name) > 1]
    if not columns:
        raise InputError(f"{table}: 'columns' is empty; name at least one column")
    if both:
        raise InputError(f"{table}: column {both[0]!r} is in both 'columns' and 'ignore'; remove it from one")
    if twice:
        raise InputError(f"{table}: column {twice[0]!r} is named {columns.count(twice[0])} times; name it once")


def _encoder(
    source: Source, name: str, categories: tuple[str, ...] | None, transform: str | None
) -> Encoder | Problem:
    kind = source.schema.field(name).type
    holds = kind_of(kind)
    if categories is not None and holds in (Kind.NUMBER, Kind.TEXT, Kind.DATE):
        return CategoryEncoder(name, kind, categories)
    if holds is Kind.NUMBER:
        return NumberEncoder(name, kind, transform)
    return _refusal(source, name, kind)


def _refusal(source: Source, name: str, kind: Any) -> Problem:
    """Why a column can be none of numbers."""
    holds, start = kind_of(kind), f"column {name!r} holds "
    if holds is Kind.DATE:
        advice = "convert it to a number, such as days, or {ignore}"
        return Problem(source.name, f"{start}dates or times ({kind}), not numbers", advice, Remedy.IGNORE, name)
    if holds is Kind.OTHER:
        fault = f"{start}{quoted(kind)[1:-1]}, neither numbers nor text"
        return Problem(source.name, fault, "{ignore}", Remedy.IGNORE, name)
    source.texts = {**source.texts, name: frozenset()}
    first, values = _texts(source, name, kind)
    remedy = Remedy.DECLARE if 0 < len(values) <= MOST_VALUES else Remedy.IGNORE
    advice = "{categories}, or {ignore}"
    return Problem(source.name, f"{start}text{first}", advice, remedy, name, values)


def _texts(source: Source, name: str, kind: Any) -> tuple[str, tuple[str, ...]]:
    """The first text of a column that is no number, and where; and its first values."""
    first, start, values = "", 0, dict[str, None]()
    for batch in source.batches([name], LOOK):
        texts = as_text(batch.column(name), kind)
        if not first:
            stray = ((i, t) for i, t in enumerate(texts.to_pylist()) if t is not None and number_in(t) is None)
            first = next((f" ({quoted(text)} in row {start + i + 1})" for i, text in stray), "")
        if len(values) <= MOST_VALUES:
            values.update(dict.fromkeys(texts.unique().drop_null().to_pylist()))
        if first and len(values) > MOST_VALUES:
            break
        start += batch.num_rows
    return first, tuple(values)[: MOST_VALUES + 1]
