"""k-means from small summaries and federated PCA: how time at the source grows, and beside what it replaces."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA as PooledPCA
from threadpoolctl import threadpool_limits

from benchmarks.lloyd import _mnist
from benchmarks.masking import Clocked
from benchmarks.measure import Grid, Line, Result, alternating
from coterie import EdgeKMeans, FederatedPCA
from coterie.engines.inprocess import in_process
from coterie.methods.edge.stages import JL, PCA, DisPCA, DisSS, Sample, Stage
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable

Rows = npt.NDArray[Any]
Stages = Sequence[Stage]
Tables = dict[str, ArrayTable]
SITES, K, COMPONENTS = 5, 10, 20
FORMS = ("gaussian", "sparse")

FSS: Stages = (PCA(COMPONENTS), Sample(500))
BKLW: Stages = (DisPCA(COMPONENTS, COMPONENTS), DisSS(500))
PROJECTED: Mapping[str, Stages] = {
    "jl+fss": (JL(64), *FSS),
    "jl+fss+jl": (JL(64), *FSS, JL(32)),
    "jl+bklw": (JL(64), *BKLW),
}


def growth() -> Result:
    """CPU seconds at one source as powers of its rows and of its columns, the summary's sizes held fixed."""
    largest = _clustered(320_000, 400)
    by_rows = {n: largest[:n] for n in (40_000, 80_000, 160_000, 320_000)}
    result = Result(
        f"Time at the source, one site, one thread, float32, k={K}", remark="CPU seconds of a site's answers"
    )
    _add_growth(result, "rows", by_rows, "400 columns")
    del largest, by_rows
    by_columns = {d: _clustered(20_000, d) for d in (800, 1600, 3200, 6400)}
    _add_growth(result, "columns", by_columns, "20,000 rows")
    return result


def beside_unprojected() -> Result:
    """CPU seconds at the sources with a projection first against those without, and sparse ones against gaussian."""
    rows, name = _mnist()
    pairs: dict[str, tuple[Stages, Stages]] = {
        "jl+fss / fss": (PROJECTED["jl+fss"], FSS),
        "jl+bklw / bklw": (PROJECTED["jl+bklw"], BKLW),
        **{f"{one}, sparse / gaussian": (_formed(stages, "sparse"), stages) for one, stages in PROJECTED.items()},
    }
    lines = []
    for what, (first, second) in pairs.items():
        ratio = _ratio(partial(_source_seconds, first, rows), partial(_source_seconds, second, rows))
        lines.append(Line(what, ratio, "x"))
    return Result(f"CPU seconds at the sources in all, {SITES} sites, {name}, k={K}", lines)


def beside_pooled_pca() -> Result:
    """Whole runs of federated PCA against scikit-learn's on the pooled rows."""
    rows, name = _mnist()
    tables = _tables(rows)

    def pooled() -> None:
        PooledPCA(COMPONENTS).fit(rows)

    lines = []
    for solver in ("local", "sums"):
        _components(tables, solver)  # once to warm up
        pooled()
        ratio = alternating(partial(_components, tables, solver), pooled)
        lines.append(Line(f"solver={solver!r}, time as a ratio to scikit-learn's PCA on the pooled rows", ratio, "x"))
        with threadpool_limits(1):
            ratio = alternating(partial(_components, tables, solver, threads=1), pooled)
        lines.append(Line("the same, both on one thread", ratio, "x"))
    return Result(f"Federated PCA, {SITES} sites, {name}, {COMPONENTS} components", lines)


def _add_growth(result: Result, what: str, sizes: Mapping[int, Rows], held: str, rounds: int = 3) -> None:
    """The power of each pipeline with both forms of projection, and the seconds it is fitted to."""
    ways = {f"{name}, {form}": _formed(stages, form) for name, stages in PROJECTED.items() for form in FORMS}
    best = {way: dict.fromkeys(sizes, np.inf) for way in ways}
    for _ in range(rounds):  # all sizes in turn, so that a noisy machine disturbs all of them alike
        for size, rows in sizes.items():
            for way, stages in ways.items():
                best[way][size] = min(best[way][size], _source_seconds(stages, rows, n_sites=1))
    grid = Grid(
        f"CPU seconds at the source by number of {what}, {held}, the least of {rounds}",
        ("", *(f"{n:,}" for n in sizes)),
    )
    for way, found in best.items():
        times = list(found.values())
        power = float(np.polyfit(np.log(list(sizes)), np.log(times), 1)[0])
        result.lines.append(Line(f"{way}: in {what}, to the power of", power, "", 1.15))
        grid.rows.append((way, *(f"{took:.3f}" for took in times)))
    result.grids.append(grid)


def _formed(stages: Stages, form: str) -> Stages:
    """The same stages with random projections of another form."""
    return tuple(replace(stage, form=form) if isinstance(stage, JL) else stage for stage in stages)


def _clustered(n: int, d: int) -> Rows:
    rng = np.random.default_rng(0)
    middles = rng.standard_normal((K, d), dtype=np.float32)
    rows = rng.standard_normal((n, d), dtype=np.float32)
    for start in range(0, n, 10_000):
        part = rows[start : start + 10_000]
        part += middles[rng.integers(0, K, len(part))]
    return rows


def _tables(rows: Rows, n_sites: int = SITES) -> Tables:
    return {f"site-{i}": ArrayTable(part) for i, part in enumerate(np.array_split(rows, n_sites))}


def _source_seconds(stages: Stages, rows: Rows, n_sites: int = SITES) -> float:
    """CPU seconds of the sites' answers in one run, all together; the server's part is not in it."""
    estimator = EdgeKMeans(K, pipeline=stages, random_state=0)
    estimator.begin()
    with threadpool_limits(1), in_process(_tables(rows, n_sites), threads=1) as channel:
        clocked = Clocked(channel)
        run(estimator.protocol(estimator.context(rows.shape[1])), clocked, method=estimator.method)
    return sum(sum(spent.values()) for spent in clocked.spent)


def _components(tables: Tables, solver: str, threads: int | None = None) -> None:
    estimator = FederatedPCA(COMPONENTS, solver=solver, random_state=0)
    estimator.begin()
    d = len(next(iter(tables.values())).columns)
    with in_process(tables, threads=threads) as channel:
        run(estimator.protocol(estimator.context(d)), channel, method=estimator.method)


def _ratio(first: Callable[[], float], second: Callable[[], float], repeats: int = 5) -> float:
    """Median of first/second, each pair one after the other; both say themselves how long they took."""
    return statistics.median(first() / second() for _ in range(repeats))


BENCHMARKS = {"edge-growth": growth, "edge": beside_unprojected, "edge-pca": beside_pooled_pca}
