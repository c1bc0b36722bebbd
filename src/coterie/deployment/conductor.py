"""Carries out an analyst's order in the server's job process, from the run's journal as far as that goes."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout

from coterie.deployment.order import EVENT_LINES, EVENTS, OUTCOME, STOP, JobStatus, Order, read_order
from coterie.engines.nvflare.center import AuxChannel, Center, Ended
from coterie.engines.nvflare.wire import forget_old_jobs
from coterie.errors import CoterieError, InputError, QuorumLost, RunError
from coterie.estimators.fitting import fit_over
from coterie.files import private_folder
from coterie.messages.site_api import Column
from coterie.report.outputs import write_run
from coterie.runtime.events import Line
from coterie.runtime.journal import Journal
from coterie.runtime.outcomes import HEARD, OutcomeKind, SiteOutcome
from coterie.sites.logs import log_to

PATIENCE = 15.0
"""Seconds to wait for an earlier job of the same run that is about to end."""


class Conductor(Center):
    """Fits what was ordered and leaves the result where the analyst fetches it.

    What a job may say is an order and nothing else; the run's journal lies in the server's own folder and is removed
    when the result is written.
    """

    def conduct(self, channel: AuxChannel, engine: Any, kit: Path, folder: Path) -> None:
        """Run the order; whatever comes of it is in ``outcome.json``."""
        lines = EventLines(_log(kit))
        forget_old_jobs(kit)
        engine.register_app_command(EVENTS, lines.since)
        engine.register_app_command(STOP, lambda *_: _stop(channel))
        out = folder / "coterie"
        out.mkdir(parents=True, exist_ok=True)
        outcome: dict[str, Any] = {"status": JobStatus.DONE}
        try:
            order = read_order(self.arguments)
            home = kit / "coterie" / "runs" / order.run
            with _claimed(home):
                self._fit(order, channel, home, out, lines)
                shutil.rmtree(home, ignore_errors=True)
        except Ended as problem:
            outcome = {"status": JobStatus.ENDED, "message": str(problem)}
        except RunError as problem:
            outcome = _failed(JobStatus.STOPPED, problem)
            outcome["absent"] = [name for name, site in problem.outcomes.items() if site.may_return]
        except CoterieError as problem:
            outcome = _failed(JobStatus.REFUSED, problem)
        except (TypeError, ValueError, ArithmeticError, MemoryError) as problem:
            outcome = _failed(JobStatus.REFUSED, InputError(f"the settings cannot be used: {problem}"))
        outcome["carried"] = channel.carried
        lines.write(out / EVENT_LINES)
        (out / OUTCOME).write_text(json.dumps(outcome) + "\n")
        logging.getLogger("coterie").info("the run ended: %s", outcome["status"])

    def _fit(self, order: Order, channel: AuxChannel, home: Path, out: Path, lines: EventLines) -> None:
        wrong = channel.greet()
        if len(channel.sites()) - len(wrong) < order.terms().needed(len(channel.sites())):
            sentences = "; ".join(f"{name} {outcome}" for name, outcome in wrong.items())
            ready = SiteOutcome(OutcomeKind.ANSWERED)
            outcomes = {name: wrong.get(name, ready) for name in channel.sites()}
            raise QuorumLost(f"too few sites are ready. {sentences}.", outcomes)
        estimator = order.estimator()
        columns = {} if estimator.splits_columns else {"": tuple(Column(name) for name in order.columns)}
        fitted: Any = fit_over(
            channel,
            estimator,
            columns,
            order.options(),
            sums=order.sums,
            journal=Journal(home / "journal", resume=True),
            terms=order.terms(),
            events=lines.take,
        )
        write_run(out, fitted, {}, order.settings)


class EventLines:
    """The events of this job so far, for an analyst who asks."""

    def __init__(self, log: logging.Logger) -> None:
        self._lines: list[Line] = []
        self._lock = threading.Lock()
        self._log = log

    def take(self, line: Line) -> None:
        """One event more; in the server's log it is short."""
        with self._lock:
            self._lines.append(line)
        facts: dict[str, Any] = {
            name: line[name] for name in ("run", "round", "attempt", "method", "event", "asked") if name in line
        }
        facts |= {"bytes": line.get("bytes_up"), "seconds": line.get("seconds")}
        asked = line["sites"] if line["event"] == "exchange" else {}
        silent = [name for name, site in asked.items() if site["outcome"] not in HEARD]
        level = logging.WARNING if silent or line["event"] == "failed" else logging.INFO
        self._log.log(level, line.get("message") or (f"without {', '.join(silent)}" if silent else ""), extra=facts)

    def since(self, _topic: str, lines: Any, *_: Any) -> dict[str, Any]:
        """What came after the first so many."""
        start = lines.get("from", 0) if isinstance(lines, dict) else 0
        with self._lock:
            return {"lines": self._lines[start:] if isinstance(start, int) and start >= 0 else []}

    def write(self, path: Path) -> None:
        """All of them, for who did not ask in time."""
        with self._lock:
            path.write_bytes(msgspec.json.encode(self._lines))


def _failed(status: JobStatus, problem: CoterieError) -> dict[str, Any]:
    return {"status": status, "message": str(problem), "kind": type(problem).__name__}


def _log(kit: Path) -> logging.Logger:
    """The server's own log, a line of JSON an event."""
    log = logging.getLogger("coterie.server")
    if not log.handlers:
        log_to(kit / "coterie" / "server.log", "server", log=log)
        log.propagate = False
    return log


def _stop(channel: AuxChannel) -> dict[str, Any]:
    channel.stop = True
    return {"stopping": True}


@contextlib.contextmanager
def _claimed(home: Path) -> Iterator[None]:
    """A run's folder at the server, held by one process at a time."""
    lock = home.with_suffix(".lock")
    private_folder(home.parent)
    try:
        held = FileLock(lock, PATIENCE, mode=0o600, thread_local=False).acquire()
    except Timeout:
        raise RunError("another job carries this run out already.") from None
    with held:
        private_folder(home)
        try:
            yield
        finally:
            if not home.exists():
                lock.unlink(missing_ok=True)
