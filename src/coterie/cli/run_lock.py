"""A job's hold on its folder and its data: one process at a time, the same rows when it is resumed."""

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

LOCK = ".running"
PATIENCE = 0.15
"""Seconds to wait: whoever asks if somebody is at work holds the lock for a moment."""


def check_fingerprints(journal: Path, fingerprints: Mapping[str, str], *, resume: bool) -> None:
    """Keep each site's fingerprint in its own corner of the journal; a resumed run must find the same rows."""
    for site, fingerprint in fingerprints.items():
        path = journal / "sites" / f"{quote(site, safe='')}.fingerprint"
        if not resume:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fingerprint + "\n")
        elif not path.exists() or path.read_text().strip() != fingerprint:
            raise InputError(
                f"the rows of {site} are not those the run began with; restore them, or start in another folder."
            )


class Claimed:
    """A folder that only this process writes to, made where it was not there."""

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
                f"another coterie is at work in {self._folder}; wait for it, or choose another folder."
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            (self._folder / LOCK).unlink(missing_ok=True)
            if not self._was_there and not any(self._folder.iterdir()):
                self._folder.rmdir()
        self._lock.release()

    def give_back(self) -> None:
        """Remove what this process made, and nothing else."""
        if not self._journal_was_there:
            shutil.rmtree(self._folder / "journal", ignore_errors=True)
        if not self._events_were_there:
            (self._folder / EVENTS).unlink(missing_ok=True)


def is_at_work(folder: Path) -> bool:
    """Whether a process holds its claim on a folder; one that was killed left the file, and its lock is free."""
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


class SiteWords(logging.Handler):
    """What the sites of this process wrote into their logs: their owner is the one who reads it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._words: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._words.append(record.getMessage())

    def said(self) -> str:
        """The last few different lines."""
        last = list(dict.fromkeys(self._words))[-3:]
        return f"At the sites: {'; '.join(last)}." if last else ""

    def __enter__(self) -> Self:
        logging.getLogger("coterie.site").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("coterie.site").removeHandler(self)
