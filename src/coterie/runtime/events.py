"""What happens in a run, reported as it happens: one plain dict an event, for a file or for a listener.

Events say what the server sees of a run and nothing else: rounds, bytes, what became of each site, the cost of a sum.
Every one has ``time`` (seconds since 1970), ``run`` and ``event``:

- ``begin``: method, sites, coterie (its version), settings;
- ``resumed``: the same, and the ``round`` from which the run asks again: what was reported of this round and
  later ones had not reached the journal, and no longer holds;
- ``exchange``: round, attempt, phase, asked, answer, seen, bytes_up, bytes_down, floats_up, seconds, and by site its
  outcome (a value of :class:`~coterie.runtime.outcomes.OutcomeKind`), bytes_up, bytes_down, and the reason where it
  refused or its answer cannot be used;
- ``cost``: round, value and clusters (how many centers it is of), where the algorithm saw a sum with the k-means cost
  in it;
- ``end``: the totals of the ledger;
- ``failed``: the kind of the error, and its message where it is one of ours.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self, TypeAlias

import msgspec

from coterie.errors import CoterieError
from coterie.messages.schema import Reply
from coterie.runtime.ledger import Exchange, Ledger

EVENTS = "events.jsonl"
"""What a run's events are called in its folder."""

Line: TypeAlias = dict[str, Any]
Write: TypeAlias = Callable[[Line], None]
"""Takes one event. Whatever it raises ends the run."""


class Events:
    """Reports a run line by line; without ``write`` to nobody."""

    def __init__(self, write: Write | None = None) -> None:
        self._write = write
        self._run = ""
        self._resumed: Line | None = None
        """What to report once the replay has caught up with the run."""
        self._round = 0

    def begin(
        self, run: str, method: str, sites: Sequence[str], settings: Mapping[str, Any], *, resumed: bool
    ) -> None:
        """A run begins; a resumed one is reported when it asks its first question."""
        self._run = run
        about = {"method": method, "sites": list(sites), "coterie": version("coterie"), "settings": dict(settings)}
        if resumed:
            self._resumed = about
        else:
            self._report("begin", **about)

    def caught_up(self, round: int) -> None:
        """What the journal holds is replayed; from this round on sites are asked."""
        about, self._resumed = self._resumed, None
        if about is not None:
            self._report("resumed", round=round, **about)

    def exchange(self, exchange: Exchange) -> None:
        """One broadcast and one collection."""
        if exchange.phase == "algorithm":
            self._round = exchange.round
        if self._write is not None:
            self._report("exchange", **exchange.event())

    def answer(self, answer: Any) -> None:
        """What the algorithm is about to see: of a sum over all sites the cost, if there is one in it."""
        cost = getattr(answer, "cost", None) if isinstance(answer, Reply) else None
        if cost is not None and cost.shape == () and math.isfinite(cost):
            counts = getattr(answer, "counts", None)
            clusters = None if counts is None else int(counts.size)
            self._report("cost", round=self._round, value=float(cost), clusters=clusters)

    def end(self, ledger: Ledger) -> None:
        """The algorithm has its result."""
        self._report("end", **ledger.summary()["total"])

    def failed(self, problem: Exception) -> None:
        """The run cannot go on; the text of an error that is none of ours is left out."""
        message = str(problem) if isinstance(problem, CoterieError) else ""
        self._report("failed", kind=type(problem).__name__, message=message)

    def _report(self, event: str, **facts: Any) -> None:
        if self._write is not None:
            self._write({"time": round(time.time(), 3), "run": self._run, "event": event, **facts})


class EventFile:
    """A file of events, a line of JSON each, in the file when the call returns; an old file is continued.

    Whoever listens, ``also``, hears of an event once it is in the file.
    """

    def __init__(self, path: Path, also: Write = lambda _: None) -> None:
        self.path, self._also = path, also
        self._file = -1

    def __enter__(self) -> Self:
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.ftruncate(self._file, self.path.read_bytes().rfind(b"\n") + 1)  # a line torn by a crash goes
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def __call__(self, line: Line) -> None:
        """Add one event."""
        left = msgspec.json.encode(line) + b"\n"
        while left:
            left = left[os.write(self._file, left) :]
        self._also(line)


def whole_lines(data: bytes) -> Iterator[tuple[Line, int]]:
    """Every event in bytes of a file, and how long its line is; half a line at the end is not there yet."""
    for text in data.splitlines(keepends=True):
        if text.endswith(b"\n"):
            line: Line = {}  # bytes that are no event, as a crash of the machine may leave them, count for nothing
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                line = msgspec.json.decode(text, type=Line)
            yield line, len(text)
