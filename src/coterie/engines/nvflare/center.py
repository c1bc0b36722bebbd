"""The center's end: a channel to the sites of a job, and a controller that hands it to whoever runs a protocol."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable

from coterie.engines.nvflare.wire import CODE, FRAME, HELLO, QUESTION, VERSION, begin_job
from coterie.errors import CoterieError
from coterie.runtime.channel import Outcome
from coterie.runtime.outcomes import OutcomeKind, SiteOutcome

GRACE = 2.0
"""Seconds beyond its own time-out that the engine is given before it is no longer waited for."""
LONGEST = 24 * 3600.0
GREETING = 20.0
"""Seconds sites are given to open their tables when a job begins."""


class Ended(CoterieError):
    """The job was ended from outside; what was done so far is in the run's journal. No protocol can catch it."""


class AuxChannel:
    """Carries bytes by NVFlare's auxiliary messages, one thread a site, so that payloads may differ by site."""

    def __init__(self, engine: Any, abort: Any) -> None:
        self._engine, self._abort = engine, abort
        self._names = sorted(client.name for client in engine.get_clients())
        self._pool = ThreadPoolExecutor(4 * max(1, len(self._names)), thread_name_prefix="coterie-exchange")
        self.carried = {"up": 0, "down": 0}
        """Bytes handed over by the engine and to it."""
        self.stop = False
        """Set from another thread: ends the run before its next exchange."""

    def sites(self) -> Sequence[str]:
        return tuple(self._names)

    def exchange(self, payloads: Mapping[str, bytes], timeout: float | None) -> Mapping[str, Outcome]:
        """Carry each payload to its site; :class:`Ended` where the job is being ended."""
        self._check()
        left = LONGEST if timeout is None else timeout
        futures = {name: self._pool.submit(self._carried, name, data, left) for name, data in payloads.items()}
        self._await(list(futures.values()), left + GRACE)
        self._check()
        outcomes = {name: future.result() if future.done() else Outcome("late") for name, future in futures.items()}
        self.carried["down"] += sum(map(len, payloads.values()))
        self.carried["up"] += sum(len(outcome.payload) for outcome in outcomes.values())
        return outcomes

    def greet(self, seconds: float = GREETING) -> dict[str, SiteOutcome]:
        """What is wrong with each site that is not ready for questions after so long."""
        ends, heard, silent = time.monotonic() + seconds, dict[str, SiteOutcome](), list(self._names)
        while silent and time.monotonic() < ends:
            self._check()
            futures = {name: self._pool.submit(self._sent, name, HELLO, Shareable(), 2.0) for name in silent}
            self._await(list(futures.values()), 2.0 + GRACE)
            for name, future in futures.items():
                reply = future.result() if future.done() else None
                if reply is not None and reply.get_return_code() == ReturnCode.OK:
                    heard[name] = _greeted(reply)
            silent = [name for name in silent if name not in heard]
            time.sleep(0.2 if silent else 0.0)
        heard |= dict.fromkeys(silent, SiteOutcome(OutcomeKind.UNREACHABLE))
        return {name: outcome for name, outcome in sorted(heard.items()) if not outcome.is_good}

    def close(self) -> None:
        """Wait for no thread any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _await(self, futures: list[Future[Any]], seconds: float) -> None:
        """As `wait`, but an end of the job from outside is noticed within half a second."""
        ends = time.monotonic() + seconds
        while True:
            left = ends - time.monotonic()
            _, open_ = wait(futures, max(0.0, min(0.5, left)))
            if not open_ or left <= 0.5:
                return
            self._check()

    def _check(self) -> None:
        if self.stop or self._abort.triggered:
            raise Ended("the job was ended before the run was; it can be resumed.")

    def _carried(self, name: str, payload: bytes, timeout: float) -> Outcome:
        request = Shareable()
        request[FRAME] = payload
        reply = self._sent(name, QUESTION, request, timeout)
        if reply is None:
            return Outcome("lost")
        code = reply.get_return_code()
        if code != ReturnCode.OK:
            return Outcome("late" if code == ReturnCode.TIMEOUT else "lost")
        frame = reply.get(FRAME)
        if isinstance(frame, bytes | bytearray | memoryview):
            return Outcome("answered", bytes(frame))
        return Outcome("refused")

    def _sent(self, name: str, topic: str, request: Any, timeout: float) -> Any:
        with self._engine.new_context() as context:
            replies = self._engine.send_aux_request([name], topic, request, timeout, context)
        return (replies or {}).get(name)


def _greeted(reply: Any) -> SiteOutcome:
    """Whether a site that answered a greeting can take part, or what keeps it from that."""
    if reply.get(CODE):
        return SiteOutcome(OutcomeKind.CLOSED)
    if reply.get(VERSION) != version("coterie"):
        versions = f"{reply.get(VERSION)}, the center {version('coterie')}"
        return SiteOutcome(OutcomeKind.OTHER_VERSION, detail=versions)
    return SiteOutcome(OutcomeKind.ANSWERED)


class Center(Controller):
    """Runs in the server's job process; what is run there says the class above it."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments
        """The job's configuration, as it came: to be checked by whoever reads it."""

    def start_controller(self, fl_ctx: Any) -> None:
        """Nothing of a run is done before this."""
        begin_job()

    def stop_controller(self, fl_ctx: Any) -> None:
        """Nothing is left to stop."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Hand the channel over; what it is used for ends in files in the job's folder."""
        engine = fl_ctx.get_engine()
        workspace, job = engine.get_workspace(), fl_ctx.get_job_id()
        channel = AuxChannel(engine, abort_signal)
        try:
            self.conduct(channel, engine, Path(workspace.get_root_dir()), Path(workspace.get_run_dir(job)))
        except Exception:
            logging.getLogger("coterie").exception("the run could not be conducted")
            raise
        finally:
            channel.close()

    @abstractmethod
    def conduct(self, channel: AuxChannel, engine: Any, kit: Path, folder: Path) -> None:
        """Run a protocol over the channel and leave its files in ``folder``."""
