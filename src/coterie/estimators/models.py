"""A fitted model in one readable file, without pickle."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np

import coterie
from coterie.errors import InputError, MalformedMessage
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.kernel_kmeans import FederatedKernelKMeans
from coterie.estimators.kernel_pca import FederatedKernelPCA
from coterie.estimators.kmeans import FederatedKMeans
from coterie.estimators.pca import FederatedPCA
from coterie.estimators.registry import make_estimator
from coterie.estimators.vertical import VerticalEstimator, VerticalKernelKMeans, VerticalKernelPCA
from coterie.maths.kernels import Kernel
from coterie.maths.landmarks import LandmarkMap
from coterie.maths.spectra import Ritz
from coterie.messages import codec
from coterie.protocols.alignment import Alignment
from coterie.protocols.baselines import MapFeatures
from coterie.protocols.dspgd import Embedding
from coterie.protocols.dspgd_sites import Advance, BeginKernel
from coterie.protocols.federated_pca import PCAFit
from coterie.protocols.kernel_kmeans import KernelFit
from coterie.protocols.lloyd import KMeansFit
from coterie.protocols.prepared import Missing, Preparation
from coterie.protocols.vertical_kpca import VerticalFit, VerticalSettings
from coterie.runtime.ledger import Ledger

MODEL_SCHEMA = 2


class _Preparation(msgspec.Struct):
    missing: Missing
    bounded: bool
    fill: list[float]
    shift: list[float]
    scale: list[float]


class _Clusters(msgspec.Struct):
    centers: list[list[float]]
    counts: list[float]
    cost: float
    rounds: int


class _Kernel(msgspec.Struct):
    name: str
    gamma: float
    degree: int
    coef0: float
    values: list[float]
    rows: float
    transcript: list[str] = []
    """The public requests that embed a row, in base64."""
    landmarks: list[list[float]] | None = None
    projection: list[list[float]] | None = None
    shift: list[float] | None = None
    features: _Features | None = None


class _Features(msgspec.Struct):
    number: int
    form: str
    seed: int


class _Axes(msgspec.Struct):
    components: list[list[float]]
    values: list[float]
    mean: list[float]
    squares: float
    rows: float
    solver: str
    is_exact: bool = False


class _Vertical(msgspec.Struct):
    kernel: str
    gamma: float
    center: bool
    missing: str
    scale: str
    precision: str
    tolerance: float | None
    values: list[float]
    vectors: list[list[float]]
    means: list[float]
    ranks: dict[str, int]
    error_bound: float
    trace: float | None
    tags: list[int] | None = None


Kind = Literal["kmeans", "kernel-kmeans", "kernel-pca", "pca", "vertical-kernel-pca", "vertical-kernel-kmeans"]
Fitted = FederatedKMeans | FederatedKernelPCA | FederatedPCA | VerticalEstimator


class _Model(msgspec.Struct):
    schema: int
    kind: Kind
    coterie: str
    method: str
    columns: list[str]
    preparation: _Preparation | None
    clusters: _Clusters | None = None
    kernel: _Kernel | None = None
    axes: _Axes | None = None
    vertical: _Vertical | None = None


def save_model(estimator: FederatedEstimator, path: str | Path) -> Path:
    """Write a fitted model: its columns, its preparation, and its centers, its embedding or both."""
    is_fitted = any(hasattr(estimator, name) for name in ("cluster_centers_", "embedding_", "components_"))
    if not isinstance(estimator, Fitted) or not is_fitted:
        raise InputError(f"{type(estimator).__name__} is not a fitted model; fit it before saving.")
    names = getattr(estimator, "feature_names_in_", None)
    made = estimator.preparation_
    model = _Model(
        MODEL_SCHEMA,
        _kind(estimator),
        coterie.__version__,
        estimator.method_name,
        [f"x{i}" for i in range(estimator.n_features_in_)] if names is None else [str(n) for n in names],
        None if made is None else _written(made),
        _clusters(estimator) if hasattr(estimator, "cluster_centers_") else None,
        _kernel(estimator.kernel_fit_) if hasattr(estimator, "kernel_fit_") else None,
        _axes(estimator.pca_fit_) if isinstance(estimator, FederatedPCA) else None,
        _vertical(estimator.vertical_fit_) if isinstance(estimator, VerticalEstimator) else None,
    )
    path = Path(path)
    path.write_text(json.dumps(msgspec.to_builtins(model), indent=1) + "\n")
    return path


def _kind(estimator: FederatedEstimator) -> Kind:
    if isinstance(estimator, FederatedPCA):
        return "pca"
    if isinstance(estimator, VerticalEstimator):
        return "vertical-kernel-kmeans" if isinstance(estimator, VerticalKernelKMeans) else "vertical-kernel-pca"
    if isinstance(estimator, FederatedKernelPCA):
        return "kernel-pca"
    return "kernel-kmeans" if isinstance(estimator, FederatedKernelKMeans) else "kmeans"


def _clusters(estimator: Any) -> _Clusters:
    if isinstance(estimator, VerticalKernelKMeans):
        centers, counts = estimator.cluster_centers_.tolist(), estimator.counts_.tolist()
        return _Clusters(centers, counts, estimator.inertia_, 0)
    return _Clusters(
        estimator._prepared_centers.tolist(),
        estimator.counts_.tolist(),
        float(estimator.inertia_),
        int(estimator.n_rounds_),
    )


def _axes(made: PCAFit) -> _Axes:
    return _Axes(
        made.axes.vectors.T.tolist(), made.axes.values.tolist(), made.mean.tolist(), made.squares, made.n_rows,
        made.solver, made.is_exact,
    )  # fmt: skip


def _vertical(made: VerticalFit) -> _Vertical:
    s, tags = made.settings, made.alignment.tags
    return _Vertical(
        s.kernel, made.gamma, s.center, s.missing, s.scale, s.precision, s.tolerance, made.pairs.values.tolist(),
        made.pairs.vectors.tolist(), made.means.tolist(), made.ranks, made.error_bound,
        made.trace if np.isfinite(made.trace) else None, None if tags is None else tags.tolist(),
    )  # fmt: skip


def _kernel(made: KernelFit) -> _Kernel:
    kernel, map_ = made.kernel, made.embedding
    written = _Kernel(kernel.name, kernel.gamma, kernel.degree, kernel.coef0, made.values.tolist(), made.n_rows)
    if isinstance(map_, Embedding):
        bodies = [codec.encode_body(request, {}).data for request in map_.transcript]
        written.transcript = [base64.b64encode(body).decode() for body in bodies]
    elif isinstance(map_, LandmarkMap):
        written.landmarks, written.projection = map_.landmarks.tolist(), map_.projection.tolist()
        written.shift = map_.shift.tolist() if map_.shift.any() else None
    elif isinstance(map_, MapFeatures):
        written.features = _Features(map_.n_features, map_.form, map_.seed)
    return written


def load_model(path: str | Path) -> Fitted:
    """Read a model written by :func:`save_model`; anything else is one clear error."""
    path = Path(path)
    try:
        raw: Any = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except (OSError, ValueError):
        raise InputError(f"{path}: this is not a model file of coterie.") from None
    if not isinstance(raw, dict) or raw.get("kind") not in get_args(Kind):
        raise InputError(f"{path}: this is not a model file of coterie.")
    if raw.get("schema") != MODEL_SCHEMA:
        raise InputError(
            f"{path}: model format {raw.get('schema')} is not known to coterie {coterie.__version__} "
            f"(it knows {MODEL_SCHEMA}); a newer coterie may."
        )
    try:
        model = msgspec.convert(raw, _Model)
        return _fitted(model)
    except (msgspec.ValidationError, MalformedMessage, ValueError, OverflowError) as problem:
        raise InputError(f"{path}: the model file is damaged ({problem}).") from None


def _written(made: Preparation) -> _Preparation:
    return _Preparation(made.missing, made.bounded, made.fill.tolist(), made.shift.tolist(), made.scale.tolist())


def _fitted(model: _Model) -> Fitted:
    d = len(model.columns)
    made = None if model.preparation is None else _preparation(model.preparation, d)
    clusters = None if model.clusters is None else _read_clusters(model.clusters)
    if model.kind in ("vertical-kernel-pca", "vertical-kernel-kmeans"):
        return _read_vertical(model, clusters)
    if model.kind == "kmeans":
        if clusters is None or clusters.centers.shape[1] != d:
            raise ValueError(f"no centers for {d} columns")
        estimator: Any = make_estimator(model.method, {"n_clusters": len(clusters.centers)})
        result: Any = clusters
    elif model.kind == "pca":
        result = _read_axes(model.axes, d)
        estimator = FederatedPCA(len(result.axes.values))
    else:
        result = _read_kernel(model.kernel, clusters)
        if model.kind == "kernel-pca":
            estimator = FederatedKernelPCA(len(result.values), method=model.method)
        elif clusters is None:
            raise ValueError("there are no centers in it")
        else:
            estimator = make_estimator(model.method, {"n_clusters": len(clusters.centers)})
    estimator.n_features_in_ = d
    estimator.feature_names_in_ = np.array(model.columns, dtype=object)
    estimator.settle(result, made, Ledger())
    fitted: Fitted = estimator
    return fitted


def _read_vertical(model: _Model, clusters: KMeansFit | None) -> VerticalEstimator:
    """Components of rows at their sites; new rows are embedded by :func:`coterie.transform`."""
    v = model.vertical
    if v is None or (clusters is None) != (model.kind == "vertical-kernel-pca"):
        raise ValueError("there are no components in it, or no centers")
    values, vectors, means = (np.array(part, np.float64) for part in (v.values, v.vectors, v.means))
    are_finite = all(np.isfinite(part).all() for part in (values, vectors, means))
    if vectors.shape != (len(means), len(values)) or not len(values) or not are_finite or not v.ranks:
        raise ValueError(f"components of shape {vectors.shape} for {len(means)} rows")
    tags: Any = None if v.tags is None else np.array(v.tags, np.uint64)
    if tags is not None and tags.shape != means.shape:
        raise ValueError(f"{len(tags)} tags for {len(means)} rows")
    rank, gamma = max(v.ranks.values()), v.gamma if v.kernel == "rbf" else None
    if clusters is not None and clusters.counts.shape != (len(clusters.centers),):
        raise ValueError("counts that are not of its centers")
    settings = VerticalSettings(
        len(values), v.kernel, gamma, rank, v.center, v.tolerance, v.precision, v.missing, v.scale
    )
    trace = float("nan") if v.trace is None else v.trace
    fit = VerticalFit(
        settings, Alignment(len(means), tags), v.gamma, Ritz(values, vectors), means, v.ranks, v.error_bound, trace
    )
    options: dict[str, Any] = {
        "kernel": v.kernel, "gamma": gamma, "local_rank": rank, "tolerance": v.tolerance, "precision": v.precision,
    }  # fmt: skip
    estimator: VerticalEstimator
    if clusters is None:
        estimator = VerticalKernelPCA(len(values), center=v.center, **options)
        estimator.settle(fit, None, Ledger())
    else:
        if clusters.centers.shape[1] != len(values):
            raise ValueError(f"centers of {clusters.centers.shape[1]} components for {len(values)}")
        estimator = VerticalKernelKMeans(len(clusters.centers), n_components=len(values), **options)
        VerticalEstimator.settle(estimator, fit, None, Ledger())
        estimator.take_centers(clusters.centers)
    estimator.n_features_in_ = len(model.columns)
    estimator.feature_names_in_ = np.array(model.columns, dtype=object)
    return estimator


def _preparation(p: _Preparation, d: int) -> Preparation:
    fill, shift, scale = (np.array(v, np.float64) for v in (p.fill, p.shift, p.scale))
    if not fill.shape == shift.shape == scale.shape == (d,):
        raise ValueError(f"a preparation of {len(shift)} columns for {d}")
    if not (np.isfinite([fill, shift, scale]).all() and (scale > 0).all()):
        raise ValueError("a preparation that cannot be undone")
    return Preparation(p.missing, fill, shift, scale, p.bounded)


def _read_clusters(c: _Clusters) -> KMeansFit:
    centers = np.array(c.centers, np.float64)
    if centers.ndim != 2 or not np.isfinite(centers).all():
        raise ValueError(f"centers of shape {centers.shape}")
    return KMeansFit(centers, c.cost, np.array(c.counts, np.float64), c.rounds)


def _read_axes(a: _Axes | None, d: int) -> PCAFit:
    if a is None:
        raise ValueError("there are no axes in it")
    components, values, mean = (np.array(part, np.float64) for part in (a.components, a.values, a.mean))
    if components.shape != (len(values), d) or mean.shape != (d,) or not np.isfinite(components).all():
        raise ValueError(f"axes of shape {components.shape} for {d} columns")
    return PCAFit(mean, Ritz(values, components.T), a.squares, a.rows, a.solver, a.is_exact)


def _read_kernel(k: _Kernel | None, clusters: KMeansFit | None) -> KernelFit:
    if k is None:
        raise ValueError("there is no kernel in it")
    kernel, values = Kernel(k.name, k.gamma, k.degree, k.coef0), np.array(k.values, np.float64)
    if k.landmarks is not None and k.projection is not None:
        landmarks, projection = np.array(k.landmarks, np.float64), np.array(k.projection, np.float64)
        if landmarks.ndim != 2 or projection.ndim != 2 or len(landmarks) != len(projection):
            raise ValueError("landmarks and their projection do not fit")
        shift = np.zeros(projection.shape[1]) if k.shift is None else np.array(k.shift, np.float64)
        if shift.shape != projection.shape[1:]:
            raise ValueError("landmarks and their shift do not fit")
        return KernelFit(kernel, LandmarkMap(kernel, landmarks, projection, shift), k.rows, clusters, values)
    if k.features is not None:
        drawn = MapFeatures(*MapFeatures.stated(kernel, k.features.number, k.features.form, k.features.seed))
        return KernelFit(kernel, drawn, k.rows, clusters, values)
    requests = [codec.decode_body(base64.b64decode(text, validate=True))[0] for text in k.transcript]
    if not requests or not all(isinstance(one, BeginKernel | Advance) for one in requests):
        raise ValueError("the requests that embed a row are not there")
    transcript = tuple(one for one in requests if one is not None)
    return KernelFit(kernel, Embedding(values, transcript, (), (), 0.0), k.rows, clusters, values)
