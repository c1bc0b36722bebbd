"""Federated Lloyd: beside scikit-learn, around its mathematics, and beyond memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans

from benchmarks.measure import Line, Result, alternating, data_folder, seconds
from coterie.engines.inprocess import in_process
from coterie.methods.shared.lloyd import lloyd
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable

Rows = npt.NDArray[Any]


def _mnist() -> tuple[Rows, str]:
    folder = data_folder()
    if folder is not None:
        return np.load(folder / "mnist.npz")["X"].astype(np.float32) / 255, "MNIST 60000 x 784 float32"
    rng = np.random.default_rng(0)
    rows = rng.random((60000, 784), dtype=np.float32)
    return rows, "random 60000 x 784 float32 (no data folder: set COTERIE_DATA for MNIST)"


def beside_scikit_learn() -> Result:
    """Ten in-process sites against one pooled KMeans, same start, same number of rounds."""
    rows, name = _mnist()
    start = rows[np.random.default_rng(0).choice(len(rows), 10, replace=False)].astype(float)
    tables = {f"site-{m}": ArrayTable(part) for m, part in enumerate(np.array_split(rows, 10))}

    def federated() -> None:
        with in_process(tables) as channel:
            run(lloyd(start, max_rounds=10, tol=-1.0), channel, method="lloyd")

    def pooled() -> None:
        KMeans(10, init=start, n_init=1, max_iter=10, algorithm="lloyd").fit(rows)

    federated()  # once to warm up
    pooled()
    ratio = alternating(federated, pooled)
    return Result(
        f"Federated Lloyd, 10 sites, {name}, k=10, 10 rounds",
        [Line("time as a ratio to scikit-learn's KMeans on the pooled rows", ratio, "x", 1.3)],
    )


def around_the_mathematics() -> Result:
    """What a round costs besides the sites' own mathematics: coding, checking, counting, summing."""
    lines = []
    for n_sites, aim in ((5, 1.0), (100, 5.0), (1000, 50.0)):
        rng = np.random.default_rng(0)
        tables = {f"site-{m}": ArrayTable(rng.normal(size=(50, 20))) for m in range(n_sites)}
        rounds = max(20, 2000 // n_sites)
        with in_process(tables, threads=1) as channel:
            protocol = lloyd(rng.normal(size=(10, 20)), max_rounds=rounds - 1, tol=-1.0)
            whole = seconds(partial(run, protocol, channel, method="lloyd"))
            inside = sum(site.compute_seconds for site in channel.members.values())
        lines.append(Line(f"{n_sites} sites", (whole - inside) / rounds * 1e3, "ms a round", aim, is_aim=True))
    return Result("Time outside site mathematics (k=10, d=20)", lines)


def beyond_memory(n_rows: int = 10_000_000) -> Result:
    """A streamed Parquet table clustered in a process of its own; its peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.parquet"
        _write_large(path, n_rows)
        told = subprocess.run(
            [sys.executable, "-c", _CLUSTER_LARGE, str(path)], capture_output=True, text=True, check=True
        )
        size = path.stat().st_size
    found = json.loads(told.stdout)
    return Result(
        f"A streamed Parquet table, {n_rows:,} x 20 float32 ({size / 1e6:.0f} MB on disk), k=8, 5 rounds",
        [
            Line("peak memory of the whole process", found["peak_mb"], "MB", 600),
            Line("seconds a pass over the table", found["seconds"] / 6, "s"),
        ],
        f"cost a row {found['cost'] / n_rows:.3f}",
    )


_CLUSTER_LARGE = textwrap.dedent(
    """
    import json, sys, time
    from pathlib import Path
    import numpy as np
    from coterie.engines.inprocess import in_process
    from coterie.methods.shared.lloyd import lloyd
    from coterie.runtime.run import run
    from coterie.sites.tables import open_table
    began = time.perf_counter()
    with in_process({"large": open_table(Path(sys.argv[1]))}) as channel:
        start = np.random.default_rng(1).normal(size=(8, 20)) * 3
        fit = run(lloyd(start, max_rounds=5, tol=-1.0), channel, method="lloyd")
    status = Path("/proc/self/status").read_text()  # unlike getrusage, this forgets what the parent held
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    print(json.dumps({"peak_mb": peak, "cost": fit.cost, "seconds": time.perf_counter() - began}))
    """
)


def _write_large(path: Path, n_rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    middles = rng.normal(size=(8, 20)).astype(np.float32) * 4
    schema = pa.schema([(f"x{i}", pa.float32()) for i in range(20)])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, n_rows, 500_000):
            n = min(500_000, n_rows - start)
            rows = rng.standard_normal((n, 20), dtype=np.float32) + middles[rng.integers(0, 8, n)]
            writer.write_table(pa.table([rows[:, i] for i in range(20)], schema=schema))


BENCHMARKS = {"lloyd": beside_scikit_learn, "overhead": around_the_mathematics, "streaming": beyond_memory}
