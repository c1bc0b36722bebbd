"""The levels of text columns whose categories nobody declared: what each site names of its own, and what all use."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from coterie.errors import InputError
from coterie.sites.tables.encoders import LOOK, OTHER, Choice, Kind, as_text, chosen, kind_of, owners
from coterie.sites.tables.phrases import IGNORE_IT, listed
from coterie.sites.tables.sources import Source

MOST_LEVELS = 64
"""A column with more is hardly one of categories: all its values count as other ones."""
MOST_VALUES = 1 << 16
"""So many different values are counted; a column with more has no levels."""

Levels = dict[str, tuple[str, ...]]
"""By column, in alphabetical order; the last may be ``other``."""
Counts = dict[str, dict[str, "Counter[str] | None"]]
"""By site and column how many rows hold each value; None where there are too many different ones."""


class OwnLevels(NamedTuple):
    """What a site names of a column: a level only if enough of its rows hold it."""

    named: frozenset[str]
    has_others: bool
    """Whether as many rows hold other values."""

    @classmethod
    def of(cls, counts: Counter[str] | None, least: int) -> OwnLevels:
        if counts is None:
            return cls(frozenset(), True)
        named = frozenset(value for value, times in counts.items() if times >= least)
        if len(named) > MOST_LEVELS:
            named = frozenset()
        rest = sum(times for value, times in counts.items() if value not in named)
        return cls(named, rest >= least)


def agreed_levels(sources: Mapping[str, Source], choices: Mapping[str, Choice], least: Mapping[str, int]) -> Levels:
    """The levels of every column that holds text at some site, or is to be categories, and has no declared ones.

    Each site names the levels that at least ``least`` of its rows hold; all sites use what any of them names. A value
    that none names is of the level ``other``, where at least as many rows of a site hold such values, or else of no
    level. A column that nobody names a level of has none here.
    """
    columns = columns_of_text(sources, choices)
    counts: Counts = {}
    for site, source in sources.items():
        own = [column for column in columns if column in source.schema.names]
        counts[site] = level_counts(source, own)[""]
    _check_kinds(sources, choices, counts)
    return united(counts, least)


def united(counts: Counts, least: Mapping[str, int]) -> Levels:
    """What all sites use, by what each names."""
    agreed = {}
    for column in _columns(counts):
        own = [
            OwnLevels.of(by_column[column], least[site]) for site, by_column in counts.items() if column in by_column
        ]
        levels = frozenset[str]().union(*(each.named for each in own)) - {OTHER}
        has_others = any(each.has_others or OTHER in each.named for each in own)
        if len(levels) > MOST_LEVELS:
            levels, has_others = frozenset(), True
        if levels or has_others:
            agreed[column] = (*sorted(levels), *([OTHER] if has_others else []))
    return agreed


def level_counts(source: Source, columns: Sequence[str], site_column: str | None = None) -> Counts:
    """How many rows hold each value of these columns, by site; without a column of sites there is one, called ``""``.

    Each site is there, also one without a value.
    """
    source.texts = {**source.texts, **{column: frozenset[str]() for column in columns}}
    counts: Counts = defaultdict(lambda: {column: Counter() for column in columns})
    asked = [*dict.fromkeys([*columns, *([] if site_column is None else [site_column])])]
    for batch in source.batches(asked, LOOK) if asked else ():
        whose = [""] * batch.num_rows
        if site_column is not None:
            whose = owners(batch.column(site_column), source.schema.field(site_column).type)
        for column in columns:
            texts = as_text(batch.column(column), source.schema.field(column).type)
            pairs = pa.table({"site": whose, "text": texts}).group_by(["site", "text"]).aggregate([([], "count_all")])
            for row in pairs.to_pylist():
                if row["text"] is not None and row["site"] is not None:
                    _count(counts[row["site"]], column, row["text"], row["count_all"])
    return counts if site_column is not None else {"": counts[""]}


def _count(own: dict[str, Counter[str] | None], column: str, text: str, times: int) -> None:
    counts = own[column]
    if counts is not None:
        counts[text] += times
        if len(counts) > MOST_VALUES:
            own[column] = None


def _columns(counts: Counts) -> list[str]:
    """The columns that were counted."""
    return [*dict.fromkeys(column for own in counts.values() for column in own)]


def check_shared(levels: Levels) -> None:
    """Raise where no value of a column is shared by enough rows to be a level."""
    unlike = [column for column, own in levels.items() if own == (OTHER,)]
    if unlike:
        are = f"column {unlike[0]!r} has" if len(unlike) == 1 else f"columns {listed(unlike)} have"
        raise InputError(
            f"{are} no value that enough rows of a site share to be a category, or more than {MOST_LEVELS} such "
            f"values; {IGNORE_IT}"
        )


def columns_of_text(sources: Mapping[str, Source], choices: Mapping[str, Choice]) -> list[str]:
    """The columns that need levels, as they come."""
    columns = dict[str, None]()
    for site, source in sources.items():
        for column in chosen(source, choices[site]):
            asked = column in (choices[site].categories or {})
            is_text = kind_of(source.schema.field(column).type) is Kind.TEXT
            if (is_text or asked) and column not in choices[site].declared:
                columns[column] = None
    return list(columns)


def _check_kinds(sources: Mapping[str, Source], choices: Mapping[str, Choice], counts: Counts) -> None:
    """Raise where a column holds text at some sites and numbers at others, and is not said to be of categories."""
    problems = []
    for column in _columns(counts):
        asked = any(column in (choice.categories or {}) for choice in choices.values())
        text, other = list[str](), list[str]()
        for site, source in sources.items():
            if counts[site].get(column, Counter()) != Counter():  # a column without a value is of any kind
                is_text = kind_of(source.schema.field(column).type) is Kind.TEXT
                (text if is_text else other).append(source.name)
        if text and other and not asked:
            problems.append(f"column {column!r} holds text in {listed(text)} and numbers in {listed(other)}")
    if problems:
        raise InputError(
            f"{'; '.join(problems)}; say what stands for a missing value there ('na'), name the column in "
            f"'categories' so that every value is a category, or {IGNORE_IT}"
        )
