"""Kernel k-means and kernel principal components by landmarks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from coterie.estimators.kernels import KernelClusters, KernelComponents, KernelParameters, KMeansParameters
from coterie.messages.verbs import Protocol
from coterie.methods.kernel.clusters import KernelFit, cluster_embedded
from coterie.methods.kernel.landmarks.protocol import LandmarkSettings, cluster_by_landmarks, embed_by_landmarks
from coterie.methods.shared.prepared import Spread
from coterie.parameters import Allowed, described, parameter


@dataclass(eq=False, repr=False, kw_only=True)
class LandmarkParameters(KernelParameters):
    """How landmarks are found."""

    landmarks: Any = parameter(
        "auto",
        "``local``: each site's own coarse centers are seen. ``summed``: means of cells over all sites, of which no "
        "per-site result is seen. ``auto`` takes local where every site lets averages be seen. An array: points "
        "known beforehand.",
    )
    n_landmarks: int | None = parameter(
        None,
        "About how many over all sites. None begins with 5 a cluster, at least 30, and asks for more, once, where "
        "these miss much.",
        Allowed(whole=True, low=1, none=True),
    )
    landmark_bits: int = parameter(
        4, "Bits of each coordinate of a landmark, 1 to 8.", Allowed(whole=True, low=1, high=8)
    )
    value_range: tuple[float, float] | None = parameter(
        None, "The smallest and largest value of any prepared row, where they are public: saves a sum where summed."
    )

    method = "landmarks"

    @property
    def _settings(self) -> LandmarkSettings:
        is_named = isinstance(self.landmarks, str)
        return LandmarkSettings(
            self.landmarks if is_named else "auto",
            None if is_named else np.asarray(self.landmarks, np.float64),
            self.n_landmarks,
            self.landmark_bits,
            value_range=self.value_range,
        )


@described
@dataclass(eq=False, repr=False)
class FederatedKernelKMeans(LandmarkParameters, KMeansParameters, KernelClusters):
    """Kernel k-means over rows that stay at their sites, by landmarks.

    The server clusters a few coarse averages of rows in the features they give, sites judge a few such clusterings by
    their rows, and improve on the best in a few rounds.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_components)
        The centers among the embedded rows.
    labels_ : array of shape (n_samples,)
        The cluster of every row given to :meth:`fit`.
    inertia_ : float
        The sum of squared distances of all embedded rows to their centers; over groups of rows an estimate.
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the kernel matrix.
    gamma_ : float
        The kernel's gamma.
    ledger_ : Ledger
        Everything that was asked and answered.
    """

    n_clusters: int = parameter(8, "How many clusters.", Allowed(whole=True, low=1))
    _: KW_ONLY
    n_components: int | None = parameter(
        None, "Components the clusters are found in; None is all there are.", Allowed(whole=True, low=1, none=True)
    )
    max_rounds: int = parameter(2, "The most rounds of Lloyd's algorithm.", Allowed(whole=True, low=0))

    def protocol(self, n_columns: int, known: Spread | None = None, *, averages: bool = True) -> Protocol[KernelFit]:
        """Landmarks, clusters of these, and rounds of Lloyd's algorithm among the rows' features."""
        k, seed = int(self.n_clusters), self._run_seed
        rounds: dict[str, Any] = {
            "max_rounds": self.max_rounds, "tol": self.tol, "seed": seed, "averages": averages,
        }  # fmt: skip
        if self.n_components is None:
            return (yield from cluster_by_landmarks(self._problem, self._settings, k, n_columns, **rounds))
        fit = yield from embed_by_landmarks(
            self._problem, self._settings, self.n_components, n_columns, center=False, seed=seed, averages=averages,
            announce=True,
        )  # fmt: skip
        return replace(fit, clusters=(yield from cluster_embedded(fit, k, init=self.init, **rounds)))


@described
@dataclass(eq=False, repr=False)
class FederatedKernelPCA(LandmarkParameters, KernelComponents):
    """The top eigenpairs of the kernel matrix of rows that stay at their sites, by landmarks.

    A few coarse averages of rows stand for the kernel, and sites send once the products of the features these give.

    Attributes
    ----------
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the (centered) kernel matrix.
    gamma_ : float
        The kernel's gamma.
    embedding_ : LandmarkMap
        What embeds any row.
    ledger_ : Ledger
        Everything that was asked and answered.
    """

    n_components: int = parameter(2, "How many components.", Allowed(whole=True, low=1))
    _: KW_ONLY
    center: bool = parameter(True, "Center the kernel matrix, as scikit-learn's KernelPCA does.")

    def protocol(self, n_columns: int, known: Spread | None = None, *, averages: bool = True) -> Protocol[KernelFit]:
        """Landmarks, and the Gram of the rows' features."""
        return embed_by_landmarks(
            self._problem, self._settings, self.n_components, n_columns, center=self.center, seed=self._run_seed,
            averages=averages,
        )  # fmt: skip
