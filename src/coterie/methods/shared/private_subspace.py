"""Moments of all rows and the axes along which they vary most, by noisy sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.arrays import Floats
from coterie.errors import InputError
from coterie.maths import exact
from coterie.maths.spectra import full_matrix
from coterie.messages.verbs import Protocol
from coterie.methods.shared.privacy import CERTAIN, Releases
from coterie.methods.shared.private_sums import SumProducts, SumRows

FEW_COLUMNS = 12
"""Up to so many columns no subspace is looked for in earnest, and Lloyd's rounds get its share."""
GRAM_REACH = 1024
"""Whole numbers that stand for the radius of clipped rows in products."""
EDGE = 1.1
"""An axis is kept where its eigenvalue is so many times the largest of noise alone."""


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


def private_moments(box: Box, releases: Releases, share: float, grid: float) -> Protocol[Moments]:
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


def leading_subspace(
    n_clusters: int, moments: Moments, releases: Releases, share: float, grid: float
) -> Protocol[Subspace]:
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
