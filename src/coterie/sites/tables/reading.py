"""How a file becomes a table: which columns, what stands for a missing value, and what is done to each value.

The columns of a table are named after what was done: ``sex=f`` is 1 where the sex is f, ``log(pm25)`` is the
logarithm of pm25, ``h0/mean(24)`` is h0 divided by the mean of the 24 columns of its row. So sites that read their
files in other ways do not hold the same columns, and a model's columns say how to read a file for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from coterie.errors import InputError

TRANSFORMS = ("log", "log1p", "sqrt")
"""The natural logarithm, that of one more, and the root."""
NORMS = ("l1", "l2", "mean")
"""What a row may be divided by: the sum of its absolute values, their root of squares, or its mean."""
ALL = "*"
"""Stands for every column in ``na``."""
_DIVIDED = re.compile(rf"(.+)/({'|'.join(NORMS)})\((\d+)\)")
_TRANSFORMED = re.compile(rf"({'|'.join(TRANSFORMS)})\((.+)\)")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a file is read; the same names are options in Python, in job files and of a site's holdings."""

    columns: list[str] | None = None
    """Exactly these columns, in this order; None: all but those to ignore."""
    ignore: list[str] = field(default_factory=list)
    categories: dict[str, list[str]] = field(default_factory=dict)
    """The values of each text column, which becomes a column of 0 and 1 for each of them."""
    na: dict[str, list[Any]] = field(default_factory=dict)
    """By column, or ``*`` for all, the values that stand for a missing one."""
    transforms: dict[str, str] = field(default_factory=dict)
    """By column of numbers: ``log``, ``log1p`` or ``sqrt``."""
    normalise_rows: str | None = None
    """Divide the numbers of each row by their ``mean``, or by their norm ``l1`` or ``l2``."""
    csv_separator: str | None = None
    csv_decimal: str | None = None
    csv_encoding: str | None = None
    """Of CSV files; None: found by their first lines."""

    def check(self) -> None:
        """Raise everything that is wrong with these options, whatever the file."""
        wrong = "; ".join(self._problems())
        if wrong:
            raise InputError(wrong)

    def _problems(self) -> list[str]:
        wrong = [
            f"{option}={getattr(self, option)!r} is text; give a list of names"
            for option in ("columns", "ignore")
            if _is_text(getattr(self, option))
        ]
        for column, values in self.categories.items():
            texts = [] if _is_text(values) else [str(value) for value in values]
            if _is_text(values) or len(set(texts)) < len(texts):
                wrong.append(f"the categories of {column!r} are {values!r}; give a list of distinct values")
        for column, values in self.na.items():
            if _is_text(values) or not isinstance(values, list | tuple) or not values:
                wrong.append(f"na of {column!r} is {values!r}; give a list of values, such as [0]")
        for column, name in self.transforms.items():
            if name not in TRANSFORMS:
                wrong.append(f"the transform of {column!r} is {name!r}; use {', '.join(TRANSFORMS)}")
            if column in self.categories:
                wrong.append(f"column {column!r} has categories and a transform; leave one of them out")
            if column in self.ignore or (self.columns is not None and column not in self.columns):
                wrong.append(
                    f"column {column!r} has a transform, but is not used; use it, or leave the transform out"
                )
        if self.normalise_rows not in (None, *NORMS):
            wrong.append(f"normalise_rows={self.normalise_rows!r}; use {', '.join(NORMS)}")
        return wrong + self._csv_problems()

    def _csv_problems(self) -> list[str]:
        wrong = []
        if self.csv_separator is not None and len(self.csv_separator) != 1:
            wrong.append(f"csv_separator={self.csv_separator!r} is not one character, such as ';'")
        if self.csv_decimal not in (None, ".", ","):
            wrong.append(f"csv_decimal={self.csv_decimal!r}; use '.' or ','")
        if self.csv_encoding is not None and not is_text_encoding(self.csv_encoding):
            wrong.append(f"csv_encoding={self.csv_encoding!r} is unknown; use utf-8, utf-16, latin-1 or cp1252, say")
        return wrong

    @property
    def declared(self) -> dict[str, tuple[str, ...]]:
        """The declared categories by column; a column without any is to have those that sites agree on."""
        given = {column: tuple(str(value) for value in values) for column, values in self.categories.items()}
        return {column: values for column, values in given.items() if values}

    def without(self, column: str) -> Reading:
        """The same without a column that is used otherwise."""
        if self.columns is None:
            return replace(self, ignore=[*self.ignore, column])
        return replace(self, columns=[c for c in self.columns if c != column])

    def for_columns(self, held: Collection[str]) -> Reading:
        """What of this is about columns that a file holds."""
        return replace(
            self,
            columns=None if self.columns is None else [name for name in self.columns if name in held],
            ignore=[name for name in self.ignore if name in held],
            categories={name: values for name, values in self.categories.items() if name in held},
            na={name: values for name, values in self.na.items() if name in (*held, ALL)},
            transforms={name: how for name, how in self.transforms.items() if name in held},
        )

    @property
    def named(self) -> list[str]:
        """Every column that is named anywhere, once."""
        others = (*self.ignore, *self.categories, *(name for name in self.na if name != ALL), *self.transforms)
        return list(dict.fromkeys([*(self.columns or ()), *others]))


