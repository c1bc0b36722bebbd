"""Federated k-means as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics import pairwise_distances
from sklearn.utils.validation import _check_sample_weight, validate_data

from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator
from coterie.maths.clustering import nearest
from coterie.messages.verbs import Protocol
from coterie.methods.kmeans.federated import MAX_EPOCHS, Reassignment, Settings, federated_kmeans
from coterie.methods.shared.lloyd import KMeansFit, lloyd
from coterie.methods.shared.preparation import spread
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.starts import choose_start
from coterie.parameters import Allowed, described, parameter

Rows = npt.NDArray[np.floating[Any]]


class ClusterModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, FederatedEstimator):
    """What every estimator has that ends in centers, of rows or of embedded rows."""

    n_clusters: int
    cluster_centers_: npt.NDArray[np.float64]
    result_type: ClassVar[type[Any]] = KMeansFit
    _fewest_rows = 1

    def fit(self, X: npt.ArrayLike, y: Any = None, *, sites: Any = None) -> Self:
        """Cluster the rows of ``X``, simulating one site for every distinct label in ``sites``."""
        return self._fit(X, sites, None)

    def _fit(self, X: npt.ArrayLike, sites: Any, sample_weight: Any) -> Self:
        rows: Rows = validate_data(
            self, X, dtype=[np.float64, np.float32], order="C", ensure_min_samples=self._fewest_rows
        )
        self.check(rows.shape[1])
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
            if not (weights > 0).any():
                raise InputError("every sample weight is 0; there is nothing to cluster.")
        held = len(rows) if weights is None else int((weights > 0).sum())
        if held < self.n_clusters:
            raise InputError(f"n_samples={held} should be >= n_clusters={self.n_clusters}.")
        self._simulate(rows, sites, weights)
        self.labels_ = self.predict(rows)
        return self

    def _set_clusters(self, clusters: KMeansFit) -> None:
        self._prepared_centers = clusters.centers
        self.inertia_, self.counts_ = clusters.cost, clusters.counts
        self.n_rounds_ = self.n_iter_ = clusters.n_rounds

    def center_columns(self) -> list[str] | None:
        """What the numbers of a center are, where they are not the table's columns."""
        return None

    def label_rows(self, rows: Rows) -> npt.NDArray[np.int32]:
        """Labels of raw rows at a site, unchecked: -1 for rows the preparation leaves out."""
        whole = np.full(len(rows), True) if self._fills_missing else np.asarray(~np.isnan(rows).any(axis=1))
        labels = np.full(len(rows), -1, np.int32)
        labels[whole] = nearest(self.prepared_rows(rows[whole]), self._prepared_centers)[0]
        return labels

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """The nearest center of each row."""
        labels: npt.NDArray[np.int32] = nearest(self._prepared(X), self._prepared_centers)[0].astype(np.int32)
        return labels

    def transform(self, X: npt.ArrayLike) -> Rows:
        """The distance of each row to every center."""
        distances: Rows = pairwise_distances(self._prepared(X), self._prepared_centers)
        return distances

    def score(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the sum of squared distances of the rows to their nearest centers."""
        squared = nearest(self._prepared(X), self._prepared_centers)[1]
        if sample_weight is not None:
            squared = squared * _check_sample_weight(sample_weight, squared, dtype=np.float64)
        return -float(squared.sum())

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


class KMeansModel(ClusterModel):
    """k-means of rows as they are: from a start to centers, by sums."""

    init: str | npt.ArrayLike = "one-shot"
    max_rounds: int = 0
    tol: float = 0.0

    def fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None, *, sites: Any = None) -> Self:
        """Cluster the rows of ``X``, simulating one site for every distinct label in ``sites``."""
        return self._fit(X, sites, sample_weight)

    def protocol(self, n_columns: int, known: Spread | None = None, *, averages: bool = True) -> Protocol[KMeansFit]:
        """Look at the columns' spread, find a start, and improve on it."""
        self.check(n_columns)
        found = known or (yield from spread(n_columns))
        if found.rows < self.n_clusters:
            raise InputError(
                f"the sites hold {found.rows:g} rows in all; n_clusters={self.n_clusters} needs at least as many."
            )
        init = self.init if isinstance(self.init, str) else np.asarray(self.init, np.float64)
        start = yield from choose_start(init, self.n_clusters, found, seed=self._run_seed, averages=averages)
        return (yield from self._improve(start, found))

    def _improve(self, start: npt.NDArray[np.float64], found: Spread) -> Protocol[KMeansFit]:
        """From a start to the result."""
        return lloyd(start, max_rounds=self.max_rounds, tol=self.tol * float(np.mean(found.deviation**2)))

    def _set_attributes(self, result: KMeansFit) -> None:
        made = self.preparation_
        self.cluster_centers_ = result.centers if made is None else made.undo(result.centers)
        self._set_clusters(result)

    def check(self, n_columns: int) -> None:
        """What cannot work is said before anyone is asked."""
        super().check(n_columns)
        if not isinstance(self.init, str) and np.shape(self.init) != (self.n_clusters, n_columns):
            raise InputError(
                f"init has shape {np.shape(self.init)}; centers of shape {(self.n_clusters, n_columns)} are needed."
            )


@described
@dataclass(eq=False, repr=False)
class FederatedKMeans(KMeansModel):
    """k-means over rows that stay at their sites.

    Implements Algorithm 1 of Triebe & Rajagopal (2019). With the defaults it is Lloyd's algorithm over all rows: the
    same result as on the pooled rows from the same start.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_features)
        The centers, in the units of the rows given.
    labels_ : array of shape (n_samples,)
        The cluster of every row given to :meth:`fit`.
    inertia_ : float
        The sum of squared distances of all rows to their centers, in prepared units. Where sites show groups of rows
        it is the cost of putting every group to one center, no less than that of the rows.
    n_rounds_ : int
        The rounds in which centers moved.
    ledger_ : Ledger
        Everything that was asked and answered.
    """

    n_clusters: int = parameter(8, "How many clusters.", Allowed(whole=True, low=1))
    _: KW_ONLY
    init: str | npt.ArrayLike = parameter(
        "auto",
        "Where to start; never a row of a site. ``one-shot``: every site's own centers, clustered (per-site results "
        "are seen); ``var-part``: by splitting cells, sums only; ``cells``: the same for four times as many cells, "
        "whose means are then clustered; ``random``: within two deviations of the mean; ``auto``: one-shot where "
        "every site's policy lets its averages be seen, else cells. Or an array of centers.",
    )
    fraction: float = parameter(1.0, "C: the share of sites sampled each round.", Allowed(above=0, high=1))
    epochs: int = parameter(
        1, "E: passes a site makes over its rows in a round.", Allowed(whole=True, low=1, high=MAX_EPOCHS)
    )
    batch_size: int | None = parameter(
        None, "B: rows a mini-batch at the sites; None is all rows.", Allowed(whole=True, low=1, none=True)
    )
    server_rate: float = parameter(
        1.0, "alpha: how far the server moves its centers towards the sites' means.", Allowed(above=0, high=2)
    )
    server_momentum: float = parameter(
        0.0,
        "How much of the last step the server keeps: ``v = momentum * v + (1 - momentum) * step``.",
        Allowed(low=0, below=1),
    )
    site_rate: float = parameter(
        1.0, "beta: how far a site moves its centers towards its batch means.", Allowed(above=0, high=1)
    )
    reassign: bool | tuple[float, int] = parameter(
        False,
        "Move a cluster below a share of the sampled rows for some rounds in a row, (share, rounds), to a random "
        "place within two deviations of the mean. True is the paper's (0.01, 20).",
    )
    max_rounds: int = parameter(100, "T: the most rounds.", Allowed(whole=True, low=0))
    tol: float = parameter(
        1e-4,
        "Stop when the squared shift of all centers is at most ``tol`` times the mean variance of the columns, as "
        "scikit-learn does. Only where every site takes part in every round.",
        Allowed(low=0),
    )
    random_state: Any = parameter(None, "Draws the run's public seed: an int, a RandomState or None.")

    method = "federated-kmeans"

    def check(self, n_columns: int) -> None:
        """What cannot work is said before anyone is asked."""
        super().check(n_columns)
        if not isinstance(self.reassign, bool | np.bool_) and np.shape(self.reassign) != (2,):
            raise InputError(f"reassign={self.reassign!r}; it is True, False or (share, rounds).")

    def _improve(self, start: npt.NDArray[np.float64], found: Spread) -> Protocol[KMeansFit]:
        tol = self.tol * float(np.mean(found.deviation**2))
        rule = self._reassignment(found)
        return federated_kmeans(start, self._settings(), tol=tol, seed=self._run_seed, reassignment=rule)

    def _settings(self) -> Settings:
        return Settings(**{item.name: getattr(self, item.name) for item in fields(Settings)})

    def _reassignment(self, found: Spread) -> Reassignment | None:
        if self.reassign is False:
            return None
        share, patience = (0.01, 20) if self.reassign is True else self.reassign
        return Reassignment(found.low, found.high, share, patience)


@described
@dataclass(eq=False, repr=False)
class LloydKMeans(KMeansModel):
    """Federated k-means with every knob at its plain setting, under the name ``lloyd``: sums only, start by sums."""

    n_clusters: int = parameter(8, "How many clusters.", Allowed(whole=True, low=1))
    _: KW_ONLY
    init: str | npt.ArrayLike = parameter("var-part", "Where to start, as in :class:`FederatedKMeans`.")
    max_rounds: int = parameter(100, "The most rounds.", Allowed(whole=True, low=0))
    tol: float = parameter(1e-4, "When to stop, as in :class:`FederatedKMeans`.", Allowed(low=0))
    random_state: Any = parameter(None, "Draws the run's public seed.")

    method = "lloyd"


@described
@dataclass(eq=False, repr=False)
class OneShotKMeans(KMeansModel):
    """Every site's own centers, clustered: one round and one to close, under the name ``one-shot``."""

    n_clusters: int = parameter(8, "How many clusters.", Allowed(whole=True, low=1))
    _: KW_ONLY
    random_state: Any = parameter(None, "Draws the run's public seed.")

    method = "one-shot"
