"""A fitted model in one readable file, without pickle: parameters, columns, preparation, and what the run found."""

from __future__ import annotations

import json
import typing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

import coterie
from coterie.errors import InputError, MalformedMessage
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.dspgd import DSPGDKernelPCA
from coterie.estimators.landmarks import FederatedKernelPCA
from coterie.estimators.pca import FederatedPCA
from coterie.estimators.registry import ESTIMATORS
from coterie.estimators.vertical import VerticalKernelPCA
from coterie.maths.landmarks import LandmarkMap
from coterie.methods.kernel.baselines import MapFeatures
from coterie.methods.kernel.dspgd.protocol import Embedding
from coterie.methods.kernel.dspgd.sites import Advance, BeginKernel
from coterie.methods.shared.prepared import Preparation
from coterie.runtime.ledger import Ledger

T = TypeVar("T")

MODEL_SCHEMA = 3
KINDS: dict[str, type[FederatedEstimator]] = {
    kind.__name__: kind
    for kind in (*ESTIMATORS.values(), FederatedPCA, FederatedKernelPCA, DSPGDKernelPCA, VerticalKernelPCA)
}


class _Model(msgspec.Struct):
    schema: int
    kind: str
    coterie: str
    parameters: dict[str, Any]
    columns: list[str]
    preparation: Preparation | None
    result: dict[str, Any]


def save_model(estimator: FederatedEstimator, path: str | Path) -> Path:
    """Write a fitted model: its columns, its preparation, and its centers, its embedding or both."""
    if type(estimator).__name__ not in KINDS or not hasattr(estimator, "result_"):
        raise InputError(f"{type(estimator).__name__} is not a fitted model; fit it before saving.")
    names = getattr(estimator, "feature_names_in_", None)
    model = _Model(
        MODEL_SCHEMA,
        type(estimator).__name__,
        coterie.__version__,
        {name: value for name, value in estimator.settings().items() if _is_plain(value)},
        [f"x{i}" for i in range(estimator.n_features_in_)] if names is None else [str(n) for n in names],
        estimator.preparation_,
        _written(estimator),
    )
    path = Path(path)
    path.write_text(json.dumps(msgspec.to_builtins(model, enc_hook=_listed), indent=1) + "\n")
    return path


def load_model(path: str | Path) -> Any:
    """Read a model written by :func:`save_model`; anything else is one clear error."""
    path = Path(path)
    try:
        raw: Any = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except (OSError, ValueError):
        raise InputError(f"{path}: this is not a model file of coterie.") from None
    if not isinstance(raw, dict) or not {"schema", "kind", "coterie"} <= raw.keys():
        raise InputError(f"{path}: this is not a model file of coterie.")
    if raw["schema"] != MODEL_SCHEMA:
        raise InputError(
            f"{path}: model format {raw['schema']} is not known to coterie {coterie.__version__} "
            f"(it knows {MODEL_SCHEMA}); fit the model again, or use the coterie that wrote it ({raw['coterie']})."
        )
    if raw["kind"] not in KINDS:
        raise InputError(f"{path}: this is not a model file of coterie.")
    try:
        return _fitted(_read(raw, _Model))
    except (msgspec.ValidationError, MalformedMessage, ValueError, TypeError, OverflowError) as problem:
        raise InputError(f"{path}: the model file is damaged ({problem}).") from None


def _fitted(model: _Model) -> FederatedEstimator:
    estimator = KINDS[model.kind](**model.parameters)
    estimator.begin()
    estimator.n_features_in_ = len(model.columns)
    estimator.set_result(_read_result(model.result, estimator.result_type), model.preparation, Ledger())
    if not estimator.splits_columns:  # there rows are embedded by their sites
        estimator.transform(np.zeros((1, len(model.columns))))
    estimator.feature_names_in_ = np.array(model.columns, dtype=object)
    return estimator


def _written(estimator: FederatedEstimator) -> dict[str, Any]:
    """What the run found, as far as a model needs it: points that stand for rows are left out."""
    result = {item.name: getattr(estimator.result_, item.name) for item in fields(estimator.result_type)}
    embedding = result.get("embedding")
    if isinstance(embedding, Embedding):
        result["embedding"] = {"transcript": embedding.transcript}
    return result


def _read_result(raw: dict[str, Any], kind: type[Any]) -> Any:
    embedding = raw.get("embedding", {})
    if "landmarks" in embedding:
        return replace(_read(raw, kind), embedding=_read(embedding, LandmarkMap))
    if "form" in embedding:
        return replace(_read(raw, kind), embedding=_read(embedding, MapFeatures))
    result = _read(raw, kind)
    if embedding:
        begin, *steps = embedding["transcript"]
        transcript = (_read(begin, BeginKernel), *(_read(step, Advance) for step in steps))
        return replace(result, embedding=Embedding(result.values, transcript, (), (), 0.0))
    return result


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | list)


def _listed(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a model holds no {type(value).__name__}")


def _read(raw: Any, kind: type[T]) -> T:
    return msgspec.convert(raw, kind, dec_hook=_array)


def _array(kind: Any, value: Any) -> Any:
    """An array of the kind of number its annotation says, every one of them finite."""
    number = typing.get_args(typing.get_args(kind)[1])[0]
    found = np.array(value, number)
    if not np.isfinite(found).all():
        raise ValueError("a number is not finite")
    return found
