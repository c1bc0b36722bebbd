"""How large values are and how many rows a site holds at most, found by sums: what a masked sum must be sized for.

Every site marks the power of sixteen above its largest value and above its number of rows; marks add up, and the
highest one marked is the limit. The server learns how many sites marked which power, not who.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from coterie.errors import OutOfRange
from coterie.messages.schema import Floats, Integers, Reply, Request, array
from coterie.messages.site_part import Memory, Table, answers, within_columns
from coterie.messages.verbs import Protocol, Question, total

__all__ = ["N_MARKS", "MarkLargest", "Marks", "find_limits", "find_units", "highest", "mark", "within"]

LOWEST, N_MARKS = -16, 48
"""Powers of sixteen from 16**-16 up, about 5e-20 to 2e37."""

T = TypeVar("T")


@dataclass(frozen=True)
class Marks(Reply, content="sums"):
    """One mark for the number of rows and one for every group of columns."""

    rows: Integers = array(N_MARKS, dtype="uint1", bound="1")
    sizes: Integers = array("groups", N_MARKS, dtype="uint1", bound="1")


@dataclass(frozen=True)
class MarkLargest(Request[Marks]):
    """Mark how many rows you hold and how far the largest value is from ``origin``; missing values aside.

    There is one group for every column, or one for all columns together.
    """

    groups: int
    origin: Floats = array("d")


@answers(MarkLargest)
def local_marks(table: Table, memory: Memory, ask: MarkLargest) -> Marks:
    """The site's marks.

    Values are those of the rows shown, and what adds the squares of the rows behind them to theirs. Rows are as many
    as they count, and as there are.
    """
    largest, held = np.zeros(ask.axes["d"]), 0.0
    for block in table.raw_blocks():
        away = np.where(np.isnan(block.rows), 0.0, np.abs(block.rows - ask.origin))
        largest = np.maximum(largest, away.max(axis=0, initial=0.0))
        held += float(block.counts.sum())
    largest = np.hypot(largest, np.sqrt(within_columns(table) / max(held, 1e-300)))
    groups = largest if ask.groups == len(largest) else np.full(ask.groups, largest.max(initial=0.0))
    return Marks(mark(np.array([max(held, float(table.n_rows))]))[0], mark(groups))


def mark(values: Floats) -> Integers:
    """For each value a row with a single 1: at the lowest power of sixteen that is at least as large."""
    marks = np.zeros((len(values), N_MARKS), np.int64)
    for i, value in enumerate(values):
        power = max(LOWEST, int(np.ceil(np.log2(max(value, 1e-300)) / 4 - 1e-12)))
        if not power < LOWEST + N_MARKS:
            raise OutOfRange(f"values of {value:g} are too large to be masked; use smaller units")
        marks[i, power - LOWEST] = 1
    return marks


def highest(marks: Integers) -> Floats:
    """The power of sixteen of the highest mark in each row."""
    places = N_MARKS - 1 - np.argmax(marks[:, ::-1] > 0.5, axis=1)  # a decoded sum is not quite whole
    powers: Floats = np.ldexp(1.0, 4 * (places + LOWEST))
    return powers


def find_limits(n_columns: int, *, at_least: float = 0.0) -> Protocol[dict[str, float]]:
    """``rows`` and ``box`` for all sites and columns; ``at_least`` is a size known from elsewhere."""
    found = yield from total(MarkLargest(1, np.zeros(n_columns)))
    box = max(float(highest(found.sizes)[0]), at_least)
    return {"rows": float(highest(found.rows[None])[0]), "box": box}


def find_units(origin: Floats) -> Protocol[tuple[Floats, dict[str, float]]]:
    """For every column a power of sixteen no value is farther from ``origin`` than, and limits in these units."""
    found = yield from total(MarkLargest(len(origin), origin))
    return highest(found.sizes), {"rows": float(highest(found.rows[None])[0]), "box": 1.0}


def within(limits: Mapping[str, float], protocol: Protocol[T], *, bits: int | None = None) -> Protocol[T]:
    """The same protocol, its questions declared to lie within limits, and to do with a ring of so many bits."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            question = protocol.send(answer) if failure is None else protocol.throw(failure)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if isinstance(question, Question):
            question = replace(question, limits={**limits, **question.limits}, bits=question.bits or bits)
        answer, failure = None, None
        try:
            answer = yield question
        except Exception as problem:  # the protocol may have a way around it
            failure = problem
