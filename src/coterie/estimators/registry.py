"""Which estimator runs a method by name, with which parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from coterie.errors import InputError
from coterie.estimators import baselines, kernels, kmeans
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.choosing import ChoiceModel, NumberOfClusters, NumberOfKernelClusters
from coterie.estimators.comparing import ModelComparison
from coterie.estimators.describing import TableDescriber
from coterie.estimators.edge import EdgeKMeans
from coterie.estimators.kmeans import KMeansModel
from coterie.estimators.pca import FederatedPCA
from coterie.estimators.vertical import VerticalKernelKMeans, VerticalKernelPCA
from coterie.methods.kmeans.lloyd import KMeansSettings
from coterie.methods.method import ClusterSettings, PrivateSettings, Settings
from coterie.methods.order import Order
from coterie.methods.registry import METHODS, check_can_be_private
from coterie.methods.shared.lloyd import KMeansFit
from coterie.parameters import described
from coterie.text import nearest_name

E = TypeVar("E", bound=FederatedEstimator)
_NAMED: tuple[type[FederatedEstimator], ...] = (
    kmeans.FederatedKMeans,
    kmeans.LloydKMeans,
    kmeans.OneShotKMeans,
    kernels.FederatedKernelKMeans,
    kernels.FederatedKernelPCA,
    FederatedPCA,
    kernels.DSPGDKernelKMeans,
    kernels.DSPGDKernelPCA,
    EdgeKMeans,
    VerticalKernelKMeans,
    VerticalKernelPCA,
    ModelComparison,
    TableDescriber,
    baselines.RandomFeatureKernelKMeans,
    baselines.PooledKernelKMeans,
    baselines.NystroemKernelKMeans,
    baselines.CEPCAKernelKMeans,
    NumberOfClusters,
    NumberOfKernelClusters,
)


_ANALYSES = {
    "choose-k": "`coterie choose-k DATA...` judges numbers of clusters",
    "compare": "`coterie compare RUN RUN` compares those of two runs",
    "describe": "`coterie describe DATA...` shows what columns hold",
}
"""By method that finds neither clusters nor components, the command that runs it."""


def _estimator_of(settings: type[Settings]) -> type[FederatedEstimator]:
    """The estimator with these parameters; for a method of another package that ends in centers, one is made."""
    for kind in _NAMED:
        if issubclass(kind, settings):
            return kind
    if settings.result_type is not KMeansFit:
        raise TypeError(f"{settings.__name__} needs an estimator: its result is no KMeansFit")
    name = settings.__name__.removesuffix("Settings")
    kind = type(name, (settings, KMeansModel), {"__doc__": settings.__doc__, "__module__": settings.__module__})
    return described(dataclass(eq=False, repr=False)(kind))


ESTIMATORS: dict[str, type[FederatedEstimator]] = {}
"""The estimator of every method that finds clusters."""
KINDS: dict[str, type[FederatedEstimator]] = {}
"""Every estimator by the name of its class."""
CHOICES: dict[str, type[ChoiceModel]] = {}
"""The estimator that judges numbers of a method's clusters."""
for _method in METHODS.values():
    for _kind in map(_estimator_of, _method.settings):
        KINDS[_kind.__name__] = _kind
        if issubclass(_kind, ClusterSettings):
            ESTIMATORS[_method.name] = _kind
        if issubclass(_kind, ChoiceModel):
            CHOICES[_method.name] = _kind
CHOICES |= {name: NumberOfClusters for name, kind in ESTIMATORS.items() if issubclass(kind, KMeansSettings)}


def estimator_of(order: Order, seed: int) -> FederatedEstimator:
    """The estimator that fits what is ordered."""
    order.asked()
    return _estimator_of(order.kind)(**order.parameters, random_state=seed)


def make_estimator(method: str, parameters: Mapping[str, Any]) -> FederatedEstimator:
    """The estimator for ``method``; an unknown method or parameter is an error that names the nearest known one."""
    if method in METHODS and method not in ESTIMATORS:
        if method in _ANALYSES:
            raise InputError(f"{method} finds no clusters; {_ANALYSES[method]}.")
        by = [f"coterie.{_estimator_of(settings).__name__}" for settings in METHODS[method].settings]
        raise InputError(f"{method} finds components, not clusters{'; in Python it is ' + by[0] if by else ''}.")
    if method not in ESTIMATORS:
        raise InputError(f"there is no method {method!r}{nearest_name(method, ESTIMATORS)}")
    return _estimator(ESTIMATORS[method], method, parameters)


def choice_estimator(method: str, parameters: Mapping[str, Any]) -> ChoiceModel:
    """The estimator that judges numbers of clusters of ``method``."""
    if method not in CHOICES:
        if method in METHODS:
            raise InputError(f"numbers of clusters are not judged for {method}; use {', '.join(CHOICES)}.")
        raise InputError(f"there is no method {method!r}{nearest_name(method, CHOICES)}")
    kind = CHOICES[method]
    if parameters.get("privacy") is not None and not issubclass(kind, PrivateSettings):
        raise InputError(f"numbers of clusters of {method} cannot be judged privately; leave the method out.")
    return _estimator(kind, method, parameters)


def _estimator(kind: type[E], method: str, parameters: Mapping[str, Any]) -> E:
    if parameters.get("privacy") is not None:
        check_can_be_private(method)
    fixed = METHODS[method].fixed
    known = [item.name for item in fields(kind) if item.name not in fixed]
    for name in parameters:
        if name not in known:
            raise InputError(f"{method} has no parameter {name!r}{nearest_name(name, known)}")
    return kind(**parameters, **fixed)
