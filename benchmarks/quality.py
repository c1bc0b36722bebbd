"""How good clusters are: the reference cases, clustered by default, against the pooled rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks.cases import CASES, encoded, pooled_reference, true_cost
from benchmarks.measure import Line, Result, data_folder
from coterie.estimators.fitting import fit
from coterie.estimators.kmeans import FederatedKMeans
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable

Protection = Literal["groups", "none"]

BARS = {
    ("penguins", 3): 1.01,
    ("heart", 2): 1.008,
    ("heart", 4): 1.02,
    ("heart", 5): 1.02,
    ("heart-text", 4): 1.02,
    ("digits", 10): 1.012,
    ("wisdm", 5): 1.012,
    ("wisdm", 6): 1.02,
    ("mushrooms", 8): 1.01,
    ("air-quick", 8): 1.01,
    ("pjm", 8): 1.005,
    ("covtype", 7): 1.02,
    ("mnist", 10): 1.005,
}
"""By case and number of clusters: the most that clusters over groups may cost on the mean, for each of the pooled
best."""
WORST = 0.01
"""How much more the worst seed may cost."""
NO_GROUPS = (1.002, 1.005)
"""The mean and the worst over single rows, in every case."""
FEW_SEEDS = {"mnist": 3}


@lru_cache(maxsize=2)
def _tables(name: str) -> Mapping[str, ArrayTable]:
    """A case's tables; groups are formed once for each."""
    return {site: ArrayTable(table) for site, table in encoded(CASES[name]).items()}


def ratios(name: str, k: int, protection: Protection, n_seeds: int) -> npt.NDArray[np.float64]:
    """By seed, the cost of the final centers on all true rows for each of the pooled best."""
    case = CASES[name]
    assert case.scale != "mixed"  # declared by column, which an estimator cannot
    over_groups = protection == "groups"
    policy = Policy() if over_groups else Policy.simulation()
    sums: Literal["masked", "plain"] = "masked" if over_groups else "plain"
    limits = None if case.ranges is None else case.ranges()
    run = partial(fit, policy=policy, sums=sums, scale=case.scale, missing=case.missing, ranges=limits)
    costs = []
    for seed in range(n_seeds):
        made = run(FederatedKMeans(k, random_state=seed), _tables(name))
        costs.append(true_cost(case, made.cluster_centers_, units="raw"))
    return np.array(costs) / pooled_reference(case, k).cost


def quality_of(name: str, k: int, protection: Protection, n_seeds: int = 10) -> list[Line]:
    """The mean and the worst, with what they may be."""
    found = ratios(name, k, protection, n_seeds)
    mean, worst = (BARS[name, k], BARS[name, k] + WORST) if protection == "groups" else NO_GROUPS
    what = f"{name}, k = {k}, {'groups of 5' if protection == 'groups' else 'single rows'}"
    return [
        Line(f"{what}: mean of {n_seeds} seeds", float(found.mean()), "of pooled", limit=mean),
        Line(f"{what}: worst", float(found.max()), "of pooled", limit=worst),
    ]


def quality(protection: Protection) -> Result:
    """All reference cases, where the data are."""
    title = f"quality, protection = {protection!r}"
    if data_folder() is None:
        return Result(title, [], "skipped: there is no data folder (set COTERIE_DATA)")
    keys = [key for key in BARS if protection == "groups" or key[0] not in FEW_SEEDS]
    lines = [line for name, k in keys for line in quality_of(name, k, protection, FEW_SEEDS.get(name, 10))]
    return Result(title, lines, "coterie.fit; cost of the final centers on all true rows, scikit-learn n_init=20 = 1")


BENCHMARKS = {"quality": partial(quality, "groups"), "quality-rows": partial(quality, "none")}
