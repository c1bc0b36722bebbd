"""k-means with differential privacy: a few noisy sums, between which the server computes what it likes.

Count, mean and spread of all rows; a Gram of clipped rows, whose leading axes span a subspace; a codebook of cells in
it, whose noisy means are clustered; rounds of Lloyd's algorithm there; one sum a cluster of whole rows. Everything
that decides the next question is a function of noisy sums. The shares and radii come from trials on data of many
shapes (``coterie reproduce privacy``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.arrays import Floats
from coterie.errors import InputError
from coterie.maths import exact
from coterie.maths.exact_kmeans import solve
from coterie.maths.spectra import full_matrix
from coterie.messages.verbs import Protocol, total
from coterie.methods.shared.lloyd import KMeansFit
from coterie.methods.shared.privacy import CERTAIN, Releases
from coterie.methods.shared.private_sums import SumByCell, SumProducts, SumRows
from coterie.methods.shared.whole_rows import WIDEST, ShowWhole

FEW_COLUMNS = 12
"""Up to so many columns no subspace is looked for in earnest, and Lloyd's rounds get its share."""
GRAM_REACH = 1024
"""Whole numbers that stand for the radius of clipped rows in products."""
FINE_RADIUS = 8.0
"""Of the mean distance from the mean: how far out rows are told apart in the subspace."""
EDGE = 1.1
"""An axis is kept where its eigenvalue is so many times the largest of noise alone."""
ROWS_A_CELL, MOST_CELLS, SURE = 6.0, 400, 2.0
"""Cells are so few that each holds so many deviations of its noisy count; those with fewer than two are left out."""
ROUNDS = 3


@dataclass(frozen=True)
class Shares:
    """Of what a run may give away, by release."""

    moments: float
    gram: float
    cells: float
    rounds: float
    lift: float


MANY = Shares(0.06, 0.34, 0.22, 0.18, 0.20)
FEW = Shares(0.06, 0.10, 0.22, 0.62, 0.0)


@dataclass(frozen=True)
class Box:
    """Where prepared rows lie: known to everyone."""

    low: Floats
    high: Floats

    @property
    def middle(self) -> Floats:
        return (self.low + self.high) / 2

    @property
    def radius(self) -> float:
        """From the middle to a corner; ``InputError`` where no column has any width."""
        radius = exact.length((self.high - self.low) / 2)
        if not radius > 0:
            raise InputError("ranges have no width in any column; there is nothing to cluster.")
        return radius


class Moments(NamedTuple):
    """Of all rows, with noise: how many, their mean less the middle of the box, their distance from the mean."""

    n_rows: float
    mean: Floats
    spread: float


class Subspace(NamedTuple):
    """Axes as columns, the variance along each, and how far rows lie from the mean across all of them."""

    axes: Floats
    variances: Floats

    @property
    def spread(self) -> float:
        return float(np.sqrt(self.variances.sum()))


def private_kmeans(n_clusters: int, box: Box, releases: Releases, seed: int) -> Protocol[KMeansFit]:
    """Centers by noisy sums alone; sizes and the cost are estimates."""
    d, rng = len(box.low), np.random.default_rng([seed, 0])
    shares, grid = FEW if d <= FEW_COLUMNS else MANY, box.radius / (WIDEST - 1)
    nowhere = np.zeros(0), np.zeros((0, 0))
    yield from total(ShowWhole(grid, 1.0, box.middle, *nowhere))
    moments = yield from _moments(box, releases, shares.moments, grid)
    subspace = yield from _subspace(n_clusters, moments, releases, shares.gram, grid)
    fine = FINE_RADIUS * moments.spread / WIDEST
    yield from total(ShowWhole(grid, fine, box.middle, moments.mean, subspace.axes))
    start = yield from _codebook(n_clusters, moments, subspace, releases, shares.cells, fine, rng)
    centers, counts, within = yield from _lloyd(start, subspace, releases, shares.rounds, fine, rng)
    lifted = exact.product(centers, subspace.axes.T) + moments.mean
    if shares.lift:
        yield from total(ShowWhole(grid, 1.0, box.middle, *nowhere))
        rest = np.sqrt(max(moments.spread**2 - subspace.spread**2, 0.1 * moments.spread**2) + within**2)
        lifted = yield from _lift(lifted, counts, float(rest), releases, shares.lift, grid)
    found = np.clip(lifted + box.middle, box.low, box.high)
    between = (found - box.middle - moments.mean) ** 2
    cost = moments.n_rows * moments.spread**2 - float((counts[:, None] * between).sum())
    return KMeansFit(found, max(cost, 0.0), counts, ROUNDS)


