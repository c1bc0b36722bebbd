"""Clusters of rows in a subspace, by noisy counts and sums of cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coterie.arrays import Floats
from coterie.extents import between
from coterie.maths import exact
from coterie.maths.exact_kmeans import solve
from coterie.messages.verbs import Protocol
from coterie.methods.shared.privacy import SURE, Releases
from coterie.methods.shared.private_subspace import Moments, Subspace
from coterie.methods.shared.private_sums import MeasureCost, SumByCell
from coterie.methods.shared.whole_rows import WIDEST

ROWS_A_CELL, MOST_CELLS = 6.0, 400
"""Cells are so few that each holds so many deviations of its noisy count; those with fewer than two are left out."""
ROUNDS, MOST_ROUNDS, COUNTING = 3, 10, 0.12
"""Rounds of Lloyd's algorithm, and the share of each that its counts have."""
STILL = 0.003
"""More rounds are worth their noise where centers are off by less than this share of the squares within clusters."""
FINE_RADIUS = 8.0
"""Of the mean distance from the mean: how far out rows are distinguished in the subspace."""
FAR = 2.0
"""So many radii from its center no row counts as farther in the cost."""


def codebook_start(
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
    n_cells = between(n_cells, n_clusters, max(MOST_CELLS, n_clusters))
    points = rng.normal(size=(n_cells, s)) * np.sqrt(subspace.variances)
    narrow = 1.0 if n_cells <= n_clusters else min(1.0, max(0.35, 1.4 * (n_clusters / n_cells) ** (1 / s)))
    radius = subspace.spread * round(narrow, 3)
    found = yield from private_clusters(points, radius, releases, "cells of a codebook", share, 0.2, fine)
    sure = found.counts > SURE * found.deviation
    if sure.sum() < n_clusters:
        sure = np.isin(np.arange(n_cells), np.argsort(-found.counts, kind="stable")[:n_clusters])
    weights = np.maximum(found.counts[sure], found.deviation)
    means = points[sure] + no_farther(found.sums[sure] / weights[:, None], radius)
    return solve(means, weights, n_clusters, seed=int(rng.integers(2**31))).centers


class NoisyClusters(NamedTuple):
    counts: Floats
    sums: Floats
    deviation: float
    """Of a count."""


def private_clusters(
    centers: Floats, radius: float, releases: Releases, what: str, share: float, counting: float, fine: float
) -> Protocol[NoisyClusters]:
    """Noisy counts and sums of differences by center, in the units of the centers."""
    reach = max(1, int(np.ceil(radius / fine)))
    near = np.clip(centers / fine, -WIDEST, WIDEST)
    asked = yield from releases.ask(SumByCell, what, share, (counting, 1 - counting), reach, near)
    return NoisyClusters(asked.reply.counts.astype(np.float64), asked.reply.sums * fine, asked.deviations[0])


def rounds_worth(n_rows: float, centers: Floats, releases: Releases, share: float) -> int:
    """How many rounds of Lloyd's algorithm are best: more where their noise hardly moves centers."""
    k, s = centers.shape
    precision = releases.mu_squared(share) * (1 - COUNTING) * (n_rows / k) ** 2
    return between(int(np.clip(STILL * precision / s, ROUNDS, MOST_ROUNDS)), ROUNDS, MOST_ROUNDS)


def private_lloyd(
    centers: Floats,
    subspace: Subspace,
    releases: Releases,
    share: float,
    fine: float,
    rng: np.random.Generator,
    rounds: int = ROUNDS,
) -> Protocol[tuple[Floats, Floats, float]]:
    """Rounds of Lloyd's algorithm; an empty cluster takes half of the largest one. Centers, counts, the radius."""
    k, s = centers.shape
    radius = _radius_within(centers, subspace)
    for step in range(rounds):
        found = yield from private_clusters(
            centers, radius, releases, f"clusters, round {step + 1}", share / rounds, COUNTING, fine
        )
        empty, counts = found.counts < SURE * found.deviation, np.maximum(found.counts, found.deviation)
        moves = no_farther(found.sums / counts[:, None], radius)
        centers = centers + np.where(empty[:, None], 0.0, moves)
        for place in np.flatnonzero(empty) if step < rounds - 1 and k > 1 else ():
            largest = int(np.argmax(counts))
            aside = rng.normal(size=s) * np.sqrt(subspace.variances)
            aside = 0.5 * radius * aside / max(exact.length(aside), 1e-300)
            centers[place], centers[largest] = centers[largest] + aside, centers[largest] - aside
            counts[largest] = counts[place] = counts[largest] / 2
    releases.mean_size, releases.size_deviation = max(float(found.counts.mean()), 0.0), found.deviation
    return centers, np.maximum(found.counts, 0.0), radius


def private_cost(centers: Floats, radius: float, releases: Releases, share: float, fine: float) -> Protocol[float]:
    """The cost of the final centers; hardly any row is farther from its own than ``radius`` times :data:`FAR`."""
    releases.centers = centers / fine
    reach = max(1, int(np.ceil(FAR * radius / fine)))
    asked = yield from releases.ask(MeasureCost, "cost", share, (1.0,), reach, centers / fine)
    releases.cost_deviation = asked.deviations[0] * fine**2
    return max(float(asked.reply.squares) * fine**2, 0.0)


def _radius_within(centers: Floats, subspace: Subspace) -> float:
    """How far rows are from their centers: what the centers' own spread leaves of all rows'."""
    away = centers - centers.mean(axis=0)
    between = float((away * away).sum()) / len(centers)
    least = 0.15 * subspace.spread**2
    return float(np.sqrt(max(subspace.spread**2 - between, least)))


def no_farther(moves: Floats, radius: float) -> Floats:
    """Moves no longer than a radius."""
    lengths = np.sqrt((moves * moves).sum(axis=1))
    return np.asarray(moves * np.minimum(1.0, radius / np.maximum(lengths, 1e-300))[:, None])
