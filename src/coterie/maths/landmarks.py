"""Landmarks: points whose kernel values with rows embed the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from coterie.arrays import Floats, Integers, Rows
from coterie.extents import padded, sized
from coterie.maths import exact
from coterie.maths.clustering import counts_by_cell, nearest, weighted_kmeans
from coterie.maths.kernels import Kernel
from coterie.maths.spectra import exact_eigenpairs, inverse_root

THRESHOLD = {8: 1e-12, 4: 1e-8}
"""Eigenvalues of K(L, L) below this share of the largest count as zero, by the bytes of a row's values: rounding
errors of kernel values would be divided by their root."""
NEIGHBORS, SAMPLED, TRUSTED = 3, 256, 0.7
"""Correlations within groups are estimated by 0.7 of those of the differences between some groups and their nearest
ones: neighbors differ along the main directions more than the rows of a group do."""


@dataclass(frozen=True)
class Landmarks:
    """Points, the number of rows each represents, and the sum of squared distances of the rows from their mean."""

    points: Floats
    weights: Floats
    scatter: float

    @property
    def n_rows(self) -> float:
        return float(self.weights.sum())


@dataclass(frozen=True)
class GroupCovariance:
    """An estimate of the covariance within groups, common to all groups; its trace is the number of columns.

    The deviation of each column is exact. Correlations are estimated: ``shared`` has rows R with R'R their part, and
    ``alone`` is the part of each column that is independent of the others.
    """

    deviations: Floats
    shared: Floats
    alone: Floats

    @classmethod
    def of(cls, squares: Floats, differences: Floats) -> GroupCovariance:
        """From the sum of squares within groups of each column, and differences between neighboring groups."""
        if len(differences) > len(squares):
            differences = np.linalg.qr(differences).R
        lengths = np.linalg.norm(differences, axis=0)
        trusted = np.where(lengths > 0, TRUSTED, 0.0)
        shared = differences * (np.sqrt(trusted) / np.where(lengths > 0, lengths, 1.0))
        return cls(np.sqrt(squares * (len(squares) / squares.sum())), shared, np.sqrt(1 - trusted))

    def coordinates(self, points: Rows) -> Floats:
        """Points in coordinates whose inner products are x'Cy."""
        scaled = points * self.deviations
        return np.concatenate([scaled @ self.shared.T, scaled * self.alone], axis=1)


