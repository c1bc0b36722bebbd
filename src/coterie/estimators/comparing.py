"""Two fitted models compared: how far they agree on the rows of tables, and which centers correspond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from coterie.arrays import Floats
from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.exactness import CostIs, CountsAre, cost_compares
from coterie.estimators.fitting import fit
from coterie.estimators.given import named_tables
from coterie.maths.landmarks import LandmarkMap
from coterie.maths.separation import adjusted_rand
from coterie.methods.analysis.compare import ClusterRule, Compared, CompareSettings
from coterie.methods.shared.plain import plain
from coterie.parameters import described
from coterie.runtime.ledger import Ledger
from coterie.sites.tables.alike import table_alike


@described
@dataclass(eq=False, repr=False, kw_only=True)
class ModelComparison(CompareSettings, FederatedEstimator):
    """Two models labelling the same rows at their sites. :func:`coterie.compare` is the way to use it.

    Attributes
    ----------
    compared_ : Compared
        How many rows each pair of clusters shares, and the cost under each model.
    ledger_ : Ledger
        Every question and answer of the run.
    """

    def _set_attributes(self, result: Compared) -> None:
        self.compared_ = result


class MatchedCenters(NamedTuple):
    """Which centers of two models correspond, so that their distances are the least in all."""

    pairs: list[tuple[int, int]]
    """A cluster of the first model and one of the second."""
    distances: list[float]
    """In the first model's scale."""
    differences: list[list[float]]
    """By pair and column the second center less the first, in original units."""
    columns: list[str]
    unmatched: tuple[list[int], list[int]]
    """Clusters of each model that have no counterpart, where their numbers differ."""


@dataclass(frozen=True)
class Comparison:
    """How far two models agree on the same rows."""

    ari: float
    """The adjusted Rand index: 1 for the same clusters, about 0 for unrelated ones."""
    table: Floats
    """How many rows each cluster of the first model shares with each of the second one."""
    counts_are: CountsAre
    """What these count: rows, or whole groups, labelled by their mean."""
    unlabelled: float
    """Rows that lack a value, and that a model leaves out; they count nowhere else."""
    costs: tuple[float | None, float | None]
    """Of the rows with a label in both, under each model, in its own prepared units; None among embedded rows."""
    cost_is: CostIs
    same_units: bool
    """Whether both models prepare the same columns in the same way, so that costs can be compared."""
    centers: MatchedCenters | None
    """None where the models' columns differ, or rows are embedded."""
    ledger: Ledger = field(repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        facts = {name: getattr(self, name) for name in ("ari", "unlabelled", "costs", "same_units")}
        kinds = {"counts_are": self.counts_are.value, "cost_is": self.cost_is.value}
        centers = None if self.centers is None else self.centers._asdict()
        sent = {name: self.ledger.total(name) for name in ("rounds", "bytes_up")}
        return {**facts, **kinds, "table": self.table.tolist(), "centers": centers, **sent}


def compare(model_a: Any, model_b: Any, tables: Any, **options: Any) -> Comparison:
    """How far two fitted models of clusters agree on the rows of ``tables``, by one sum over all sites.

    Each site labels its rows, or groups, under both models. ``tables`` are those of :func:`coterie.fit`,
    one for each site, and so are the ``options``: ``policy``, ``sums``, ``journal``, ``events``. Columns are found by
    name, and text is encoded by the models' columns.
    """
    comparer = ModelComparison(first=rule_of(model_a), second=rule_of(model_b))
    needed = comparer.columns()
    fit(comparer, _opened(tables, needed, (model_a, model_b)), columns=needed, **options)
    compared = comparer.compared_
    drops = "drop" in (getattr(model.preparation_, "missing", "") for model in (model_a, model_b))
    return Comparison(
        adjusted_rand(compared.rows),
        compared.rows,
        comparer.counts_are_,
        compared.unlabelled,
        compared.costs,
        cost_compares(comparer.counts_are_, CostIs.ESTIMATE if drops else CostIs.AT_MOST),
        same_units(model_a, model_b),
        matched_centers(model_a, model_b),
        comparer.ledger_,
    )


def _opened(tables: Any, needed: list[str], models: Sequence[Any]) -> dict[str, Any]:
    """Tables with the columns that the models need, read as for them; an array has them in the models' order."""
    na = {column: values for model in models for column, values in model.na_.items()}
    levels = [column for model in models for column in model.levels_]
    return {
        name: table
        if hasattr(table, "raw_blocks") or isinstance(table, np.ndarray)
        else table_alike(table, needed, na, levels)
        for name, table in named_tables(tables).items()
    }


def names_of_columns(model: Any) -> list[str]:
    """The columns a model was fitted on; as arrays have them, where they have no names."""
    names = getattr(model, "feature_names_in_", None)
    return [f"x{i}" for i in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def rule_of(model: Any) -> dict[str, Any]:
    """What labels a row by this model, as plain values; ``InputError`` where no site can."""
    kind, embedding = type(model).__name__, getattr(model, "embedding_", None)
    if not hasattr(model, "_prepared_centers"):
        raise InputError(f"{kind} is no fitted model of clusters of rows; fit one, or read one with load_model.")
    if embedding is not None and not isinstance(embedding, LandmarkMap):
        raise InputError(
            f"{kind} embeds rows by more than a few landmarks, which a question cannot hold; label the rows under "
            "both models (`coterie label`), and compare the labels."
        )
    columns = names_of_columns(model)
    return dict(
        plain(ClusterRule(columns, model.preparation_, embedding, np.asarray(model._prepared_centers, float)))
    )


def same_units(first: Any, second: Any) -> bool:
    """Whether both models prepare the same columns in the same way, and neither embeds rows."""
    names, others = names_of_columns(first), names_of_columns(second)
    if any(model.center_columns() is not None for model in (first, second)) or set(names) != set(others):
        return False
    order = [others.index(name) for name in names]
    return all(
        np.allclose(one, other[order], rtol=1e-6, atol=0)
        for one, other in zip(_scaling(first), _scaling(second), strict=True)
    )


def _scaling(model: Any) -> tuple[Floats, Floats]:
    """The scale of every column, and what is filled in where a value is missing, in that scale."""
    preparation = model.preparation_
    if preparation is None:
        return np.ones(model.n_features_in_), np.zeros(model.n_features_in_)
    is_filled = preparation.missing == "mean"
    return preparation.scale, preparation.fill if is_filled else np.zeros_like(preparation.scale)


def matched_centers(first: Any, second: Any) -> MatchedCenters | None:
    """Pairs of centers in original units, nearest in all by the first model's scale (the Hungarian method); None
    where the models are about other columns, or about embedded rows."""
    names, others = names_of_columns(first), names_of_columns(second)
    if any(model.center_columns() is not None for model in (first, second)) or set(names) != set(others):
        return None
    one, other = first.cluster_centers_, second.cluster_centers_[:, [others.index(name) for name in names]]
    scale = _scaling(first)[0]
    distances = np.sqrt((((one[:, None] - other) / scale) ** 2).sum(axis=2))
    rows, columns = (places.tolist() for places in linear_sum_assignment(distances))
    unmatched = ([i for i in range(len(one)) if i not in rows], [j for j in range(len(other)) if j not in columns])
    return MatchedCenters(
        list(zip(rows, columns, strict=True)),
        distances[rows, columns].tolist(),
        (other[columns] - one[rows]).tolist(),
        names,
        unmatched,
    )
