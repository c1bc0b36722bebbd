"""A fitted clustering as scikit-learn's own estimators, with the numbers of the fit put in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.validation import check_is_fitted

from coterie.arrays import Floats
from coterie.methods.shared.prepared import Preparation


def sklearn_model(model: Any) -> Any:
    """A fitted KMeans; a Pipeline that ends in one where rows are prepared, or embedded by a kernel."""
    check_is_fitted(model)
    steps = [] if model.preparation_ is None else list(_prepared_by(model.preparation_))
    if model.center_columns() is not None:
        steps.append(("embedding", FunctionTransformer(model.embedding_.embed)))
    if steps and isinstance(steps[0][1], FunctionTransformer):  # which does not check columns
        steps.insert(0, ("columns", _scaler(np.zeros(model.n_features_in_), np.ones(model.n_features_in_))))
    clusters = _clusters(model)
    whole = Pipeline([*steps, ("clusters", clusters)]) if steps else clusters
    first = steps[0][1] if steps else clusters
    first.n_features_in_ = model.n_features_in_
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        first.feature_names_in_ = np.array(names, dtype=object)
    return whole


def _prepared_by(preparation: Preparation) -> Iterator[tuple[str, Any]]:
    """What prepares rows, by name; steps that change nothing are left out."""
    ranges, shift, scale = preparation.ranges, preparation.shift, preparation.scale
    if preparation.missing == "mean":
        fill = np.asarray(preparation.fill, np.float64)
        yield "missing", SimpleImputer(strategy="mean", keep_empty_features=True).fit(fill[None])
    if ranges is not None:  # what is filled in is within the ranges
        ends = {"a_min": ranges.low, "a_max": ranges.high}
        yield "ranges", FunctionTransformer(np.clip, kw_args=ends, feature_names_out="one-to-one").fit(shift[None])
    if shift.any() or (scale != 1).any():
        yield "scale", _scaler(shift, scale)


def _scaler(shift: Floats, scale: Floats) -> StandardScaler:
    scaler = StandardScaler().fit(np.zeros((1, len(shift))))
    scaler.mean_, scaler.scale_, scaler.var_ = shift.copy(), scale.copy(), scale**2
    return scaler


def _clusters(model: Any) -> KMeans:
    """KMeans with the model's centers, in the units of prepared rows."""
    centers: Floats = np.asarray(model._prepared_centers, np.float64)
    apart = np.arange(float(centers.size)).reshape(centers.shape)  # to fit without a warning, whatever the centers
    clusters = KMeans(len(centers), init=apart, n_init=1, max_iter=1).fit(apart)
    clusters.cluster_centers_, clusters.inertia_ = centers.copy(), float(model.inertia_)
    clusters.labels_ = np.zeros(0, np.int32)  # the rows are not at hand
    clusters.n_iter_ = model.n_rounds_
    return clusters
