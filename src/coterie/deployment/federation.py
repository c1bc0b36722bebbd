"""A federation of real processes on one machine, in one folder: to try what sites and servers do elsewhere."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from coterie.engines.nvflare import processes
from coterie.engines.nvflare.kits import Kit, provision, read_kit
from coterie.engines.nvflare.session import Session, Unreachable
from coterie.errors import CoterieError, InputError
from coterie.files import opened_private, private_folder
from coterie.messages.site_api import Table
from coterie.sites.installed import Holdings, InstalledSite

MARK, DATA = "federation.json", "data"
UP = 60.0
"""Seconds the processes are given to find each other."""


class Federation:
    """A server, its sites and an analyst's kit below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def up(self, holdings: Mapping[str, Holdings], *, say: Callable[[str], None] = lambda _: None) -> None:
        """Make kits, tell sites what they hold, start everything, and wait until all sites are connected.

        Where a federation is in the folder already, it is started again as it is.
        """
        if not self.is_there:
            if self.folder.exists() and any(path.name != DATA for path in self.folder.iterdir()):
                raise InputError(f"{self.folder} holds something else; choose another folder with --folder.")
            say(f"making kits for {len(holdings)} sites ...")
            provision(self.folder, list(holdings), server="localhost", port=_free_port())
            (self.folder / MARK).write_text(json.dumps({"sites": list(holdings)}) + "\n")
        for name, held in holdings.items():
            self.site(name).tell(held)
        if self.running():
            raise InputError(f"{self.folder}: a federation is up here already; `coterie federation down` ends it.")
        try:
            names = ("server", *self.names())
            started = {name: processes.start(self.kit(name)) for name in names}
            say("starting the server and the sites ...")
            self._await(started, say)
        except BaseException:
            self.down()
            raise

    def down(self) -> int:
        """End every process of this federation; how many there were."""
        return processes.stop(self.kits())

    @property
    def is_there(self) -> bool:
        """Whether the folder holds a federation."""
        return (self.folder / MARK).is_file()

    def names(self) -> list[str]:
        if not self.is_there:
            raise InputError(f"{self.folder} holds no federation; `coterie federation up` makes one.")
        sites: list[str] = json.loads((self.folder / MARK).read_text())["sites"]
        return sites

    def kits(self) -> list[Kit]:
        return [self.kit(name) for name in ("server", *self.names())]

    def kit(self, name: str) -> Kit:
        """The kit of ``server`` or of a site."""
        return read_kit(self.folder / ("server" if name == "server" else f"sites/{name}"))

    def analyst(self) -> Kit:
        return read_kit(next((self.folder / "analysts").iterdir()))

    def site(self, name: str) -> InstalledSite:
        """What a site holds and keeps."""
        return InstalledSite(self.folder / "sites" / name)

    def running(self) -> dict[str, processes.Running]:
        """The processes that are up, by server and site."""
        processes_by_name = {
            ("server" if k.kind == "server" else k.name): processes.find_running(k) for k in self.kits()
        }
        return {name: process for name, process in processes_by_name.items() if process is not None}

    def _await(self, started: Mapping[str, int], say: Callable[[str], None]) -> None:
        wanted, ends, there = set(self.names()), time.monotonic() + UP, set[str]()
        with Session(self.analyst()) as session:
            while there < wanted:
                dead = [name for name, pid in started.items() if processes.has_ended(pid)]
                if dead:
                    name = min(dead)
                    log = self.kit(name).folder / processes.OUTPUT
                    raise CoterieError(f"{name} ended as soon as it was started; {log} says why.")
                if time.monotonic() > ends:
                    raise CoterieError(
                        f"{', '.join(sorted(wanted - there))} did not connect within {UP:g} s; "
                        f"see {processes.OUTPUT} in {self.folder}/sites/NAME."
                    )
                time.sleep(0.3)
                try:
                    now = set(session.sites()) & wanted
                except Unreachable:
                    continue
                if now != there:
                    there = now
                    say(f"{len(there)} of {len(wanted)} sites are connected")


def deal_out(table: Table, names: list[str], folder: Path) -> dict[str, Path]:
    """Rows of one table dealt out to sites one by one, a Parquet file each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if table.n_rows < len(names):
        raise InputError(f"{table.n_rows} rows cannot be dealt out to {len(names)} sites.")
    private_folder(folder)
    columns = [column.name for column in table.columns]
    schema = pa.schema([(name, pa.float64()) for name in columns])
    paths = {name: folder / f"{name}.parquet" for name in names}
    start = 0
    with ExitStack() as stack:
        files = [stack.enter_context(open(path, "wb", opener=opened_private)) for path in paths.values()]
        writers = [stack.enter_context(pq.ParquetWriter(file, schema)) for file in files]
        for block in table.raw_blocks():
            places = (np.arange(len(block.rows)) + start) % len(names)
            for i, writer in enumerate(writers):
                rows = np.asarray(block.rows[places == i], np.float64)
                writer.write_table(pa.table([rows[:, j] for j in range(len(columns))], schema=schema))
            start += len(block.rows)
    return paths


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
