"""Components of new rows, columns of which are at several sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from coterie.engines.inprocess import Schedule, in_process
from coterie.errors import InputError
from coterie.estimators.fitting import (
    check_alignment,
    check_roster,
    check_rows_allowed,
    column_names,
    layers_of,
    opened_tables,
    rules_of,
)
from coterie.estimators.vertical import VerticalEstimator
from coterie.messages.site_api import Table
from coterie.methods.vertical.kernel_pca import project
from coterie.runtime.run import Progress, run
from coterie.runtime.terms import Terms
from coterie.sites.policy import Policy
from coterie.sites.tables import PairedTable


class Projected(NamedTuple):
    """Components of new rows, and the rows' tags where they were matched by a key."""

    components: npt.NDArray[np.float64]
    tags: npt.NDArray[np.uint64] | None


def transform(
    estimator: VerticalEstimator,
    tables: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    policy: Policy | Mapping[str, Policy] | None = None,
    sums: Literal["masked", "plain"] = "masked",
    key: str | None = None,
    terms: Terms | None = None,
    watch: Callable[[Progress], None] | None = None,
    schedule: Schedule | None = None,
) -> Projected:
    """The components of sites' ``new`` rows, as those of ``tables``, which the estimator was fitted on.

    Distances of new rows from the others (rbf) or their products with the components (linear) are summed over the
    sites, masked unless ``sums="plain"``. Counted in the estimator's ledger. Options as for :func:`coterie.fit`.
    """
    if not isinstance(estimator, VerticalEstimator):
        raise InputError(f"{type(estimator).__name__} embeds rows itself; call estimator.transform(rows).")
    check_is_fitted(estimator)
    layers = layers_of(sums)
    fitted, later = opened_tables(tables, key), opened_tables(new, key)
    sites = set(estimator.local_ranks_)
    if set(fitted) != sites or set(later) != sites:
        raise InputError(f"tables and new need an entry for every site: {', '.join(sorted(sites))}.")
    _check_columns(estimator, fitted)
    rules = rules_of(policy, fitted)
    check_rows_allowed(estimator, rules)
    check_alignment(fitted, rules)
    if sums == "masked":
        check_roster(rules)
    paired = {name: PairedTable(table, later[name]) for name, table in fitted.items()}
    with in_process(paired, policy=rules, schedule=schedule) as channel:
        projected = run(
            project(estimator.result_),
            channel,
            method=estimator.method,
            terms=terms,
            layers=layers,
            ledger=estimator.ledger_,
            watch=watch,
        )
    return Projected(*projected)


def _check_columns(estimator: VerticalEstimator, tables: Mapping[str, Table]) -> None:
    """The tables' columns are those of the fit, where it knows them by site."""
    then = [str(name) for name in getattr(estimator, "feature_names_in_", ())]
    for site, table in tables.items():
        now = column_names(estimator, {site: table.columns})
        kept = [name for name in then if name in set(now)]
        if estimator._parts is None and kept != now:
            apart = next((name for name in now if name not in then), "their order")
            raise InputError(f"the tables do not have the columns the components were found from: {apart} at {site}.")
    if estimator._parts is None and sum(len(table.columns) for table in tables.values()) != len(then):
        raise InputError(f"the tables do not have the {len(then)} columns the components were found from.")
