"""Lloyd's algorithm over all sites' rows together, by sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.maths import clustering
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_part import Memory, Table, answers
from coterie.messages.verbs import Protocol, total
from coterie.protocols.costs import Cost, exchange_cost

__all__ = ["Assign", "KMeansFit", "Moments", "lloyd", "lloyd_cost"]


@dataclass(frozen=True)
class Moments(Reply, content="sums"):
    """Per center the sum and number of a site's rows nearest to it, and their squared distances in all."""

    sums: Floats = array("k", "d", bound="rows * box")
    counts: Floats = array("k", bound="rows", nonnegative=True)
    cost: Floats = array(bound="4 * rows * d * box**2", nonnegative=True)


@dataclass(frozen=True)
class Assign(Request[Moments]):
    """Put every row to its nearest center."""

    centers: Floats = array("k", "d")


@answers(Assign)
def local_moments(table: Table, memory: Memory, ask: Assign) -> Moments:
    """A site's share of the moments; zeros for a site without rows."""
    reply = Moments.zeros(ask.axes)
    for rows, weights in table.blocks():
        reply += Moments(*clustering.moments(rows, ask.centers, weights))
    return reply


@dataclass(frozen=True)
class KMeansFit:
    """Centers, their cost over all rows, the rows nearest to each, and the rounds it took to move them there."""

    centers: Floats
    cost: float
    counts: Floats
    n_rounds: int


def lloyd(centers: Floats, *, max_rounds: int = 100, tol: float = 1e-4) -> Protocol[KMeansFit]:
    """Minimise the k-means cost of all sites' rows together, starting from ``centers``.

    Equals central Lloyd from the same start, however rows are split. A center that no row is nearest to
    stays where it is. Stops when the centers' squared shift is at most ``tol`` (an absolute number).
    """
    rounds = 0
    while rounds < max_rounds:
        rounds += 1
        m = yield from total(Assign(centers))
        previous, centers = centers, clustering.means(m.sums, m.counts, fallback=centers)
        if clustering.squared_shift(previous, centers) <= tol:
            break
    closing = yield from total(Assign(centers))  # the cost and the counts belong to the final centers
    return KMeansFit(np.array(centers), float(closing.cost), np.array(closing.counts), rounds)


def lloyd_cost(n_sites: int, k: int, d: int, rounds: int, *, method: str = "lloyd") -> Cost:
    """k(d+1)+1 numbers a site in each of the rounds, and once more to close."""
    one = exchange_cost(
        n_sites,
        floats=k * (d + 1) + 1,
        float_bytes=8,
        request=Assign(np.zeros((k, d))),
        method=method,
    )
    return one * (rounds + 1)
