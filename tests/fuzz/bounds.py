"""What one input may take at most, of the processor and of memory."""

from __future__ import annotations

import re
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

SECONDS, BYTES = 1.0, 300_000_000
PATIENCE = 30.0
"""Seconds of the clock after which an input that never ends is ended."""


class Hung(BaseException):
    """Caught by no reader: an input did not end."""


class Bounds:
    """A check, after every input, that it took neither long nor much."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # forget the largest size so far
        self._first, self._began = _largest_size(), 0.0
        self.begin()

    def begin(self) -> None:
        """An input is read from now on; one that never ends is ended."""
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        self._began = time.process_time()

    def __call__(self, data: bytes) -> None:
        """The input was read."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        took = time.process_time() - self._began
        assert took < SECONDS, f"{took:.1f} s for {data[:2000]!r}"
        grown = _largest_size() - self._first
        assert grown < BYTES, f"{grown:,} bytes for {data[:2000]!r}"
        self.begin()


@contextmanager
def bounded() -> Iterator[Bounds]:
    """Within, inputs are read one by one, each within bounds."""

    def hang(*_: Any) -> None:
        raise Hung

    handler = signal.signal(signal.SIGALRM, hang)
    try:
        yield Bounds()
    except Hung:
        raise AssertionError("an input does not end") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


@contextmanager
def small_machine(more: int) -> Iterator[None]:
    """One thread, and so many addresses more than there are: what takes more than that fails by itself."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with threadpool_limits(1):
        resource.setrlimit(resource.RLIMIT_AS, (used + more, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)


def _largest_size() -> int:
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return 1024 * int(match[1])
