"""Faults of a federation of separate processes: the in-process result of the same schedule, or a clear stop."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coterie.deployment.job import RemoteJob
from coterie.engines.inprocess import Fault, Schedule
from coterie.messages.chain import read_chain, read_open_chain

from .cuts import Relay
from .federations import Finished, Standing, dealt_rows

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("nvflare")]

DEADLINE = 5.0
START, MIDDLE, END = 0.01, 0.4, 0.75
"""Of the rounds that the run takes in this process: what happens is heard of half a second later."""
LANCZOS = {"n_clusters": 10, "n_components": 10, "gamma": 0.2, "n_features": 20, "n_iter": 3, "solver": "lanczos"}


@dataclass(frozen=True)
class Case:
    """A fault: what happens to whom, when, and whether it passes; with all sites needed, or three of five."""

    name: str
    when: float
    who: tuple[str, ...]
    what: str
    passes: bool = True
    quorum: float = 1.0


CASES = [
    Case("kill -9 of a site at the start; it is started again", START, ("site-2",), "kill"),
    Case("kill -9 of a site in the middle; it is started again", MIDDLE, ("site-3",), "kill"),
    Case("kill -9 of a site at the end; it is started again", END, ("site-4",), "kill"),
    Case("kill -9 of a site in the middle, for good, three of five needed", MIDDLE, ("site-2",), "kill", False, 0.6),
    Case("kill -9 of two sites in the middle; they are started again", MIDDLE, ("site-2", "site-4"), "kill"),
    Case("kill -9 of two sites at the start, for good, three of five needed", START, ("site-3", "site-4"), "kill",
         False, 0.6),
    Case("kill -9 of two sites in the middle, for good, all needed", MIDDLE, ("site-1", "site-3"), "kill", False),
    Case("SIGSTOP of a site at the start, beyond the deadline", START, ("site-1",), "stop"),
    Case("SIGSTOP of a site in the middle, beyond the deadline", MIDDLE, ("site-2",), "stop"),
    Case("kill -9 of the server at the start, then resume", START, ("server",), "kill"),
    Case("kill -9 of the server in the middle, then resume", MIDDLE, ("server",), "kill"),
    Case("kill -9 of the server at the end, then resume", END, ("server",), "kill"),
    Case("network cut between a site and the server in the middle", MIDDLE, ("site-5",), "cut"),
    Case("network cut between a site and the server at the end", END, ("site-5",), "cut"),
]  # fmt: skip


class Happening:
    """Makes a fault happen once the run is far enough, and pass later."""

    def __init__(self, case: Case, n_rounds: int, standing: Standing, relay: Relay) -> None:
        self._case, self._standing, self._relay = case, standing, relay
        self._round = int(case.when * n_rounds)
        self._thread: threading.Thread | None = None
        self.longest = 0.0

    def __call__(self, line: dict[str, Any]) -> None:
        self.longest = max(self.longest, line.get("seconds", 0.0))
        if line.get("round", -1) >= self._round and self._thread is None:
            self._thread = threading.Thread(target=self._happen)
            self._thread.start()

    def end(self) -> None:
        """Wait until it has passed; what was lost for good is started for the next case."""
        assert self._thread is not None, "the run was over before it could happen"
        self._thread.join()
        if not self._case.passes:
            for name in self._case.who:
                self._standing.start(name)

    def _happen(self) -> None:
        case, standing = self._case, self._standing
        if case.what == "cut":
            self._relay.cut()
            time.sleep(3 * DEADLINE)
            self._relay.mend()
            return
        for name in case.who:
            standing.signal(name, signal.SIGKILL if case.what == "kill" else signal.SIGSTOP)
        if case.what == "stop":
            time.sleep(3 * DEADLINE)
            for name in case.who:
                standing.signal(name, signal.SIGCONT)
        elif case.passes:
            time.sleep(2.0)
            for name in case.who:
                standing.start(name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_is_survived_or_stops_the_run_clearly(standing, relay, case, record_property):
    """Masked, by the standard rules: the others go on."""
    standing.hold(dealt_rows(standing.folder, n_rows=1797))
    standing.await_all()
    order = standing.order("dspgd", LANCZOS, quorum=case.quorum, deadline=DEADLINE)
    undisturbed = standing.here(order)
    happening = Happening(case, len(undisturbed.ledger_.exchanges), standing, relay)
    stopped, found = "", None
    try:
        found = standing.run(order, tell=happening, patience=60.0 if case.passes else 20.0)
    except Exception as problem:
        stopped = str(problem)
    finally:
        happening.end()
    record_property("federation", (case.name, "stopped" if found is None else "survived", _jobs(found)))
    assert happening.longest <= DEADLINE + 60
    _nothing_was_computed_twice(standing)
    if found is None:
        assert not case.passes
        assert case.quorum == 1
        assert all(name in stopped for name in case.who), stopped
        return
    expected = standing.at_seed_of(found, order)
    if not case.passes:
        expected = standing.at_seed_of(found, order, schedule=_same(case, found, standing, order))
    found.equals(expected)


def _same(case: Case, found: Finished, standing: Standing, order: RemoteJob) -> Schedule:
    """The schedule of a run in this process that loses the same sites at the same sums, one after the other."""
    lost: dict[str, int] = {}
    for place, line in enumerate(_of_sums(read_chain(found.folder / "ledger.jsonl"))):
        for name in case.who:
            if not line["sites"].get(name, ["lost"])[0].startswith("answered"):
                lost.setdefault(name, place)
    assert lost.keys() == set(case.who)
    faults: list[Fault] = []
    for name, place in lost.items():
        asked = standing.at_seed_of(found, order, schedule=Schedule(faults)).ledger_.exchanges
        rounds = [line["round"] for line in _of_sums(exchange.line() for exchange in asked)]
        faults.append(Fault(name, "drop", frozenset(range(rounds[place], 100_000))))
    return Schedule(faults)


def _of_sums(lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The exchanges that verified and unverified runs have in common."""
    return (line for line in lines if line["seen"] == "masked" or line["asked"] == "secure.Reveal")


def _nothing_was_computed_twice(standing: Standing) -> None:
    for name in standing.names:
        book = standing.federation.site(name).ledger_path
        keys = [(x["run"], x["round"], x["attempt"]) for x in read_open_chain(book) if x["event"] == "answer"]
        assert max(Counter(keys).values()) == 1


def _jobs(found: Finished | None) -> int:
    return 0 if found is None else len(json.loads(Path(found.folder, "remote.json").read_text())["jobs"])
