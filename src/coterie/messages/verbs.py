"""The two verbs of a protocol, and the questions they create.

``total`` shows the server a sum, ``each`` every answer; ``grep "each("`` lists every place where per-site results are
seen. ``present`` returns the current sites and sends nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar

from coterie.messages.bounds import Limits
from coterie.messages.schema import Reply, Request

R = TypeVar("R", bound=Reply)
T = TypeVar("T")


class Seen(IntEnum):
    """What the server will see of an answer; part of the question."""

    SINGLE = 0
    """The answer itself."""
    SUMMED = 1
    """The answer itself; the server declares that it only sums it."""
    MASKED = 2
    """Only the sum over the roster."""


@dataclass(frozen=True)
class Question:
    """A request to sites, or one request per site."""

    request: Request[Any] | Mapping[str, Request[Any]]
    to: tuple[str, ...] | None = None
    """The sites asked; None is all of them."""
    summed: bool = False
    """Whether only the sum is needed; a layer lowers this to what is sent."""
    complete: bool = False
    """Whether the dropout of a site makes the answer useless (``RosterChanged`` is raised)."""
    limits: Limits = field(default_factory=dict)
    """Values of further names in bounds, such as ``rows`` and ``box``."""
    bits: int | None = None
    """Bits of a ring that is large enough for a masked sum; None leaves it to the layer."""
    seen: Seen = Seen.SINGLE
    needed: int | None = None
    """How many answers suffice; None: the run's quorum."""
    is_for_all: bool = False
    """Whether ``to`` are all remaining sites of the run: the quorum is then a share of all sites it ever had."""
    quorum_of: int | None = None
    """How many sites the quorum is a share of; None: those asked. A dropout does not make it smaller."""
    phase: str = "algorithm"
    """``algorithm``, ``profile`` or ``masking``, for the ledger."""
    attached: Mapping[str, bytes] = field(default_factory=dict)
    """What goes to each site with the question, besides the request; set by a layer."""
    in_full: Mapping[str, bytes] = field(default_factory=dict)
    """What goes there instead to a site that cannot do with less."""

    @property
    def requests(self) -> Mapping[str, Request[Any]]:
        """Every request by its site; one for all sites is under the empty name."""
        return self.request if isinstance(self.request, Mapping) else {"": self.request}

    def request_for(self, site: str) -> Request[Any]:
        return self.request[site] if isinstance(self.request, Mapping) else self.request


@dataclass(frozen=True)
class Present:
    """Asks the run for the current sites."""


@dataclass(frozen=True)
class Place:
    """Asks the run for the run, round and attempt of the next question; used by layers."""


@dataclass(frozen=True)
class Remain:
    """Restricts the run to these sites from now on; used by layers."""

    names: frozenset[str]
    is_begun: bool = False
    """Whether this applies only if masked sums have begun, perhaps before a restart of the server."""
    is_whole: bool = False
    """Whether the run never had others: who joined it since is no part of it, and nobody joins."""


Protocol: TypeAlias = Generator[Question | Present, Any, T]
"""An algorithm: a generator that yields questions, is sent answers and returns its result."""


def total(
    request: Request[R],
    to: Iterable[str] | None = None,
    *,
    complete: bool = False,
    bits: int | None = None,
    limits: Limits | None = None,
    phase: str = "algorithm",
) -> Protocol[R]:
    """Ask sites and see the sum of their answers; ``bits`` of a ring suffice for it if it is masked. ``limits`` are
    those of names in bounds that the protocol states itself."""
    answer: R = yield Question(request, _names(to), True, complete, limits or {}, bits, phase=phase)
    return answer


def each(
    request: Request[R] | Mapping[str, Request[R]],
    to: Iterable[str] | None = None,
    *,
    complete: bool = False,
    phase: str = "algorithm",
) -> Protocol[dict[str, R]]:
    """Ask sites and see every answer, by site, in roster order."""
    asked = request if to is None and isinstance(request, Mapping) else to
    answer: dict[str, R] = yield Question(request, _names(asked), complete=complete, phase=phase)
    return answer


def present() -> Protocol[tuple[str, ...]]:
    """The current sites, in roster order. Nothing is sent."""
    names: tuple[str, ...] = yield Present()
    return names


def _names(to: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if to is None else tuple(to)
