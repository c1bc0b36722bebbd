"""Lloyd's algorithm over all sites' rows together, by sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from coterie.extents import is_over
from coterie.maths import clustering
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import Block, Memory, Table, answers, within_columns
from coterie.messages.verbs import Protocol, total


class Moments(Reply, content="sums"):
    """Per center the sum and number of a site's rows nearest to it, and their squared distances in all."""

    sums: Floats = array("k", "d", bound="rows * box[d]")
    counts: Floats = array("k", bound="rows", nonnegative=True)
    cost: Floats = array(bound="rows * d * (box + centers)**2", nonnegative=True)


class Assign(Request[Moments], doing="assigning rows to their nearest centers"):
    """Put every row to its nearest center."""

    centers: Floats = array("k", "d")


class Sizes(Reply, content="sums"):
    """Per center the number of a site's rows nearest to it, and their squared distances in all."""

    counts: Floats = array("k", bound="rows", nonnegative=True)
    cost: Floats = array(bound="rows * d * (box + centers)**2", nonnegative=True)


class Close(Request[Sizes], doing="counting the rows of the final clusters"):
    """How many rows are nearest to each of the final centers, and at what cost?"""

    centers: Floats = array("k", "d")


@answers(Assign)
def local_moments(table: Table, memory: Memory, ask: Assign) -> Moments:
    return table_moments(table, ask.centers)


def table_moments(table: Table, centers: Floats) -> Moments:
    """The moments of a table's rows nearest to each center, and the cost of the rows behind them."""
    return block_moments(table.blocks(), centers, float(within_columns(table).sum()))


def block_moments(blocks: Iterable[Block], centers: Floats, cost: float = 0.0) -> Moments:
    """The moments of some blocks of rows, on top of a cost; zeros where there is no block."""
    reply = Moments(np.zeros(centers.shape), np.zeros(len(centers)), np.asarray(cost))
    for block in blocks:
        reply += Moments(*clustering.moments(block.rows, centers, block.weights))
    return reply


@answers(Close)
def local_sizes(table: Table, memory: Memory, ask: Close) -> Sizes:
    reply = Sizes(np.zeros(len(ask.centers)), np.asarray(within_columns(table).sum()))
    for block in table.blocks():
        labels, squared = clustering.nearest(block.rows, ask.centers)
        counts = clustering.counts_by_cell(labels, block.counts, len(ask.centers))
        reply += Sizes(counts, np.asarray(squared @ block.counts))
    return reply


@dataclass(frozen=True)
class KMeansFit:
    """Centers, their cost over all rows, the rows nearest to each, and the rounds it took to move them there."""

    centers: Floats
    cost: float
    counts: Floats
    n_rounds: int


def lloyd(
    centers: Floats,
    *,
    max_rounds: int = 100,
    tol: float = 1e-4,
    bits: int | None = None,
    moments: Callable[[Floats], Protocol[Moments]] | None = None,
) -> Protocol[KMeansFit]:
    """Minimise the k-means cost of all sites' rows together, starting from ``centers``.

    Equals central Lloyd from the same start, however rows are split. A center that no row is nearest to
    stays where it is. Stops when the centers' squared shift is at most ``tol`` (an absolute number). ``bits`` is the
    size of the ring for masked sums. ``moments`` asks for sums and counts by center in another way.
    """
    rounds = 0
    while rounds < max_rounds:
        rounds += 1
        m = yield from total(Assign(centers), bits=bits) if moments is None else moments(centers)
        before, centers = centers, clustering.means(m.sums, m.counts, fallback=centers)
        if is_over(clustering.squared_shift(before, centers) <= tol):
            break
    return (yield from closed(centers, rounds, bits=bits))


def closed(centers: Floats, rounds: int, *, bits: int | None = None) -> Protocol[KMeansFit]:
    """The fit at the final centers, with the sizes and the cost there."""
    sizes = yield from total(Close(centers), bits=bits)
    return KMeansFit(np.array(centers), float(sizes.cost), np.array(sizes.counts), rounds)
