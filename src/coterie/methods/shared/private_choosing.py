"""How many clusters, with differential privacy: candidates from noisy cells, and noisy sums that judge them.

Silhouettes are summed up for every candidate at once. What else supports a number, its stability and its gap, is
asked for the one with the largest silhouette alone: more sums would have more noise each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.arrays import Floats, Integers
from coterie.extents import between
from coterie.maths import clustering, exact, separation
from coterie.messages.contributions import ByCell, Contribution, Noisy, PrivateRequest, Whole, contributes, noisy
from coterie.messages.schema import array
from coterie.messages.site_api import Memory
from coterie.messages.verbs import Protocol, total
from coterie.methods.shared.choosing import ERRORS, STARTS, Choice, halves_of, supported_by
from coterie.methods.shared.privacy import Releases
from coterie.methods.shared.private_clusters import FINE_RADIUS, MOST_CELLS, ROWS_A_CELL, no_farther, private_cost
from coterie.methods.shared.private_subspace import Box, Moments, Subspace, leading_subspace, private_moments
from coterie.methods.shared.private_sums import nearest_of_rows
from coterie.methods.shared.starts import Points
from coterie.methods.shared.whole_rows import FARTHEST, WIDEST, ShowWhole, nearest_whole, shortened

UNIT = 1 << 12
"""Whole numbers that stand for a silhouette of 1."""
SURE = 4.0
"""A cell counts if its rows are so many deviations of their noise."""
MOMENTS, GRAM, CELLS, SILHOUETTES, PAIRS, COST = 0.06, 0.14, 0.40, 0.20, 0.12, 0.04
"""Of what a run may give away, by release; the cost is asked for twice."""
COUNTING = 0.2


class NoisyHalves(Noisy):
    """Per half of the rows and per center the number of rows nearest to it, and the sum of their differences."""

    counts: Integers = noisy(2, "k", norm="1")
    sums: Integers = noisy(2, "k", "s", norm="reach")


class SumHalfCells(PrivateRequest[NoisyHalves], doing="summing two halves of the rows by cell with noise"):
    """Put every row to its nearest center, apart for each half of the rows; what is farther than ``reach`` counts as
    that far away. The values of a row and the seed say to which half it belongs."""

    reach: int
    seed: int
    centers: Floats = array("k", "s")


@contributes(SumHalfCells)
def half_differences(rows: Floats, memory: Memory, ask: SumHalfCells) -> tuple[Contribution, ...]:
    cells, away = nearest_of_rows(rows, ask.centers)
    both = cells + len(ask.centers) * halves_of(rows, ask.seed)
    return ByCell(both), ByCell(both, shortened(away, ask.reach))


class NoisySilhouettes(Noisy):
    """Per candidate the sum of the rows' silhouettes."""

    silhouettes: Integers = noisy("candidates", norm="(unit + 1) * candidates**0.5")


class SumSilhouettes(PrivateRequest[NoisySilhouettes], doing="judging numbers of clusters with noise"):
    """Sum up your rows' simplified silhouettes at each candidate's centers, in units of 1 / ``unit``.

    Candidate ``i`` has ``sizes[i]`` of the centers."""

    unit: int
    sizes: Integers = array("candidates", dtype="int32")
    centers: Floats = array("all", "s")

    def problem(self) -> str | None:
        """Why no site answers it."""
        sizes = self.sizes.tolist()
        if not sizes or min(sizes) < 1 or sum(sizes) != len(self.centers):
            return f"{len(self.centers)} centers, which are not those of {sizes} clusters"
        return super().problem() or (None if 0 < self.unit <= 1 << 20 else f"{self.unit} units")


@contributes(SumSilhouettes)
def whole_silhouettes(rows: Floats, memory: Memory, ask: SumSilhouettes) -> tuple[Contribution, ...]:
    centers = _whole_centers(ask.centers)
    squared = np.vecdot(rows, rows)[:, None] - 2 * (rows @ centers.T) + np.vecdot(centers, centers)
    parts = np.split(squared, np.cumsum(ask.sizes)[:-1], axis=1)
    each = [separation.silhouettes(separation.two_nearest(part)) for part in parts]
    return (Whole(np.rint(np.clip(np.stack(each, axis=1), 0.0, 1.0) * ask.unit)),)


class NoisyPairs(Noisy):
    """The number of rows by their clusters in two clusterings."""

    counts: Integers = noisy("k", "k", norm="1")


class CountPairs(PrivateRequest[NoisyPairs], doing="comparing two halves of the rows with noise"):
    """Count your rows by the nearest of two sets of centers."""

    first: Floats = array("k", "s")
    second: Floats = array("k", "s")


@contributes(CountPairs)
def row_pairs(rows: Floats, memory: Memory, ask: CountPairs) -> tuple[Contribution, ...]:
    one, other = (nearest_whole(rows, _whole_centers(centers)) for centers in (ask.first, ask.second))
    return (ByCell(one * len(ask.first) + other),)


def _whole_centers(centers: Floats) -> Floats:
    return np.clip(np.rint(centers), WIDEST - FARTHEST, FARTHEST - WIDEST)


CHOOSING_PRIVATELY = (SumHalfCells, SumSilhouettes, CountPairs)
"""What is asked to choose a number of clusters privately, besides what several methods ask."""


