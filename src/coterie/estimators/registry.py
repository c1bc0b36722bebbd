"""Which estimator runs a method by name, with which parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.edge import NAMED, EdgeKMeans
from coterie.estimators.kernel_kmeans import FederatedKernelKMeans
from coterie.estimators.kmeans import FederatedKMeans, LloydKMeans, OneShotKMeans
from coterie.estimators.vertical import VerticalKernelKMeans
from coterie.sites.toml_files import nearest_name

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
    "edge-kmeans": EdgeKMeans,
    **dict.fromkeys(NAMED, EdgeKMeans),
    "vertical-kernel-pca": VerticalKernelKMeans,
}
"""Of methods that cluster."""
EMBEDDINGS = {"federated-pca": "coterie.FederatedPCA", "dpca": "coterie.protocols.dpca.dpca"}
"""Methods that find components; by the estimator that does."""


def make_estimator(method: str, parameters: Mapping[str, Any]) -> FederatedEstimator:
    """The estimator for ``method``; an unknown method or parameter is an error that names the nearest known one."""
    if method in EMBEDDINGS:
        raise InputError(f"{method} finds components, not clusters; in Python it is {EMBEDDINGS[method]}.")
    if method not in ESTIMATORS:
        raise InputError(f"there is no method {method!r}{nearest_name(method, ESTIMATORS)}")
    kind = ESTIMATORS[method]
    named = {"pipeline": method} if method in NAMED else {}
    known = [name for name in inspect.signature(kind).parameters if name not in ("self", *named)]
    for name in parameters:
        if name not in known or name == "method":
            raise InputError(f"{method} has no parameter {name!r}{nearest_name(name, known)}")
    return kind(**parameters, **named, **({"method": method} if "method" in known else {}))
