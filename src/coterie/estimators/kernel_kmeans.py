"""Kernel k-means as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.estimators.kernel_settings import DSPGD, KernelParameters, embedded_rows
from coterie.estimators.kmeans import ClusterModel
from coterie.messages.verbs import Protocol
from coterie.protocols.kernel_kmeans import (
    BASELINES,
    BaselineSettings,
    KernelFit,
    cluster_by_baseline,
    cluster_by_coreset,
    cluster_embedded,
    embed_by_dspgd,
)
from coterie.protocols.landmarks import cluster_by_landmarks, embed_by_landmarks
from coterie.protocols.prepared import Spread

Rows = npt.NDArray[np.floating[Any]]


@dataclass(eq=False, repr=False)
class FederatedKernelKMeans(KernelParameters, ClusterModel):
    """Kernel k-means over rows that stay at their sites.

    By landmarks (the default): the server clusters a few coarse averages of rows in the features they give, sites
    judge a few such clusterings by their rows, and improve on the best in a few rounds. Or as in "A communication
    efficient federated kernel k-means": an embedding by DSPGD, then k-means by sums. Parameters besides those of
    :class:`FederatedKernelPCA`:

    Parameters
    ----------
    n_clusters : int, default=8
        How many clusters.
    n_components : int, default=None
        s: components the clusters are found in; None is ``2 * n_clusters``, and for landmarks all that there are.
    method : {"landmarks", "dspgd", "dspgd-dense", "rfk", "ck", "sk", "ce-pca"}, default="landmarks"
        ``dspgd-dense`` is ``dspgd`` with ``cem=False``. The last four are what the paper compares with: random
        features once; exact and Nystroem kernel k-means of pooled rows; kernel PCA from a few pooled rows. All of
        them send rows, or features of rows, as they are.
    n_features : int, default=None
        D; None is 40, or twice as many as the threshold needs (200 for rfk and ce-pca).
    clustering : {"lloyd", "coreset"}, default="lloyd"
        How dspgd's embedded rows are clustered: by sums, or by ``n_points`` of them (the paper's way).
    n_points : int, default=1000
        Points of a coreset.
    threshold : float, default=None
        lambda; None takes the (n_clusters + 2)-th eigenvalue of the first iteration, as the paper does.
    init : {"auto", "one-shot", "cells", "var-part", "random"}, default="auto"
        The start of the k-means of embedded rows; see :class:`FederatedKMeans`.
    max_rounds, tol : int and float, default=None and 1e-4
        Of the k-means of embedded rows; None is 2 rounds for landmarks, and 100 otherwise.

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
    """

    n_clusters: int = 8
    _: KW_ONLY
    n_components: int | None = None
    n_features: int | None = None
    clustering: str = "lloyd"
    n_points: int = 1000
    init: str = "auto"
    max_rounds: int | None = None
    tol: float = 1e-4

    methods = ("landmarks", *DSPGD, *BASELINES)
    cost_over_groups = "about"
    _fewest_rows = 2

    def protocol(self, n_columns: int, known: Spread | None = None, *, averages: bool = True) -> Protocol[KernelFit]:
        """An embedding by landmarks or by DSPGD, then Lloyd's algorithm among the embedded rows; or a baseline."""
        if not isinstance(self.n_clusters, int | np.integer) or self.n_clusters < 1:
            raise InputError(f"n_clusters={self.n_clusters!r} must be a whole number, at least 1.")
        if not isinstance(self.init, str):
            raise InputError("init is a name: centers cannot be given in an embedding that is yet to be found.")
        if self.clustering not in ("lloyd", "coreset"):
            raise InputError(f"clustering={self.clustering!r}; it is 'lloyd' or 'coreset'.")
        k, problem, seed = int(self.n_clusters), self.kernel_problem(), self._run_seed
        components = 2 * k if self.n_components is None else int(self.n_components)
        rounds: dict[str, Any] = {"max_rounds": self._rounds(), "tol": self.tol, "seed": seed, "averages": averages}
        if self.method in BASELINES:
            n_features = 200 if self.n_features is None else int(self.n_features)
            baseline = BaselineSettings(
                self.method, components, n_features, self.n_landmarks or 500, self.n_points, self.features
            )
            return (yield from cluster_by_baseline(problem, baseline, k, n_columns, seed=seed))
        if self.method == "landmarks":
            found = self.landmark_settings()
            if self.n_components is None:
                return (yield from cluster_by_landmarks(problem, found, k, n_columns, **rounds))
            made = yield from embed_by_landmarks(
                problem, found, components, n_columns, center=False, seed=seed, averages=averages, told=True
            )
        else:
            settings = self.dspgd_settings(components, k + 2, center=False)
            made = yield from embed_by_dspgd(problem, settings, n_columns, seed=seed)
        if self.method != "landmarks" and self.clustering == "coreset":
            clusters = yield from cluster_by_coreset(made, k, n_points=self.n_points, seed=seed)
        else:
            clusters = yield from cluster_embedded(made, k, init=self.init, **rounds)
        return replace(made, clusters=clusters)

    def _rounds(self) -> int:
        if self.max_rounds is None:
            return 2 if self.method == "landmarks" else 100
        return int(self.max_rounds)

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
        prepared = super().prepared_rows(rows)
        return embedded_rows(self.embedding_, prepared)

    def center_columns(self) -> list[str] | None:
        """What the numbers of a center are."""
        return [f"component{i}" for i in range(self.n_components_)]
