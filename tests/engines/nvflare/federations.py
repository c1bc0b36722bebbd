"""A federation of real processes for tests: five sites with rows of digits, told for every run what they hold."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_digits

import coterie
from coterie.deployment.federation import Federation
from coterie.deployment.job import RemoteJob
from coterie.deployment.remote import Remote
from coterie.engines.nvflare import processes
from coterie.engines.nvflare.session import Session
from coterie.messages.identity import Identity
from coterie.runtime.ledger import Ledger
from coterie.runtime.terms import Terms
from coterie.sites.identity_files import IdentityFiles
from coterie.sites.installed import Holdings
from coterie.sites.policy_files import read_policy
from tests.orders import a_job

SITES = tuple(f"site-{i + 1}" for i in range(5))


def rules(single: str, more: str, exempt: str) -> str:
    """The standard rules, as they ship, with what a method needs of them changed."""
    text = files("coterie.sites").joinpath("policies", "standard.toml").read_text()
    text, n = re.subn(r"(?m)^per_site_results = .*$", f'per_site_results = "{single}"', text)
    assert n == 1
    text = text.replace("max_runs = 100", "# max_runs = 100")
    end = f'[method.{exempt}]\nprotection = "none"\n' if exempt else ""
    return f"{more}\n{text}\n{end}"


@dataclass
class Standing:
    """A federation that stays up for many runs, and what its sites hold."""

    federation: Federation
    folder: Path
    tables: dict[str, Path] = field(default_factory=dict)
    policy: Path = Path()
    key: str | None = None
    count: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The sites."""
        return tuple(self.federation.names())

    def hold(
        self, tables: Mapping[str, Path], single: str = "none", more: str = "", exempt: str = "", text: str = ""
    ) -> None:
        """Tell every site what it holds and by which rules, or by those in a text; the next job finds it so."""
        self.count += 1
        self.policy = self.folder / f"policy-{self.count}.toml"
        self.policy.write_text(text or rules(single, more, exempt))
        self.tables = dict(tables)
        for name, path in tables.items():
            self.federation.site(name).tell(Holdings(str(path), str(self.policy), key=self.key, table_name=path.stem))

    @property
    def analyst(self) -> Identity:
        """Who orders."""
        kit = self.federation.analyst()
        return IdentityFiles(kit.folder).read("analyst", kit.name)

    def order(self, method: str, parameters: Mapping[str, Any], **more: Any) -> RemoteJob:
        """A job for the columns the sites hold."""
        columns = [] if method.startswith("vertical") else pq.read_schema(next(iter(self.tables.values()))).names
        return a_job(method, parameters, columns, run=None, analyst=self.analyst, **{"deadline": 30.0, **more})

    def run(
        self,
        order: RemoteJob,
        *,
        tell: Callable[[dict[str, Any]], None] = lambda _: None,
        attempts: int = 4,
        patience: float = 90.0,
        resume: Path | None = None,
    ) -> Finished:
        """Run an order over the processes."""
        out = resume or self.folder / f"run-{time.time_ns()}"
        said: list[str] = []
        with Session(self.federation.analyst()) as session:
            remote = Remote(session, out, attempts, patience, said.append, tell)
            outcome = remote.run(order, resume=resume is not None)
        return Finished(out, outcome, said)

    def check(self, order: RemoteJob) -> Finished:
        """Run an order over the processes: its result and its ledger are those of this process."""
        found = self.run(order)
        totals, expected = found.totals.values(), self.at_seed_of(found, order)
        found.equals(expected)
        values = {name: site["floats_up"] for name, site in counted(expected.ledger_).items()}
        assert {name: site["floats_up"] for name, site in found.totals.items()} == values
        assert found.outcome["carried"] == {
            "up": sum(site["bytes_up"] for site in totals),
            "down": sum(site["bytes_down"] for site in totals),
        }
        return found

    def at_seed_of(self, found: Finished, order: RemoteJob, **more: Any) -> Any:
        """The same in this process without verification, at the seed that the sites of a run drew."""
        same = msgspec.structs.replace(order, seed=found.result["public_seed"])
        return self.here(same, policy=replace(read_policy(self.policy), verification="off"), **more)

    def here(self, order: RemoteJob, **more: Any) -> Any:
        """The same in this process, over the same files by the same rules."""
        return coterie.fit(
            order.estimator(),
            {name: str(path) for name, path in self.tables.items()},
            sums=order.sums,
            scale=order.read().scale,
            missing=order.read().missing,
            key=self.key,
            **{"policy": read_policy(self.policy), "terms": Terms(deadline=None, quorum=order.quorum), **more},
        )

    def signal(self, name: str, what: signal.Signals) -> None:
        """Send a signal to a site's, or the server's, process and to its jobs."""
        found = processes.find_running(self.federation.kit(name))
        for pid in () if found is None else (found.pid, *found.jobs):
            if pid:
                os.kill(pid, what)

    def await_all(self) -> None:
        """Wait until everyone is up, connected and idle, whatever happened before."""
        _until(lambda: self.federation.running().keys() >= {"server", *self.names}, "a process is down")
        with Session(self.federation.analyst()) as session:

            def idle() -> bool:
                try:
                    return session.idle() >= set(self.names)
                except Exception:
                    return False

            _until(idle, "a site is not there")

    def start(self, name: str) -> None:
        """Start a site, or the server, that was killed."""
        ends = time.monotonic() + 60
        while processes.find_running(self.federation.kit(name)) is not None and time.monotonic() < ends:
            time.sleep(0.1)
        processes.start(self.federation.kit(name))


