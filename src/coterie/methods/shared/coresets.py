"""Distributed k-means by coresets (Balcan, Ehrlich & Liang 2013, Algorithm 1, sites around one server).

Every site solves k-means on its own rows and sends the cost (round 1). The server allots C points in proportion to
the costs. Every site draws its points with chance ~ squared distance to its own solution, weighs them so that sums
over its rows are right on average, and adds its own centers with what is left of their cells (round 2). The server
clusters the union. Rows leave as they are, so this discloses records.

Our choices: points are allotted by largest remainder, where the paper has fractions. A point's weight divides by the
points its own site was allotted, so that the estimate stays unbiased. A site allotted as many points as it has rows
sends all its rows. A center's weight may be negative, so that a site's weights add up to its rows; the server sets it
to 0 and rescales for its solver only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import MalformedMessage
from coterie.extents import shared_out
from coterie.maths import clustering
from coterie.maths.coresets import Summary, allotted, cell_remainders, importance_sample
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers, rows_at, within_columns
from coterie.messages.verbs import Protocol, each
from coterie.methods.shared.counts import check_rows
from coterie.methods.shared.starts import sample_of

SAMPLE = 10_000
"""A site solves k-means on at most so many of its rows; the cost is over all of them."""
MOST_CENTERS = 1 << 14
"""The most clusters a site solves k-means for."""


class LocalCost(Reply, content="sums"):
    """The k-means cost of a site's rows at its own solution."""

    cost: Floats = array(bound="16 * rows * d * box**2", nonnegative=True)


class SumCost(Request[LocalCost], doing="measuring the sites' k-means costs"):
    """Solve k-means on your own rows: at what cost?"""

    k: int
    d: int
    seed: int


class CoresetPart(Reply, content="rows"):
    """Sampled rows and a site's own centers, with weights that add up to its rows; unused places have weight 0."""

    points: Floats = array("rows", "d", bound="box[d]")
    weights: Floats = array("rows", nonnegative=True)
    centers: Floats = array("k", "d", bound="box[d]")
    left: Floats = array("k")


class SampleCoreset(Request[CoresetPart], doing="sampling a coreset"):
    """Draw ``rows`` of your rows by their squared distance to your own solution of k-means."""

    rows: int
    k: int
    d: int
    seed: int
    place: int
    """Of the site among those asked, so that no two draw by the same chance."""


@dataclass(frozen=True)
class Solution:
    """A site's own k-means: centers, each row's cell and squared distance, what each row counts."""

    centers: Floats
    labels: npt.NDArray[np.int32]
    squared: Floats
    counts: Floats

    @property
    def cost(self) -> float:
        """Over all the rows the site shows."""
        return float(self.squared @ self.counts)


@answers(SumCost)
def local_cost(table: Table, memory: Memory, ask: SumCost) -> LocalCost:
    """The cost over all rows; zero for a site without rows."""
    solution = local_solution(table, memory, ask.k, ask.d, ask.seed)
    return LocalCost(np.asarray(solution.cost + within_columns(table).sum()))


@answers(SampleCoreset)
def local_coreset_part(table: Table, memory: Memory, ask: SampleCoreset) -> CoresetPart:
    """A site's share of the coreset: a sample and centers, or all rows where they fit."""
    reply = CoresetPart.zeros(ask.axes)
    put_sample(reply, table, memory, ask, ask.d, lambda points: points)
    return reply


def put_sample(reply: Any, table: Table, memory: Memory, ask: Any, d: int, sent: Callable[[Floats], Floats]) -> None:
    """Put points, weights, centers and what is left of their cells into a reply, points and centers as ``sent``."""
    n = table.n_rows
    if n <= ask.rows:
        rows, reply.weights[:n] = rows_at(table, np.arange(n))
        reply.points[:n] = sent(rows)
        return
    solution = local_solution(table, memory, ask.k, d, ask.seed)
    drawn, weights = importance_sample(
        solution.squared, solution.counts, ask.rows, np.random.default_rng([ask.seed, 2, ask.place])
    )
    reply.points[: len(drawn)], reply.weights[: len(drawn)] = sent(rows_at(table, drawn)[0]), weights
    reply.centers[:] = sent(solution.centers)
    reply.left[:] = cell_remainders(solution.labels, solution.counts, drawn, weights, ask.k)


def local_solution(table: Table, memory: Memory, k: int, d: int, seed: int) -> Solution:
    """A site's own solution; kept between questions, and found again where it was forgotten."""
    if not 1 <= k <= MOST_CENTERS or d != len(table.columns) or seed < 0:
        raise MalformedMessage(f"{k} clusters of {d} columns from seed {seed}: there are none such")
    key, kept = (k, seed), memory.get("coreset")
    if kept is None or kept[0] is not table or kept[1] != key:
        kept = memory["coreset"] = (table, key, _solve(table, k, seed))
    solution: Solution = kept[2]
    return solution


def _solve(table: Table, k: int, seed: int) -> Solution:
    """At most k centers."""
    centers, sample = np.zeros((k, len(table.columns))), sample_of(table, SAMPLE, seed)
    used = centers[: max(1, min(k, int(sample.held)))]
    if sample.held > 0:
        used[:] = clustering.weighted_kmeans(sample.rows, sample.weights, len(used), seed=seed, n_init=3)
    labels, squared, counts = [np.zeros(0, np.int32)], [np.zeros(0)], [np.zeros(0)]
    for block in table.blocks():
        cells, away = clustering.nearest(block.rows, used)
        labels.append(cells.astype(np.int32))
        squared.append(away)
        counts.append(block.counts)
    return Solution(centers, np.concatenate(labels), np.concatenate(squared), np.concatenate(counts))


@dataclass(frozen=True)
class Coreset(Summary):
    """Weighted points in place of all rows; their cost at any centers is an unbiased estimate of all rows'."""

    sizes: tuple[int, ...] = ()
    """How many points each site was allotted, in roster order."""


def coreset(n_clusters: int, n_columns: int, *, n_points: int, seed: int) -> Protocol[Coreset]:
    """A coreset of ``n_points`` sampled rows and every site's own centers. Per-site results are seen."""
    replies = yield from each(SumCost(n_clusters, n_columns, seed))
    sizes = shared_out(allotted(n_points, np.array([float(reply.cost) for reply in replies.values()])))
    asks = {
        name: SampleCoreset(size, n_clusters, n_columns, seed, place)
        for place, (name, size) in enumerate(zip(replies, sizes, strict=True))
    }
    parts = (yield from each(asks)).values()
    points = np.concatenate([rows for part in parts for rows in (part.points, part.centers)])
    weights = np.concatenate([values for part in parts for values in (part.weights, part.left)])
    check_rows(np.abs(weights).sum())
    return Coreset(points[weights != 0], weights[weights != 0], sizes=sizes)
