"""What the estimators of kernels have in common: the kernel, and what is made of a run's result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from coterie.estimators.base import FederatedEstimator
from coterie.estimators.kmeans import ClusterModel
from coterie.maths.kernels import KERNELS
from coterie.methods.kernel.clusters import KernelFit, KernelProblem
from coterie.methods.kernel.dspgd.protocol import Embedding
from coterie.methods.kernel.dspgd.sites import embedded
from coterie.methods.shared.embedded import Embeds
from coterie.parameters import Allowed, parameter
from coterie.sites.tables import ArrayTable

Rows = npt.NDArray[np.floating[Any]]


@dataclass(eq=False, repr=False, kw_only=True)
class KernelParameters:
    """Which kernel."""

    kernel: str = parameter(
        "rbf", "The kernel; ``polynomial`` is ``(gamma <x, y> + coef0) ** degree``.", Allowed(*KERNELS)
    )
    gamma: float | None = parameter(
        None,
        "The kernel's gamma (where a paper has sigma, 1 / (2 sigma^2)); None takes N^2 / (2 sum of squared "
        "distances).",
        Allowed(above=0, none=True),
    )
    degree: int = parameter(3, "Of the polynomial kernel.", Allowed(whole=True, low=1))
    coef0: float = parameter(1.0, "Of the polynomial kernel.", Allowed())
    random_state: Any = parameter(None, "Draws the run's public seed: an int, a RandomState or None.")

    result_type: ClassVar[type[Any]] = KernelFit

    @property
    def _problem(self) -> KernelProblem:
        return KernelProblem(self.kernel, self.gamma, self.degree, self.coef0)


@dataclass(eq=False, repr=False, kw_only=True)
class KMeansParameters:
    """Of the k-means of embedded rows."""

    init: str = parameter(
        "auto",
        "The start of the k-means of embedded rows, by name; see :class:`FederatedKMeans`.",
        Allowed("auto", "one-shot", "cells", "var-part", "random"),
    )
    tol: float = parameter(
        1e-4, "At which shift of the centers to stop; see :class:`FederatedKMeans`.", Allowed(low=0)
    )


class KernelClusters(ClusterModel):
    """Centers among embedded rows."""

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
        return embedded_rows(self.embedding_, super().prepared_rows(rows))

    def center_columns(self) -> list[str] | None:
        """What the numbers of a center are."""
        return [f"component{i}" for i in range(self.n_components_)]


class KernelComponents(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FederatedEstimator):
    """Components of rows in a kernel's space."""

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
        return embedded_rows(self.embedding_, self._prepared(X))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_


def embedded_rows(embedding: Embedding | Embeds, rows: Rows) -> Rows:
    """Rows in the embedding a run found."""
    if not isinstance(embedding, Embedding):
        return embedding.embed(rows)
    found: Rows = embedded(ArrayTable(rows), embedding.transcript).rows
    return found
