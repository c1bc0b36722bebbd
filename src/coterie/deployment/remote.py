"""An analyst's run over a federation: submitted, followed, and taken up again where it stopped."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from coterie import errors
from coterie.deployment.job import EVENT_LINES, EVENTS, OUTCOME, STOP, JobStatus, RemoteJob
from coterie.engines.nvflare.session import Session, Unreachable
from coterie.errors import CoterieError, InputError, QuorumLost, RunError
from coterie.files import MEGABYTE, read_bounded, write_private
from coterie.maths.accounting import LARGEST_EPSILON
from coterie.report.outputs import RESULT_FILES
from coterie.report.page import REPORT, write_page
from coterie.runtime.events import Line

POLL = 0.5
LOOK = 5.0
"""Seconds between two looks for sites that came late or came back."""
SPARED = 15.0
"""Seconds to wait for sites that a quorum can do without."""
STARTING = 60.0
"""Seconds a job may take from its submission until it is heard of."""
DECIDING = 10.0
"""Seconds between two looks whether the sites' data officers have decided."""
ENDING = 15.0
"""Seconds in which a job that answers no more is over, if it is about to end."""


MOST_EVENTS = MOST_RESULT = 256 * MEGABYTE
"""Of a run's events, and of its result, as files."""


class Stopped(RunError):
    """The run could not be brought to its end; it can be resumed."""


