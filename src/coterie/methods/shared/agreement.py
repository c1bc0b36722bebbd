"""Agreement on columns: does every site hold these? From then on it shows these alone, in this order."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from coterie.errors import ColumnsDiffer, InputError, MalformedMessage
from coterie.messages.schema import Integers, Nothing, Reply, Request, array
from coterie.messages.site_api import Column, Memory, Table, answers, remembers
from coterie.messages.verbs import Protocol, each, total
from coterie.methods.shared.selection import places_of, selected


class Visible(IntEnum):
    """What the server may see of one site by itself."""

    SUMS = 0
    """Nothing: it sees sums over several sites."""
    AVERAGES = 1
    ROWS = 2


class Capabilities(NamedTuple):
    """What holds for all sites of a run: what may be seen of each, and what they compute with."""

    visible: Visible = Visible.ROWS
    min_group: int = 0
    """The fewest rows in a group of any site that shows groups; 0 where none does."""
    fewest_of_half: int = 1
    """The fewest sites that half of the sites may be, to be summed up apart; 0 where a site does not allow it."""
    composition: bool = True
    """Whether every site lets the server see how many of its rows are in each final cluster."""

    @property
    def averages(self) -> bool:
        """Whether every site allows averages."""
        return self.visible >= Visible.AVERAGES


class Match(IntEnum):
    """How a site's column compares with the one expected."""

    SAME = 0
    ABSENT = 1
    ELSEWHERE = 2
    OTHER_KIND = 3


class ColumnReport(Reply, content="schema"):
    """For every expected column whether the site has it so, and whether these are all of its columns.

    Then what its policy lets be seen of it by itself; whether its rows in each final cluster may be counted; the
    fewest rows behind a row it shows, 0 where it shows rows as they are; and the fewest sites that half of a run's
    sites may be, 0 where it is not summed up with half of them.
    """

    matches: Integers = array("d", dtype="uint2")
    complete: Integers = array(dtype="uint1")
    allows: Integers = array(dtype="uint2")
    composition: Integers = array(dtype="uint1")
    min_group: Integers = array(dtype="uint8")
    fewest_of_half: Integers = array(dtype="uint16")


class Agree(Request[ColumnReport], doing="comparing the sites' columns"):
    """Are these among your columns, and in this order?"""

    d: int
    names: tuple[str, ...]
    kinds: tuple[str, ...]


class UseColumns(Request[Nothing], remembered=True, doing="selecting columns"):
    """From now on show these columns alone, in this order."""

    names: tuple[str, ...]

    @property
    def tells_nothing(self) -> bool:
        """Which columns there are does not depend on rows."""
        return True


@remembers(UseColumns)
def keep_selected(table: Table, memory: Memory, ask: UseColumns) -> None:
    """Put the selection in the table's place; the whole of it stays at hand for columns to be described besides."""
    memory.base = memory.base or table
    memory.table = selected(memory.base, ask.names)


@answers(Agree)
def local_report(table: Table, memory: Memory, ask: Agree) -> ColumnReport:
    """Compare the site's columns with the expected ones; rows are not looked at."""
    if not ask.d == len(ask.names) == len(ask.kinds):
        raise MalformedMessage(f"{len(ask.names)} names and {len(ask.kinds)} kinds for {ask.d} columns")
    matches = np.zeros(ask.d, np.int64)
    for i, (place, kind) in enumerate(zip(places_of(table, ask.names), ask.kinds, strict=True)):
        if place is None:
            matches[i] = Match.ABSENT
        elif table.columns[place].kind != kind:
            matches[i] = Match.OTHER_KIND
        elif place != i or table.columns[place].name != ask.names[i]:  # a category that no row here has is 0
            matches[i] = Match.ELSEWHERE
    is_complete = {column.name for column in table.columns} == set(ask.names)
    least = getattr(table, "min_group", 0)
    numbers = (is_complete, memory.allows, memory.shows_composition, least, memory.fewest_of_half)
    return ColumnReport(matches, *(np.array(int(number)) for number in numbers))


def agree(columns: Sequence[Column], besides: Sequence[Column] = ()) -> Protocol[Capabilities]:
    """Make sure that every site holds these columns; :class:`ColumnsDiffer` says who does not.

    Sites that hold them in another order, or hold others as well, show these columns alone from then on. ``besides``
    are columns that are not shown, but must be there. The result is what all sites allow. It decides what ``"auto"``
    means, before any other question. Per-site results are seen, so that the site that differs can be named; they
    describe columns, not rows.
    """
    wanted = (*columns, *besides)
    names, kinds = tuple(c.name for c in wanted), tuple(c.kind for c in wanted)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"column {twice[0]!r} appears more than once; column names must differ")
    reports = yield from each(Agree(len(names), names, kinds))
    differences = {site: _differences(report, wanted) for site, report in reports.items()}
    differences = {site: texts for site, texts in differences.items() if texts}
    if differences:
        where = "; ".join(f"{site}: {', '.join(texts)}" for site, texts in differences.items())
        raise ColumnsDiffer(
            f"sites do not hold the same columns. {where}. Name the columns to use, from those that all sites hold.",
            differences,
        )
    if besides or not all(report.complete and not report.matches.any() for report in reports.values()):
        yield from total(UseColumns(names[: len(columns)]))
    groups = (int(report.min_group) for report in reports.values() if report.min_group)
    visible = Visible(min(int(report.allows) for report in reports.values()))
    composition = all(bool(report.composition) for report in reports.values())
    halves = [int(report.fewest_of_half) for report in reports.values()]
    return Capabilities(visible, min(groups, default=0), max(halves) if all(halves) else 0, composition)


def _differences(report: ColumnReport, columns: Sequence[Column]) -> tuple[str, ...]:
    words = {
        Match.ABSENT: "column {0.name!r} is missing",
        Match.OTHER_KIND: "column {0.name!r} does not hold {0.kind}s",
    }
    matches = [Match(int(number)) for number in report.matches]
    return tuple(words[m].format(c) for c, m in zip(columns, matches, strict=True) if m in words)
