"""The processes of a federation: how a kit is started, whether it is up, and how all of it is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from coterie.engines.nvflare.kits import Kit, place_server
from coterie.errors import InputError
from coterie.files import opened_private

_MODULES = {
    "server": "nvflare.private.fed.app.server.server_train",
    "site": "nvflare.private.fed.app.client.client_train",
}
OUTPUT = "output.log"
_STARTED: dict[int, subprocess.Popen[bytes]] = {}
"""What this process started, to take notice of its end."""


class Running(NamedTuple):
    """The process of a kit, and those it started for jobs."""

    pid: int
    jobs: tuple[int, ...]


def command(kit: Kit) -> list[str]:
    """What starts a server or a site, in the foreground."""
    if kit.kind not in _MODULES:
        raise InputError(f"{kit.folder}: this is the kit of an {kit.kind}; a server's or a site's is started.")
    file = "fed_server.json" if kit.kind == "server" else "fed_client.json"
    whose = ["org=center"] if kit.kind == "server" else [f"uid={kit.name}", f"org={kit.name.replace('-', '_')}"]
    settings = ["secure_train=true", *whose, "config_folder=config"]
    return [sys.executable, "-u", "-m", _MODULES[kit.kind], "-m", str(kit.folder), "-s", file, "--set", *settings]


def environment() -> dict[str, str]:
    """One thread a process for numerical libraries, as in one process: sums then come out the same."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**os.environ, **threads, "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "2")}


def find_running(kit: Kit) -> Running | None:
    """The process of this kit on this machine, if it is up."""
    module, pids, jobs = _MODULES[kit.kind], [], []
    for pid, words in _processes():
        if str(kit.folder) in words and "-m" in words:
            if module in words:
                pids.append(pid)
            elif any(word.startswith("nvflare.private.fed.app.") for word in words):
                jobs.append(pid)
    if not pids and not jobs:
        return None
    return Running(pids[0] if pids else 0, tuple(jobs))


def _processes() -> Iterable[tuple[int, list[str]]]:
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(path.name), path.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")


def _prepare(kit: Kit) -> list[str]:
    """Make a kit ready to be started; the command."""
    words = command(kit)
    if find_running(kit) is not None:
        raise InputError(f"{kit.folder}: this {kit.kind} is running already; stop it first.")
    kit.check()
    for name in ("restart.fl", "shutdown.fl"):
        (kit.folder / name).unlink(missing_ok=True)
    if kit.kind == "server":
        place_server(kit)
    return words


def run_here(kit: Kit) -> None:
    """Become the process of this kit; does not return."""
    words = _prepare(kit)
    os.chdir(kit.folder)
    os.execve(words[0], words, environment())


def start(kit: Kit) -> int:
    """Start the process of this kit in a session of its own, its output in a file of the kit; its pid."""
    words = _prepare(kit)
    with open(kit.folder / OUTPUT, "ab", opener=opened_private) as output:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(), cwd=kit.folder,
            start_new_session=True,
        )  # fmt: skip
    _STARTED[process.pid] = process
    return process.pid


def stop(kits: Iterable[Kit], *, patience: float = 10.0) -> int:
    """End the processes of these kits and those they started: asked first, then made to; how many there were."""
    kits, stopped = list(kits), set[int]()
    ends = time.monotonic() + patience
    while True:
        pids = [pid for kit in kits for pid in _pids(kit)]
        if not pids:
            return len(stopped)
        hard = time.monotonic() > ends
        for pid in pids:
            if hard or pid not in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if hard else signal.SIGTERM)
            if not hard:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)  # one that was halted cannot end
            stopped.add(pid)
        time.sleep(0.1)


def _pids(kit: Kit) -> list[int]:
    for pid, process in list(_STARTED.items()):
        if process.poll() is not None:
            del _STARTED[pid]
    running = find_running(kit)
    return [] if running is None else [pid for pid in (running.pid, *running.jobs) if pid and not has_ended(pid)]


def has_ended(pid: int) -> bool:
    """Whether a process has ended and only waits for its parent to take notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True
