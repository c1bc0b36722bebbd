"""Rounds over separate processes with TLS, beside the engine's own echo; memory over a thousand rounds."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.echo_center import PHASE
from benchmarks.measure import Line, Result
from coterie import DSPGDKernelKMeans, FederatedKMeans
from coterie.deployment.federation import Federation
from coterie.deployment.job import RemoteJob
from coterie.deployment.remote import Remote
from coterie.engines.nvflare import processes
from coterie.engines.nvflare.session import Session
from coterie.estimators.base import FederatedEstimator
from coterie.messages.site_api import Column
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.preparation import PreparationOptions
from coterie.sites.identity_files import IdentityFiles
from coterie.sites.installed import Holdings

SITES, ROWS, COLUMNS, CLUSTERS = 5, 400, 24, 10
WARM, ROUNDS, TURNS, TURN = 500, 1000, 4, 150
REST = 10.0
"""Seconds without a question before memory is read: for eight of them the engine keeps a thread for every answer, so
that a read any earlier would be of how fast the rounds just before it were."""
ECHO = "benchmarks.echo_center.EchoCenter"
NAMES = [f"x{j}" for j in range(COLUMNS)]
QUESTIONS = "max_questions = 2000"


def federation_up(folder: Path) -> Federation:
    """Five sites whose server may also echo."""
    rng = np.random.default_rng(0)
    policy = folder / "policy.toml"
    rules = files("coterie.sites").joinpath("policies", "standard.toml").read_text()
    assert QUESTIONS in rules
    policy.write_text(rules.replace(QUESTIONS, "max_questions = 100_000"))
    holdings = {}
    for i in range(SITES):
        path = folder / f"site-{i}.parquet"
        pq.write_table(pa.table({name: rng.normal(size=ROWS) for name in NAMES}), path)
        holdings[f"site-{i}"] = Holdings(str(path), str(policy))
    made = Federation(folder / "federation")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    made.up(holdings)
    made.down()
    path = made.folder / "server" / "local" / "resources.json"
    resources = json.loads(path.read_text())
    resources["class_allow_list"].append(ECHO)
    path.write_text(json.dumps(resources))
    made.up(holdings)
    return made


def megabytes_of(made: Federation) -> dict[str, float]:
    """MB that a site and the server take: the process that waits and that of the job."""
    found = {"site": 0.0, "server": 0.0}
    for name, one in made.running().items():
        for pid in (one.pid, *one.jobs):
            megabytes = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
            found["server" if name == "server" else "site"] += megabytes / (1 if name == "server" else SITES)
    return found


def signed_job(made: Federation, estimator: FederatedEstimator) -> RemoteJob:
    """A run that the federation's analyst signed."""
    kit = made.analyst()
    order = Order.of(estimator, tuple(map(Column, NAMES)), PreparationOptions())
    return RemoteJob(SignedOrder.by(IdentityFiles(kit.folder).read("analyst", kit.name), order))


def _echoed(made: Federation, session: Session, folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """What the server measured, and the memory of all before and after the rounds."""
    start = np.random.default_rng(1).normal(size=(CLUSTERS, COLUMNS))
    rounds = WARM + ROUNDS + TURNS * TURN
    mini_batches = FederatedKMeans(CLUSTERS, init=start, batch_size=100, max_rounds=rounds, tol=0.0)
    told: dict[str, Any] = {"warm": WARM, "rounds": ROUNDS, "rest": REST, "turn": TURN}
    told["job"] = msgspec.to_builtins(signed_job(made, mini_batches))
    job, memory = session.submit(told, name="echo", least=SITES, center=ECHO), dict[str, dict[str, float]]()
    path = made.folder / "server" / PHASE
    while not session.status(job).startswith("FINISHED"):
        phase = path.read_text() if path.exists() else ""
        if phase and phase not in memory:
            memory[phase] = megabytes_of(made)
        time.sleep(0.5)
    session.fetch(job, folder / "echo")
    found: dict[str, Any] = json.loads((folder / "echo" / "outcome.json").read_text())
    return found, memory


def _lanczos(made: Federation, session: Session, folder: Path) -> tuple[float, int]:
    """Seconds and exchanges of DSPGD by Lanczos, ten iterations, masked and verified."""
    taken: list[float] = []
    estimator = DSPGDKernelKMeans(10, n_components=10, n_features=20, n_iter=10, solver="lanczos")
    Remote(
        session, folder / "lanczos", tell=lambda line: taken.append(line["seconds"]) if "seconds" in line else None
    ).run(signed_job(made, estimator), resume=False)
    return sum(taken), len(taken)


def rounds() -> Result:
    """Rounds beside echoes in turns, one job; then DSPGD."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = federation_up(folder)
        try:
            with Session(made.analyst()) as session:
                found, memory = _echoed(made, session, folder)
                seconds, exchanges = _lanczos(made, session, folder)
        finally:
            made.down()
            assert not any(processes.find_running(kit) for kit in made.kits())
    ours, echo = statistics.median(found["round"]), statistics.median(found["echo"])
    before, after = memory["warm"], memory["done"]
    lines = [
        Line(
            f"median round, {found['bytes']:,} bytes from each site in two exchanges",
            1000 * ours,
            "ms",
            60.0,
            is_aim=True,
        ),
        Line("two of the engine's own echoes of as many bytes", 1000 * echo, "ms"),
        Line("a round as a ratio to the echoes", ours / echo, "x", 1.25, is_aim=True),
        Line(f"a site's memory over {ROUNDS:,} rounds", after["site"] / before["site"], "x", 1.05),
        Line(f"the server's memory over {ROUNDS:,} rounds", after["server"] / before["server"], "x", 1.05),
        Line("a site's memory after them", after["site"], "MB"),
        Line("the server's memory after them", after["server"], "MB"),
        Line(f"DSPGD by Lanczos, T = 10, verified: {exchanges:,} exchanges", seconds, "s", 60.0, is_aim=True),
    ]
    return Result(f"{SITES} sites as separate processes, mutual TLS", lines)


BENCHMARKS = {"federation": rounds}
