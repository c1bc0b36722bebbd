"""The interface of a site's functions: tables, memory, and the registration of functions by request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from coterie.arrays import Floats, Integers, Mask
from coterie.arrays import Rows as Rows
from coterie.messages.bounds import Limits
from coterie.messages.heads import Head
from coterie.messages.identity import Card
from coterie.messages.schema import Nothing, Reply, Request, reply_type

R = TypeVar("R", bound=Reply)
T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    """A column of a table: its name and what it holds, ``"number"`` or ``"text"``."""

    name: str
    kind: str = "number"


class Block(NamedTuple):
    """Rows of a table, C-ordered float32 or float64, and their weights (None: 1 each).

    A row may represent a group of rows. ``within`` is then the sum of squared distances of these rows from it, in the
    units of the rows (an estimate if columns were scaled); None if rows are single rows. ``present`` is the weight of
    the values behind each value; None if no value is missing.
    """

    rows: Rows
    weights: Floats | None = None
    within: Floats | None = None
    present: Floats | None = None

    @property
    def counts(self) -> Floats:
        return np.ones(len(self.rows)) if self.weights is None else self.weights

    @property
    def values(self) -> Floats:
        """The weight behind each value; 0 if it is missing."""
        return self.counts[:, None] * ~np.isnan(self.rows) if self.present is None else self.present

    @property
    def variance(self) -> Floats | None:
        """The variance, per column, of the rows behind each row; None for single rows."""
        return None if self.within is None else self.within / (self.counts * self.rows.shape[1])

    def part(self, which: slice | Mask) -> Block:
        return Block(*[None if part is None else part[which] for part in self])  # type: ignore[arg-type]


class Table(Protocol):
    """A site's rows, in blocks, since a table may exceed memory."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, in order."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""

    def raw_blocks(self) -> Iterator[Block]:
        """The rows, in order; missing values are NaN."""

    def blocks(self) -> Iterator[Block]:
        """The rows, in order; ``MissingValues`` if a value is not finite."""


def keys_of(table: Table) -> tuple[str, ...] | None:
    """The keys of a table's rows, by which sites match them; None if rows are matched by position."""
    keys: tuple[str, ...] | None = getattr(table, "keys", None)
    return keys


class Units(NamedTuple):
    """Whose each row of a table is, for privacy of all rows of one person."""

    column: str
    """The column that says so; it is not among the table's columns."""
    codes: Integers
    """Rows with equal numbers are of the same unit; one that lacks a value is a unit of its own."""


def units_of(table: Table) -> Units | None:
    """The units of a table's rows; None if it was opened without them."""
    units: Units | None = getattr(table, "units", None)
    return units


def new_rows_of(table: Table) -> Table | None:
    """New rows of the same columns, to be embedded like the others."""
    new: Table | None = getattr(table, "new", None)
    return new


def unprepared(table: Table) -> Table:
    """The site's own table, of the rows that a prepared, embedded or selected one shows, in the same order."""
    own: Table | None = getattr(table, "unprepared", None)
    return table if own is None else own


def rows_behind(table: Table) -> int:
    """The number of a site's rows that a table represents."""
    return int(getattr(table, "n_grouped", table.n_rows))


def within_columns(table: Table) -> Floats:
    """Per column the sum of squares within groups; zeros for a table of single rows."""
    squares: Floats | None = getattr(table, "within_columns", None)
    return np.zeros(len(table.columns)) if squares is None else squares


def within_scatter(table: Table) -> Floats | None:
    """The scatter matrix within groups; None if the table does not have it."""
    scatter: Floats | None = getattr(table, "within_scatter", None)
    return scatter


def rows_at(table: Table, places: Integers) -> tuple[Floats, Floats]:
    """The rows at sorted positions, which may repeat, and their weights."""
    rows, counts, start = [np.zeros((0, len(table.columns)))], [np.zeros(0)], 0
    for block in table.blocks():
        stop = start + len(block.rows)
        inside = places[(places >= start) & (places < stop)] - start
        rows.append(block.rows[inside].astype(np.float64, copy=False))
        counts.append(block.counts[inside])
        start = stop
    return np.concatenate(rows), np.concatenate(counts)


class Memory(dict[str, Any]):
    """What a site keeps during a run: only what its rows and the requests so far can rebuild."""

    table: Table | None = None
    """A prepared view of the site's table, which later requests get instead of it."""
    base: Table | None = None
    """What the site shows of its table before columns are selected; None where all are used."""
    allows: int = 2
    """The per-site results that the site's policy allows: none (0), averages (1) or rows (2)."""
    fewest_of_half: int = 1
    """The fewest sites that half of a run's sites may be; 0 where the site's policy allows no sums over halves."""
    shows_composition: bool = True
    """Whether the site's policy lets the server see how many of its rows are in each final cluster."""
    alignment_key: bytes | None = None
    """The sites' common secret, which turns keys of rows into tags."""

    def cached(self, key: str, compute: Callable[[], T]) -> T:
        """``self[key]``, computed the first time."""
        if key not in self:
            self[key] = compute()
        value: T = self[key]
        return value


Answering = Callable[[Table, Memory, Any], R]
Keeping = Callable[[Table, Memory, Any], None]


