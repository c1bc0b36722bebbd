"""Which estimator runs a method by name, with which parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.baselines import (
    CEPCAKernelKMeans,
    NystroemKernelKMeans,
    PooledKernelKMeans,
    RandomFeatureKernelKMeans,
)
from coterie.estimators.dspgd import DSPGDKernelKMeans
from coterie.estimators.edge import NAMED, EdgeKMeans
from coterie.estimators.kmeans import FederatedKMeans, LloydKMeans, OneShotKMeans
from coterie.estimators.landmarks import FederatedKernelKMeans
from coterie.estimators.vertical import VerticalKernelKMeans
from coterie.text import nearest_name

ESTIMATORS: dict[str, type[Any]] = {
    "federated-kmeans": FederatedKMeans,
    "lloyd": LloydKMeans,
    "one-shot": OneShotKMeans,
    "landmarks": FederatedKernelKMeans,
    "dspgd": DSPGDKernelKMeans,
    "dspgd-dense": DSPGDKernelKMeans,
    "rfk": RandomFeatureKernelKMeans,
    "ck": PooledKernelKMeans,
    "sk": NystroemKernelKMeans,
    "ce-pca": CEPCAKernelKMeans,
    "edge-kmeans": EdgeKMeans,
    **dict.fromkeys(NAMED, EdgeKMeans),
    "vertical-kernel-pca": VerticalKernelKMeans,
}
"""Of methods that cluster."""
FIXED: dict[str, dict[str, Any]] = {
    "dspgd": {"cem": True},
    "dspgd-dense": {"cem": False},
    **{name: {"pipeline": name} for name in NAMED},
}
"""Parameters that a method's name says already."""
EMBEDDINGS = {"federated-pca": "coterie.FederatedPCA", "dpca": "coterie.methods.vertical.dpca.dpca"}
"""Methods that find components; by the estimator that does."""


def make_estimator(method: str, parameters: Mapping[str, Any]) -> FederatedEstimator:
    """The estimator for ``method``; an unknown method or parameter is an error that names the nearest known one."""
    if method in EMBEDDINGS:
        raise InputError(f"{method} finds components, not clusters; in Python it is {EMBEDDINGS[method]}.")
    if method not in ESTIMATORS:
        raise InputError(f"there is no method {method!r}{nearest_name(method, ESTIMATORS)}")
    kind, fixed = ESTIMATORS[method], FIXED.get(method, {})
    known = [item.name for item in fields(kind) if item.name not in fixed]
    for name in parameters:
        if name not in known:
            raise InputError(f"{method} has no parameter {name!r}{nearest_name(name, known)}")
    made: FederatedEstimator = kind(**parameters, **fixed)
    return made
