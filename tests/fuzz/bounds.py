"""What one input may take at most, of the processor and of memory."""

from __future__ import annotations

import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

SECONDS, BYTES = 1.0, 300_000_000
PATIENCE = 30.0
"""Seconds of the clock after which an input that never ends is ended."""


class Hung(BaseException):
    """Caught by no reader: an input did not end."""


@contextmanager
def bounded() -> Iterator[Callable[[bytes], None]]:
    """A check, after every input, that it took neither long nor much; one that never ends is ended."""

    def hang(*_: Any) -> None:
        raise Hung

    Path("/proc/self/clear_refs").write_text("5")  # forget the largest size so far
    first, began = _largest_size(), time.process_time()
    handler = signal.signal(signal.SIGALRM, hang)

    def check(data: bytes) -> None:
        nonlocal began
        signal.setitimer(signal.ITIMER_REAL, 0)
        took = time.process_time() - began
        assert took < SECONDS, f"{took:.1f} s for {data[:2000]!r}"
        grown = _largest_size() - first
        assert grown < BYTES, f"{grown:,} bytes for {data[:2000]!r}"
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        began = time.process_time()

    try:
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        yield check
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
