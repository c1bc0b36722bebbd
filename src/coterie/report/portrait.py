"""Clusters by column, as released: from profiles, or from centers where a run asked for no profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.arrays import Floats, Mask

_VALUES = ("mean", "sd", "difference_in_sd", "q1", "median", "q3", "missing", "noise_of_mean")


@dataclass(frozen=True)
class Portrait:
    """Arrays have a row a cluster and a column a column; the columns that distinguish clusters most come first."""

    columns: tuple[str, ...]
    sizes: Floats
    values: Mapping[str, Floats]
    """By the names of ``profiles.csv``; not a number where nothing is known."""
    whole_mean: Floats
    whole_sd: Floats
    is_share: Mask
    between: Floats
    """By column, the share of the variance that is between clusters; of centers alone, 1."""
    is_of_profiles: bool
    about: frozenset[str] = frozenset()
    """The names of values that are estimates."""

    @property
    def standard_means(self) -> Floats:
        """Means about those of all rows, in their deviations; 0 where a column does not vary."""
        return np.nan_to_num(self.values["difference_in_sd"])


def portrait_of(result: Mapping[str, Any]) -> Portrait | None:
    """What is known of each cluster by column; None where centers are of components, and nothing else is known."""
    if result.get("profiles"):
        return _of_profiles(result)
    if result["centers"] and result.get("inputs", result["columns"]) == result["columns"]:
        return _of_centers(result)
    return None


def _of_profiles(result: Mapping[str, Any]) -> Portrait:
    records, k = result["profiles"]["profiles"], len(result["counts"])
    columns = tuple(result["profiles"]["columns"])
    whole = records[: len(columns)]
    shape = k, len(columns)
    values = {name: _numbers(records[len(columns) :], name).reshape(shape) for name in _VALUES}
    is_share = np.array([record["share"] is not None for record in whole], bool)
    return Portrait(
        columns,
        np.array(result["counts"], np.float64),
        values,
        _numbers(whole, "mean"),
        _numbers(whole, "sd"),
        is_share,
        np.nan_to_num(_numbers(whole, "variance_between")),
        is_of_profiles=True,
        about=_estimates(result["profiles"]),
    )


def _estimates(facts: Mapping[str, Any]) -> frozenset[str]:
    """Quartiles always; deviations over groups; everything under noise."""
    if facts["counts_and_means_are"] == "estimates":
        return frozenset(_VALUES) - {"noise_of_mean"}
    return frozenset(("q1", "median", "q3") + (("sd",) if facts["deviations_are"] == "estimates" else ()))


def _numbers(records: list[Mapping[str, Any]], name: str) -> Floats:
    known = (record.get(name) for record in records)
    return np.array([np.nan if value is None else value for value in known], np.float64)


def _of_centers(result: Mapping[str, Any]) -> Portrait:
    """Centers in deviations of the centers themselves: those of rows are not known."""
    centers, sizes = np.array(result["centers"], np.float64), np.array(result["counts"], np.float64)
    weights = np.maximum(sizes, 0.0) + 1e-9
    mean = np.average(centers, axis=0, weights=weights)
    sd = np.sqrt(np.average((centers - mean) ** 2, axis=0, weights=weights))
    unknown = np.full(centers.shape, np.nan)
    difference = np.divide(centers - mean, sd, out=np.zeros_like(centers), where=sd > 1e-12 * np.abs(mean))
    order = np.argsort(-np.abs(difference).max(axis=0), kind="stable")
    values = dict.fromkeys(_VALUES, unknown) | {"mean": centers, "difference_in_sd": difference}
    return Portrait(
        tuple(result["columns"][i] for i in order),
        sizes,
        {name: array[:, order] for name, array in values.items()},
        mean[order],
        sd[order],
        np.zeros(len(order), bool),
        np.ones(len(order)),
        is_of_profiles=False,
    )
