"""A run's folder is written by one process at a time, and a resumed run needs the same rows."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import quote

from filelock import FileLock, Timeout

from coterie.errors import InputError
from coterie.runtime.events import EVENTS
from coterie.sites.ledger import NO_RUN, SiteLedger

LOCK = ".running"
PATIENCE = 0.15
"""Seconds to wait for the lock: ``is_at_work`` holds it for a moment."""


def check_fingerprints(journal: Path, fingerprints: Mapping[str, str], *, resume: bool) -> None:
    """Store the fingerprint of every site's rows in its ledger, or compare it where a run is resumed."""
    for site, rows in fingerprints.items():
        with contextlib.closing(SiteLedger(journal / "sites" / f"{quote(site, safe='')}.jsonl")) as ledger:
            if not ledger.began_with(NO_RUN, rows, is_new=not resume):
                raise InputError(
                    f"the rows of site {site} have changed since the run began; restore them, or choose another "
                    "folder."
                )


class Claimed:
    """A folder that only this process writes to; it is created if needed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._was_there = folder, folder.exists()
        self._journal_was_there = (folder / "journal").exists()
        self._events_were_there = (folder / EVENTS).exists()
        self._lock = FileLock(folder / LOCK, PATIENCE, mode=0o600, thread_local=False)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            raise InputError(
                f"another coterie process is writing to {self._folder}; choose another folder."
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            (self._folder / LOCK).unlink(missing_ok=True)
            if not self._was_there and not any(self._folder.iterdir()):
                self._folder.rmdir()
        self._lock.release()

    def give_back(self) -> None:
        """Remove the files that this process created."""
        if not self._journal_was_there:
            shutil.rmtree(self._folder / "journal", ignore_errors=True)
        if not self._events_were_there:
            (self._folder / EVENTS).unlink(missing_ok=True)


def is_at_work(folder: Path) -> bool:
    """Whether a process is writing to a folder; one that was killed leaves the lock file, but not the lock."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


class SiteWarnings(logging.Handler):
    """Collects what the sites of this process log, which the user may read: all sites are the user's own."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())

    def summary(self) -> str:
        """The last three different messages."""
        last = list(dict.fromkeys(self._messages))[-3:]
        return f"The sites logged: {'; '.join(last)}." if last else ""

    def __enter__(self) -> Self:
        logging.getLogger("coterie.site").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("coterie.site").removeHandler(self)
