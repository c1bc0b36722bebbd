"""What groups cost: forming them against scikit-learn's k-means of the same rows, and a run over them against one
over rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks.measure import Line, Result, seconds
from coterie.engines.inprocess import in_process
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


BENCHMARKS = {"grouping": forming, "groups": running}
