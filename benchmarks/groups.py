"""What groups cost: forming them against scikit-learn's k-means of the same rows, and a run over them against one
over rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks.cases import CASES, pooled_reference, true_cost
from benchmarks.measure import Line, Result, data_folder, seconds
from coterie.engines.inprocess import in_process
from coterie.estimators.fitting import fit
from coterie.estimators.kmeans import FederatedKMeans
from coterie.runtime.run import run
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from coterie.sites.views import grouped_view

__all__ = ["BENCHMARKS"]

Rows = npt.NDArray[np.float64]


def _blobs() -> Rows:
    rng = np.random.default_rng(0)
    return rng.normal(size=(50, 20))[rng.integers(0, 50, 1_000_000)] * 3 + rng.normal(size=(1_000_000, 20))


def _images() -> Rows:
    rng = np.random.default_rng(1)
    patterns = rng.random((30, 784)) * (rng.random((30, 784)) < 0.2)
    rows = patterns[rng.integers(0, 30, 65_536)] + 0.2 * rng.random((65_536, 784)) * (rng.random((65_536, 784)) < 0.2)
    return np.clip(rows, 0, 1)


def forming() -> Result:
    """Seconds to form groups of at least five rows, for each second of KMeans(10, n_init=1, max_iter=20)."""
    lines = []
    for name, made in (("1,000,000 x 20", _blobs), ("65,536 x 784", _images)):
        rows = made()
        with threadpool_limits(1):
            pooled = seconds(partial(KMeans(10, n_init=1, max_iter=20, random_state=0).fit, rows))
            ours = seconds(partial(grouped_view, ArrayTable(rows), 5, SiteLedger()))
        lines.append(Line(f"{name}: forming groups, once", ours / pooled, "of k-means", limit=12.0))
    return Result("groups: forming them", lines, "one thread each, in one run")


def running() -> Result:
    """Site time of federated k-means over groups, for each second over rows."""
    rows, rng = _images()[:20_000], np.random.default_rng(0)
    tables = {f"site-{i}": ArrayTable(rows[i::5]) for i in range(5)}
    start = rows[rng.choice(len(rows), 10, replace=False)]
    spent = {}
    for name, policy in (
        ("rows", Policy.simulation()),
        ("groups", Policy(per_site_results="averages", min_roster=1)),
    ):
        with in_process(tables, policy=policy, threads=1) as channel:
            made = FederatedKMeans(10, init=start, max_rounds=10, tol=0.0, random_state=0)
            made.begin()
            run(made.protocol(made.context(rows.shape[1])), channel, method="federated-kmeans")
            spent[name] = sum(site.compute_seconds for site in channel.members.values())
    line = Line(
        "20,000 x 784, ten rounds: site time over groups", spent["groups"] / spent["rows"], "of rows", limit=0.5
    )
    return Result("groups: computing with them", [line], "after they were formed")


BARS = {
    ("heart", 2): 1.008,
    ("heart", 5): 1.02,
    ("digits", 10): 1.012,
    ("wisdm", 5): 1.012,
    ("mushrooms", 8): 1.01,
    ("air-quick", 8): 1.01,
    ("pjm", 8): 1.005,
    ("penguins", 3): 1.01,
    ("mnist", 10): 1.005,
}
"""By case and number of clusters: the most that clusters over groups may cost, for each of the pooled best."""


def quality_of(name: str, k: int, n_seeds: int = 10) -> Line:
    """The cost of the final centers on all true rows under the default policy, the mean over seeds."""
    case = CASES[name]
    assert case.scale != "mixed"  # declared by column, which an estimator cannot
    tables = {site: ArrayTable(table.rows) for site, table in case.load().items()}
    best, ratios = pooled_reference(case, k).cost, []
    for seed in range(n_seeds):
        made = fit(FederatedKMeans(k, random_state=seed), tables, scale=case.scale, missing=case.missing)
        ratios.append(true_cost(case, made.cluster_centers_, units="raw") / best)
    return Line(f"{name}, k = {k}: cost over groups", float(np.mean(ratios)), "of pooled", limit=BARS[name, k])


def quality() -> Result:
    """All reference cases, where the data are."""
    if data_folder() is None:
        return Result("groups: quality", [], "skipped: there is no data folder (set COTERIE_DATA)")
    return Result("groups: quality", [quality_of(*key, 3 if key[0] == "mnist" else 10) for key in BARS])


BENCHMARKS = {"grouping": forming, "groups": running, "groups-quality": quality}
