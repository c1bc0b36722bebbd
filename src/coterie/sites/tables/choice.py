"""Which columns of a source make a table, in which order and how each is encoded."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coterie.errors import InputError
from coterie.sites.tables.encoders import CategoryEncoder, Encoder, NumberEncoder
from coterie.sites.tables.kinds import Kind, as_text, kind_of, number_in
from coterie.sites.tables.phrases import IGNORE_IT, no_column, quoted
from coterie.sites.tables.sources import Source, check_names

Categories = Mapping[str, Sequence[object]]
PANDAS_INDEX = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True)
class Choice:
    """Exactly ``columns``, or all but those to ``ignore``; text columns by their declared categories."""

    columns: Sequence[str] | None = None
    ignore: Collection[str] = ()
    categories: Categories | None = None

    def __post_init__(self) -> None:
        for option in ("columns", "ignore"):
            if isinstance(getattr(self, option), str):
                raise InputError(f"{option}={getattr(self, option)!r} is text; give a list of names")
        for column, values in (self.categories or {}).items():
            texts = [] if isinstance(values, str) else [str(value) for value in values]
            if not texts or len(set(texts)) < len(texts):
                raise InputError(f"the categories of {column!r} are {values!r}; give a list of distinct values")

    def declared(self) -> dict[str, tuple[str, ...]]:
        """The categories as text, column by column."""
        return {column: tuple(str(v) for v in values) for column, values in (self.categories or {}).items()}

    def without(self, column: str) -> Choice:
        if self.columns is None:
            return replace(self, ignore=[*self.ignore, column])
        return replace(self, columns=[c for c in self.columns if c != column])


def encoders_of(source: Source, choice: Choice) -> tuple[Encoder, ...]:
    """The encoders of the chosen columns; the source will return those with categories as text."""
    names, declared = chosen(source, choice), choice.declared()
    source.texts = {**source.texts, **{name: frozenset(values) for name, values in declared.items()}}
    encoders = tuple(_encoder(source, name, declared.get(name)) for name in names)
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
    seen = first_text(source, name, kind)
    kind = "text" if seen is None else f"text ({quoted(seen[0])} in row {seen[1]})"
    return f"{kind}; declare its values in 'categories', or {IGNORE_IT}"


def first_text(source: Source, name: str, kind: Any) -> tuple[str, int] | None:
    """The first value of a text column that is not a number, and its row."""
    source.texts = {**source.texts, name: frozenset()}
    start = 0
    for batch in source.batches([name], 1 << 14):
        for place, text in enumerate(as_text(batch.column(name), kind).to_pylist()):
            if text is not None and number_in(text) is None:
                return text, start + place + 1
        start += batch.num_rows
    return None
