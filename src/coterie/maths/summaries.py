"""A summary of many rows for k-means: weighted points, perhaps in a subspace, and Delta, the cost they omit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.arrays import Floats
from coterie.maths import clustering
from coterie.maths.coresets import solvable_weights


@dataclass(frozen=True)
class Summary:
    """(S, Delta, w) of Definition II.2, with points as coordinates if there is a basis.

    Weights add up to the number of rows. Those of local centers may be negative; for the solver these are set to 0
    and the others scaled to the same sum.
    """

    coordinates: Floats
    """One row of t coordinates per point."""
    weights: Floats
    delta: float = 0.0
    basis: Floats | None = None
    """t orthonormal rows; None: the coordinates are the points."""

    @property
    def points(self) -> Floats:
        return self.coordinates if self.basis is None else self.coordinates @ self.basis

    @property
    def n_rows(self) -> float:
        return float(self.weights.sum())

    def cost(self, centers: Floats) -> float:
        """cost(S, X) of equation (4): an estimate of the rows' cost at centers that do not depend on it."""
        return float(clustering.nearest(self.points, centers)[1] @ self.weights) + self.delta

    def centers(self, n_clusters: int, *, seed: int) -> Floats:
        """X' = kmeans(S, w, k), by weighted k-means of the coordinates."""
        solved = clustering.weighted_kmeans(self.coordinates, solvable_weights(self.weights), n_clusters, seed=seed)
        return solved if self.basis is None else solved @ self.basis

    @classmethod
    def union(cls, parts: Sequence[Summary]) -> Summary:
        """The summary of the rows of all parts, without points of weight 0."""
        if len(parts) == 1:
            only = parts[0]
            return cls(only.coordinates[only.weights != 0], only.weights[only.weights != 0], only.delta, only.basis)
        points = np.concatenate([part.points for part in parts])
        weights = np.concatenate([part.weights for part in parts])
        return cls(points[weights != 0], weights[weights != 0], sum(part.delta for part in parts))
