"""A fitted model in one readable file, without pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import coterie
from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.kmeans import FederatedKMeans
from coterie.estimators.registry import make_estimator
from coterie.protocols.lloyd import KMeansFit
from coterie.protocols.preparation import Missing, Preparation
from coterie.runtime.ledger import Ledger

__all__ = ["MODEL_SCHEMA", "load_model", "save_model"]

MODEL_SCHEMA = 1


class _Preparation(msgspec.Struct):
    missing: Missing
    bounded: bool
    fill: list[float]
    shift: list[float]
    scale: list[float]


class _Model(msgspec.Struct):
    schema: int
    kind: str
    coterie: str
    method: str
    columns: list[str]
    preparation: _Preparation | None
    centers: list[list[float]]
    counts: list[float]
    cost: float
    rounds: int


def save_model(estimator: FederatedEstimator, path: str | Path) -> Path:
    """Write a fitted k-means model: its columns, its preparation and its centers."""
    if not isinstance(estimator, FederatedKMeans) or not hasattr(estimator, "cluster_centers_"):
        raise InputError(f"{type(estimator).__name__} is not a fitted k-means; fit it before saving.")
    names = getattr(estimator, "feature_names_in_", None)
    made = estimator.preparation_
    model = _Model(
        MODEL_SCHEMA,
        "kmeans",
        coterie.__version__,
        estimator.method,
        [f"x{i}" for i in range(estimator.n_features_in_)] if names is None else [str(n) for n in names],
        None if made is None else _written(made),
        estimator._prepared_centers.tolist(),
        estimator.counts_.tolist(),
        float(estimator.inertia_),
        int(estimator.n_rounds_),
    )
    path = Path(path)
    path.write_text(json.dumps(msgspec.to_builtins(model), indent=1) + "\n")
    return path


def load_model(path: str | Path) -> FederatedKMeans:
    """Read a model written by :func:`save_model`; anything else is one clear error."""
    path = Path(path)
    try:
        raw: Any = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except (OSError, ValueError):
        raise InputError(f"{path}: this is not a model file of coterie.") from None
    if not isinstance(raw, dict) or raw.get("kind") != "kmeans":
        raise InputError(f"{path}: this is not a model file of coterie.")
    if raw.get("schema") != MODEL_SCHEMA:
        raise InputError(
            f"{path}: model format {raw.get('schema')} is not known to coterie {coterie.__version__} "
            f"(it knows {MODEL_SCHEMA}); a newer coterie may."
        )
    try:
        model = msgspec.convert(raw, _Model)
        return _fitted(model)
    except (msgspec.ValidationError, ValueError) as problem:
        raise InputError(f"{path}: the model file is damaged ({problem}).") from None


def _written(made: Preparation) -> _Preparation:
    return _Preparation(made.missing, made.bounded, made.fill.tolist(), made.shift.tolist(), made.scale.tolist())


def _fitted(model: _Model) -> FederatedKMeans:
    centers, d = np.array(model.centers, np.float64), len(model.columns)
    if centers.ndim != 2 or centers.shape[1] != d or not np.isfinite(centers).all():
        raise ValueError(f"centers of shape {centers.shape} for {d} columns")
    made = None
    if model.preparation is not None:
        p = model.preparation
        fill, shift, scale = (np.array(v, np.float64) for v in (p.fill, p.shift, p.scale))
        if not fill.shape == shift.shape == scale.shape == (d,):
            raise ValueError(f"a preparation of {len(shift)} columns for {d}")
        if not (np.isfinite([fill, shift, scale]).all() and (scale > 0).all()):
            raise ValueError("a preparation that cannot be undone")
        made = Preparation(p.missing, fill, shift, scale, p.bounded)
    estimator = make_estimator(model.method, {"n_clusters": len(centers)})
    assert isinstance(estimator, FederatedKMeans)
    estimator.n_features_in_ = d
    estimator.feature_names_in_ = np.array(model.columns, dtype=object)
    fit = KMeansFit(centers, model.cost, np.array(model.counts, np.float64), model.rounds)
    estimator.settle(fit, made, Ledger())
    return estimator
