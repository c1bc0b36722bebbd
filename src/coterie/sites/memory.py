"""What a site keeps in mind of its runs."""

from __future__ import annotations

from collections import OrderedDict

from coterie.messages.codec import NO_TRANSCRIPT
from coterie.messages.site_api import Memory
from coterie.sites.ledger import MAX_RUNS


class RunMemory(Memory):
    """What the protocols' functions keep of one run, and the digest of the requests it was built from."""

    transcript: bytes = NO_TRANSCRIPT


class RunMemories:
    """The runs a site has in mind; beyond a few, the one not heard of for longest is forgotten.

    Forgetting costs nothing but time: the site says so and is sent the run's remembered requests again.
    """

    def __init__(self, alignment_key: bytes | None = None, allows: int = 2) -> None:
        self._runs: OrderedDict[bytes, dict[str, RunMemory]] = OrderedDict()
        self._alignment_key, self._allows = alignment_key, allows

    def of(self, run: bytes, view: str = "") -> RunMemory:
        """The memory of ``run`` over one view of the table, a blank one where there is none."""
        memory = self._runs.setdefault(run, {}).setdefault(view, RunMemory())
        memory.alignment_key, memory.allows = self._alignment_key, self._allows
        self._runs.move_to_end(run)
        if len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        return memory

    def forget(self, run: bytes) -> None:
        """Drop what is kept of ``run``."""
        self._runs.pop(run, None)
