"""What the benchmark of a federation runs at its server: rounds of a protocol and bare echoes in turn."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any, TypeVar

from nvflare.apis.shareable import Shareable

from coterie.deployment.job import read_job
from coterie.engines.nvflare.center import AuxChannel, Center
from coterie.engines.nvflare.wire import FRAME, HELLO
from coterie.messages.verbs import Protocol, Question
from coterie.runtime.journal import Journal
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums

PHASE = "phase"
T = TypeVar("T")


class EchoCenter(Center):
    """An ordered, verified run: some rounds to warm up, a thousand for the memory, then rounds and bare echoes of as
    many bytes in turns."""

    def conduct(self, channel: AuxChannel, engine: Any, kit: Path, folder: Path) -> None:  # noqa: ARG002
        """Leave the seconds of each in a file; how far it is, meanwhile, in another."""
        channel.greet()
        arguments, sent = self.arguments, dict[str, dict[str, Any]]()
        job = read_job(arguments["job"])
        found: dict[str, Any] = {"echo": [], "round": []}
        warm, rounds, turn = arguments["warm"], arguments["rounds"], arguments["turn"]

        def tell(line: dict[str, Any]) -> None:
            if line["event"] == "exchange":
                sent["unmasking" if line["asked"] == "secure.Reveal" else "sum"] = line

        def mark(phase: str) -> None:
            time.sleep(arguments["rest"])
            (kit / PHASE).write_text(phase)
            time.sleep(3.0)  # whoever watches looks at the memory of all now

        def after(done: int) -> None:
            own = (sent["sum"], sent["unmasking"])
            found["round"].append(sum(line["seconds"] for line in own))
            if done in (warm, warm + rounds):
                mark("warm" if done == warm else "done")
            if done <= warm + rounds:
                found["round"].clear()
            elif (done - warm - rounds) % turn == 0:
                sizes = [line["bytes_up"] // len(line["sites"]) for line in own]
                found["bytes"] = sum(sizes)
                found["echo"] += [sum(_echo(channel, bytes(size), 30.0) for size in sizes) for _ in range(turn)]

        layer, order = MaskedSums(), job.read()
        run(
            _paced(layer.ordered(job.order, job.seed), after),
            channel,
            method=order.method,
            layers=[layer],
            identity=order.identity,
            journal=Journal(folder / "journal"),
            events=tell,
        )
        out = folder / "coterie"
        out.mkdir(parents=True, exist_ok=True)
        (out / "outcome.json").write_text(json.dumps(found))


def _paced(protocol: Protocol[T], after: Callable[[int], None]) -> Protocol[T]:
    """The protocol; something is done after each of its sums."""
    answer, done = None, 0
    while True:
        try:
            question = protocol.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = yield question
        if isinstance(question, Question) and question.summed:
            done += 1
            after(done)


def _echo(channel: AuxChannel, payload: bytes, timeout: float) -> float:
    """Seconds the engine takes to carry bytes to all sites and back, with nothing done there."""
    request = Shareable()
    request[FRAME] = payload
    began = time.perf_counter()
    wait([channel._pool.submit(channel._sent, name, HELLO, request, timeout) for name in channel.sites()], timeout)
    return time.perf_counter() - began