def neighbor_differences(rows: Rows) -> Floats:
    """Differences between some of the rows, evenly spaced, and their nearest neighbors."""
    if not len(rows):
        return np.zeros((0, rows.shape[1]))
    some, k = rows[:: -(-len(rows) // SAMPLED)].astype(np.float64), min(NEIGHBORS, len(rows) - 1)
    near = np.argpartition(cdist(some, rows, "sqeuclidean"), k, axis=1)[:, : k + 1]  # among them the row itself
    differences: Floats = (some[:, None] - rows[near]).reshape(-1, rows.shape[1])
    return differences


@dataclass(frozen=True)
class LandmarkMap:
    """The embedding k(x, L) P of rows x, minus a shift if it is centered."""

    kernel: Kernel
    landmarks: Floats
    projection: Floats
    shift: Floats

    @classmethod
    def of(cls, kernel: Kernel, landmarks: Floats, projection: Floats) -> LandmarkMap:
        """A map without a shift."""
        return cls(kernel, landmarks, projection, np.zeros(projection.shape[1]))

    def embed(self, rows: Rows, variance: Rows | None = None) -> Rows:
        """The embedded rows, in the rows' precision; ``variance`` as in :meth:`Kernel.quick`."""
        embedded: Rows = self.kernel.quick(rows, self.landmarks, variance) @ self.projection.astype(rows.dtype)
        embedded -= self.shift.astype(rows.dtype)
        return embedded

    def own_features(self) -> Floats:
        """The embedded landmarks, with the same bits on every machine."""
        return exact.product(self.kernel.exact(self.landmarks, self.landmarks), self.projection) - self.shift

    def within(self, rows: Rows, variance: Floats, counts: Floats, covariance: GroupCovariance) -> Floats:
        """The scatter of features within groups, to first order, for an rbf kernel.

        Per group v J C J', with v its ``variance``, J the derivative of its features and C the covariance of
        ``covariance``.
        """
        values = self.kernel.quick(rows.astype(np.float64), self.landmarks, variance)
        slopes = 2 * self.kernel.gamma / (1 + 2 * self.kernel.gamma * variance) * np.sqrt(counts * variance)
        values *= slopes[:, None]
        near, points = covariance.coordinates(rows), covariance.coordinates(self.landmarks)
        mixed = values.T @ (values * (near @ points.T))
        scatter = (values * np.vecdot(near, near)[:, None]).T @ values - mixed - mixed.T
        scatter += (values.T @ values) * (points @ points.T)
        return np.asarray(self.projection.T @ scatter @ self.projection)


def coded(values: Floats, bits: int, n_ranges: int) -> tuple[Integers, Floats, Floats]:
    """Values as integers of ``bits`` bits over the range of each column or of all columns; with lows and spans."""
    axis = 0 if n_ranges > 1 else None
    low = np.full(n_ranges, np.min(values, axis=axis, initial=np.inf)) if values.size else np.zeros(n_ranges)
    high = np.full(n_ranges, np.max(values, axis=axis, initial=-np.inf)) if values.size else np.zeros(n_ranges)
    low, span = low.astype(np.float32).astype(np.float64), (high - low).astype(np.float32).astype(np.float64)
    steps = (1 << bits) - 1
    codes = np.rint((values - low) / np.where(span > 0, span, 1.0) * steps)
    return np.clip(codes, 0, steps).astype(np.int64), low, span


def decoded(codes: Integers, low: Floats, span: Floats, bits: int) -> Floats:
    """The values of codes."""
    return codes * (span / ((1 << bits) - 1)) + low


def merged(points: Floats, weights: Floats, most: int, *, seed: int) -> tuple[Floats, Floats]:
    """The distinct points, or k-means centers if they are more than twice ``most``, with their weights."""
    n_sent, points, weights = len(points), points[weights > 0], weights[weights > 0]
    distinct, place = np.unique(points, axis=0, return_inverse=True)
    together = counts_by_cell(place.ravel(), weights, len(distinct))
    centers, counts = distinct, together
    if len(distinct) > 2 * most:
        centers = weighted_kmeans(distinct, together, most, seed=seed, n_init=1)
        counts = counts_by_cell(nearest(distinct, centers)[0], together, most)
        centers, counts = centers[counts > 0], counts[counts > 0]
    largest = min(2 * most, n_sent)
    held = sized(counts, 1, largest)
    return sized(centers, 1, largest), held * (counts.sum() / held.sum())


def feature_root(kernel: Kernel, points: Floats, *, row_bytes: int = 8) -> Floats:
    """R with phi(x) = k(x, L) R and phi(l)'phi(l') = k(l, l'): a root of the pseudoinverse of K(L, L).

    It has fewer columns than landmarks if K(L, L) does not have full rank. Its bits are the same on every machine.
    """
    root = inverse_root(kernel.exact(points, points), THRESHOLD[row_bytes], pairs_of=exact_eigenpairs)
    return np.asarray(padded(root.T, 1, len(points)).T)


def missed_share(kernel: Kernel, landmarks: Landmarks, *, seed: int, n_splits: int = 20) -> float:
    """The share of the landmarks' scatter that half of them does not explain in the other half, over random halves.

    If it is large, twice as many landmarks would explain more of the rows. Rounded, since more of them are asked for
    above a threshold.
    """
    n, weights = len(landmarks.points), landmarks.weights
    between, rng = kernel.between(landmarks.points, landmarks.points), np.random.default_rng([seed, 7])
    alone, share = np.diag(between), weights / weights.sum()
    apart = float(share @ alone - share @ between @ share)
    if n < 2 or not apart > 1e-12 * float(alone.max()):
        return 0.0
    missed = []
    for _ in range(n_splits):
        half, rest = np.split(rng.permutation(n), [n // 2])
        seen = between[np.ix_(rest, half)] @ inverse_root(between[np.ix_(half, half)], THRESHOLD[4])
        missed.append(np.average(np.maximum(alone[rest] - np.vecdot(seen, seen), 0.0), weights=weights[rest]))
    return round(float(np.mean(missed)) / apart, 9)
