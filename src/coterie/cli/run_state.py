"""A run's folder: one process at a time writes to it, and anyone reads the state of the run from its events."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias
from urllib.parse import quote

from filelock import FileLock, Timeout

from coterie.errors import InputError
from coterie.messages.schema import doing_of
from coterie.runtime.events import EVENTS, Line, whole_lines
from coterie.runtime.outcomes import GOOD, OutcomeKind
from coterie.sites.ledger import NO_RUN, SiteLedger

Point: TypeAlias = tuple[int, float]
State: TypeAlias = Literal["starting", "running", "writing", "done", "failed", "interrupted", "gone"]
LOCK = ".running"
PATIENCE = 0.15
"""Seconds to wait for the lock: ``is_at_work`` holds it for a moment."""
QUIET = 1.0
"""Seconds without an event after which the run's lock is tested."""


@dataclass
class SiteState:
    """The state of one site."""

    outcome: str = OutcomeKind.NOT_ASKED.value
    reason: str = ""
    """Why it refused, or why its answer cannot be used."""
    answered: int = 0
    missed: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    seen: float | None = None
    """When it last answered."""

    def take(self, when: float, counts: dict[str, Any]) -> None:
        self.outcome, self.reason = counts["outcome"], counts.get("reason", "")
        self.bytes_up += counts["bytes_up"]
        self.bytes_down += counts["bytes_down"]
        if self.outcome in GOOD:
            self.answered, self.seen = self.answered + 1, when
        else:
            self.missed += 1


class RunState:
    """The state of a run after its events so far."""

    def __init__(self) -> None:
        self.about: Line = {}
        self.sites: dict[str, SiteState] = {}
        self.exchanges: list[Line] = []
        self.costs: list[Point] = []
        self.end: Line | None = None
        self.failure: Line | None = None
        self.last = 0.0
        self._began, self._before = 0.0, 0.0
        self._clusters: int | None = None
        self._recent: deque[float] = deque(maxlen=20)
        self._shared: dict[tuple[Any, ...], Line] = {}
        """Equal counts of sites and rounds are kept once."""

    def take(self, line: Line) -> None:
        event = line.get("event")
        if event in ("begin", "resumed"):
            self._begin(line)
        elif event == "exchange":
            self._exchange(line)
        elif event == "cost":
            self._cost(line)
        elif event == "end":
            self.end = line
        elif event == "failed":
            self.failure = line
        self.last = line.get("time", self.last)

    def _begin(self, line: Line) -> None:
        """A run begins or is resumed; of a resumed run, rounds that are repeated are dropped."""
        first = line["round"] if line["event"] == "resumed" else 0
        held = [exchange for exchange in self.exchanges if exchange["round"] < first]
        self.costs = [point for point in self.costs if point[0] < first]
        self._before = self._before + self.last - self._began if first and self.about else 0.0
        self.about, self._began, self.end, self.failure = line, line["time"], None, None
        self.sites = {name: SiteState() for name in line["sites"]}
        self.exchanges = []
        for exchange in held:
            self._exchange(exchange)
        self._recent.clear()

    def _exchange(self, line: Line) -> None:
        sites = {
            name: self._shared.setdefault(tuple(counts.values()), counts) for name, counts in line["sites"].items()
        }
        self.exchanges.append({**line, "sites": sites})
        self._recent.append(line["time"])
        for name, counts in sites.items():
            self.sites.setdefault(name, SiteState()).take(line["time"], counts)

    def _cost(self, line: Line) -> None:
        """Add a point to the curve of costs, which starts again when the number of centers changes."""
        if line["clusters"] != self._clusters:
            self.costs, self._clusters = [], line["clusters"]
        self.costs.append((line["round"], line["value"]))

    def total(self, what: Literal["bytes_up", "bytes_down"]) -> int:
        return sum(getattr(site, what) for site in self.sites.values())

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, according to its events."""
        return self.end is not None or self.failure is not None

    def elapsed(self, now: float = 0.0) -> float:
        """Seconds of work until ``now`` or the last event; pauses before a resumption do not count."""
        return self._before + max(now, self.last) - self._began if self.about else 0.0

    def rate(self) -> float | None:
        """Rounds per second: over the last rounds, or over the whole of a run that has ended."""
        if self.is_over and self.exchanges and self.elapsed() > 0:
            return len(self.exchanges) / self.elapsed()
        seconds = self._recent[-1] - self._recent[0] if self._recent else 0.0
        return (len(self._recent) - 1) / seconds if seconds > 0 else None

    def progress(self) -> str:
        """The last round in words: what it did, how many sites answered, how many bytes were sent so far."""
        from coterie.methods import registry  # noqa: F401  (declares the methods' requests)
        from coterie.secure import masked_sums  # noqa: F401

        last = self.exchanges[-1]
        answered = sum(counts["outcome"] in GOOD for counts in last["sites"].values())
        sites = f"{answered} of {len(last['sites'])} sites answered"
        doing, sent = doing_of(last["asked"]), self.total("bytes_up")
        return f"round {last['round']}: {doing}; {sites}, {sent:,} bytes sent so far"

    def plain(self, state: State, now: float) -> dict[str, Any]:
        phases = [line["phase"] for line in self.exchanges]
        failed = self.failure and {"kind": self.failure["kind"], "message": self.failure["message"]}
        return {
            "run": self.about.get("run"),
            "method": self.about.get("method"),
            "state": state,
            "failed": failed,
            "round": self.exchanges[-1]["round"] if self.exchanges else None,
            "rounds": len(phases) - phases.count("masking"),
            "rounds_masking": phases.count("masking"),
            "seconds": round(self.elapsed(now), 3),
            "rounds_per_second": self.rate(),
            "bytes_up": self.total("bytes_up"),
            "bytes_down": self.total("bytes_down"),
            "floats_up": sum(line["floats_up"] for line in self.exchanges),
            "sites": {name: asdict(site) for name, site in self.sites.items()},
            "costs": [list(point) for point in self.costs],
            "costs_are": "of_what_sites_show",
        }


class Folder:
    """A run's folder; ``look`` reads the events written since the last call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = RunState()
        self.state: State = "starting"
        self._place, self._file = 0, -1

    @property
    def is_there(self) -> bool:
        """Whether there is, or has been, a run."""
        return self._file != -1 or (self.path / EVENTS).exists()

    @property
    def is_over(self) -> bool:
        """Whether no more events will come."""
        return self.state in ("done", "failed", "interrupted", "gone")

    @property
    def now(self) -> float:
        """The current time, or that of the last event if the run is over."""
        return self.run.last if self.is_over or self.run.is_over else time.time()

    def look(self, *, sure: bool = False) -> None:
        """Read new events and update the state. ``sure`` tests the run's lock even if events are recent."""
        self.read()
        alive = self._is_alive(sure)
        if not alive:
            self.read()  # the last events before the process ended
        self.state = self._new_state(alive)

    def _new_state(self, alive: bool) -> State:
        if self.run.failure is not None:
            return "failed"
        if not (self.path / EVENTS).exists():
            return "gone"
        if self.run.end is not None and (self.path / "result.json").exists():
            return "done"
        if not alive:
            return "interrupted"
        if self.run.end is not None:
            return "writing"
        return "running" if self.run.about else "starting"

    def _is_alive(self, sure: bool) -> bool:
        """Testing the lock takes it for a moment, so it is only done after a silence."""
        if not sure and time.time() - self.run.last < QUIET:
            return (self.path / LOCK).exists()
        return is_at_work(self.path)

    def read(self) -> None:
        """Read the events written since the last call."""
        try:
            with (self.path / EVENTS).open("rb") as file:
                now = os.fstat(file.fileno())
                if self._file not in (-1, now.st_ino) or now.st_size < self._place:  # of another run
                    self.run, self._place = RunState(), 0
                self._file = now.st_ino
                file.seek(self._place)
                data = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return
        for line, size in whole_lines(data):
            self._place += size
            try:
                self.run.take(line)
            except (KeyError, TypeError, AttributeError):
                raise InputError(
                    f"{self.path / EVENTS}: byte {self._place - size}: this is not an event of a run; "
                    "name the folder of a run."
                ) from None


