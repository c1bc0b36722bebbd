"""Kernel k-means as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.estimators.kernel_settings import (
    DSPGD,
    dspgd_problem,
    dspgd_settings,
    embedded_rows,
    kernel_problem,
    landmark_settings,
    method_name_of,
)
from coterie.estimators.kmeans import FederatedKMeans
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
from coterie.protocols.prepared import Preparation, Spread
from coterie.runtime.ledger import Ledger

Rows = npt.NDArray[np.floating[Any]]


class FederatedKernelKMeans(FederatedKMeans):
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

    method: str = "landmarks"
    methods = ("landmarks", *DSPGD, *BASELINES)
    cost_over_groups = "about"
    _fewest_rows = 2

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_components: int | None = None,
        kernel: str = "rbf",
        gamma: float | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        method: str = "landmarks",
        landmarks: Any = "auto",
        n_landmarks: int | None = None,
        landmark_bits: int = 4,
        value_range: tuple[float, float] | None = None,
        n_features: int | None = None,
        n_iter: int = 20,
        threshold: float | None = None,
        step: str = "1/t",
        solver: str = "auto",
        cem: bool = True,
        features: str = "phase",
        precision: str = "float64",
        clustering: str = "lloyd",
        n_points: int = 1000,
        init: str = "auto",
        max_rounds: int | None = None,
        tol: float = 1e-4,
        random_state: Any = None,
    ) -> None:
        super().__init__(n_clusters, init=init, tol=tol, random_state=random_state)
        self.max_rounds = max_rounds  # type: ignore[assignment]
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.method = method
        self.landmarks = landmarks
        self.n_landmarks = n_landmarks
        self.landmark_bits = landmark_bits
        self.value_range = value_range
        self.n_features = n_features
        self.n_iter = n_iter
        self.threshold = threshold
        self.step = step
        self.solver = solver
        self.cem = cem
        self.features = features
        self.precision = precision
        self.clustering = clustering
        self.n_points = n_points

    def fit(self, X: npt.ArrayLike, y: Any = None, *, sites: Any = None) -> Self:  # type: ignore[override]
        """Cluster the rows of ``X``, simulating one site for every distinct label in ``sites``."""
        return super().fit(X, y, sites=sites)

    def check(self, n_columns: int) -> None:
        """Parameters are looked at when the run begins: none of plain k-means is meant."""

    def protocol(  # type: ignore[override]
        self, n_columns: int, known: Spread | None = None, *, averages: bool = True
    ) -> Protocol[KernelFit]:
        """An embedding by landmarks or by DSPGD, then Lloyd's algorithm among the embedded rows; or a baseline."""
        if not isinstance(self.n_clusters, int | np.integer) or self.n_clusters < 1:
            raise InputError(f"n_clusters={self.n_clusters!r} must be a whole number, at least 1.")
        if not isinstance(self.init, str):
            raise InputError("init is a name: centers cannot be given in an embedding that is yet to be found.")
        rank = int(self.n_clusters) + 2
        components = 2 * int(self.n_clusters) if self.n_components is None else int(self.n_components)
        if self.method in BASELINES:
            return (yield from self._baseline(components, n_columns))
        if self.method == "landmarks":
            return (yield from self._by_landmarks(n_columns, averages))
        if self.clustering not in ("lloyd", "coreset"):
            raise InputError(f"clustering={self.clustering!r}; it is 'lloyd' or 'coreset'.")
        settings = dspgd_settings(self, components, rank, center=False)
        problem = dspgd_problem(self)
        made = yield from embed_by_dspgd(problem, settings, n_columns, seed=self._run_seed)
        if self.clustering == "coreset":
            found = yield from cluster_by_coreset(
                made, int(self.n_clusters), n_points=self.n_points, seed=self._run_seed
            )
            return replace(made, clusters=found)
        clusters = yield from cluster_embedded(
            made,
            int(self.n_clusters),
            init=self.init,
            max_rounds=100 if self.max_rounds is None else int(self.max_rounds),
            tol=self.tol,
            seed=self._run_seed,
            averages=averages,
        )
        return replace(made, clusters=clusters)

    def _by_landmarks(self, n_columns: int, averages: bool) -> Protocol[KernelFit]:
        problem, settings, k = kernel_problem(self), landmark_settings(self), int(self.n_clusters)
        rounds = 2 if self.max_rounds is None else int(self.max_rounds)
        if self.n_components is None:
            return (
                yield from cluster_by_landmarks(
                    problem,
                    settings,
                    k,
                    n_columns,
                    max_rounds=rounds,
                    tol=self.tol,
                    seed=self._run_seed,
                    averages=averages,
                )
            )
        made = yield from embed_by_landmarks(
            problem,
            settings,
            int(self.n_components),
            n_columns,
            center=False,
            seed=self._run_seed,
            averages=averages,
            told=True,
        )
        clusters = yield from cluster_embedded(
            made,
            k,
            init=str(self.init),
            max_rounds=rounds,
            tol=self.tol,
            seed=self._run_seed,
            averages=averages,
        )
        return replace(made, clusters=clusters)

    def _baseline(self, n_components: int, n_columns: int) -> Protocol[KernelFit]:
        n_features = 200 if self.n_features is None else int(self.n_features)
        settings = BaselineSettings(
            self.method, n_components, n_features, self.n_landmarks or 500, self.n_points, self.features
        )
        k = int(self.n_clusters)
        return (yield from cluster_by_baseline(kernel_problem(self), settings, k, n_columns, seed=self._run_seed))

    @property
    def method_name(self) -> str:
        """``dspgd-dense`` where there is no communication-efficient mechanism."""
        return method_name_of(self)

    def settle(  # type: ignore[override]
        self, result: KernelFit, preparation: Preparation | None, ledger: Ledger
    ) -> None:
        """Take in the result of a run."""
        assert result.clusters is not None
        self.kernel_fit_ = result
        self.embedding_, self.gamma_ = result.embedding, result.kernel.gamma
        self.eigenvalues_ = result.values
        self.n_components_ = result.clusters.centers.shape[1]
        super().settle(result.clusters, None, ledger)
        self.preparation_ = preparation

    def prepared_rows(self, rows: Rows) -> Rows:
        """Raw rows in the embedding."""
        prepared = super().prepared_rows(rows)
        return embedded_rows(self.embedding_, prepared)

    def center_columns(self) -> list[str] | None:
        """What the numbers of a center are."""
        return [f"component{i}" for i in range(self.n_components_)]
