"""Kernel principal components and kernel k-means as scikit-learn estimators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.kmeans import FederatedKMeans
from coterie.messages.site_part import Block
from coterie.messages.verbs import Protocol
from coterie.protocols.baselines import Embeds
from coterie.protocols.dspgd import DSPGDSettings, Embedding, embedded
from coterie.protocols.kernel_kmeans import (
    BASELINES,
    BaselineSettings,
    KernelFit,
    KernelProblem,
    cluster_by_baseline,
    cluster_by_coreset,
    cluster_embedded,
    embed_by_dspgd,
)
from coterie.protocols.landmarks import LandmarkSettings, cluster_by_landmarks, embed_by_landmarks
from coterie.protocols.prepared import Preparation, Spread
from coterie.runtime.ledger import Ledger
from coterie.sites.tables import ArrayTable

__all__ = ["FederatedKernelKMeans", "FederatedKernelPCA"]

Rows = npt.NDArray[np.floating[Any]]
DSPGD = ("dspgd", "dspgd-dense")


class FederatedKernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FederatedEstimator):
    """The top eigenpairs of the kernel matrix of rows that stay at their sites.

    Implements DSPGD of "A communication efficient federated kernel k-means": random features drawn anew in every
    iteration, of which sites send a small matrix of products (or products with it), and a proximal step.

    Parameters
    ----------
    n_components : int, default=2
        s: how many components; fewer where fewer eigenvalues stay above the threshold.
    kernel : {"rbf", "laplacian", "polynomial"}, default="rbf"
        The kernel; polynomial is ``(gamma <x, y> + coef0) ** degree``.
    gamma : float, default=None
        The kernel's gamma (where a paper has sigma, 1 / (2 sigma^2)); None takes N^2 / (2 sum of squared distances).
    degree, coef0 : int and float, default=3 and 1.0
        Of the polynomial kernel.
    center : bool, default=True
        Center the kernel matrix, as scikit-learn's KernelPCA does.
    method : {"dspgd", "dspgd-dense"}, default="dspgd"
        How the eigenpairs are found; the second is the first with ``cem=False``.
    n_features : int, default=40
        D: random features an iteration.
    n_iter : int, default=20
        T: iterations.
    threshold : float, default=None
        lambda; None takes the (n_components + 2)-th eigenvalue of the first iteration.
    step : {"1/t", "2/t"}, default="1/t"
        eta_t: Algorithm 1's, or min(1, 2/t) of Theorem 1.
    solver : {"auto", "gram", "lanczos"}, default="auto"
        Whether sites send the matrix of products at once or multiply it with vectors; auto picks the cheaper.
    cem : bool, default=True
        The paper's communication-efficient mechanism. Without it (method ``dspgd-dense``) an iteration costs N + M D
        numbers a Lanczos step, and sites must allow rows: it is what the paper compares with.
    features : {"phase", "paired"}, default="phase"
        sqrt(2) cos(w'x + b), or cos and sin in pairs (n_features even).
    precision : {"float64", "float32"}, default="float64"
        Of the features; sums are in float64 in any case.
    random_state : int, RandomState or None, default=None
        Draws the run's public seed.

    Attributes
    ----------
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the (centered) kernel matrix.
    gamma_ : float
        The kernel's gamma.
    embedding_ : Embedding
        What embeds any row, from public requests alone.
    ledger_ : Ledger
        Everything that was asked and answered.
    """

    method: str = "landmarks"

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: str = "rbf",
        gamma: float | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        center: bool = True,
        method: str = "landmarks",
        landmarks: Any = "auto",
        n_landmarks: int | None = None,
        landmark_bits: int = 4,
        min_count: int = 1,
        value_range: tuple[float, float] | None = None,
        n_features: int = 40,
        n_iter: int = 20,
        threshold: float | None = None,
        step: str = "1/t",
        solver: str = "auto",
        cem: bool = True,
        features: str = "phase",
        precision: str = "float64",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.center = center
        self.method = method
        self.landmarks = landmarks
        self.n_landmarks = n_landmarks
        self.landmark_bits = landmark_bits
        self.min_count = min_count
        self.value_range = value_range
        self.n_features = n_features
        self.n_iter = n_iter
        self.threshold = threshold
        self.step = step
        self.solver = solver
        self.cem = cem
        self.features = features
        self.precision = precision
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: Any = None, *, sites: Any = None) -> Self:
        """Find the components of the rows of ``X``, simulating one site for every distinct label in ``sites``."""
        rows: Rows = validate_data(self, X, dtype=[np.float64, np.float32], order="C", ensure_min_samples=2)
        self._simulate(rows, sites, None)
        return self

    def protocol(self, n_columns: int, known: Spread | None = None, *, measured: bool = False) -> Protocol[KernelFit]:
        """The components by landmarks, or by DSPGD."""
        if self.method == "landmarks":
            found = yield from embed_by_landmarks(
                _kernel_problem(self),
                _landmark_settings(self),
                int(self.n_components),
                n_columns,
                center=self.center,
                seed=self._run_seed,
                measured=measured,
            )
            return found
        problem, settings = (
            _problem(self),
            _settings(self, int(self.n_components), self.n_components + 2, self.center),
        )
        return (yield from embed_by_dspgd(problem, settings, n_columns, seed=self._run_seed, measured=measured))

    @property
    def method_name(self) -> str:
        """``dspgd-dense`` where there is no communication-efficient mechanism."""
        return _method_name(self)

    def settle(self, result: KernelFit, preparation: Preparation | None, ledger: Ledger) -> None:
        """Take in the result of a run."""
        self.preparation_, self.ledger_ = preparation, ledger
        self.kernel_fit_ = result
        self.embedding_, self.gamma_ = result.embedding, result.kernel.gamma
        self.eigenvalues_ = result.values
        self.n_components_ = len(self.eigenvalues_)

    def transform(self, X: npt.ArrayLike) -> Rows:
        """The components of rows, as the sites found them for theirs."""
        check_is_fitted(self)
        rows: Rows = validate_data(self, X, reset=False, dtype=[np.float64, np.float32], order="C")
        prepared = rows if self.preparation_ is None else self.preparation_.apply(Block(rows)).rows
        return _embedded(self.embedding_, prepared)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_


class FederatedKernelKMeans(FederatedKMeans):
    """Kernel k-means over rows that stay at their sites: an embedding of the kernel, then k-means by sums.

    Implements "A communication efficient federated kernel k-means". Parameters besides those of
    :class:`FederatedKernelPCA`:

    Parameters
    ----------
    n_clusters : int, default=8
        How many clusters.
    n_components : int, default=None
        s: components the clusters are found in; None is ``2 * n_clusters``.
    method : {"dspgd", "dspgd-dense", "rfk", "ck", "sk", "ce-pca"}, default="dspgd"
        ``dspgd-dense`` is ``dspgd`` with ``cem=False``. The last four are what the paper compares with: random
        features once; exact and Nystroem kernel k-means of pooled rows; kernel PCA from a few pooled rows. All of
        them send rows, or features of rows, as they are.
    n_features : int, default=None
        D; None is 40, or twice as many as the threshold needs (200 for rfk and ce-pca).
    clustering : {"lloyd", "coreset"}, default="lloyd"
        How dspgd's embedded rows are clustered: by sums, or by ``n_points`` of them (the paper's way).
    n_landmarks, n_points : int, default=500 and 1000
        Pooled landmark rows of sk and ce-pca; points of a coreset.
    threshold : float, default=None
        lambda; None takes the (n_clusters + 2)-th eigenvalue of the first iteration, as the paper does.
    init : {"auto", "one-shot", "cells", "var-part", "random"}, default="auto"
        The start of the k-means of embedded rows; see :class:`FederatedKMeans`.
    max_rounds, tol : int and float, default=100 and 1e-4
        Of the k-means of embedded rows.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_components)
        The centers among the embedded rows.
    labels_ : array of shape (n_samples,)
        The cluster of every row given to :meth:`fit`.
    inertia_ : float
        The sum of squared distances of all embedded rows to their centers.
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the kernel matrix.
    """

    method: str = "landmarks"
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
        min_count: int = 1,
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
        self.min_count = min_count
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

    def protocol(  # type: ignore[override]
        self, n_columns: int, known: Spread | None = None, *, measured: bool = False
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
            return (yield from self._by_landmarks(n_columns, measured))
        if self.clustering not in ("lloyd", "coreset"):
            raise InputError(f"clustering={self.clustering!r}; it is 'lloyd' or 'coreset'.")
        settings = _settings(self, components, rank, center=False)
        made = yield from embed_by_dspgd(_problem(self), settings, n_columns, seed=self._run_seed, measured=measured)
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
            measured=measured,
        )
        return replace(made, clusters=clusters)

    def _by_landmarks(self, n_columns: int, measured: bool) -> Protocol[KernelFit]:
        problem, settings, k = _kernel_problem(self), _landmark_settings(self), int(self.n_clusters)
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
                    measured=measured,
                )
            )
        made = yield from embed_by_landmarks(
            problem,
            settings,
            int(self.n_components),
            n_columns,
            center=False,
            seed=self._run_seed,
            measured=measured,
            told=True,
        )
        clusters = yield from cluster_embedded(
            made, k, init=str(self.init), max_rounds=rounds, tol=self.tol, seed=self._run_seed, measured=measured
        )
        return replace(made, clusters=clusters)

    def _baseline(self, n_components: int, n_columns: int) -> Protocol[KernelFit]:
        n_features = 200 if self.n_features is None else int(self.n_features)
        settings = BaselineSettings(
            self.method, n_components, n_features, self.n_landmarks or 500, self.n_points, self.features
        )
        k = int(self.n_clusters)
        return (yield from cluster_by_baseline(_kernel_problem(self), settings, k, n_columns, seed=self._run_seed))

    @property
    def method_name(self) -> str:
        """``dspgd-dense`` where there is no communication-efficient mechanism."""
        return _method_name(self)

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
        return _embedded(self.embedding_, prepared)

    def center_columns(self) -> list[str] | None:
        """What the numbers of a center are."""
        return [f"component{i}" for i in range(self.n_components_)]


def _embedded(embedding: Embedding | Embeds, rows: Rows) -> Rows:
    if not isinstance(embedding, Embedding):
        return embedding.embed(rows)
    found: Rows = embedded(ArrayTable(rows), embedding.transcript).rows
    return found


def _method_name(estimator: FederatedKernelPCA | FederatedKernelKMeans) -> str:
    return "dspgd-dense" if estimator.method == "dspgd" and not estimator.cem else estimator.method


def _problem(estimator: FederatedKernelPCA | FederatedKernelKMeans) -> KernelProblem:
    if estimator.method not in DSPGD:
        known = DSPGD if isinstance(estimator, FederatedKernelPCA) else (*DSPGD, *BASELINES)
        raise InputError(f"method={estimator.method!r} is not known; there is landmarks, {', '.join(known)}.")
    return _kernel_problem(estimator)


def _kernel_problem(estimator: FederatedKernelPCA | FederatedKernelKMeans) -> KernelProblem:
    return KernelProblem(estimator.kernel, estimator.gamma, estimator.degree, estimator.coef0)


def _landmark_settings(estimator: FederatedKernelPCA | FederatedKernelKMeans) -> LandmarkSettings:
    given = estimator.landmarks
    named = given if isinstance(given, str) else "auto"
    return LandmarkSettings(
        named,
        None if isinstance(given, str) else np.asarray(given, np.float64),
        None if estimator.n_landmarks is None else int(estimator.n_landmarks),
        int(estimator.landmark_bits),
        int(estimator.min_count),
        value_range=estimator.value_range,
    )


def _settings(
    estimator: FederatedKernelPCA | FederatedKernelKMeans, n_components: int, rank: int, center: bool
) -> DSPGDSettings:
    n_features = max(40, 2 * rank) if estimator.n_features is None else int(estimator.n_features)
    return DSPGDSettings(
        n_components,
        n_features,
        int(estimator.n_iter),
        estimator.threshold,
        int(rank),
        estimator.step,  # type: ignore[arg-type]
        estimator.solver,  # type: ignore[arg-type]
        center,
        _method_name(estimator) != "dspgd-dense",
        estimator.features,
        estimator.precision,
    )
