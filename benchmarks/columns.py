"""Kernel PCA of columns split between sites: growth with the rows, memory, and beside scikit-learn's on the whole."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import KernelPCA
from threadpoolctl import threadpool_limits

from benchmarks.lloyd import _mnist
from benchmarks.measure import Grid, Line, Result, seconds
from coterie import VerticalKernelPCA
from coterie_studies.vertical_kernel_pca import timed_fit

Rows = npt.NDArray[Any]
SITES, COMPONENTS, RANK, WIDTH = 10, 20, 50, 100
GAMMA = 1e-3
LARGE = 20_000


def rows_of(n: int) -> Rows:
    """Rows around a dozen middles, in columns that are shared out in tens."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=(12, WIDTH))[rng.integers(0, 12, n)] * 2 + rng.normal(size=(n, WIDTH))).astype(np.float32)


def fitted(rows: Rows) -> VerticalKernelPCA:
    """Twenty components from fifty eigenpairs of each of ten sites."""
    columns = [list(own) for own in np.array_split(np.arange(WIDTH), SITES)]
    return VerticalKernelPCA(COMPONENTS, gamma=GAMMA, local_rank=RANK, random_state=0).fit(rows, columns=columns)


def _seconds(rows: Rows) -> tuple[float, float]:
    """Of all sites one after the other and the center, and with the sites at work at once."""
    made = VerticalKernelPCA(COMPONENTS, gamma=GAMMA, local_rank=RANK, random_state=0)
    return timed_fit(made, rows.astype(np.float64), [list(own) for own in np.array_split(np.arange(WIDTH), SITES)])


def _seconds_of(n: int) -> float:
    rows = rows_of(n)
    return seconds(lambda: fitted(rows))


def growth() -> Result:
    """Seconds of sites and center together, on one thread."""
    sizes = (2_500, 5_000, 10_000)
    with threadpool_limits(1):
        taken = {n: _seconds_of(n) for n in sizes}
    power = float(np.polyfit(np.log(sizes), np.log(list(taken.values())), 1)[0])
    grid = Grid("Seconds by number of rows, sites one after the other", ("", *(f"{n:,}" for n in sizes)))
    grid.rows.append(("sites and center", *(f"{took:.1f}" for took in taken.values())))
    title = f"Kernel PCA of columns: {SITES} sites, {RANK} eigenpairs each, {COMPONENTS} components"
    return Result(title, [Line("time as a power of the rows", power, "", 2.4)], grids=[grid])


def beside_scikit_learn() -> Result:
    """Against KernelPCA with its randomized solver on all columns, which writes the whole matrix down."""
    lines = []
    for n in (3_000, 6_000):
        rows = rows_of(n)

        def pooled(rows: Rows = rows) -> None:
            KernelPCA(COMPONENTS, kernel="rbf", gamma=GAMMA, eigen_solver="randomized", random_state=0).fit(rows)

        with threadpool_limits(1):
            pairs = [(_seconds(rows), seconds(pooled)) for _ in range(3)]
        for i, who in enumerate(("all sites one after the other and the center", "a site and the center")):
            ratio = statistics.median(ours[i] / theirs for ours, theirs in pairs)
            lines.append(Line(f"{n:,} rows: {who}, as a ratio to scikit-learn", ratio, "x"))
    return Result("Kernel PCA of columns beside KernelPCA(eigen_solver='randomized') on the whole, one thread", lines)


def memory() -> Result:
    """The peak of one process that plays all sites and the center."""
    found = subprocess.run([sys.executable, "-m", "benchmarks.columns"], capture_output=True, text=True, check=True)
    peak, took = (float(text) for text in found.stdout.split())
    whole = LARGE**2 * 8 / 1e9
    lines = [Line("peak memory of sites and center together", peak, "GB", 2.5), Line("time", took, "s")]
    remark = f"a matrix of all pairs alone would be {whole:.1f} GB"
    return Result(f"{LARGE:,} rows, {SITES} sites, {RANK} eigenpairs each, {COMPONENTS} components", lines, remark)


def ranks() -> Result:
    """How near 1,000 rows of MNIST in seven blocks of columns come to the exact components."""
    rows, name = _mnist()
    rows = rows[np.random.default_rng(0).choice(len(rows), 1000, replace=False)].astype(np.float64)
    columns = [list(own) for own in np.array_split(np.arange(rows.shape[1]), 7)]
    lines: list[Line] = []
    grid = Grid(f"1,000 rows of {name}, 7 sites, 10 components", ("", "eigenpairs", "numbers", "sin-theta"))
    settings: tuple[dict[str, Any], ...] = (
        {"local_rank": 20},
        {"local_rank": 50},
        {"local_rank": 100},
        {"tolerance": 0.01},
        {"tolerance": 0.003},
    )
    for options in settings:
        with threadpool_limits(1):
            model = VerticalKernelPCA(10, random_state=0, **options).fit(rows, columns=columns)
            exact = KernelPCA(10, kernel="rbf", gamma=model.gamma_).fit(rows)
        sent = sorted(model.local_ranks_.values())
        told = ", ".join(f"{key}={value}" for key, value in options.items())
        found = model.sin_theta(exact)
        limit = {20: 0.05, 100: 0.005}.get(options.get("local_rank", 0))
        lines.append(Line(f"sin-theta to the exact components, {told}", found, "", limit))
        numbers = f"{model.ledger_.total('floats_up'):,}"
        grid.rows.append((told, f"{sent[0]} to {sent[-1]}", numbers, f"{found:.4f}"))
    return Result("Eigenpairs and what they are worth", lines, grids=[grid])


BENCHMARKS = {
    "columns-ranks": ranks,
    "columns-growth": growth,
    "columns": beside_scikit_learn,
    "columns-memory": memory,
}

if __name__ == "__main__":
    took = seconds(lambda: fitted(rows_of(LARGE)))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, took)