def _until(is_so: Callable[[], bool], words: str, seconds: float = 300.0) -> None:
    ends = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends, words
        time.sleep(0.5)


@dataclass
class Finished:
    """What came of a run over processes."""

    folder: Path
    outcome: dict[str, Any]
    said: list[str]

    @property
    def result(self) -> dict[str, Any]:
        """The result file."""
        import json

        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    def equals(self, expected: Any) -> None:
        """Its clusters are those of a run in this process."""
        result = self.result
        assert np.allclose(result["centers"], expected.cluster_centers_, rtol=1e-9, atol=1e-9)
        assert result["counts"] == expected.counts_.tolist()
        assert result["cost"] == pytest.approx(expected.inertia_, rel=1e-9)

    @property
    def totals(self) -> dict[str, dict[str, int]]:
        """What the ledger counted, by site."""
        import json

        found: dict[str, dict[str, int]] = json.loads((self.folder / "ledger.json").read_text())["sites"]
        return found


def counted(ledger: Ledger) -> dict[str, dict[str, int]]:
    """The same of a run in this process."""
    found: dict[str, dict[str, int]] = ledger.summary()["sites"]
    return found


def dealt_rows(folder: Path, names: tuple[str, ...] = SITES, n_rows: int = 900) -> dict[str, Path]:
    """Rows of digits, dealt out one by one."""
    rows = load_digits().data[:n_rows] / 16
    return {
        name: _written(folder / f"rows-{n_rows}-{name}.parquet", rows[i :: len(names)])
        for i, name in enumerate(names)
    }


def dealt_columns(folder: Path, names: tuple[str, ...] = SITES, n_rows: int = 300) -> dict[str, Path]:
    """Columns of the same digits, with keys in another order at every site."""
    rows, keys = load_digits().data[:n_rows] / 16, np.arange(n_rows) + 1000
    parts = np.array_split(np.arange(rows.shape[1]), len(names))
    found = {}
    for i, (name, own) in enumerate(zip(names, parts, strict=True)):
        order = np.random.default_rng(i).permutation(n_rows)
        path = folder / f"columns-{name}.parquet"
        columns = {"patient": keys[order], **{f"p{j}": rows[order, j] for j in own}}
        pq.write_table(pa.table(columns), path)
        found[name] = path
    return found


def _written(path: Path, rows: np.ndarray) -> Path:
    pq.write_table(pa.table({f"p{j}": rows[:, j] for j in range(rows.shape[1])}), path)
    return path
