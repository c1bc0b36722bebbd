"""What the benchmark of a federation runs at its server: rounds of a protocol and bare echoes in turn."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coterie.engines.nvflare.center import AuxChannel, Center
from coterie.messages.verbs import Protocol, total
from coterie.protocols.lloyd import Assign
from coterie.runtime.journal import Journal
from coterie.runtime.run import run

MEGABYTE = 1e6


class EchoCenter(Center):
    """In turns: so many echoes of as many bytes as an answer has, so many rounds."""

    def conduct(self, channel: AuxChannel, engine: Any, kit: Path, folder: Path) -> None:  # noqa: ARG002
        """Leave the seconds of each, and the memory of this process, in a file."""
        turns, rounds, columns = self.told["turns"], self.told["rounds"], self.told["columns"]
        channel.greet()
        rng = np.random.default_rng(0)
        found: dict[str, Any] = {"echo": [], "round": [], "memory": []}
        sizes: list[int] = []

        def tell(line: dict[str, Any]) -> None:
            if line["event"] == "exchange":
                found["round"].append(line["seconds"])
                sizes.append(line["bytes_up"] // len(line["sites"]))

        def protocol() -> Protocol[None]:
            for turn in range(turns):
                for _ in range(rounds):
                    yield from total(Assign(rng.uniform(size=(self.told["clusters"], columns))))
                found["memory"].append(resident(os.getpid()))
                for _ in range(rounds if turn else 0):  # the first turn warms up
                    found["echo"].append(channel.echo(bytes(sizes[-1]), 30.0))

        run(protocol(), channel, method="lloyd", journal=Journal(folder / "journal"), events=tell)
        found["bytes"] = sizes[-1]
        found["round"] = found["round"][rounds:]
        out = folder / "coterie"
        out.mkdir(parents=True, exist_ok=True)
        (out / "outcome.json").write_text(json.dumps(found))


def resident(pid: int) -> float:
    """Memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def job_memory(pids: Iterator[int]) -> dict[int, float]:
    """Of several processes."""
    return {pid: resident(pid) for pid in pids}
