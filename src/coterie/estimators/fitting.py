"""Fit any estimator over tables that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.engines.inprocess import Schedule, in_process
from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator
from coterie.messages.site_part import Column, Table
from coterie.messages.verbs import Protocol
from coterie.protocols.agreement import agree
from coterie.protocols.limits import find_limits, within
from coterie.protocols.preparation import prepare
from coterie.protocols.prepared import Missing, Preparation
from coterie.runtime.journal import Journal
from coterie.runtime.layers import PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import Progress, run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import BLOCK_BYTES, open_table

__all__ = ["fit"]

E = TypeVar("E", bound=FederatedEstimator)


def fit(
    estimator: E,
    tables: Mapping[str, Any],
    *,
    engine: Literal["inprocess"] = "inprocess",
    policy: Policy | Mapping[str, Policy] | None = None,
    sums: Literal["masked", "plain"] = "masked",
    journal: str | Path | None = None,
    resume: bool = False,
    scale: Literal["none", "standard", "minmax"] = "none",
    missing: Missing = "refuse",
    ranges: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    terms: Terms | None = None,
    watch: Callable[[Progress], None] | None = None,
    schedule: Schedule | None = None,
) -> E:
    """Fit an estimator over one table a site and return it.

    ``tables`` maps each site's name to a table, an array, a data frame or a file. Sites first agree on their columns
    (the first table's), then prepare them as ``scale`` and ``missing`` say, all by questions; the fitted estimator
    knows how, and takes raw rows. Sums are masked and every site guards its rows by ``policy``, the default one where
    none is given; ``sums="plain", policy=Policy.simulation()`` plays one owner of all tables. With ``journal`` a
    folder keeps what is needed to go on after a crash: ``resume=True`` then continues.
    """
    if engine != "inprocess":
        raise InputError(f"engine={engine!r} is not known; there is 'inprocess'.")
    if not tables:
        raise InputError("there is no table; at least one site is needed.")
    opened: dict[str, Table] = {
        str(name): table if hasattr(table, "raw_blocks") else open_table(table, name=str(name))
        for name, table in tables.items()
    }
    if sums not in ("masked", "plain"):
        raise InputError(f"sums={sums!r} is neither 'masked' nor 'plain'.")
    rules = {name: (policy.get(name) if isinstance(policy, Mapping) else policy) or Policy() for name in opened}
    if estimator.sends_rows:
        _check_rows_allowed(estimator, rules)
    masked = sums == "masked"
    if masked:
        _check_roster(rules)
    columns = next(iter(opened.values())).columns
    estimator.check(len(columns))
    folder = None if journal is None else Path(journal)
    kept = None if folder is None else Journal(folder, resume=resume)
    estimator.begin(None if kept is None or kept.header is None else kept.header.settings.get("parameters"))
    ledger = Ledger()
    with in_process(opened, policy=rules, folder=folder and folder / "sites", schedule=schedule) as channel:
        preparation, result = run(
            _prepared(estimator, columns, scale, missing, ranges, masked),
            channel,
            method=estimator.method_name,
            terms=terms,
            layers=[MaskedSums()] if masked else [PlainSums()],
            ledger=ledger,
            journal=kept,
            settings={**_settings(estimator, columns, scale, missing, ranges), "sums": sums},
            watch=watch,
        )
    estimator.n_features_in_ = len(columns)
    if all(isinstance(column.name, str) for column in columns):
        estimator.feature_names_in_ = np.array([column.name for column in columns], dtype=object)
    estimator.settle(result, preparation, ledger)
    return estimator


def _prepared(
    estimator: FederatedEstimator,
    columns: tuple[Column, ...],
    scale: Literal["none", "standard", "minmax"],
    missing: Missing,
    ranges: tuple[npt.ArrayLike, npt.ArrayLike] | None,
    measured: bool,
) -> Protocol[tuple[Preparation, Any]]:
    """Agreement, preparation and the estimator's own protocol; ``measured`` finds the limits masked sums need."""
    yield from agree(columns)
    names, d = [column.name for column in columns], len(columns)
    preparation = yield from prepare(d, scale=scale, missing=missing, ranges=ranges, names=names, measured=measured)
    fitting = estimator.protocol(d, preparation.spread, measured=measured)
    if not measured:
        return preparation, (yield from fitting)
    limits = yield from find_limits(d, at_least=estimator.reach())
    return preparation, (yield from within(limits, fitting))


def _check_rows_allowed(estimator: FederatedEstimator, rules: Mapping[str, Policy]) -> None:
    """Say before anything is sent what a site would say to a question for rows."""
    against = [name for name, policy in rules.items() if policy.single_answers != "rows"]
    if against:
        names = ", ".join(against[:3]) + (", ..." if len(against) > 3 else "")
        raise InputError(
            f"{estimator.method_name} sends rows, projected or not; the policy of {names} does not allow it "
            '(single_answers = "rows" would). Methods that send averages or sums alone: see coterie methods.'
        )


def _check_roster(rules: Mapping[str, Policy]) -> None:
    """Say before anything is sent what the sites would say to a sum over too few of them."""
    smallest = max(policy.min_roster for policy in rules.values())
    if len(rules) < smallest:
        raise InputError(
            f"there are {len(rules)} sites; by their policy no sum is over fewer than {smallest} (min_roster). "
            "If all tables are one owner's, use sums='plain' and policy=Policy.simulation()."
        )


def _settings(
    estimator: FederatedEstimator, columns: tuple[Column, ...], scale: str, missing: str, ranges: Any
) -> dict[str, Any]:
    """What decides the questions of a run: kept in its journal, and the same when it is resumed."""
    return {
        "estimator": type(estimator).__name__,
        "parameters": estimator.settings(),
        "columns": [column.name for column in columns],
        "scale": scale,
        "missing": missing,
        "ranges": None if ranges is None else [np.asarray(r, float).tolist() for r in ranges],
        "block_bytes": BLOCK_BYTES,
    }
