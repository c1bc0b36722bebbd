"""What a site keeps in mind of its runs."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from coterie.messages import codec
from coterie.messages.schema import Request
from coterie.messages.site_api import Memory
from coterie.sites.ledger import MAX_RUNS
from coterie.sites.policy import Policy

SHOWN = "shown"
"""What a run's memory holds: a digest of how rows were shown so far."""


class RunMemory(Memory):
    """What the protocols' functions keep of one run, and the digest of the requests it was built from."""

    transcript: bytes = codec.NO_TRANSCRIPT

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request[Any]] = []
        """The requests it was built from."""

    def show(self, request: Request[Any]) -> None:
        """Rows are shown in another way from now on, or something else is kept of them."""
        body = codec.encode_body(request, {}).data
        self[SHOWN] = codec.extend_transcript(self.get(SHOWN, codec.NO_TRANSCRIPT), body)


class RunMemories:
    """The runs a site has in mind; beyond a few, the one not heard of for longest is forgotten.

    Forgetting costs nothing but time: the site says so and is sent the run's remembered requests again.
    """

    def __init__(self, policy: Policy) -> None:
        self._runs: OrderedDict[bytes, dict[str, RunMemory]] = OrderedDict()
        self._policy = policy

    def of(self, run: bytes, view: str = "") -> RunMemory:
        """The memory of ``run`` over one view of the table, a blank one where there is none."""
        memory = self._runs.setdefault(run, {}).setdefault(view, RunMemory())
        memory.alignment_key, memory.allows = self._policy.alignment_key, self._policy.allowed
        memory.fewest_of_half = self._policy.fewest_of_half
        memory.shows_composition = self._policy.shows_composition
        self._runs.move_to_end(run)
        if len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        return memory

    def forget(self, run: bytes) -> None:
        """Drop what is kept of ``run``."""
        self._runs.pop(run, None)
