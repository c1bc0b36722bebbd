"""What rows decide of a run: how many rounds it takes, how many numbers a question has.

In a run the rows decide, and these functions return what they are given. A plan rehearses a run over made-up rows:
once with the least of everything that is open, once with the most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


class Extent(Enum):
    """How much of what is open a rehearsal takes."""

    AS_MADE_UP = "as the made-up rows say"
    LEAST = "the least"
    MOST = "the most"


@dataclass
class Rehearsal:
    """A run without sites."""

    extent: Extent
    is_open: bool = False
    """Whether rows decided anything so far."""
    is_shared_out: bool = False
    """Whether rows decided how much each site sends of what all send together."""


_REHEARSAL: ContextVar[Rehearsal | None] = ContextVar("rehearsal", default=None)


@contextmanager
def rehearsing(extent: Extent) -> Iterator[Rehearsal]:
    """What is open has this extent inside."""
    rehearsal = Rehearsal(extent)
    token = _REHEARSAL.set(rehearsal)
    try:
        yield rehearsal
    finally:
        _REHEARSAL.reset(token)


def between(value: T, least: T, most: T) -> T:
    """The value; in a rehearsal its least or its most. Equal ones leave nothing open."""
    rehearsal = _REHEARSAL.get()
    if rehearsal is None or least == most:
        return value
    rehearsal.is_open = True
    return {Extent.AS_MADE_UP: value, Extent.LEAST: least, Extent.MOST: most}[rehearsal.extent]


def shared_out(sizes: T) -> T:
    """By site the shares of a fixed number of rows."""
    rehearsal = _REHEARSAL.get()
    if rehearsal is not None:
        rehearsal.is_open = rehearsal.is_shared_out = True
    return sizes


def leave_open() -> None:
    """Take note that rows decide something of a rehearsal that is counted elsewhere."""
    rehearsal = _REHEARSAL.get()
    if rehearsal is not None:
        rehearsal.is_open = True


def is_over(condition: bool) -> bool:
    """Whether a loop of questions ends here, which it may: the least is at once, the most is never."""
    return between(bool(condition), True, False)


def is_asked(condition: bool) -> bool:
    """Whether a question is asked besides, which it may not be."""
    return between(bool(condition), False, True)


def sized(items: Any, least: int, most: int) -> Any:
    """The items of a sequence or along the first axis of an array; in a rehearsal as few or as many as there can be,
    repeated where there are not enough."""
    wanted = between(len(items), least, max(least, most))
    if wanted == len(items):
        return items
    places = np.arange(wanted) % max(1, len(items))
    if isinstance(items, np.ndarray):
        return items[places] if len(items) else np.zeros((wanted, *items.shape[1:]), items.dtype)
    repeated: Sequence[Any] = [items[place] for place in places]
    return repeated


def padded(rows: np.ndarray[Any, Any], least: int, most: int) -> Any:
    """The same with zeros where there are not enough."""
    wanted = between(len(rows), least, max(least, most))
    return rows if wanted == len(rows) else np.concatenate([rows, np.zeros((wanted, *rows.shape[1:]))])[:wanted]
