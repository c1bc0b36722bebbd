"""Which estimator runs a method by name, with which parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.kernel_kmeans import FederatedKernelKMeans
from coterie.estimators.kmeans import FederatedKMeans, LloydKMeans, OneShotKMeans
from coterie.sites.toml_files import nearest_name

__all__ = ["ESTIMATORS", "make_estimator"]

ESTIMATORS: dict[str, type[FederatedEstimator]] = {
    "federated-kmeans": FederatedKMeans,
    "lloyd": LloydKMeans,
    "one-shot": OneShotKMeans,
    "landmarks": FederatedKernelKMeans,
    "dspgd": FederatedKernelKMeans,
    "dspgd-dense": FederatedKernelKMeans,
    "rfk": FederatedKernelKMeans,
    "ck": FederatedKernelKMeans,
    "sk": FederatedKernelKMeans,
    "ce-pca": FederatedKernelKMeans,
}


def make_estimator(method: str, parameters: Mapping[str, Any]) -> FederatedEstimator:
    """The estimator for ``method``; an unknown method or parameter is an error that names the nearest known one."""
    if method not in ESTIMATORS:
        raise InputError(f"there is no method {method!r}{nearest_name(method, ESTIMATORS)}")
    kind = ESTIMATORS[method]
    known = [name for name in inspect.signature(kind).parameters if name != "self"]
    for name in parameters:
        if name not in known or name == "method":
            raise InputError(f"{method} has no parameter {name!r}{nearest_name(name, known)}")
    return kind(**parameters, **({"method": method} if "method" in known else {}))
