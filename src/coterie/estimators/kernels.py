"""What estimators of kernel methods have in common."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from coterie.estimators.base import FederatedEstimator
from coterie.estimators.kmeans import ClusterModel
from coterie.methods.kernel.clusters import KernelFit
from coterie.methods.shared.embedded import Embeds

Rows = npt.NDArray[np.floating[Any]]


class KernelClusters(ClusterModel):
    """Centers among embedded rows."""

    embedding_: Embeds
    cost_over_groups = "about"
    _fewest_rows = 2

    def _set_attributes(self, result: KernelFit) -> None:
        if result.clusters is None:
            raise ValueError("there are no centers in it")
        self.embedding_, self.gamma_ = result.embedding, result.kernel.gamma
        self.eigenvalues_ = result.values
        self.cluster_centers_ = result.clusters.centers
        self.n_components_ = self.cluster_centers_.shape[1]
        self._set_clusters(result.clusters)

    def prepared_rows(self, rows: Rows) -> Rows:
        """Raw rows in the embedding."""
        return self.embedding_.embed(super().prepared_rows(rows))

    def center_columns(self) -> list[str] | None:
        """What the numbers of a center are."""
        return [f"component{i}" for i in range(self.n_components_)]


class KernelComponents(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FederatedEstimator):
    """Components of rows in a kernel's space."""

    embedding_: Embeds

    def fit(self, X: npt.ArrayLike, y: Any = None, *, sites: Any = None) -> Self:
        """Find the components of the rows of ``X``, simulating one site for every distinct label in ``sites``."""
        rows: Rows = validate_data(self, X, dtype=[np.float64, np.float32], order="C", ensure_min_samples=2)
        self._simulate(rows, sites, None)
        return self

    def _set_attributes(self, result: KernelFit) -> None:
        self.embedding_, self.gamma_ = result.embedding, result.kernel.gamma
        self.eigenvalues_ = result.values
        self.n_components_ = len(self.eigenvalues_)

    def transform(self, X: npt.ArrayLike) -> Rows:
        """The components of rows, as the sites found them for theirs."""
        return self.embedding_.embed(self._prepared(X))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_