def private_choice(ks: Sequence[int], box: Box, releases: Releases, seed: int) -> Protocol[Choice]:
    """Which number of clusters is supported, by noisy sums alone; all numbers are estimates."""
    grid, nowhere = box.radius / (WIDEST - 1), (np.zeros(0), np.zeros((0, 0)))
    yield from total(ShowWhole(grid, 1.0, box.middle, *nowhere))
    moments = yield from private_moments(box, releases, MOMENTS, grid)
    subspace = yield from leading_subspace(max(ks), moments, releases, GRAM, grid)
    fine = FINE_RADIUS * moments.spread / WIDEST
    yield from total(ShowWhole(grid, fine, box.middle, moments.mean, subspace.axes))
    whole, halves = yield from _summaries(max(ks), moments, subspace, releases, fine, seed)
    centers, *split = ([_centers(part, k, seed) for k in ks] for part in (whole, *halves))
    sizes, near = np.array(ks, np.int64), np.concatenate(centers) / fine
    judged = yield from releases.ask(SumSilhouettes, "silhouettes", SILHOUETTES, (1.0,), UNIT, sizes, near)
    silhouettes = np.clip(judged.reply.silhouettes / (UNIT * moments.n_rows), 0.0, 1.0)
    place = between(int(np.argmax(silhouettes)), 0, len(ks) - 1)
    pairs = yield from releases.ask(
        CountPairs, "two halves compared", PAIRS, (1.0,), split[0][place] / fine, split[1][place] / fine
    )
    stability = separation.adjusted_rand(np.maximum(pairs.reply.counts, 0.0))
    cost, gap, error = yield from _gap(centers[place], subspace, releases, fine, seed)
    only = np.where(np.arange(len(ks)) == place, 1.0, np.nan)
    lifted = exact.product(np.concatenate(centers), subspace.axes.T) + moments.mean + box.middle
    return Choice(
        sizes,
        cost * only,
        silhouettes,
        gap * only,
        error * only,
        stability * only,
        supported_by(stability, gap, error),
        ks[place],
        moments.n_rows,
        np.clip(lifted, box.low, box.high),
        np.concatenate([_sizes(whole, own) for own in centers]),
    )


def _summaries(
    most: int, moments: Moments, subspace: Subspace, releases: Releases, fine: float, seed: int
) -> Protocol[tuple[Points, list[Points]]]:
    """The noisy means of cells around public points, of all rows and of two halves."""
    s, rng = len(subspace.variances), np.random.default_rng([seed, 0])
    deviation = 1 / np.sqrt(releases.mu_squared(CELLS) * COUNTING)
    n_cells = int(min(max(moments.n_rows / (ROWS_A_CELL * deviation), most), max(MOST_CELLS, most)))
    n_cells = between(n_cells, most, max(MOST_CELLS, most))
    points = rng.normal(size=(n_cells, s)) * np.sqrt(subspace.variances)
    reach = max(1, int(np.ceil(subspace.spread / fine)))
    near, parts = np.clip(points / fine, -WIDEST, WIDEST), (COUNTING, 1 - COUNTING)
    asked = yield from releases.ask(SumHalfCells, "cells of two halves", CELLS, parts, reach, seed, near)
    counts, sums = asked.reply.counts.astype(np.float64), asked.reply.sums * fine
    noise, all_counts = asked.deviations[0], counts.sum(axis=0)
    sure = all_counts > SURE * np.sqrt(2) * noise
    if sure.sum() < most:
        sure = np.isin(np.arange(n_cells), np.argsort(-all_counts, kind="stable")[:most])

    def summary(held: Floats, moved: Floats) -> Points:
        weights = np.maximum(held[sure], noise)
        return Points(points[sure] + no_farther(moved[sure] / weights[:, None], subspace.spread), weights)

    return summary(all_counts, sums.sum(axis=0)), [summary(*half) for half in zip(counts, sums, strict=True)]


def _centers(summary: Points, k: int, seed: int) -> Floats:
    return clustering.best_centers(*summary, k, seed=seed, n_init=STARTS).centers


def _sizes(summary: Points, centers: Floats) -> Floats:
    """About how many rows are nearest to each center, by their cells."""
    labels = exact.squared_distances(summary.points, centers).argmin(axis=1)
    return clustering.counts_by_cell(labels, summary.weights, len(centers))


def _gap(
    centers: Floats, subspace: Subspace, releases: Releases, fine: float, seed: int
) -> Protocol[tuple[float, float, float]]:
    """The cost of centers, how much farther it falls than that of rows without clusters, and the error of that."""
    one = yield from private_cost(np.zeros_like(centers[:1]), subspace.spread, releases, COST, fine)
    noise_of_one = releases.cost_deviation or 0.0
    cost = yield from private_cost(centers, subspace.spread, releases, COST, fine)
    noise = releases.cost_deviation or 0.0
    expected = separation.reference_costs(tuple(subspace.variances.tolist()), 0.0, (len(centers),), seed=seed)
    gap = float(expected.mean[0]) - float(np.log(max(cost, noise, 1e-300) / max(one, 1e-300)))
    spread = float(expected.deviation[0]) ** 2 * (1 + 1 / separation.REFERENCES)
    off = (noise / max(cost, noise, 1e-300)) ** 2 + (noise_of_one / max(one, noise_of_one, 1e-300)) ** 2
    return cost, gap, ERRORS * float(np.sqrt(spread + off))
