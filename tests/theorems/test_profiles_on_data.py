"""Profiles on natural data: exact over rows; over groups near those of rows labelled as their groups are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks import cases

import coterie
from coterie.maths.clustering import nearest
from coterie.maths.quantiles import CLOSE, QUARTILES
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from coterie.sites.views import forming

CASES = cases.CASES
NAMES = ["heart", "penguins", "mushrooms", "wisdm", "pjm", "air-quick"]
MEANS = 0.05
"""How far means over groups are from those of the rows, in deviations of the column, on average."""
OWN_MEANS = {"heart": 0, "penguins": 2, "mushrooms": 12, "wisdm": 0, "pjm": 24, "air-quick": 0}
"""Of how many columns every group shows its own mean; of none where values are missing."""
SLOW = {"wisdm", "pjm", "air-quick", "mushrooms"}
every = pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in NAMES])


def fitted(case: cases.Case, policy: Policy, sums: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A run over the sites of a case, and their rows as they are."""
    columns = cases.prepared(case).columns
    raw = {site: cases._encoded(case, table).astype(float) for site, table in case.load().items()}
    tables = {site: ArrayTable(rows, columns=columns, name=site) for site, rows in raw.items()}
    scale: Any = "standard" if case.scale == "standard" else "none"
    estimator = coterie.FederatedKMeans(case.ks[-1], random_state=0)
    how = {"policy": policy, "sums": sums, "scale": scale, "missing": case.missing, "profile": True}
    return coterie.fit(estimator, tables, **how), raw


def of_rows(rows: np.ndarray, labels: np.ndarray, k: int, function: Any) -> np.ndarray:
    """By cluster and column a function of the values that are present."""
    parts = [rows[labels == i] for i in range(k)]
    return np.array(
        [[function(x[~np.isnan(x)]) if (~np.isnan(x)).any() else np.nan for x in part.T] for part in parts]
    )


@pytest.mark.data
@every
def test_over_rows_profiles_are_the_pooled_ones(name: str, data_folder: Any) -> None:
    case = CASES[name]
    model, raw = fitted(case, Policy.simulation(), "plain")
    rows, profile = np.concatenate(list(raw.values())), model.profiles_
    labels, k = model.label_rows(rows), len(profile.rows)
    unit = np.maximum(np.nanstd(rows, axis=0), 1e-300)
    means, deviations = of_rows(rows, labels, k, np.mean), of_rows(rows, labels, k, np.std)
    assert np.nanmax(np.abs(profile.means - means) / unit) < 1e-9
    for place, level in enumerate(QUARTILES):
        truth = of_rows(rows, labels, k, lambda x, level=level: np.quantile(x, level))
        away = np.abs(profile.quartiles[..., place] - truth)
        assert (away <= CLOSE * (1 + 1e-6) * deviations + 1e-9 * unit)[~np.isnan(away)].all()


@pytest.mark.data
@every
def test_over_groups_means_are_near_those_of_the_rows(name: str, data_folder: Any, monkeypatch: Any) -> None:
    """A row has the label of its group: this is what clusters of groups are made of. Columns of which every group
    shows its own mean are exact. Where a site pools cells that would show few values, single means may be far off.
    """
    case, groups, is_own = CASES[name], [], []
    made = forming.group_cells

    def remembered(rows: Any, labels: Any, *options: Any, **more: Any) -> Any:
        cells = made(rows, labels, *options, **more)
        means = np.stack([np.bincount(labels, column) for column in rows.T], axis=1) / cells.sizes[:, None]
        groups.append((labels, cells.means))
        is_own.append(~np.isnan(rows).any() & np.isclose(cells.means, means, rtol=1e-12, atol=1e-12).all(axis=0))
        return cells

    monkeypatch.setattr(forming, "group_cells", remembered)
    model, raw = fitted(case, Policy(), "masked")
    profile, parts = model.profiles_, []
    for of_row, shown in groups:
        prepared = shown if model.preparation_ is None else model.prepared_rows(shown)
        parts.append(nearest(prepared, model._prepared_centers)[0][of_row])
    labels, rows = np.concatenate(parts), np.concatenate(list(raw.values()))
    truth = of_rows(rows, labels, len(profile.rows), np.mean)
    unit = np.where(np.nanstd(rows, axis=0) > 0, np.nanstd(rows, axis=0), 1.0)
    away, own = np.abs(profile.means - truth) / unit, np.all(is_own, axis=0)
    assert profile.over_groups
    assert np.nanmean(away) < MEANS
    assert np.nanmax(away[:, own], initial=0.0) < 1e-9
    assert own.sum() == OWN_MEANS[name]
