"""How large values are and how many rows a site shows at most, found by sums: what a masked sum must be sized for.

Every site marks the power of sixteen above its largest value and above its number of rows; marks add up, and the
highest one marked is the limit. The server learns how many sites marked which power, not who.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from coterie.errors import OutOfRange
from coterie.messages import codec
from coterie.messages.bounds import Limits
from coterie.messages.schema import Floats, Integers, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers, within_columns
from coterie.messages.verbs import Protocol, Question

T = TypeVar("T")

LOWEST, N_MARKS = -16, 48
"""Powers of sixteen from 16**-16 up, about 5e-20 to 2e37."""


class Magnitudes(Reply, content="sums"):
    """Marks of the number of rows, and of the largest value of each column, or of all columns."""

    rows: Integers = array(N_MARKS, dtype="uint1", bound="1")
    box: Integers = array("groups", N_MARKS, dtype="uint1", bound="1")


class ReportMagnitude(Request[Magnitudes], doing="finding the largest magnitude of the values"):
    """Mark how many rows you show, and how far the largest value is from ``origin`` (none: from zero).

    There is one group of all columns, or one for every column, or none where only rows are asked for. Missing values
    do not count.
    """

    groups: int
    origin: Floats = array("d")


@answers(ReportMagnitude)
def local_magnitudes(table: Table, memory: Memory, ask: ReportMagnitude) -> Magnitudes:
    """The site's marks.

    Values are those of the rows shown, and what adds the squares of the rows behind them to theirs. Rows are as many
    as they count, and as there are.
    """
    origin = ask.origin if len(ask.origin) else np.zeros(len(table.columns))
    largest, held = np.zeros(len(table.columns)), 0.0
    for block in table.raw_blocks():
        away = np.where(np.isnan(block.rows), 0.0, np.abs(block.rows - origin))
        largest = np.maximum(largest, away.max(axis=0, initial=0.0))
        held += float(block.counts.sum())
    largest = np.hypot(largest, np.sqrt(within_columns(table) / max(held, 1e-300)))
    rows = np.asarray(max(held, float(table.n_rows)))
    boxes = largest.max(initial=0.0, keepdims=True) if ask.groups == 1 else largest[: ask.groups]
    return Magnitudes(marks(rows), marks(boxes))


def marks(values: Floats) -> Integers:
    """For each value a row with a single 1: at the lowest power of sixteen that is at least as large."""
    power = np.maximum(LOWEST, np.ceil(np.log2(np.maximum(values, 1e-300)) / 4 - 1e-12))
    if not (power < LOWEST + N_MARKS).all():
        raise OutOfRange(f"values of {np.max(values):g} are too large to be masked; use smaller units")
    marked: Integers = (np.arange(LOWEST, LOWEST + N_MARKS) == power[..., None]).astype(np.int64)
    return marked


def limits_from(reply: Reply) -> Limits:
    """The limit that each array of summed marks stands for, under the array's name: one number, or one a place."""
    limits: dict[str, float | tuple[float, ...]] = {}
    for name, marked in vars(reply).items():
        places = N_MARKS - 1 - np.argmax(marked[..., ::-1] > 0.5, axis=-1)  # a decoded sum is not quite whole
        values = np.ldexp(1.0, 4 * (places + LOWEST))
        if values.size:
            limits[name] = float(values.item()) if values.size == 1 else tuple(values.tolist())
    return limits


def with_limits(protocol: Protocol[T]) -> Protocol[T]:
    """The same protocol, every sum asked for under limits that give each of its numbers a bound."""
    known, answer = _Known(), None
    resume: Callable[[Any], Any] = protocol.send
    while True:
        try:
            question = resume(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        try:
            answer = yield (yield from known.limited(question)) if isinstance(question, Question) else question
            resume = protocol.send
        except Exception as problem:  # the protocol may handle it
            answer, resume = problem, protocol.throw


class _Known:
    """The limits known so far: of the rows as sites show them now, and by the question that found them."""

    def __init__(self) -> None:
        self._view: Limits = {}
        self._measured: dict[bytes, Limits] = {}

    def limited(self, question: Question) -> Protocol[Question]:
        """The question with the limits that bounds of its answer name; asked for where nobody has stated them.

        A remembered request may change what sites show: it says which limits still hold. A request that states its
        ring needs none.
        """
        request = question.request
        if isinstance(request, Mapping):
            if any(each.remembered for each in request.values()):
                self._view, self._measured = {}, {}
        elif request.remembered:
            self._view, self._measured = request.limits_after(self._view), {}
        elif question.summed and request.ring is None and not request.layout.is_bounded(question.limits):
            limits = yield from self._limits(question, request)
            return replace(question, limits={**limits, **question.limits})
        return question

    def _limits(self, question: Question, request: Request[Any]) -> Protocol[Limits]:
        declared = self._view.get("box")
        if isinstance(declared, tuple):  # by column: from declared ranges, so only rows may be left to ask for
            if "rows" not in self._view:
                reply = yield Question(ReportMagnitude(0, np.zeros(0)), summed=True)
                self._view = {**self._view, **limits_from(reply)}
            if request.measure is None:
                return self._view
            if isinstance(request.measure, ReportMagnitude) and len(request.measure.origin):
                return {**self._view, "box": tuple((np.array(declared) + np.abs(request.measure.origin)).tolist())}
        if request.measure is not None:
            key = codec.encode_body(request.measure, {}).digest
            if key not in self._measured:
                reply = yield replace(question, request=request.measure, limits={}, bits=None)
                self._measured[key] = limits_from(reply)
            return self._measured[key]
        if not request.layout.is_bounded({**self._view, **question.limits}):
            reply = yield Question(ReportMagnitude(1, np.zeros(0)), summed=True)
            self._view = limits_from(reply)
        return self._view
