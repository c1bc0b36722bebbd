"""Landmark kernel k-means: beside pooled Nystroem and k-means, its memory, and how it grows."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from benchmarks.lloyd import _mnist
from benchmarks.measure import Line, Result, alternating, seconds
from coterie import FederatedKernelKMeans
from coterie.engines.inprocess import in_process
from coterie.maths.kernels import average_distance_gamma
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable

Rows = npt.NDArray[Any]
Tables = dict[str, ArrayTable]
SITES, M, K = 5, 50, 10


def _tables(rows: Rows, n_sites: int = SITES) -> Tables:
    parts = enumerate(np.array_split(rows, n_sites))
    return {f"site-{i}": ArrayTable(np.ascontiguousarray(part)) for i, part in parts}


def _run(tables: Tables, m: int = M, threads: int | None = None) -> list[Rows]:
    """A whole run, and every site's labels at the end of it."""
    estimator = FederatedKernelKMeans(K, n_landmarks=m, random_state=0)
    estimator.begin()
    d = len(next(iter(tables.values())).columns)
    with in_process(tables, threads=threads) as channel:
        result = run(estimator.protocol(estimator.context(d)), channel, method="landmarks")
    assert result.clusters is not None
    found, centers = result.embedding, result.clusters.centers
    labels = []
    for table in tables.values():
        for block in table.blocks():
            features = found.embed(block.rows)
            labels.append((features @ (-2 * centers.T) + (centers**2).sum(1)).argmin(1))
    return labels


def beside_nystroem() -> Result:
    """The whole run with labels against scikit-learn on pooled rows, gamma given to the latter; and its memory."""
    rows, name = _mnist()
    tables, gamma = _tables(rows), average_distance_gamma(len(rows), rows.sum(0, dtype=float), float((rows**2).sum()))

    def pooled() -> None:
        pipeline = make_pipeline(
            Nystroem(gamma=gamma, n_components=M, random_state=0), KMeans(K, n_init=1, random_state=0)
        )
        pipeline.fit_predict(rows)

    _run(tables)
    pooled()
    ratio = alternating(lambda: _run(tables), pooled)
    lines = [Line("time as a ratio to Nystroem + KMeans on the pooled rows", ratio, "x", 1.3)]
    with threadpool_limits(1):
        ratio = alternating(lambda: _run(tables, threads=1), pooled)
    lines.append(Line("the same, both on one thread", ratio, "x", 1.0, is_aim=True))
    tracemalloc.start()
    _run(tables)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    lines.append(Line("memory beyond the tables at its peak, all sites in one process", peak, "MB", 200))
    return Result(f"Landmark kernel k-means, {SITES} sites, {name}, k={K}, m={M}, two rounds of Lloyd", lines)


def growth() -> Result:
    """Seconds of a run, one thread, as powers of the number of rows, columns, landmarks and sites."""
    rng = np.random.default_rng(0)
    base = {"rows": 40_000, "columns": 128, "landmarks": 50, "sites": 5}

    def took(rows: int, columns: int, landmarks: int, sites: int) -> float:
        tables = _tables(rng.normal(size=(rows, columns)).astype(np.float32), sites)
        with threadpool_limits(1):
            return min(seconds(lambda: _run(tables, landmarks, threads=1)) for _ in range(3))

    lines = []
    for name in base:
        sizes = [base[name] * factor for factor in (1, 2, 4)]
        times = [took(**{**base, name: size}) for size in sizes]
        power = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
        lines.append(Line(f"time grows with the number of {name} to the power of", power, ""))
    return Result(f"Growth of landmark kernel k-means from {base}", lines)


BENCHMARKS = {"landmarks": beside_nystroem, "landmarks-growth": growth}