def reading_of(options: object) -> Reading:
    """The part of other options that says how files are read."""
    return Reading(**{item.name: getattr(options, item.name) for item in fields(Reading)})


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def is_text_encoding(name: str) -> bool:
    """Whether Python can decode text in this encoding."""
    try:
        "a".encode(name)
    except (LookupError, ValueError):
        return False
    return True


def reading_by(**options: Any) -> Reading:
    """A reading by options as Python has them; those that say nothing of reading are left out."""
    given = {item.name: options[item.name] for item in fields(Reading) if options.get(item.name) is not None}
    for name in ("columns", "ignore"):
        if name in given and not _is_text(given[name]):
            given[name] = list(given[name])
    for name in ("categories", "transforms"):
        given[name] = dict(given.get(name, {}))
    return Reading(**{**given, "na": na_of(given.get("na", ()))})


def na_of(given: Mapping[str, Sequence[object]] | Sequence[object]) -> dict[str, list[object]]:
    """What stands for missing values, by column; a list is for all columns."""
    if isinstance(given, Mapping):
        return {str(column): values if isinstance(values, str) else list(values) for column, values in given.items()}  # type: ignore[misc]
    return {ALL: given if isinstance(given, str) else list(given)} if given else {}  # type: ignore[dict-item]


def category_of(name: str) -> tuple[str, str] | None:
    """The text column and the category of a column such as ``sex=f``; None for any other."""
    column, sign, value = name.partition("=")
    return (column, value) if sign else None


def transform_of(name: str) -> tuple[str, str] | None:
    """The column and the transform of a column such as ``log(pm25)``; None for any other."""
    match = _TRANSFORMED.fullmatch(name)
    return (match[2], match[1]) if match else None


def transformed_name(column: str, transform: str | None) -> str:
    return column if transform is None else f"{transform}({column})"


def divided_name(column: str, norm: str, n_columns: int) -> str:
    return f"{column}/{norm}({n_columns})"


def reading_for(names: Sequence[str], held: Collection[str], na: Mapping[str, Sequence[object]]) -> Reading:
    """How to read a file with the columns ``held`` so that its table has the columns ``names``.

    A name that the file holds is that column as it is. ``InputError`` where rows were divided by the mean, say, of
    more columns than these.
    """
    columns, categories, transforms, divided = (
        list[str](),
        dict[str, list[str]](),
        dict[str, str](),
        list[tuple[str, int]](),
    )
    for name in names:
        if name in held:
            columns.append(name)
            continue
        match = _DIVIDED.fullmatch(name)
        if match:
            name = match[1]
            divided.append((match[2], int(match[3])))
        transformed = _TRANSFORMED.fullmatch(name) if name not in held else None
        category = category_of(name) if transformed is None and name not in held else None
        if transformed:
            name = transformed[2]
            transforms[name] = transformed[1]
        elif category:
            name = category[0]
            categories.setdefault(name, []).append(category[1])
        columns.append(name)
    norm, n_columns = divided[0] if divided else (None, 0)
    if any(pair != (norm, len(divided)) for pair in divided):
        raise InputError(
            f"each row was divided by the {norm} of {n_columns} columns, of which {len(divided)} are left; rows "
            "cannot be divided so without the others. Choose all of these columns, or none."
        )
    return Reading(
        columns=list(dict.fromkeys(columns)),
        categories=categories,
        na={column: list(values) for column, values in na.items()},
        transforms=transforms,
        normalise_rows=norm,
    )


def raw_name(name: str, held: Collection[str]) -> str:
    """The column of a file that a column of its table is made of."""
    if name in held:
        return name
    match = _DIVIDED.fullmatch(name)
    name = match[1] if match else name
    transformed = _TRANSFORMED.fullmatch(name)
    if transformed and name not in held:
        return transformed[2]
    category = category_of(name)
    return category[0] if category and name not in held else name


def number_in(text: str) -> float | None:
    """The number in a text, None if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return None