class Exit(Protocol):
    """What the function of a carrying request may use."""

    name: str
    masking_key: bytes
    """The site's own secret, which never leaves."""

    def card(self) -> Card:
        """The site's own card; ``Untrusted`` if nobody certified it."""

    def sign(self, data: bytes) -> bytes:
        """The site's signature."""

    @property
    def verifies(self) -> bool:
        """Whether the site answers only questions of an ordered method that it can check."""

    def part(self, context: bytes) -> bytes:
        """The site's part of a run's common key, the same whenever it is asked for."""

    def begin(self, envelope: Any, order: bytes) -> Any:
        """The order of a run, once it is accepted; the first one only, and only if the site's rules allow it."""

    def pin(self, run: bytes, what: str, data: bytes) -> None:
        """Keep something about a run that never changes; ``NotOrdered`` if it was something else before."""

    def note(self, run: bytes, what: str, data: bytes) -> None:
        """Keep something about a run over restarts."""

    def notes(self, run: bytes, what: str) -> list[bytes]:
        """What was kept, in order."""

    def meet(self, run: bytes, cards: Mapping[str, Card], heads: Mapping[str, Head]) -> None:
        """Accept the sites of a run; ``Untrusted`` if a card is not signed, or not as it was before."""

    def head(self) -> Head:
        """The head of the site's ledger as it is now."""

    def remembered(self, names: Sequence[str]) -> list[bytes]:
        """The heads of some of these sites' ledgers, as this site saw them last."""

    def compare(self, heads: Sequence[bytes]) -> None:
        """Compare the site's ledger with what others remember of it; ``LedgerBroken`` if it is another."""

    def counts(self, run: bytes) -> tuple[int, int, int]:
        """How many questions of a run were answered and refused, and how many bytes left."""

    def protection(self, envelope: Any) -> int:
        """How many rows a group that the run sees has at least; 0 where it sees rows, or noisy sums of rows."""

    def spent(self, envelope: Any) -> tuple[float, float, int, bool]:
        """Epsilon and delta of what the run has spent, 0 where no noise protects rows; how often the budget was begun
        anew before, and whether it bounds all that leaves of the table."""

    def forget_noise(self, run: bytes) -> None:
        """Delete the secret of the run's noise: what left cannot be drawn again, by anyone."""

    def join(self, run: bytes, roster: tuple[str, ...], half: bytes = b"") -> None:
        """Agree to sums over these sites; the site's policy may refuse. ``half`` names a question to half of them."""

    def unmask(self, run: bytes, roster: tuple[str, ...]) -> None:
        """Agree to unmask a sum over these sites; the site's policy may refuse."""

    def evaluate(self, envelope: Any, request: Request[Any] | None, limits: Limits) -> Reply:
        """The answer to a carried request, before it is encoded and sent, if the site's policy allows it."""

    def keep(self, envelope: Any, request: Request[Any]) -> None:
        """Do what a request without an answer says, such as preparing rows, if the site's policy allows it."""

    def answered(self, run: bytes, round: int, attempt: int) -> bytes | None:
        """The bytes of an earlier answer of this run."""

    def once(self, run: bytes, what: str) -> bool:
        """Whether ``what`` happens for the first time in the run; restarts included."""


Carrying = Callable[[Exit, Memory, Any, Any], Reply]
"""A function of the site's exit, the run's memory, the envelope and the request."""
Checking = Callable[[Exit, Memory, Any, Any], None]
"""A function of the site's exit, the run's memory, the envelope and the decoded question."""
CHECKS: list[Checking] = []
"""What every question must pass before it is answered."""
CARRIERS: dict[type[Request[Any]], Carrying] = {}
BEGINNINGS: set[type[Request[Any]]] = set()
"""The carrying requests that a site answers before it accepted what a run is ordered to do."""
ANSWERS: dict[type[Request[Any]], Answering[Reply]] = {}
KEEPERS: dict[type[Request[Any]], Keeping] = {}
"""The registered functions, by type of request."""


def answers(request: type[Request[R]]) -> Callable[[Answering[R]], Answering[R]]:
    """Register the function that answers ``request``."""
    return _registered(ANSWERS, request)


def carries(request: type[Request[Any]], *, begins: bool = False) -> Callable[[Carrying], Carrying]:
    """Register the function that answers a request which carries another one, begins a run, or sets up masks."""
    if begins:
        BEGINNINGS.add(request)
    return _registered(CARRIERS, request)


def _registered(functions: dict[type[Request[Any]], Any], request: type[Request[Any]]) -> Callable[[T], T]:
    """Register a function; ``TypeError`` if the request does not state every axis of its reply, or is private."""
    if reply_type(request).content == "noisy":
        raise TypeError(f"{request.__name__} is answered with noisy sums: register what rows add by @contributes")

    def register(function: T) -> T:
        functions[request] = function
        return function

    return register


def remembers(request: type[Request[Any]]) -> Callable[[Keeping], Keeping]:
    """Register the function that updates a site's memory on ``request``, before it answers.

    It runs again when the site is brought up to date, so it may depend on the site's rows and on earlier requests
    only.
    """
    if not request.remembered:
        raise TypeError(f"declare class {request.__name__}(Request[...], remembered=True) first")
    if reply_type(request) is Nothing:  # unless a function is registered for the answer
        ANSWERS.setdefault(request, lambda *_: Nothing())
    return _registered(KEEPERS, request)
