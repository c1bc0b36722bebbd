"""Verified runs beside the same runs without verification: bytes, and CPU of one site and of the whole process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.measure import Grid, Line, Result
from coterie import DSPGDKernelKMeans, FederatedKernelKMeans, FederatedKMeans
from coterie.engines.inprocess import in_process
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.fitting import fit_over
from coterie.messages.bodies import decode_body
from coterie.methods.shared.preparation import PreparationOptions
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable

SITES, ROWS, ROUNDS = 5, 20_000, 20
SHAPES = ((3, 64), (15, 64), (100, 200))
"""Clusters and columns: sums of some 200, 1,000 and 20,100 numbers."""
REPEATS = 5
UP, DOWN, CPU = 1.15, 1.1, 1.3
OTHERS: dict[str, Callable[[], FederatedEstimator]] = {
    "federated k-means, mini-batches": lambda: FederatedKMeans(10, batch_size=200, max_rounds=ROUNDS, tol=0.0),
    "landmarks by sums": lambda: FederatedKernelKMeans(10, landmarks="summed"),
    "DSPGD, products of features": lambda: DSPGDKernelKMeans(10, n_features=100, n_iter=5),
    "DSPGD by Lanczos": lambda: DSPGDKernelKMeans(10, n_features=100, n_iter=5, solver="lanczos"),
}


class _Cost(NamedTuple):
    up: int
    down: int
    site: float
    """CPU of one site, a mean over all."""
    whole: float
    sums: int


def verified() -> Result:
    """Lloyd's algorithm over five sites, from given centers, for a fixed number of rounds; then bytes of others."""
    result = Result(
        "Verified runs, over the same runs without verification",
        remark=f"{SITES} sites of {ROWS // SITES:,} rows in one process, once groups are formed",
    )
    grid = Grid(
        "Lloyd's algorithm, verified / not",
        ("clusters", "columns", "bytes up", "bytes down", "CPU of one site", "CPU in all", "ms a site and sum"),
    )
    for k, d in SHAPES:
        rows = np.random.default_rng(d).normal(size=(ROWS, d))  # no clusters: it takes all rounds
        estimator = FederatedKMeans(k, init=rows[:k] + 0.5, max_rounds=ROUNDS, tol=0.0)
        pairs = [_pair(rows, estimator) for _ in range(REPEATS)]
        up, down, site, whole = (statistics.median(a[i] / b[i] for a, b in pairs) for i in range(4))
        more = statistics.median((a.site - b.site) / a.sums for a, b in pairs)
        result.lines += [
            Line(f"{k} x {d}: bytes up", up, "x", UP),
            Line(f"{k} x {d}: bytes down", down, "x", DOWN),
            Line(f"{k} x {d}: CPU of one site", site, "x", CPU, is_aim=True),
            Line(f"{k} x {d}: CPU in all", whole, "x", CPU, is_aim=True),
        ]
        bytes_ = (f"{a:,} / {b:,}" for a, b in zip(pairs[-1][0][:2], pairs[-1][1][:2], strict=True))
        grid.rows.append((str(k), str(d), *bytes_, f"{site:.2f}", f"{whole:.2f}", f"{1000 * more:.2f}"))
    return Result(result.title, result.lines, result.remark, [grid, _others()])


def _others() -> Grid:
    """Bytes of other methods; what a site is asked for may be larger than the question."""
    grid = Grid("Other methods, verified / not", ("method", "bytes up", "bytes down"))
    rows = np.random.default_rng(0).normal(size=(ROWS, 20)) + 3 * np.eye(20)[np.arange(ROWS) % 10]
    for name, made in OTHERS.items():
        checked, plain = _pair(rows, made())
        texts = (f"{a:,} / {b:,} = {a / b:.2f}" for a, b in zip(checked[:2], plain[:2], strict=True))
        grid.rows.append((name, *texts))
    return grid


def _pair(rows: np.ndarray, estimator: FederatedEstimator) -> tuple[_Cost, _Cost]:
    """The run verified, and at the same seed without."""
    checked = _run(rows, estimator, Policy())
    return checked, _run(rows, estimator.set_params(random_state=estimator.public_seed_), Policy(verification="off"))


def _run(rows: np.ndarray, estimator: FederatedEstimator, policy: Policy) -> _Cost:
    """One run over sites that hold every n-th row."""
    tables = {f"site-{i}": ArrayTable(rows[i::SITES]) for i in range(SITES)}
    columns = {name: tuple(table.columns) for name, table in tables.items()}
    spent = {"sites": 0.0}

    def timed(answer: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        def answered(frame: bytes) -> bytes:
            decode_body.cache_clear()  # a site reads its own questions
            began = time.thread_time()
            try:
                return answer(frame)
            finally:
                spent["sites"] += time.thread_time() - began

        return answered

    with in_process(tables, policy=policy, threads=1) as channel:
        for site in channel.members.values():
            site.answer = timed(site.answer)  # type: ignore[assignment]
        began = time.process_time()
        fitted = fit_over(channel, estimator, columns, PreparationOptions(), order=channel.analyst)
        whole = time.process_time() - began
    ledger = fitted.ledger_
    sums = sum(exchange.seen == "masked" for exchange in ledger.exchanges)
    return _Cost(ledger.total("bytes_up"), ledger.total("bytes_down"), spent["sites"] / SITES, whole, sums)


BENCHMARKS = {"verified": verified}
