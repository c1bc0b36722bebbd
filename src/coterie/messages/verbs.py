"""The two verbs with which a protocol asks, and the question they make.

``total`` shows the server a sum, ``each`` every answer. ``grep "each("`` lists every place where single
answers are seen. ``present`` asks nobody anything: it tells a protocol who is there.
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
    """What the server will see of an answer; said to the site with the question."""

    SINGLE = 0
    """The answer itself."""
    SUMMED = 1
    """The answer itself; the server says it only adds it up."""
    MASKED = 2
    """Nothing but the sum over the roster."""


@dataclass(frozen=True)
class Question:
    """A request, or one request per site, on its way to sites."""

    request: Request[Any] | Mapping[str, Request[Any]]
    to: tuple[str, ...] | None = None
    """The sites asked; None is all of them."""
    summed: bool = False
    """Whether the sum is wanted rather than every answer; a layer lowers this to what travels."""
    complete: bool = False
    """Whether losing one of the sites asked makes the answer worthless (``RosterChanged`` is raised)."""
    limits: Limits = field(default_factory=dict)
    """What bounds of answers name beside the request's own numbers, such as ``rows`` and ``box``."""
    bits: int | None = None
    """How large a ring is enough for a masked sum; None leaves it to the layer."""
    seen: Seen = Seen.SINGLE
    needed: int | None = None
    """How many answers will do; None leaves it to the run's quorum."""
    is_for_all: bool = False
    """Whether ``to`` are all sites that are left of the run: a quorum is then a share of all it ever had."""
    phase: str = "algorithm"
    """What the exchange is counted as: ``algorithm`` or ``masking``."""

    @property
    def requests(self) -> Mapping[str, Request[Any]]:
        """Every request by its site; one for all sites is under the empty name."""
        return self.request if isinstance(self.request, Mapping) else {"": self.request}

    def request_for(self, site: str) -> Request[Any]:
        """What this site is asked."""
        return self.request[site] if isinstance(self.request, Mapping) else self.request


@dataclass(frozen=True)
class Present:
    """Who is there? Answered by the run itself."""


@dataclass(frozen=True)
class Place:
    """Under which run, round and attempt goes the next question? Asked by layers, answered by the run itself."""


@dataclass(frozen=True)
class Remain:
    """From now on the run is with these sites only. Told by layers, heeded by the run itself."""

    names: frozenset[str]
    is_begun: bool = False
    """Whether to heed it only where masked sums were begun, perhaps by a server that was killed since."""


Protocol: TypeAlias = Generator[Question | Present, Any, T]
"""An algorithm: a generator that yields questions, is sent answers and returns its result."""


def total(
    request: Request[R], to: Iterable[str] | None = None, *, complete: bool = False, bits: int | None = None
) -> Protocol[R]:
    """Ask sites and see the sum of their answers; ``bits`` is how large a ring is enough where it is masked."""
    answer: R = yield Question(request, _names(to), summed=True, complete=complete, bits=bits)
    return answer


def each(
    request: Request[R] | Mapping[str, Request[R]],
    to: Iterable[str] | None = None,
    *,
    complete: bool = False,
) -> Protocol[dict[str, R]]:
    """Ask sites and see every answer, by site, in roster order."""
    asked = request if to is None and isinstance(request, Mapping) else to
    answer: dict[str, R] = yield Question(request, _names(asked), complete=complete)
    return answer


def present() -> Protocol[tuple[str, ...]]:
    """The sites that take part now, in roster order. Nothing is sent."""
    names: tuple[str, ...] = yield Present()
    return names


def _names(to: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if to is None else tuple(to)