def _moments(box: Box, releases: Releases, share: float, grid: float) -> Protocol[Moments]:
    """Count, mean and spread."""
    d = len(box.low)
    reach = int(np.ceil(box.radius / grid + np.sqrt(d) / 2))
    sums = yield from releases.ask(SumRows, "number of rows, mean, spread", share, (0.15, 0.65, 0.20), d, reach)
    n_rows = max(float(sums.reply.rows), 1.0)
    releases.most_rows = n_rows + CERTAIN * sums.deviations[0]
    half = (box.high - box.low) / 2
    mean = np.clip(sums.reply.sums * grid / n_rows, -half, half)
    most = box.radius**2
    spread = float(sums.reply.squares) * grid**2 / n_rows - float((mean * mean).sum())
    return Moments(n_rows, mean, float(np.sqrt(min(max(spread, 1e-3 * most), most))))


def _subspace(n_clusters: int, moments: Moments, releases: Releases, share: float, grid: float) -> Protocol[Subspace]:
    """The axes along which rows vary more than noise does."""
    d = len(moments.mean)
    radius = moments.spread * (1 + 1.2 / np.sqrt(d) if d <= FEW_COLUMNS else 1.0)
    ask = (d * (d + 1) // 2, GRAM_REACH, radius / grid, moments.mean / grid)
    sums = yield from releases.ask(SumProducts, "products of columns", share, (1.0,), *ask)
    unit = (radius / GRAM_REACH) ** 2
    gram, deviation = full_matrix(sums.reply.packed.astype(np.float64), d) * unit, sums.deviations[0] * unit
    edge, most = deviation * np.sqrt(2 * d), min(d, max(n_clusters + 2, 6))
    values, axes = exact.leading_eigenpairs(gram, most)
    kept = min(max(int((values > EDGE * edge).sum()), 1), most)
    true = np.sqrt(np.maximum(values[:kept] ** 2 - edge**2, (0.05 * edge) ** 2))
    return Subspace(axes[:, :kept], true / moments.n_rows)


def _codebook(
    n_clusters: int,
    moments: Moments,
    subspace: Subspace,
    releases: Releases,
    share: float,
    fine: float,
    rng: np.random.Generator,
) -> Protocol[Floats]:
    """Clusters of the noisy means of cells around public points."""
    s = len(subspace.variances)
    deviation = 1 / np.sqrt(releases.mu_squared(share) * 0.2)
    n_cells = int(min(max(moments.n_rows / (ROWS_A_CELL * deviation), n_clusters), max(MOST_CELLS, n_clusters)))
    points = rng.normal(size=(n_cells, s)) * np.sqrt(subspace.variances)
    narrow = 1.0 if n_cells <= n_clusters else min(1.0, max(0.35, 1.4 * (n_clusters / n_cells) ** (1 / s)))
    radius = subspace.spread * round(narrow, 3)
    found = yield from _cells(points, radius, releases, "cells of a codebook", share, 0.2, fine)
    sure = found.counts > SURE * found.deviation
    if sure.sum() < n_clusters:
        sure = np.isin(np.arange(n_cells), np.argsort(-found.counts, kind="stable")[:n_clusters])
    weights = np.maximum(found.counts[sure], found.deviation)
    means = points[sure] + _within(found.sums[sure] / weights[:, None], radius)
    return solve(means, weights, n_clusters, seed=int(rng.integers(2**31))).centers


class _Cells(NamedTuple):
    counts: Floats
    sums: Floats
    deviation: float
    """Of a count."""


def _cells(
    centers: Floats, radius: float, releases: Releases, what: str, share: float, counting: float, fine: float
) -> Protocol[_Cells]:
    """Noisy counts and sums of differences by center, in the units of the centers."""
    reach = max(1, int(np.ceil(radius / fine)))
    near = np.clip(centers / fine, -WIDEST, WIDEST)
    asked = yield from releases.ask(SumByCell, what, share, (counting, 1 - counting), reach, near)
    return _Cells(asked.reply.counts.astype(np.float64), asked.reply.sums * fine, asked.deviations[0])


def _lloyd(
    centers: Floats, subspace: Subspace, releases: Releases, share: float, fine: float, rng: np.random.Generator
) -> Protocol[tuple[Floats, Floats, float]]:
    """Rounds of Lloyd's algorithm; an empty cluster takes half of the largest one. Centers, counts, the radius."""
    k, s = centers.shape
    radius = _radius_within(centers, subspace)
    for step in range(ROUNDS):
        found = yield from _cells(
            centers, radius, releases, f"clusters, round {step + 1}", share / ROUNDS, 0.12, fine
        )
        empty, counts = found.counts < SURE * found.deviation, np.maximum(found.counts, found.deviation)
        moves = _within(found.sums / counts[:, None], radius)
        centers = centers + np.where(empty[:, None], 0.0, moves)
        for place in np.flatnonzero(empty) if step < ROUNDS - 1 and k > 1 else ():
            largest = int(np.argmax(counts))
            aside = rng.normal(size=s) * np.sqrt(subspace.variances)
            aside = 0.5 * radius * aside / max(exact.length(aside), 1e-300)
            centers[place], centers[largest] = centers[largest] + aside, centers[largest] - aside
            counts[largest] = counts[place] = counts[largest] / 2
    return centers, np.maximum(found.counts, 0.0), radius


def _radius_within(centers: Floats, subspace: Subspace) -> float:
    """How far rows are from their centers: what the centers' own spread leaves of all rows'."""
    away = centers - centers.mean(axis=0)
    between = float((away * away).sum()) / len(centers)
    least = 0.15 * subspace.spread**2
    return float(np.sqrt(max(subspace.spread**2 - between, least)))


def _lift(
    centers: Floats, counts: Floats, radius: float, releases: Releases, share: float, grid: float
) -> Protocol[Floats]:
    """What rows of each cluster have in common across the axes, less the part that is like noise."""
    reach = max(1, int(np.ceil(radius / grid)))
    asked = yield from releases.ask(SumByCell, "clusters in all columns", share, (0.02, 0.98), reach, centers / grid)
    known = np.maximum(counts, asked.deviations[0])
    return centers + _filtered(asked.reply.sums * grid, asked.deviations[1] * grid) / known[:, None]


def _filtered(sums: Floats, deviation: float) -> Floats:
    """Singular values shrunk as is best under noise of this deviation (Gavish & Donoho 2017)."""
    k, d = sums.shape
    size = deviation * np.sqrt(d)
    values, left = exact.eigenpairs(exact.product(sums, sums.T))
    scaled = np.sqrt(np.maximum(values, 0.0)) / size
    beta = k / d
    clear = np.sqrt(np.maximum((scaled**2 - beta - 1) ** 2 - 4 * beta, 0.0)) / np.maximum(scaled, 1e-300) ** 2
    kept = np.where(scaled > 1 + np.sqrt(beta), clear, 0.0)
    return exact.product(left * kept, exact.product(left.T, sums))


def _within(moves: Floats, radius: float) -> Floats:
    """Moves no longer than a radius."""
    lengths = np.sqrt((moves * moves).sum(axis=1))
    return np.asarray(moves * np.minimum(1.0, radius / np.maximum(lengths, 1e-300))[:, None])
