"""k-means with differential privacy: a few noisy sums, between which the server computes what it likes.

Count, mean and spread of all rows; a Gram of clipped rows, whose leading axes span a subspace; a codebook of cells in
it, whose noisy means are clustered; rounds of Lloyd's algorithm there; one sum a cluster of whole rows. Everything
that decides the next question is a function of noisy sums. The shares and radii come from trials on data of many
shapes (``coterie reproduce privacy``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.arrays import Floats
from coterie.extents import between
from coterie.maths import exact
from coterie.messages.verbs import Protocol, total
from coterie.methods.shared.lloyd import KMeansFit
from coterie.methods.shared.privacy import Releases
from coterie.methods.shared.private_clusters import FINE_RADIUS, ROUNDS, codebook_start, private_cost, private_lloyd
from coterie.methods.shared.private_subspace import FEW_COLUMNS, Box, Moments, leading_subspace, private_moments
from coterie.methods.shared.private_sums import SumByCell
from coterie.methods.shared.whole_rows import WIDEST, ShowWhole


@dataclass(frozen=True)
class Shares:
    """Of what a run may give away, by release."""

    moments: float
    gram: float
    cells: float
    rounds: float
    lift: float


CLEAR, MOST_LIFTS, WIDEST_LIFT = 0.05, 8, 2.5
"""Noise of a center that is small, as a share of its rows' radius; the most rounds and radii that make use of it."""
COST = 0.02
MANY = Shares(0.06, 0.34, 0.22, 0.18, 0.18)
FEW = Shares(0.06, 0.10, 0.22, 0.60, 0.0)


def private_kmeans(n_clusters: int, box: Box, releases: Releases, seed: int) -> Protocol[KMeansFit]:
    """Centers by noisy sums alone; sizes and the cost are estimates."""
    d, rng = len(box.low), np.random.default_rng([seed, 0])
    shares, grid = FEW if d <= FEW_COLUMNS else MANY, box.radius / (WIDEST - 1)
    nowhere = np.zeros(0), np.zeros((0, 0))
    yield from total(ShowWhole(grid, 1.0, box.middle, *nowhere))
    moments = yield from private_moments(box, releases, shares.moments, grid)
    subspace = yield from leading_subspace(max(n_clusters + 2, 6), moments, releases, shares.gram, grid)
    fine = FINE_RADIUS * moments.spread / WIDEST
    yield from total(ShowWhole(grid, fine, box.middle, moments.mean, subspace.axes))
    start = yield from codebook_start(n_clusters, moments, subspace, releases, shares.cells, fine, rng)
    centers, counts, within = yield from private_lloyd(start, subspace, releases, shares.rounds, fine, rng)
    lifted = exact.product(centers, subspace.axes.T) + moments.mean
    yield from total(ShowWhole(grid, 1.0, box.middle, *nowhere))
    rounds = ROUNDS
    rest = float(np.sqrt(max(moments.spread**2 - subspace.spread**2, 0.1 * moments.spread**2) + within**2))
    if shares.lift:
        lifts, wider = _lifts(n_clusters, moments, releases.mu_squared(shares.lift))
        for _ in range(lifts):
            known = counts if lifts == 1 else None
            lifted, counts = yield from _lift(lifted, known, rest * wider, releases, shares.lift / lifts, grid)
        rounds += lifts
    found = np.clip(lifted + box.middle, box.low, box.high)
    cost = yield from private_cost(found - box.middle, rest, releases, COST, grid)
    return KMeansFit(found, cost, counts, rounds)


def _lifts(n_clusters: int, moments: Moments, mu_squared: float) -> tuple[int, float]:
    """How many rounds in all columns, and how much farther than their usual distance rows count in them: one, and no
    farther, unless there is so little noise that more of both leaves it small."""
    d = len(moments.mean)
    noise = np.sqrt(d) * n_clusters / (moments.n_rows * np.sqrt(mu_squared))  # of a center, in the radius of rows
    rounds = between(int(np.clip((CLEAR / noise) ** 2, 1, MOST_LIFTS)), 1, MOST_LIFTS)
    return rounds, float(np.clip(CLEAR / (noise * np.sqrt(rounds)), 1.0, WIDEST_LIFT))


def _lift(
    centers: Floats, counts: Floats | None, radius: float, releases: Releases, share: float, grid: float
) -> Protocol[tuple[Floats, Floats]]:
    """Centers moved by what rows of each cluster have in common in all columns, less the part that is like noise; and
    their number, unless that is known better."""
    reach = max(1, int(np.ceil(radius / grid)))
    asked = yield from releases.ask(SumByCell, "clusters in all columns", share, (0.02, 0.98), reach, centers / grid)
    if counts is None:
        counts, releases.size_deviation = np.maximum(asked.reply.counts, 0.0), asked.deviations[0]
    moves = _filtered(asked.reply.sums * grid, asked.deviations[1] * grid)
    return centers + moves / np.maximum(counts, asked.deviations[0])[:, None], counts


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
