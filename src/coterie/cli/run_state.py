"""The state of a run, read from the events in its folder."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from coterie.cli.charts import Point
from coterie.cli.run_lock import LOCK, is_at_work
from coterie.errors import InputError
from coterie.messages.schema import doing_of
from coterie.runtime.events import EVENTS, Line, whole_lines
from coterie.runtime.outcomes import GOOD, OutcomeKind

State: TypeAlias = Literal["starting", "running", "writing", "done", "failed", "interrupted", "gone"]
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
            "rounds": phases.count("algorithm"),
            "rounds_masking": phases.count("masking"),
            "seconds": round(self.elapsed(now), 3),
            "rounds_per_second": self.rate(),
            "bytes_up": self.total("bytes_up"),
            "bytes_down": self.total("bytes_down"),
            "floats_up": sum(line["floats_up"] for line in self.exchanges),
            "sites": {name: asdict(site) for name, site in self.sites.items()},
            "costs": [list(point) for point in self.costs],
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
                self._reset_if_replaced(file.fileno())
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

    def _reset_if_replaced(self, file: int) -> None:
        """Start again where another run's file has replaced this one."""
        now = os.fstat(file)
        if self._file not in (-1, now.st_ino) or now.st_size < self._place:
            self.run, self._place = RunState(), 0
        self._file = now.st_ino


def read_state(path: Path) -> RunState:
    """The state of the run in a folder; of a new run where there is none."""
    folder = Folder(path)
    folder.read()
    return folder.run
