"""Lloyd's algorithm over all sites' rows together, by sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.errors import Guarded, Repeated
from coterie.maths import clustering
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_part import Guard, Memory, Table, answers
from coterie.messages.verbs import Protocol, total
from coterie.protocols.cells import guarded_cells
from coterie.protocols.costs import Cost, exchange_cost

__all__ = ["Assign", "Close", "KMeansFit", "Moments", "Sizes", "closed", "lloyd", "lloyd_cost"]


@dataclass(frozen=True)
class Moments(Reply, content="sums"):
    """Per center the sum and number of a site's rows nearest to it, and their squared distances in all."""

    sums: Floats = array("k", "d", bound="rows * box")
    counts: Floats = array("k", bound="rows", nonnegative=True)
    cost: Floats = array(bound="16 * rows * d * box**2", nonnegative=True)


@dataclass(frozen=True)
class Assign(Request[Moments]):
    """Put every row to its nearest center."""

    centers: Floats = array("k", "d")


@dataclass(frozen=True)
class Sizes(Reply, content="sums"):
    """Per center the number of a site's rows nearest to it, and their squared distances in all."""

    counts: Floats = array("k", bound="rows", nonnegative=True)
    cost: Floats = array(bound="16 * rows * d * box**2", nonnegative=True)


@dataclass(frozen=True)
class Close(Request[Sizes]):
    """How many rows are nearest to each of the final centers, and at what cost?"""

    centers: Floats = array("k", "d")


@answers(Close)
def local_sizes(table: Table, memory: Memory, ask: Close) -> Sizes:
    """A site's share. A guarded site answers for one set of centers a run, leaves out counts below its smallest, and
    sends the cost of what its guard lets go, for as many rows as it holds."""
    guard = memory.guard
    if guard is not None:
        if not guard.tells("close", ask.centers.tobytes(), 1):
            raise Guarded("sizes at other centers left in this run already")
        return _guarded_sizes(table, memory, guard, ask.centers)
    reply = Sizes.zeros(ask.axes)
    for block in table.blocks():
        labels, squared = clustering.nearest(block.rows, ask.centers)
        counts = clustering.counts_by_cell(labels, block.counts, len(ask.centers))
        reply += Sizes(counts, np.asarray(squared @ block.counts))
    return reply


@answers(Assign)
def local_moments(table: Table, memory: Memory, ask: Assign) -> Moments:
    """A site's share of the moments; zeros for a site without rows."""
    if memory.guard is not None:
        return _guarded_moments(table, memory.guard, ask.centers)
    reply = Moments.zeros(ask.axes)
    for block in table.blocks():
        reply += Moments(*clustering.moments(block.rows, ask.centers, block.weights))
    return reply


def _guarded_moments(table: Table, guard: Guard, centers: Floats) -> Moments:
    """The same by cell, each held against what was released before; the cost is that of what is sent."""
    sent = guarded_cells(table, guard, centers).released()
    return Moments(sent.sums(np.zeros_like(centers)), sent.counts, np.asarray(sent.squares(centers).sum()))


def _guarded_sizes(table: Table, memory: Memory, guard: Guard, centers: Floats) -> Sizes:
    """Exact counts, none below the smallest; the cost of the sets that may leave, for as many rows as there are."""
    cells = guarded_cells(table, guard, centers)
    counts, sent = cells.moments.counts, cells.released()
    share = counts.sum() / sent.counts.sum() if sent.counts.any() else 0.0
    sizes = np.where(counts < memory.min_count, 0.0, counts) if share else np.zeros_like(counts)
    return Sizes(sizes, np.asarray(share * sent.squares(centers).sum()))


@dataclass(frozen=True)
class KMeansFit:
    """Centers, their cost over all rows, the rows nearest to each, and the rounds it took to move them there."""

    centers: Floats
    cost: float
    counts: Floats
    n_rounds: int


def lloyd(
    centers: Floats, *, max_rounds: int = 100, tol: float = 1e-4, known: Sizes | None = None
) -> Protocol[KMeansFit]:
    """Minimise the k-means cost of all sites' rows together, starting from ``centers``.

    Equals central Lloyd from the same start, however rows are split. A center that no row is nearest to
    stays where it is. Stops when the centers' squared shift is at most ``tol`` (an absolute number), or when guarded
    sites, which answer some questions with an earlier answer, lead it round in a circle.

    Where a site is lost while cells stand still, guarded sites do not tell of these cells again without it: the
    difference would be its own part. What was told with it holds then; ``known`` are the sizes at the start.
    """
    rounds, been = 0, [centers]
    while rounds < max_rounds:
        try:
            m = yield from total(Assign(centers))
        except Repeated:
            if known is None:
                raise
            break
        rounds += 1
        known = Sizes(m.counts, m.cost)
        centers = clustering.means(m.sums, m.counts, fallback=centers)
        if clustering.has_been_at(centers, been, tol):
            break
        been.append(centers)
    return (yield from closed(centers, rounds, known))


def closed(centers: Floats, rounds: int, known: Sizes | None) -> Protocol[KMeansFit]:
    """The fit at the final centers, with the sizes and the cost there; or those ``known`` from the last cells, where
    sites tell of the same ones no more."""
    try:
        found = yield from total(Close(centers))
    except Repeated:
        if known is None:
            raise
        found = known
    return KMeansFit(np.array(centers), float(found.cost), np.array(found.counts), rounds)


def lloyd_cost(n_sites: int, k: int, d: int, rounds: int, *, method: str = "lloyd") -> Cost:
    """k(d+1)+1 numbers a site in each of the rounds, and k+1 to close."""
    centers = np.zeros((k, d))
    one = exchange_cost(n_sites, floats=k * (d + 1) + 1, float_bytes=8, request=Assign(centers), method=method)
    last = exchange_cost(n_sites, floats=k + 1, float_bytes=8, request=Close(centers), method=method)
    return one * rounds + last
