"""Private questions: a site's function says what each row adds, and only the exit adds it up, with noise.

Such a function sees some rows at a time, as whole numbers, and returns a contribution for every array of the reply.
It cannot return a sum. The array's declaration says how long a row's contribution may be, in the Euclidean norm; the
exit leaves out whatever is longer. Noise, its variance and what it costs follow from the declaration and the request
alone.

>>> class NoisyCounts(Noisy):
...     counts: Integers = noisy("k", norm="1")
>>> class CountCells(PrivateRequest[NoisyCounts]):
...     centers: Floats = array("k", "d")
>>> ask = CountCells(3, 0, 40, np.array([400.0]), np.zeros((2, 5)))
>>> ask.norms, ask.share_variance(0)
((1.0,), 134)
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.arrays import Floats, Integers, Mask
from coterie.maths.accounting import SMOOTHING, mu_squared
from coterie.maths.discrete_gaussian import LEAST_VARIANCE
from coterie.messages import codec
from coterie.messages.bounds import Bound
from coterie.messages.schema import ArraySpec, Reply, Request, array, message_fields, reply_type

R = TypeVar("R", bound="Noisy")
Labels = npt.NDArray[np.integer[Any]]

EXACT = 1 << 53
"""Whole numbers below it are exact in double precision, in whatever order they are added up."""
MOST_SITES = 1 << 16
"""Of which noise can be made."""
PIECE_ROWS = 1 << 14
"""Rows whose contributions are added up at a time."""


def noisy(*axes: str | int, norm: str, is_gram: bool = False) -> Any:
    """Declare a noisy array: sums of what rows add, each at most so long. ``norm`` is a bound over the request.

    A Gram (``is_gram``) is the triangle of a sum of products of pairs, row by row. A pair of two counts twice in the
    norm, so that a row y adds exactly the square of its own length, and has half of the variance.
    """
    return field(metadata={"array": ArraySpec(axes, "int64", None, False, norm=Bound(norm), is_gram=is_gram)})


class Noisy(Reply, content="noisy"):
    """Sums of whole numbers with noise."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__(content="noisy")


@dataclass(frozen=True)
class Contribution:
    """What each of some rows adds to an array."""

    @abstractmethod
    def norms_squared(self) -> Floats:
        """For every row the squared length of what it adds; exact."""

    @abstractmethod
    def added_up(self, shape: tuple[int, ...]) -> Integers:
        """The sum over the rows."""

    def only(self, which: Mask) -> Self:
        """What some of the rows add."""
        return replace(self, **{name: part[which] for name, part in vars(self).items() if part is not None})


@dataclass(frozen=True)
class Whole(Contribution):
    """Row i adds ``rows[i]``."""

    rows: Floats

    def norms_squared(self) -> Floats:
        return np.asarray(np.vecdot(self.rows, self.rows))

    def added_up(self, shape: tuple[int, ...]) -> Integers:
        return np.asarray(self.rows.sum(axis=0).astype(np.int64).reshape(shape))


@dataclass(frozen=True)
class ByCell(Contribution):
    """Row i adds ``rows[i]`` to cell ``cells[i]``; without rows it adds 1. Cells may have several axes."""

    cells: Labels
    rows: Floats | None = None

    def norms_squared(self) -> Floats:
        return np.ones(len(self.cells)) if self.rows is None else np.vecdot(self.rows, self.rows)

    def added_up(self, shape: tuple[int, ...]) -> Integers:
        n_cells = math.prod(shape if self.rows is None else shape[:-1])
        if self.rows is None:
            return np.bincount(self.cells, minlength=n_cells).astype(np.int64).reshape(shape)
        from scipy.sparse import csr_array

        ones = np.ones(len(self.cells))
        member = csr_array((ones, (self.cells, np.arange(len(self.cells)))), shape=(n_cells, len(self.cells)))
        return np.asarray(member @ self.rows).astype(np.int64).reshape(shape)


@dataclass(frozen=True)
class OneEach(Contribution):
    """Row i adds 1 to place ``places[i, j]`` of each row j of cell ``cells[i]``; nothing where that is negative."""

    places: Labels
    cells: Labels

    def norms_squared(self) -> Floats:
        return np.asarray((self.places >= 0).sum(axis=1), np.float64)

    def added_up(self, shape: tuple[int, ...]) -> Integers:
        lines = self.cells[:, None] * shape[1] + np.arange(shape[1])
        at = lines * shape[2] + np.minimum(self.places, shape[2] - 1)
        return np.asarray(np.bincount(at[self.places >= 0], minlength=math.prod(shape)).reshape(shape))