@dataclass
class Remote:
    """One run over the sites of a federation.

    A job that ends before its run does (a site or the server dropped out, or a site came back that sums may take in)
    is followed by another that goes on from the run's journal, ``attempts`` of them at most; before each, up to
    ``patience`` seconds are given to the server and to the sites the run began with to be there again.
    """

    session: Session
    out: Path
    attempts: int = 5
    patience: float = 120.0
    say: Callable[[str], None] = lambda _: None
    tell: Callable[[Line], None] = lambda _: None
    sites: Sequence[str] = ()
    """Who must be there to begin with; without any, whoever is."""
    seen_until: float = 0.0
    """Events up to this time were reported by an earlier process."""
    _dropouts: tuple[str, ...] = ()
    """Dropouts when the last job ended: the server may not know it yet, so they count as there once they
    are heard of again."""
    _looked: float = 0.0
    _seen: int = 0
    """How many events of the present job were reported."""

    def run(self, job: RemoteJob, *, resume: bool) -> dict[str, Any]:
        """Bring what is ordered to its end; the outcome, with the result's files in ``out``."""
        state = self._begin(job, resume)
        job = msgspec.convert(state["job"], RemoteJob)
        job.check()
        for attempt in range(1, self.attempts + 1):
            left = self._left_behind(state, job) if resume and attempt == 1 else None
            outcome = left or self._decided(job, state, attempts_left=attempt < self.attempts)
            status = outcome["status"]
            if status == JobStatus.DONE:
                for old in state["jobs"]:  # the server may forget them: the result is here
                    self.session.delete(old)
                return outcome
            if status == JobStatus.DECLINED:
                raise RunError(outcome["message"])
            if status == JobStatus.WAITING:
                raise Stopped(f"{outcome['message']} --resume goes on when it is approved.")
            if status == JobStatus.REFUSED or (status == JobStatus.STOPPED and not outcome["absent"]):
                raise _problem(outcome)
            if attempt == self.attempts:
                break
            self._dropouts = tuple(outcome.get("absent", ()))
            self.say(f"{outcome['message']} Going on from the journal (attempt {attempt + 1} of {self.attempts}).")
        raise Stopped(
            f"{outcome['message']} {self.attempts} jobs were tried; --resume goes on when the cause is mended."
        )

    def _decided(self, job: RemoteJob, state: dict[str, Any], *, attempts_left: bool) -> dict[str, Any]:
        """One job, or as many as it takes until no site waits for its data officer, or patience ends."""
        ends, said = time.monotonic() + self.patience, ""
        while True:
            outcome = self._once(job, state, attempts_left=attempts_left)
            if outcome["status"] != JobStatus.WAITING or time.monotonic() + DECIDING > ends:
                return outcome
            if outcome["message"] != said:
                said = outcome["message"]
                self.say(said)
            time.sleep(DECIDING)

    @property
    def _kept(self) -> Path:
        return self.out / "remote.json"

    def _begin(self, job: RemoteJob, resume: bool) -> dict[str, Any]:
        if resume:
            if not self._kept.exists():
                raise InputError(f"{self.out} holds no run to resume; leave --resume out.")
            state: dict[str, Any] = json.loads(self._kept.read_text())
            if "job" not in state:
                raise InputError(f"{self.out} holds a run of an earlier version of coterie; begin it anew.")
            before = msgspec.convert(state["job"], RemoteJob)
            if _settings(before) != _settings(job):
                raise InputError(f"{self.out} holds another run; resume it with the settings it was begun with.")
            return {**state, "job": msgspec.to_builtins(msgspec.structs.replace(job, order=before.order))}
        state = {"sites": sorted(self.sites), "jobs": [], "job": msgspec.to_builtins(job)}
        self._keep(state)
        return state

    def _keep(self, state: Mapping[str, Any]) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        write_private(self._kept, json.dumps(state, indent=2).encode() + b"\n")

    def _gathered(self, state: dict[str, Any], ordered: RemoteJob) -> list[str]:
        """The sites that are there, once all are that the run began with, or after so much patience a quorum."""
        began, is_announced = time.monotonic(), False
        last: dict[str, float] = {}
        while True:
            try:
                heard = self.session.sites()
                last = {name: last.get(name, heard.get(name, 0.0)) for name in self._dropouts}
                there = sorted(name for name, when in heard.items() if when != last.get(name))
                missing = sorted(set(state["sites"]) - set(there))
            except Unreachable:
                if time.monotonic() - began > self.patience:
                    raise
                there, missing = [], ["the server"]
            wanted = ordered.terms().needed(len(state["sites"]))
            waited = time.monotonic() - began
            if there and (not missing or (len(there) >= wanted and waited > min(SPARED, self.patience))):
                break
            if waited > self.patience:
                absent = ", ".join(missing) or "any site"
                raise QuorumLost(f"{absent} did not come back within {self.patience:g} s; --resume goes on later.")
            if not is_announced:
                self.say(f"waiting for {', '.join(missing) or 'sites'} ...")
                is_announced = True
            time.sleep(POLL)
        if not state["jobs"]:
            state["sites"] = there
        self._keep(state)
        return there

    def _left_behind(self, state: dict[str, Any], ordered: RemoteJob) -> dict[str, Any] | None:
        """What came of the job that an analyst's process left behind, if it runs still or has ended the run."""
        if not state["jobs"]:
            return None
        job, ends = state["jobs"][-1], time.monotonic() + ENDING
        try:
            while not self.session.status(job).startswith("FINISHED"):
                if self.session.command(job, EVENTS, {"from": 0}):
                    self.say("the run is going on; following it ...")
                    if self._followed(job, ordered, attempts_left=True) is not None:
                        return None
                elif time.monotonic() > ends:  # it neither runs nor ends: the server was started anew
                    return None
                else:
                    time.sleep(POLL)
            outcome = self._fetched(job)
        except CoterieError:
            return None
        return outcome if outcome["status"] in (JobStatus.DONE, JobStatus.REFUSED) else None

    def _once(self, ordered: RemoteJob, state: dict[str, Any], *, attempts_left: bool) -> dict[str, Any]:
        """Submit one job and follow it to its end, whatever that is."""
        sites = self._gathered(state, ordered)
        least = ordered.terms().needed(len(sites))
        try:
            job = self.session.submit(
                msgspec.to_builtins(ordered), name=f"coterie-{ordered.read().run[:8]}", least=least
            )
        except Unreachable as problem:
            return {"status": JobStatus.LOST, "message": str(problem)}
        state["jobs"].append(job)
        self._keep(state)
        ended = self._followed(job, ordered, attempts_left=attempts_left)
        if ended is not None:
            self.session.abort(job)
            return {"status": JobStatus.LOST, "message": ended}
        return self._fetched(job)

    def _followed(self, job: str, ordered: RemoteJob, *, attempts_left: bool) -> str | None:
        """Follow a job until it is over (None) or given up (why)."""
        began, heard, failing, self._seen = time.monotonic(), False, 0.0, 0
        self._looked = began + LOOK  # sites are given time to begin
        started = self.session.server_started()
        while True:
            time.sleep(POLL)
            try:
                reply = self.session.command(job, EVENTS, {"from": self._seen})
                self._take(reply.get("lines", []))
                heard = heard or bool(reply)
                if reply and attempts_left and self._is_missed(ordered):
                    self.session.command(job, STOP, {})
                status = self.session.status(job)
                if status.startswith("FINISHED"):
                    return None
                if not reply and self.session.server_started() != started:
                    return "the server was started anew."
                if not heard and time.monotonic() - began > STARTING:
                    return f"the job was not begun within {STARTING:g} s (the server says {status})."
                failing = 0.0
            except Unreachable:
                failing = failing or time.monotonic()
                if time.monotonic() - failing > self.patience:
                    return "the server could not be reached."
            except CoterieError as problem:
                failing = failing or time.monotonic()
                if time.monotonic() - failing > 10:
                    return str(problem)

    def _is_missed(self, ordered: RemoteJob) -> bool:
        """Whether a site is connected that this job does without, though the run might take it in: it came late, or
        came back. Masked sums take nobody in, and without a quorum below 1 the run waits for everyone anyway."""
        now = time.monotonic()
        if ordered.sums == "masked" or ordered.quorum == 1 or now - self._looked < LOOK:
            return False
        self._looked = now
        with contextlib.suppress(CoterieError):
            return bool(self.session.idle())
        return False

    def _take(self, lines: Any) -> None:
        """Report events; whatever else a server says for them is one clear error."""
        try:
            self._seen += len(lines)
            for line in lines:
                if line["time"] > self.seen_until:
                    self.tell(line)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            raise CoterieError("the server reports events that this version of coterie does not know.") from None

    def _fetched(self, job: str) -> dict[str, Any]:
        """What came of a job that is over; of the files that the server has for it, those of a result are kept."""
        with tempfile.TemporaryDirectory(dir=self.out) as folder:
            received = Path(folder)
            try:
                self.session.fetch(job, received)
                raw = read_bounded(received / OUTCOME, MEGABYTE)
                outcome: dict[str, Any] = msgspec.to_builtins(msgspec.json.decode(raw, type=_Outcome))
                events = msgspec.json.decode(read_bounded(received / EVENT_LINES, MOST_EVENTS), type=list[Line])
                self._take(events[self._seen :])
                if outcome["status"] == JobStatus.DONE:
                    msgspec.convert(json.loads(read_bounded(received / "result.json", MOST_RESULT)), _Result)
            except (CoterieError, OSError, ValueError, RecursionError, msgspec.MsgspecError):
                words = ""
                with contextlib.suppress(CoterieError):
                    words = "; ".join(self.session.problems(job))
                return {
                    "status": JobStatus.LOST,
                    "message": f"the job ended before the run did{words and f' ({words})'}.",
                }
            for name in RESULT_FILES:
                if name != REPORT and (received / name).is_file():
                    (received / name).replace(self.out / name)
        if outcome["status"] == JobStatus.DONE:
            self._write_page()
        return outcome

    def _write_page(self) -> None:
        """The report is made here, from the result: an analyst opens no page that a server wrote."""
        try:
            write_page(self.out)
        except (
            CoterieError,
            OSError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ):
            self.say(f"there is no {REPORT}: this version of coterie cannot make one of the server's result.")


