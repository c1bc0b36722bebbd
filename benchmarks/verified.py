"""Verified runs beside the same runs without verification: bytes up and down, CPU of everything in one process."""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import numpy as np

import coterie
from benchmarks.measure import Grid, Line, Result
from coterie import FederatedKMeans
from coterie.sites.policy import Policy

SITES, ROWS, ROUNDS = 5, 4_000, 20
SHAPES = ((3, 64), (15, 64), (100, 200))
"""Clusters and columns: sums of some 200, 1,000 and 20,100 numbers."""
REPEATS = 3
UP, DOWN, CPU = 1.15, 1.1, 1.3


class _Cost(NamedTuple):
    up: int
    down: int
    cpu: float


def verified() -> Result:
    """Lloyd's algorithm over five sites, from given centers, for a fixed number of rounds."""
    result = Result("Verified runs, over the same runs without verification", remark=f"{SITES} sites in one process")
    grid = Grid("Lloyd's algorithm, verified / not", ("clusters", "columns", "bytes up", "bytes down", "CPU"))
    for k, d in SHAPES:
        rows = np.random.default_rng(d).normal(size=(ROWS, d)) + 4 * np.eye(d)[np.arange(ROWS) % k % d]
        pairs = [(_run(rows, k, "required"), _run(rows, k, "off")) for _ in range(REPEATS)]
        ratios = [statistics.median(a[i] / b[i] for a, b in pairs) for i in range(3)]
        for what, ratio, limit in zip(("bytes up", "bytes down", "CPU"), ratios, (UP, DOWN, CPU), strict=True):
            result.lines.append(Line(f"{k} x {d}: {what}", ratio, "x", limit, is_aim=what == "CPU"))
        one, other = pairs[-1]
        grid.rows.append(
            (str(k), str(d), *(f"{a:,} / {b:,}" for a, b in zip(one[:2], other[:2], strict=True)), f"{ratios[2]:.2f}")
        )
    result.grids.append(grid)
    return result


def _run(rows: np.ndarray, k: int, verification: str) -> _Cost:
    """One run over sites that hold every n-th row."""
    tables = {f"site-{i}": rows[i::SITES] for i in range(SITES)}
    model = FederatedKMeans(k, init=rows[:k] + 0.5, max_rounds=ROUNDS, tol=0.0, random_state=0)
    policy = Policy(verification="required" if verification == "required" else "off")
    began = time.process_time()
    fitted = coterie.fit(model, tables, policy=policy)
    spent = time.process_time() - began
    counts = [count for exchange in fitted.ledger_.exchanges for count in exchange.sites.values()]
    return _Cost(sum(count.bytes_up for count in counts), sum(count.bytes_down for count in counts), spent)


BENCHMARKS = {"verified": verified}
