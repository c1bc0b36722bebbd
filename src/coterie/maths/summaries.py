"""A summary of many rows for k-means: weighted points, perhaps in a subspace, and what they leave out (Delta)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.arrays import Floats
from coterie.maths import clustering
from coterie.maths.coresets import solvable_weights


@dataclass(frozen=True)
class Summary:
    """(S, Delta, w) of Definition II.2, its points as coordinates in a basis where there is one.

    Weights add up to the number of rows; those of local centers may be negative. They are kept so for costs, and
    set to 0, the others scaled down to the same sum, for the solver.
    """

    coordinates: Floats
    """A point each, of t numbers."""
    weights: Floats
    delta: float = 0.0
    basis: Floats | None = None
    """t orthonormal rows; None: the coordinates are the points."""

    @property
    def points(self) -> Floats:
        """The points S."""
        return self.coordinates if self.basis is None else self.coordinates @ self.basis

    @property
    def n_rows(self) -> float:
        """How many rows it stands for."""
        return float(self.weights.sum())

    def cost(self, centers: Floats) -> float:
        """cost(S, X) of equation (4): an estimate of all rows' cost at centers chosen without looking at it."""
        return float(clustering.nearest(self.points, centers)[1] @ self.weights) + self.delta

    def centers(self, n_clusters: int, *, seed: int) -> Floats:
        """X' = kmeans(S, w, k), by scikit-learn's weighted k-means of the coordinates: the same, and cheaper."""
        solved = clustering.weighted_kmeans(self.coordinates, solvable_weights(self.weights), n_clusters, seed=seed)
        return solved if self.basis is None else solved @ self.basis

    @classmethod
    def union(cls, parts: Sequence[Summary]) -> Summary:
        """The summary of all rows whose parts were summarised: costs add up. Points of no weight are left out."""
        if len(parts) == 1:
            only = parts[0]
            return cls(only.coordinates[only.weights != 0], only.weights[only.weights != 0], only.delta, only.basis)
        points = np.concatenate([part.points for part in parts])
        weights = np.concatenate([part.weights for part in parts])
        return cls(points[weights != 0], weights[weights != 0], sum(part.delta for part in parts))
