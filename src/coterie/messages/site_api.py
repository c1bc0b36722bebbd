"""What a site's functions are given: its table, its memory, and how they are found for a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from coterie.arrays import Floats, Integers, Mask
from coterie.arrays import Rows as Rows
from coterie.messages.bounds import Limits
from coterie.messages.schema import Nothing, Reply, Request, reply_type

R = TypeVar("R", bound=Reply)
T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    """A column of a table: its name and what it holds, ``"number"`` or ``"text"``."""

    name: str
    kind: str = "number"


class Block(NamedTuple):
    """Some rows of a table, C-ordered float32 or float64, and what each counts (None: once).

    A row may stand for several: ``within`` is then, for each row shown, the sum of squares of the rows behind it
    about it, in the units of the rows (an estimate where columns were scaled). None where rows are shown as they are.
    ``present`` is, for each value shown, what the values behind it count; None where every row behind has one.
    """

    rows: Rows
    weights: Floats | None = None
    within: Floats | None = None
    present: Floats | None = None

    @property
    def counts(self) -> Floats:
        """What each row counts."""
        return np.ones(len(self.rows)) if self.weights is None else self.weights

    @property
    def values(self) -> Floats:
        """What the values behind each value shown count; 0 where it is missing."""
        return self.counts[:, None] * ~np.isnan(self.rows) if self.present is None else self.present

    @property
    def variance(self) -> Floats | None:
        """By column, of the rows behind each row shown; None where rows are shown as they are."""
        return None if self.within is None else self.within / (self.counts * self.rows.shape[1])

    def part(self, which: slice | Mask) -> Block:
        """Some of these rows."""
        return Block(*[None if part is None else part[which] for part in self])  # type: ignore[arg-type]


class Table(Protocol):
    """A site's rows, a block at a time, because a table may exceed memory."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, in order."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""

    def raw_blocks(self) -> Iterator[Block]:
        """The rows, in order, as they are: missing values are NaN."""

    def blocks(self) -> Iterator[Block]:
        """The rows, in order, every value finite; ``MissingValues`` is raised where one is not."""


def keys_of(table: Table) -> tuple[str, ...] | None:
    """What names each row, the same at every site that holds columns of it; None where rows go by their place."""
    keys: tuple[str, ...] | None = getattr(table, "keys", None)
    return keys


def new_rows_of(table: Table) -> Table | None:
    """Rows of the same columns that came later, to be embedded as the others were."""
    new: Table | None = getattr(table, "new", None)
    return new


def rows_behind(table: Table) -> int:
    """How many of the site's rows a table stands for."""
    return int(getattr(table, "n_grouped", table.n_rows))


def within_columns(table: Table) -> Floats:
    """For every column the sum of squares of a table's rows about the rows it shows; zeros where it shows these."""
    squares: Floats | None = getattr(table, "within_columns", None)
    return np.zeros(len(table.columns)) if squares is None else squares


def within_scatter(table: Table) -> Floats | None:
    """The same for every pair of columns: the products' sums as a matrix; None where the table does not offer it."""
    scatter: Floats | None = getattr(table, "within_scatter", None)
    return scatter


def rows_at(table: Table, places: Integers) -> tuple[Floats, Floats]:
    """The rows at places given in order, which may repeat, and what each row counts."""
    rows, counts, start = [np.zeros((0, len(table.columns)))], [np.zeros(0)], 0
    for block in table.blocks():
        stop = start + len(block.rows)
        inside = places[(places >= start) & (places < stop)] - start
        rows.append(block.rows[inside].astype(np.float64, copy=False))
        counts.append(block.counts[inside])
        start = stop
    return np.concatenate(rows), np.concatenate(counts)


class Memory(dict[str, Any]):
    """What a site keeps within one run: only what its rows and the requests so far can rebuild."""

    table: Table | None = None
    """A prepared view of the site's table that later requests see in its place."""
    allows: int = 2
    """What the site's policy lets be seen of it by itself: nothing (0), averages (1), or rows (2)."""
    alignment_key: bytes | None = None
    """The sites' common secret, by which keys of rows become tags."""

    def cached(self, key: str, compute: Callable[[], T]) -> T:
        """``self[key]``, computed the first time."""
        if key not in self:
            self[key] = compute()
        value: T = self[key]
        return value


Answering = Callable[[Table, Memory, Any], Reply]
Keeping = Callable[[Table, Memory, Any], None]


class Evaluated(NamedTuple):
    """What a site computed for a request another request carries; it has not left and is not yet checked in bytes."""

    request: Request[Any]
    reply: Reply
    limits: Limits


class Exit(Protocol):
    """What the function of a carrying request may use of its site."""

    name: str
    masking_key: bytes
    """The site's own secret; it never leaves."""
    peers: Mapping[str, bytes] | None
    """Other sites' public keys as the site's owner pinned them; None trusts what the server introduces."""

    def join(self, run: bytes, roster: tuple[str, ...]) -> None:
        """Agree to be summed up with these sites; the site's policy may refuse."""

    def unmask(self, run: bytes, survivors: tuple[str, ...]) -> None:
        """Agree that an upload is summed up with those left; the site's policy may refuse."""

    def evaluate(self, envelope: Any, body: bytes) -> Evaluated:
        """The answer to a carried request, once the site's policy has nothing against it."""

    def answered(self, run: bytes, round: int, attempt: int) -> bytes | None:
        """The bytes of an answer this site gave earlier in the run."""

    def once(self, run: bytes, what: str) -> bool:
        """Whether this is the first time in the run that ``what`` is done; remembered over restarts."""


Carrying = Callable[[Exit, Memory, Any, Any], Reply]
"""Takes the site's exit, the run's memory, the envelope and the request."""
CARRIERS: dict[type[Request[Any]], Carrying] = {}
ANSWERS: dict[type[Request[Any]], Answering] = {}
KEEPERS: dict[type[Request[Any]], Keeping] = {}
"""The functions installed, by the type of request."""


def answers(
    request: type[Request[R]],
) -> Callable[[Callable[[Table, Memory, Any], R]], Callable[[Table, Memory, Any], R]]:
    """Mark the function with which a site answers ``request``."""
    return _registered(ANSWERS, request)


def carries(request: type[Request[Any]]) -> Callable[[Carrying], Carrying]:
    """Mark the function that answers a request which carries another one, or belongs to carrying (masks)."""
    return _registered(CARRIERS, request)


def _registered(functions: dict[type[Request[Any]], Any], request: type[Request[Any]]) -> Callable[[T], T]:
    """Enter the function that is marked; a request that does not fix its reply's every axis is refused here."""
    reply_type(request)

    def register(function: T) -> T:
        functions[request] = function
        return function

    return register


def remembers(request: type[Request[Any]]) -> Callable[[Keeping], Keeping]:
    """Mark the function with which a site updates its memory on ``request``, before it answers.

    It runs again, without an answer, when a site is brought up to date; so it may depend on the site's
    rows and on earlier requests only.
    """
    if not request.remembered:
        raise TypeError(f"declare class {request.__name__}(Request[...], remembered=True) first")
    if reply_type(request) is Nothing:  # unless a function of its own looks at the rows once more
        ANSWERS.setdefault(request, lambda *_: Nothing())
    return _registered(KEEPERS, request)
