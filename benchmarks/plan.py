"""What a run's seconds are made of, by engine: the constants of `coterie plan`, which this writes down."""

from __future__ import annotations

import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from scipy.optimize import nnls

import coterie.planning
from benchmarks.federation import COLUMNS, ROWS, SITES, federation_up, megabytes_of, signed_job
from benchmarks.measure import Line, Result
from coterie import DSPGDKernelKMeans, FederatedKernelKMeans, FederatedKMeans, FederatedPCA
from coterie.deployment.remote import Remote
from coterie.engines.nvflare.session import Session
from coterie.estimators.base import FederatedEstimator
from coterie.estimators.fitting import fit
from coterie.planning.made_up import Rules as Shown
from coterie.planning.made_up import made_up, tables_of
from coterie.planning.planner import checked_run, work_of
from coterie.planning.speeds import Speed, Speeds, Work

FILE = Path(coterie.planning.__file__).with_name("speeds.json")
SHAPES = ((3, 2_000, 8), (5, 20_000, 24), (12, 1_000, 60))
"""Sites, rows of each, columns."""
FEW, MANY = 5, 80
"""Rounds of the jobs that a federation is timed with."""


class _Timed(NamedTuple):
    work: Work
    seconds: float


def _estimators() -> Iterator[FederatedEstimator]:
    yield FederatedKMeans(5, max_rounds=30, tol=0.0, random_state=0)
    yield FederatedPCA(3, random_state=0)
    yield FederatedKernelKMeans(4, random_state=0)
    yield DSPGDKernelKMeans(4, n_iter=4, max_rounds=10, random_state=0)


def _in_process() -> Iterator[_Timed]:
    """Runs over tables of several shapes, plain and verified."""
    for sites, rows, columns in SHAPES:
        shapes = tables_of({f"site{i}": (rows, columns) for i in range(sites)})
        for options in ({"sums": "plain", "policy": "simulation"}, {"policy": "standard"}):
            for estimator in _estimators():
                tables = {name: made_up(table, Shown(each=True), i) for i, (name, table) in enumerate(shapes.items())}
                asked = checked_run(estimator, tables, **options)
                began = time.perf_counter()
                ledger = fit(estimator, tables, **options).ledger_  # type: ignore[arg-type]
                seconds = time.perf_counter() - began
                yield _Timed(work_of(ledger, asked, estimator), seconds)


def _constants(runs: list[_Timed]) -> dict[str, float]:
    """Those that fit the runs best, each run's error as a share of its seconds; none is below 0."""
    names = list(runs[0].work.counts())
    counts = np.array([[run.work.counts()[name] / run.seconds for name in names] for run in runs])
    found = nnls(counts, np.ones(len(runs)))[0]
    return {name: float(f"{value:.3g}") for name, value in zip(names, found, strict=True)}


def _over_a_federation() -> tuple[dict[str, float], dict[str, float]]:
    """Seconds before the first exchange and of each exchange, and megabytes."""
    taken, memory = [], dict[str, float]()
    with tempfile.TemporaryDirectory() as name:
        made = federation_up(Path(name))
        try:
            with Session(made.analyst()) as session:
                for rounds in (FEW, MANY):
                    exchanges: list[dict[str, Any]] = []

                    def take(line: Any, exchanges: list[dict[str, Any]] = exchanges) -> None:
                        if line.get("event") == "exchange":
                            exchanges.append(line)
                            memory.update(megabytes_of(made))

                    estimator = FederatedKMeans(5, max_rounds=rounds, tol=0.0)
                    began = time.perf_counter()
                    Remote(session, Path(name) / f"{rounds}", tell=take).run(
                        signed_job(made, estimator), resume=False
                    )
                    seconds = time.perf_counter() - began
                    taken.append((seconds, len(exchanges), sum(line["seconds"] for line in exchanges)))
        finally:
            made.down()
    begin = statistics.median(whole - inside for whole, _, inside in taken)
    each = sum(inside for *_, inside in taken) / sum(count for _, count, _ in taken)
    return {"begin": float(f"{begin:.3g}"), "exchange": float(f"{each:.3g}")}, memory


def plan() -> Result:
    """Measure, write the data file, and say how far its estimates are off for the same runs."""
    runs = list(_in_process())
    found = _constants(runs)
    megabytes = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000)
    here = Speed(**found, memory=megabytes, server_memory=megabytes)
    remote, memory = _over_a_federation()
    there = Speed(
        **{**found, **remote, "answer": 0.0}, memory=round(memory["site"]), server_memory=round(memory["server"])
    )
    machine = f"{_processor()}, {platform.system()}, Python {platform.python_version()}"
    speeds = Speeds(machine, {"inprocess": here, "nvflare": there})
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(speeds)) + b"\n")
    ratios = [run.work.seconds(here) / run.seconds for run in runs]
    lines = [
        Line("seconds that are estimated over seconds taken, median", statistics.median(ratios), "x"),
        Line("the same, lowest", min(ratios), "x"),
        Line("the same, highest", max(ratios), "x"),
        Line("an exchange of a federation", 1000 * there.exchange, "ms"),
        Line("a federation's job besides its exchanges", there.begin, "s"),
    ]
    remark = f"{len(runs)} runs in one process; {SITES} sites of {ROWS} rows and {COLUMNS} columns over NVFlare"
    return Result(f"Constants of `coterie plan`, written to {FILE.name}", lines, remark)


def _processor() -> str:
    """The name of the CPU, and how many of it a process may use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} cores of {names[0]}" if names else platform.machine()


BENCHMARKS = {"plan": plan}