class _Release(msgspec.Struct):
    what: str
    share: float


class _Privacy(msgspec.Struct):
    """What is shown of a private run."""

    epsilon: Annotated[float, msgspec.Meta(gt=0, le=LARGEST_EPSILON)]
    delta: float
    unit: str
    tolerated: int
    sites: int
    releases: list[_Release]
    rows_per_unit: int
    size_deviation: float | None
    cost_deviation: float | None
    hides_clusters: bool
    bounds: str


class _Result(msgspec.Struct):
    """What is shown of a result."""

    title: str
    summary: str
    columns: list[str]
    centers: list[list[float]]
    counts: list[float]
    counts_are: str = ""
    privacy: _Privacy | None = None


class _Outcome(msgspec.Struct):
    """What the server says came of a job."""

    status: JobStatus
    message: str = ""
    kind: str = ""
    absent: list[str] = []
    carried: dict[str, Any] = {}


def _settings(job: RemoteJob) -> Any:
    """What two jobs of one run have in common: all but the run's name, who signed, and when to give up."""
    return msgspec.structs.replace(job.read(), run=""), job.seed, job.sums, job.settings


def _problem(outcome: Mapping[str, Any]) -> CoterieError:
    """What the center said is wrong with the order, as the error it was."""
    kind = getattr(errors, str(outcome.get("kind")), InputError)
    is_ours = isinstance(kind, type) and issubclass(kind, CoterieError)
    return kind(outcome["message"]) if is_ours else InputError(outcome["message"])
