"""Layers between a protocol and the wire: each rewrites a question into questions that can travel."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, TypeVar
from typing import Protocol as Typed

from coterie.messages.schema import Reply
from coterie.messages.verbs import Place, Present, Protocol, Question, Remain, Seen

T = TypeVar("T")

Below = Question | Present | Place | Remain
Lowering = Generator[Below, Any, Any]


class Layer(Typed):
    """Turns one question into a small protocol of its own that ends in the question's answer."""

    def around(self, protocol: Protocol[T]) -> Protocol[T]:
        """The protocol with whatever must be asked besides: recorded and resumed as its own questions are."""
        ...

    def lower(self, question: Question) -> Lowering:
        """Yield what is to be asked in its stead; return what the asker shall see."""
        ...

    state: bytes
    """What it needs to know again where a run is resumed; recorded with every answer."""


class PlainSums:
    """A sum as the server's own sum of per-site results, in roster order, in float64."""

    state = b""

    def around(self, protocol: Protocol[T]) -> Protocol[T]:
        """Nothing is asked besides."""
        return protocol

    def lower(self, question: Question) -> Lowering:
        """Ask for every answer and add them up."""
        if not question.summed:
            return (yield question)
        replies: dict[str, Reply] = yield replace(question, summed=False, seen=Seen.SUMMED)
        return sum_in_order(replies.values())


def sum_in_order(replies: Iterable[Reply]) -> Reply:
    """The replies' sum, added one after the other, so that it comes out the same bit for bit every time."""
    first, *rest = replies
    wide = type(first)(*[a.astype("f8" if a.dtype.kind == "f" else "i8") for a in first.arrays()])
    return reduce(add, rest, wide)  # of 64-bit numbers also where one reply is all


def ask_through(layers: tuple[Layer, ...], ask: Callable[[Below], Any], question: Below) -> Any:
    """Lower a question through all layers, the first outermost, and ask what comes out below."""
    if not layers or not isinstance(question, Question):
        return ask(question)
    lowering = layers[0].lower(question)
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            below = lowering.send(answer) if failure is None else lowering.throw(failure)
        except StopIteration as stop:
            return stop.value
        answer, failure = None, None
        try:
            answer = ask_through(layers[1:], ask, below)
        except Exception as problem:  # the layer may recover
            failure = problem
