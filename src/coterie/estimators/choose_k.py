"""How many clusters there are over tables that stay where they are, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from coterie.errors import InputError
from coterie.estimators.choosing import ChoiceModel
from coterie.estimators.fitting import fit
from coterie.estimators.registry import choice_estimator


def choose_k(
    tables: Any, ks: Sequence[int] | None = None, *, method: str = "federated-kmeans", **options: Any
) -> ChoiceModel:
    """How many clusters the rows of all sites support: a fitted :class:`~coterie.NumberOfClusters`.

    ``ks`` are consecutive numbers of clusters, such as ``range(2, 16)``, the default. With ``method="landmarks"``
    clusters of kernel features are judged, without a recommendation. Parameters of the estimator, such as
    ``random_state`` or ``gamma``, are given by name; all other options are those of :func:`coterie.fit`.

    >>> found = coterie.choose_k(tables, range(2, 11), scale="standard")  # doctest: +SKIP
    >>> found.n_clusters_, found.choice_.silhouettes  # doctest: +SKIP
    """
    kind = type(choice_estimator(method, {}))
    names = {"privacy", *(item.name for item in fields(kind))} & options.keys()
    parameters = {name: options.pop(name) for name in names} | ({} if ks is None else limits_of(ks))
    return fit(choice_estimator(method, parameters), tables, **options)


def limits_of(ks: Sequence[int]) -> dict[str, int]:
    """The smallest and the largest of consecutive numbers of clusters, as parameters."""
    numbers = list(ks)
    if not numbers or numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise InputError(f"ks={ks!r} must be consecutive numbers of clusters, such as range(2, 16).")
    return {"min_clusters": numbers[0], "max_clusters": numbers[-1]}
