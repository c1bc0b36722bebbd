"""What the benchmark of a federation runs at its server: rounds of a protocol and bare echoes in turn."""

from __future__ import annotations

import json
import time
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.shareable import Shareable

from coterie.engines.nvflare.center import AuxChannel, Center
from coterie.engines.nvflare.wire import FRAME, HELLO
from coterie.messages.verbs import Protocol, total
from coterie.methods.shared.lloyd import Assign
from coterie.runtime.journal import Journal
from coterie.runtime.run import run

PHASE = "phase"


class EchoCenter(Center):
    """Some rounds to warm up, a thousand for the memory, then rounds and bare echoes of as many bytes in turns."""

    def conduct(self, channel: AuxChannel, engine: Any, kit: Path, folder: Path) -> None:  # noqa: ARG002
        """Leave the seconds of each in a file; how far it is, meanwhile, in another."""
        channel.greet()
        rng, arguments = np.random.default_rng(0), self.arguments
        found: dict[str, Any] = {"echo": [], "round": []}
        sizes: list[int] = []

        def tell(line: dict[str, Any]) -> None:
            if line["event"] == "exchange":
                found["round"].append(line["seconds"])
                sizes.append(line["bytes_up"] // len(line["sites"]))

        def mark(phase: str) -> None:
            time.sleep(arguments["rest"])
            (kit / PHASE).write_text(phase)
            time.sleep(3.0)  # whoever watches looks at the memory of all now

        def rounds(count: int) -> Protocol[None]:
            for _ in range(count):
                yield from total(Assign(rng.uniform(size=(arguments["clusters"], arguments["columns"]))))

        def protocol() -> Protocol[None]:
            yield from rounds(arguments["warm"])
            mark("warm")
            yield from rounds(arguments["rounds"])
            mark("done")
            found["round"].clear()
            for _ in range(arguments["turns"]):
                yield from rounds(arguments["turn"])
                found["echo"] += [_echo(channel, bytes(sizes[-1]), 30.0) for _ in range(arguments["turn"])]

        run(protocol(), channel, method="lloyd", journal=Journal(folder / "journal"), events=tell)
        found["bytes"] = sizes[-1]
        out = folder / "coterie"
        out.mkdir(parents=True, exist_ok=True)
        (out / "outcome.json").write_text(json.dumps(found))


def _echo(channel: AuxChannel, payload: bytes, timeout: float) -> float:
    """Seconds the engine takes to carry bytes to all sites and back, with nothing done there."""
    request = Shareable()
    request[FRAME] = payload
    began = time.perf_counter()
    wait([channel._pool.submit(channel._sent, name, HELLO, request, timeout) for name in channel.sites()], timeout)
    return time.perf_counter() - began