@dataclass(frozen=True)
class Gram(Contribution):
    """Row i adds the products of ``rows[i]`` with itself: the triangle, row by row."""

    rows: Floats

    def norms_squared(self) -> Floats:
        squares = np.vecdot(self.rows, self.rows)
        return np.asarray(squares * squares)

    def added_up(self, shape: tuple[int, ...]) -> Integers:
        upper = np.triu_indices(self.rows.shape[1])
        return (self.rows.T @ self.rows)[upper].astype(np.int64).reshape(shape)


class PrivateRequest(Request[R]):
    """A question that sites answer with noise: together enough for the whole, in that of any of them too little."""

    sites: int
    """Sites that the run began with."""
    tolerated: int
    """How many of them may drop out or collude: the noise of all others is enough."""
    bits: int
    """Of the ring in which answers add up."""
    variances: Floats = array("released")
    """Of the noise of all sites but those, by array of the reply."""

    @property
    def ring(self) -> int | None:
        return self.bits

    @cached_property
    def norms(self) -> tuple[float, ...]:
        """By array of the reply how long a row's contribution is at most."""
        names = self.layout.names
        specs = [item.array for item in message_fields(reply_type(type(self)))]
        return tuple(float(np.max(spec.norm.value(names))) for spec in specs if spec is not None and spec.norm)

    @cached_property
    def identity(self) -> bytes:
        """What stands for the question: its noise, its charge and the roster that sees it are bound to this."""
        return codec.encode_body(self, {}).digest

    @property
    def shares(self) -> int:
        """How many sites' noise is enough."""
        return self.sites - self.tolerated

    def share_variance(self, place: int) -> int:
        """The variance of one site's noise for an array; of a Gram for its diagonal."""
        return max(2 * LEAST_VARIANCE, math.ceil(float(self.variances[place]) / max(self.shares, 1)))

    def share_variance_of_pairs(self, place: int) -> int:
        """The same for what is off the diagonal of a Gram: it is worth half of the diagonal's."""
        worth = (self.shares * self.share_variance(place) - SMOOTHING) / 2
        return max(LEAST_VARIANCE, math.ceil((worth + SMOOTHING) / max(self.shares, 1)))

    @property
    def mu_squared(self) -> float:
        """What the answer gives away of a row, by the noise of as many sites as are needed."""
        return sum(
            mu_squared(norm, self.shares * self.share_variance(place)) for place, norm in enumerate(self.norms)
        )

    def problem(self) -> str | None:
        """Why no site answers it."""
        if not (0 <= self.tolerated < self.sites <= MOST_SITES and 8 <= self.bits <= 64):
            return f"{self.tolerated} of {self.sites} sites tolerated, a ring of {self.bits} bits"
        if len(self.variances) != len(self.norms) or len(self.norms) != len(self.layout.fields):
            return f"{len(self.variances)} variances for {len(self.layout.fields)} arrays"
        if not all(0 < norm * PIECE_ROWS < EXACT for norm in self.norms):
            return "contributions whose sums would not be exact"
        return None if (self.variances > SMOOTHING).all() else "variances that are too small"


Contributing = Callable[[Floats, Any, Any], tuple[Contribution, ...]]
"""A function of some rows as whole numbers, the run's memory and the request."""
CONTRIBUTIONS: dict[type[Request[Any]], Contributing] = {}
"""The registered functions, by type of request."""


def contributes(request: type[PrivateRequest[Any]]) -> Callable[[Contributing], Contributing]:
    """Register the function that says what rows add to the answer to ``request``."""
    if not issubclass(request, PrivateRequest) or not issubclass(reply_type(request), Noisy):
        raise TypeError(f"{request.__name__} must be a PrivateRequest[<a Noisy reply>]")
    for item in message_fields(reply_type(request)):
        if item.array is None or item.array.norm is None:
            raise TypeError(f"{reply_type(request).__name__}.{item.name}: declare it by noisy(..., norm=...)")

    def register(function: Contributing) -> Contributing:
        CONTRIBUTIONS[request] = function
        return function

    return register
