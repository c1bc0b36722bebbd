"""Moments of all rows and the axes along which they vary most, by noisy sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.arrays import Floats
from coterie.errors import InputError, RowsHidden
from coterie.extents import between
from coterie.maths import exact
from coterie.maths.spectra import Ritz, full_matrix
from coterie.messages.verbs import Protocol
from coterie.methods.shared.privacy import CERTAIN, Releases
from coterie.methods.shared.private_sums import SumProducts, SumRows

FEW_COLUMNS = 12
"""Up to so many columns no subspace is looked for in earnest, and Lloyd's rounds get its share."""
GRAM_REACH = 1024
"""Whole numbers that stand for the radius of clipped rows in products."""
SURE_ROWS = 4.0
"""Fewer rows than so many deviations of their noisy number are not looked at further."""
EDGE = 1.1
"""An axis is kept where its eigenvalue is so many times the largest of noise alone."""
LEAST_SPREAD = 0.5
"""So many deviations of the noise of squared distances from the mean are the least they are taken for."""
QUIET = 0.003
"""Rows far out count in full as long as noise alone has no axis with more than this share of the rows' variance."""
MOST_LOST = 2.0
"""Squares of rows that were moved nearer are scaled by at most this factor."""
MOST_COLUMNS = 2000
"""Up to so many columns all products of two are summed up."""


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
    n_rows, noise = float(sums.reply.rows), sums.deviations[0]
    if n_rows < SURE_ROWS * noise:
        raise RowsHidden(
            f"noise hides the rows: there are {max(n_rows, 0):,.0f}, give or take {2 * noise:,.0f}; use a larger "
            "epsilon, or more rows."
        )
    releases.most_rows = n_rows + CERTAIN * sums.deviations[0]
    half = (box.high - box.low) / 2
    mean = np.clip(sums.reply.sums * grid / n_rows, -half, half)
    most = box.radius**2
    least = max(1e-3 * most, LEAST_SPREAD * sums.deviations[2] * grid**2 / n_rows)
    spread = float(sums.reply.squares) * grid**2 / n_rows - float((mean * mean).sum())
    return Moments(n_rows, mean, float(np.sqrt(min(max(spread, least), most))))


class NoisyProducts(NamedTuple):
    """The sum of products of rows with themselves, and the standard deviation of its diagonal's noise."""

    matrix: Floats
    deviation: float

    @property
    def edge(self) -> float:
        """The largest eigenvalue of noise alone."""
        return self.deviation * float(np.sqrt(2 * len(self.matrix)))

    def components(self, count: int) -> Ritz:
        """The leading axes, and the eigenvalues that rows have there, without what noise adds to them."""
        values, axes = exact.leading_eigenpairs(self.matrix, min(count, len(self.matrix)))
        clear = np.sqrt(np.maximum(values**2 - self.edge**2, 0.0))
        return Ritz(np.maximum(values + clear, 0.0) / 2, axes).signed()

    def lost(self, squares: float) -> float:
        """By what factor rows that were moved nearer have smaller squares than all rows have."""
        return min(max(squares / max(float(np.trace(self.matrix)), 1e-300), 1.0), MOST_LOST)


def check_private_columns(count: int, what: str) -> None:
    """Raise, before any question, where there are too many columns for all their products."""
    if count > MOST_COLUMNS:
        raise InputError(
            f"privacy sums up the products of all pairs of {what}, at most {MOST_COLUMNS:,}, and here are {count:,}; "
            "leave some out."
        )


def private_products(
    center: Floats, radius: float, releases: Releases, share: float, grid: float
) -> Protocol[NoisyProducts]:
    """Products of columns of rows less ``center``, each row at most ``radius`` away."""
    d = len(center)
    ask = (d * (d + 1) // 2, GRAM_REACH, radius / grid, center / grid)
    sums = yield from releases.ask(SumProducts, "products of columns", share, (1.0,), *ask)
    unit = (radius / GRAM_REACH) ** 2
    matrix = full_matrix(sums.reply.packed.astype(np.float64), d) * unit
    return NoisyProducts(matrix, sums.deviations[0] * unit)


def quiet_radius(moments: Moments, spread: float, releases: Releases, share: float, most: float) -> float:
    """How far rows may be from the center of their products, being ``spread`` away on average: as usual, or as much
    farther as noise that grows with it stays quiet. Nothing is farther than ``most``."""
    noise = np.sqrt(2 * len(moments.mean) / releases.mu_squared(share)) / moments.n_rows
    return float(
        min(max(usual_radius(spread, len(moments.mean)), spread * np.sqrt(QUIET / noise)), max(most, spread))
    )


def usual_radius(spread: float, n_columns: int) -> float:
    """How far rows may be from their mean where noise counts: of few columns some rows are much farther than most."""
    return float(spread * (1 + 1.2 / np.sqrt(n_columns) if n_columns <= FEW_COLUMNS else 1.0))


def leading_subspace(
    most: int, moments: Moments, releases: Releases, share: float, grid: float
) -> Protocol[Subspace]:
    """At most so many axes, along which rows vary more than noise does."""
    d = len(moments.mean)
    products = yield from private_products(moments.mean, usual_radius(moments.spread, d), releases, share, grid)
    edge, most = products.edge, min(d, most)
    values, axes = exact.leading_eigenpairs(products.matrix, most)
    kept = between(min(max(int((values > EDGE * edge).sum()), 1), most), 1, most)
    true = np.sqrt(np.maximum(values[:kept] ** 2 - edge**2, (0.05 * edge) ** 2))
    return Subspace(axes[:, :kept], true / moments.n_rows)
