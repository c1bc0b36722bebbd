"""What a site keeps in mind of its runs."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from coterie.messages.codec import NO_TRANSCRIPT
from coterie.messages.site_part import Memory
from coterie.sites.ledger import MAX_RUNS

__all__ = ["RunMemories", "RunMemory"]


@dataclass
class RunMemory:
    """One run: what the protocols' functions keep, and the digest of the requests it was built from."""

    memory: Memory = field(default_factory=Memory)
    transcript: bytes = NO_TRANSCRIPT
    view: bytes = NO_TRANSCRIPT
    """The digest of the requests that changed how the run sees the site's rows."""


class RunMemories:
    """The runs a site has in mind; beyond a few, the one not heard of for longest is forgotten.

    Forgetting costs nothing but time: the site says so and is sent the run's remembered requests again.
    """

    def __init__(self, min_count: int = 1, alignment_key: bytes | None = None) -> None:
        self._runs: OrderedDict[bytes, RunMemory] = OrderedDict()
        self._min_count, self._alignment_key = min_count, alignment_key

    def of(self, run: bytes) -> RunMemory:
        """The memory of ``run``, a blank one where there is none."""
        if run not in self._runs:
            self._runs[run] = RunMemory()
            self._runs[run].memory.min_count = self._min_count
            self._runs[run].memory.alignment_key = self._alignment_key
        found = self._runs[run]
        self._runs.move_to_end(run)
        if len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        return found

    def forget(self, run: bytes) -> None:
        """Drop what is kept of ``run``."""
        self._runs.pop(run, None)
