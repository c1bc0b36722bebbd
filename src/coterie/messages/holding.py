"""Something only one process may have at a time, such as a site's books or a run's journal."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path


class Hold:
    """A lock on a file; it goes with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, -1

    def take(self, patience: float) -> bool:
        """Whether it could be had within so many seconds: one that has it may be about to end."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        ends = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError:
                if time.monotonic() > ends:
                    self.give_back()
                    return False
                time.sleep(0.1)

    def give_back(self) -> None:
        """Let others have it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
