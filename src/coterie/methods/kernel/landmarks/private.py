"""Kernel k-means and kernel PCA with differential privacy: landmarks are drawn from noisy moments of all rows.

No site finds landmarks of its own. The server draws them from a normal with the noisy mean and the noisy products of
rows; then features of rows, at most 1 long, are clustered as private k-means clusters rows, by noisy sums alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from coterie.arrays import Floats
from coterie.errors import InputError
from coterie.maths import exact
from coterie.maths.landmarks import LandmarkMap
from coterie.maths.spectra import exact_eigenpairs, inverse_root
from coterie.messages.verbs import Protocol, total
from coterie.methods.kernel.clusters import LandmarkFit
from coterie.methods.kernel.landmarks.protocol import LandmarkParameters, landmark_values
from coterie.methods.kernel.landmarks.whole_features import POWERS, ShowFeatures
from coterie.methods.shared.lloyd import KMeansFit
from coterie.methods.shared.privacy import Releases
from coterie.methods.shared.private_clusters import (
    FINE_RADIUS,
    codebook_start,
    private_cost,
    private_lloyd,
    rounds_worth,
)
from coterie.methods.shared.private_subspace import (
    Box,
    Moments,
    check_private_columns,
    leading_subspace,
    private_moments,
    private_products,
    quiet_radius,
)
from coterie.methods.shared.whole_rows import WIDEST, ShowWhole

LANDMARKS, AXES = 60, 60
"""Landmarks that are drawn where no number is given, and at most so many axes along which they differ."""
THRESHOLD = 1e-6
"""Eigenvalues of K(L, L) below this share of the largest count as zero."""
MOMENTS, GRAM = 0.05, 0.25
"""Of what a run may give away, for landmarks."""
MEAN, PRODUCTS, CELLS, LLOYD, COST = 0.035, 0.18, 0.21, 0.26, 0.015
"""The same for clusters of features; for components the products have what the cells and rounds need not."""
FARTHEST = 2.0
"""Features differ by at most this from a mean of features."""
WHOLE = FARTHEST / WIDEST
"""What one whole number stands for."""


class Ball(Box):
    """Where features lie, less a mean of features: hardly any is farther away from it than 1."""

    @property
    def radius(self) -> float:
        return 1.0


@dataclass(frozen=True)
class Features:
    """How sites are asked to see features: those of a map, without its shift, less a mean of features."""

    map: LandmarkMap
    middle: Floats
    grid: float
    origin: Floats

    def request(self, axes: Floats, shift: Floats, fine: float) -> ShowFeatures:
        """Features along some axes."""
        kernel, own = self.map.kernel, exact.product(self.map.projection, axes)
        fields = kernel.name, kernel.gamma, self.grid, fine, self.origin, self.map.landmarks, own, shift
        return ShowFeatures(*fields)

    def fit(self, n_rows: float, axes: Floats, shift: Floats, values: Floats) -> LandmarkFit:
        """An embedding along some axes."""
        projection = exact.product(self.map.projection, axes)
        embedding = replace(self.map, projection=projection, shift=shift)
        return LandmarkFit(embedding.kernel, embedding, n_rows, values=values)


class Found(NamedTuple):
    """Features, the grid on which they are whole numbers, and their moments about ``features.middle``."""

    features: Features
    fine: float
    moments: Moments
    n_rows: float


def check_private_landmarks(settings: LandmarkParameters) -> None:
    """Raise, before any question, what cannot be done with differential privacy."""
    if settings.kernel not in POWERS:
        raise InputError(
            f"privacy needs a kernel whose values are at most 1, and those of kernel={settings.kernel!r} have no "
            f"bound; use {' or '.join(map(repr, POWERS))}."
        )
    check_private_columns(settings.n_landmarks or LANDMARKS, "landmarks")


def private_clusters_by_landmarks(
    settings: LandmarkParameters, n_clusters: int, box: Box, releases: Releases, seed: int
) -> Protocol[LandmarkFit]:
    """Centers among features, by noisy sums alone; sizes and the cost are estimates."""
    rng = np.random.default_rng([seed, 0])
    features, fine, moments, n_rows = yield from _features(settings, box, releases, rng)
    most = max(n_clusters + 2, 6)
    subspace = yield from leading_subspace(most, moments, releases, PRODUCTS, fine)
    middle, fine = features.middle + moments.mean, FINE_RADIUS * moments.spread / WIDEST
    yield from total(features.request(subspace.axes, exact.product(middle, subspace.axes), fine))
    start = yield from codebook_start(n_clusters, moments, subspace, releases, CELLS, fine, rng)
    rounds = rounds_worth(moments.n_rows, start, releases, LLOYD)
    centers, counts, within = yield from private_lloyd(start, subspace, releases, LLOYD, fine, rng, rounds)
    own = features.map.own_features()
    lifted, r = exact.product(centers, subspace.axes.T) + moments.mean, own.shape[1]
    yield from total(features.request(np.eye(r), features.middle, WHOLE))
    rest = float(np.sqrt(max(moments.spread**2 - subspace.spread**2, 0.0) + within**2))
    cost = yield from private_cost(lifted, rest, releases, COST, WHOLE)
    clusters = KMeansFit(lifted + features.middle, cost, counts, rounds)
    values = landmark_values(own, np.full(len(own), n_rows / len(own)))
    return replace(features.fit(n_rows, np.eye(r), np.zeros(r), values), clusters=clusters)


def private_components_by_landmarks(
    settings: LandmarkParameters, n_components: int, box: Box, releases: Releases, seed: int, *, center: bool
) -> Protocol[LandmarkFit]:
    """The leading components of features, by one noisy sum of their products; eigenvalues are estimates."""
    rng, share = np.random.default_rng([seed, 0]), PRODUCTS + CELLS + LLOYD + COST
    features, fine, moments, n_rows = yield from _features(settings, box, releases, rng)
    away = moments.mean if center else -features.middle
    spread = float(np.hypot(moments.spread, exact.length(moments.mean - away)))
    radius = quiet_radius(moments, spread, releases, share, FARTHEST)
    products = yield from private_products(away, radius, releases, share, fine)
    pairs = products.components(n_components)
    axes = pairs.vectors[:, : max(1, int((pairs.values > 0).sum()))]
    values = pairs.values[: axes.shape[1]] * products.lost(moments.n_rows * spread**2)
    return features.fit(n_rows, axes, exact.product(features.middle + away, axes), values)


def _features(
    settings: LandmarkParameters, box: Box, releases: Releases, rng: np.random.Generator
) -> Protocol[Found]:
    """Landmarks from noisy moments of rows, and the moments of the features they give."""
    grid = box.radius / (WIDEST - 1)
    yield from total(ShowWhole(grid, 1.0, box.middle, np.zeros(0), np.zeros((0, 0))))
    rows = yield from private_moments(box, releases, MOMENTS, grid)
    subspace = yield from leading_subspace(AXES, rows, releases, GRAM, grid)
    kernel = settings.kernel_at(1 / (4 * rows.spread**2))
    drawn = rng.normal(size=(settings.n_landmarks or LANDMARKS, len(subspace.variances)))
    points = box.middle + rows.mean + exact.product(drawn * np.sqrt(subspace.variances), subspace.axes.T)
    points = np.clip(points, box.low, box.high)
    root = inverse_root(kernel.exact(points, points), THRESHOLD, pairs_of=exact_eigenpairs)
    mapped = LandmarkMap.of(kernel, points, root)
    features = Features(mapped, mapped.own_features().mean(axis=0), grid, box.middle)
    r, fine = root.shape[1], WHOLE
    yield from total(features.request(np.eye(r), features.middle, fine))
    moments = yield from private_moments(Ball(-np.ones(r), np.ones(r)), releases, MEAN, fine)
    return Found(features, fine, moments, rows.n_rows)
