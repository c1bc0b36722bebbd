"""Federated k-means as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics import pairwise_distances
from sklearn.utils.validation import _check_sample_weight, validate_data

from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator, Rows
from coterie.estimators.labelled import Labelled
from coterie.estimators.to_sklearn import sklearn_model
from coterie.maths.clustering import nearest
from coterie.methods.kmeans.chosen import AUTO, ChosenFit
from coterie.methods.kmeans.federated import FederatedSettings
from coterie.methods.kmeans.lloyd import LloydSettings
from coterie.methods.kmeans.one_shot import OneShotSettings
from coterie.methods.shared.choosing import Choice
from coterie.methods.shared.lloyd import KMeansFit
from coterie.parameters import described


class ClusterModel(Labelled, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, FederatedEstimator):
    """What estimators of clusters have in common, of rows or of embedded rows."""

    n_clusters: Any
    cluster_centers_: npt.NDArray[np.float64]
    _fewest_rows = 1

    def fit(
        self, X: npt.ArrayLike, y: Any = None, *, sites: Any = None, ranges: Any = None, units: Any = None
    ) -> Self:
        """Cluster the rows of ``X``, simulating one site for every distinct label in ``sites``; with differential
        privacy, within ``ranges``, the lows and highs of all columns, and of ``units``, which say whose row it is."""
        return self._fit(X, sites, None, ranges, units)

    def _fit(self, X: npt.ArrayLike, sites: Any, sample_weight: Any, ranges: Any = None, units: Any = None) -> Self:
        rows: Rows = validate_data(
            self, X, dtype=[np.float64, np.float32], order="C", ensure_min_samples=self._fewest_rows
        )
        self.check(rows.shape[1])
        weights = None
        if sample_weight is not None:
            if self.privacy is not None:
                raise InputError("privacy does not go with sample_weight: every row counts once; leave one out.")
            weights = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
            if not (weights > 0).any():
                raise InputError("every sample weight is 0; there is nothing to cluster.")
        held = len(rows) if weights is None else int((weights > 0).sum())
        if held < (1 if self.n_clusters == AUTO else self.n_clusters):
            raise InputError(f"n_samples={held} should be >= n_clusters={self.n_clusters}.")
        self._simulate(rows, sites, weights, ranges, units)
        self.labels_ = self.label_rows(rows)
        return self

    def _set_clusters(self, clusters: KMeansFit) -> None:
        self._prepared_centers = clusters.centers
        self.inertia_, self.counts_ = clusters.cost, clusters.counts
        self.n_rounds_ = self.n_iter_ = clusters.n_rounds

    def center_columns(self) -> list[str] | None:
        """Names of a center's coordinates, where these are not the table's columns."""
        return None

    def label_rows(self, rows: Rows) -> npt.NDArray[np.int32]:
        """Labels of raw rows at a site, unchecked: -1 for rows the preparation leaves out."""
        whole = np.full(len(rows), True) if self._fills_missing else np.asarray(~np.isnan(rows).any(axis=1))
        labels = np.full(len(rows), -1, np.int32)
        labels[whole] = nearest(self.prepared_rows(rows[whole]), self._prepared_centers)[0]
        return labels

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """The nearest center of each row; -1 for a row that lacks a value, in a model that leaves such rows out."""
        if self._treats_missing("drop"):
            return self.label_rows(self._checked_rows(X, allow_missing=True))
        labels: npt.NDArray[np.int32] = nearest(self._prepared(X), self._prepared_centers)[0].astype(np.int32)
        return labels

    def to_sklearn(self) -> Any:
        """The model as scikit-learn's own: a fitted ``KMeans``, or a ``Pipeline`` that prepares raw rows and ends in
        one. It predicts the same labels, without coterie where rows are not embedded by a kernel."""
        return sklearn_model(self)

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

    choice_: Choice | None = None
    """What is known of each number of clusters, where the rows were to say how many there are."""

    def fit(
        self,
        X: npt.ArrayLike,
        y: Any = None,
        sample_weight: Any = None,
        *,
        sites: Any = None,
        ranges: Any = None,
        units: Any = None,
    ) -> Self:
        """Cluster the rows of ``X``, simulating one site for every distinct label in ``sites``; with differential
        privacy, within ``ranges``, the lows and highs of all columns, and of ``units``, which say whose row it is."""
        return self._fit(X, sites, sample_weight, ranges, units)

    def _set_attributes(self, result: KMeansFit) -> None:
        preparation = self.preparation_
        self.choice_ = result.choice if isinstance(result, ChosenFit) else None
        self.cluster_centers_ = result.centers if preparation is None else preparation.undo(result.centers)
        self._set_clusters(result)


@described
@dataclass(eq=False, repr=False)
class FederatedKMeans(FederatedSettings, KMeansModel):
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
        it is the cost of assigning every group to one center, at least that of the rows.
    cost_is_ : str
        How exact ``inertia_`` is: ``"exact"``, ``"at_most"`` (over groups), or an ``"estimate"`` (with noise).
    counts_ : array of shape (n_clusters,)
        The sizes of the clusters.
    counts_are_ : str
        What they count: ``"rows"``, ``"whole_groups"``, each with all its rows, or ``"noisy"`` rows.
    n_rounds_ : int
        The rounds in which centers moved.
    ledger_ : Ledger
        Every question and answer of the run.
    """


@described
@dataclass(eq=False, repr=False)
class LloydKMeans(LloydSettings, KMeansModel):
    """Lloyd's k-means over all rows, by sums, with a start by sums: the method ``lloyd``."""


@described
@dataclass(eq=False, repr=False)
class OneShotKMeans(OneShotSettings, KMeansModel):
    """Clusters every site's own centers: one round and one to close, the method ``one-shot``."""