def read_state(path: Path) -> RunState:
    """The state of the run in a folder; of a new run where there is none."""
    folder = Folder(path)
    folder.read()
    return folder.run


def check_fingerprints(journal: Path, fingerprints: Mapping[str, str], *, resume: bool) -> None:
    """Store the fingerprint of every site's rows in its ledger, or compare it where a run is resumed."""
    for site, rows in fingerprints.items():
        with contextlib.closing(SiteLedger(journal / "sites" / f"{quote(site, safe='')}.jsonl")) as ledger:
            if not ledger.began_with(NO_RUN, rows, is_new=not resume):
                raise InputError(
                    f"the rows of site {site} have changed since the run began; restore them, or choose another "
                    "folder."
                )


class Claimed:
    """A folder that only this process writes to; it is created if needed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._was_there = folder, folder.exists()
        self._journal_was_there = (folder / "journal").exists()
        self._events_were_there = (folder / EVENTS).exists()
        self._lock = FileLock(folder / LOCK, PATIENCE, mode=0o600, thread_local=False)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            raise InputError(
                f"another coterie process is writing to {self._folder}; choose another folder."
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            (self._folder / LOCK).unlink(missing_ok=True)
            if not self._was_there and not any(self._folder.iterdir()):
                self._folder.rmdir()
        self._lock.release()

    def give_back(self) -> None:
        """Remove the files that this process created."""
        if not self._journal_was_there:
            shutil.rmtree(self._folder / "journal", ignore_errors=True)
        if not self._events_were_there:
            (self._folder / EVENTS).unlink(missing_ok=True)


def is_at_work(folder: Path) -> bool:
    """Whether a process is writing to a folder; one that was killed leaves the lock file, but not the lock."""
    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as problem:
        return isinstance(problem, BlockingIOError)
    return False
