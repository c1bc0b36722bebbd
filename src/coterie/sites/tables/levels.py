"""The levels of text columns whose categories nobody declared: what each site names of its own, and what all use."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from coterie.sites.tables.encoders import LOOK, OTHER, Kind, as_text, chosen, kind_of, owners
from coterie.sites.tables.phrases import listed
from coterie.sites.tables.problems import Problem, Remedy
from coterie.sites.tables.reading import Reading, number_in
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


def agreed_levels(
    sources: Mapping[str, Source], choices: Mapping[str, Reading], least: Mapping[str, int]
) -> tuple[Levels, list[Problem]]:
    """The levels of every column that holds text at some site, or is to be categories, and has no declared ones; and
    the columns that hold text at some sites and numbers at others.

    Each site names the levels that at least ``least`` of its rows hold; all sites use what any of them names. A value
    that none names is of the level ``other``, where at least as many rows of a site hold such values, or else of no
    level. A column that nobody names a level of has none here.
    """
    columns = columns_of_text(sources, choices)
    counts: Counts = {}
    for site, source in sources.items():
        own = [column for column in columns if column in source.schema.names]
        counts[site] = level_counts(source, own)[""]
    problems = _unlike_kinds(sources, choices, counts)
    left_out = {problem.column for problem in problems}
    levels = {column: own for column, own in united(counts, least).items() if column not in left_out}
    return levels, problems


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


def unlike(levels: Levels) -> list[Problem]:
    """The columns of which no value is a category."""
    reason = f"no value that enough rows of a site share to be a category, or more than {MOST_LEVELS} such values"
    return [
        Problem("", f"column {column!r} has {reason}", "{ignore}", Remedy.IGNORE, column)
        for column, own in levels.items()
        if own == (OTHER,)
    ]


def columns_of_text(sources: Mapping[str, Source], choices: Mapping[str, Reading]) -> list[str]:
    """The columns that need levels, as they come."""
    columns = dict[str, None]()
    for site, source in sources.items():
        for column in chosen(source, choices[site])[0]:
            asked = column in choices[site].categories
            is_text = kind_of(source.schema.field(column).type) is Kind.TEXT
            if (is_text or asked) and column not in choices[site].declared:
                columns[column] = None
    return list(columns)


def _unlike_kinds(sources: Mapping[str, Source], choices: Mapping[str, Reading], counts: Counts) -> list[Problem]:
    """The columns that hold text at some sites and numbers at others, and are not said to be of categories."""
    problems = list[Problem]()
    for column in _columns(counts):
        asked = any(column in choice.categories for choice in choices.values())
        text, other = list[str](), list[str]()
        for site, source in sources.items():
            if counts[site].get(column, Counter()) != Counter():  # a column without a value is of any kind
                is_text = kind_of(source.schema.field(column).type) is Kind.TEXT
                (text if is_text else other).append(source.name)
        if text and other and not asked:
            fault = f"column {column!r} holds text in {listed(text)} and numbers in {listed(other)}"
            advice = "say what stands for a missing value there ({na}), {declare}, or {ignore}"
            problems.append(Problem("", fault, advice, Remedy.CODE, column, _codes(counts, column)))
    return problems


def _codes(counts: Counts, column: str) -> tuple[str, ...]:
    """The most frequent text of a column that also holds numbers: it may stand for a missing value."""
    texts = sum(
        (
            Counter({text: n for text, n in (own.get(column) or {}).items() if number_in(text) is None})
            for own in counts.values()
        ),
        Counter[str](),
    )
    return tuple(text for text, _ in texts.most_common(1))
