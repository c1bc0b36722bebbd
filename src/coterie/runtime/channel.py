"""What an engine is to a run: something that carries bytes to sites and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol


class Outcome(NamedTuple):
    """What became of one payload.

    ``answered`` comes with the bytes the site sent (which may be its refusal); ``refused`` means the engine
    itself was turned away; ``late`` that nothing came in time; ``lost`` that the site cannot be reached.
    """

    status: Literal["answered", "refused", "late", "lost"]
    payload: bytes = b""


class Channel(Protocol):
    """Two methods; counting, deadlines, quorum, masking and the journal live above them."""

    def sites(self) -> Sequence[str]:
        """The sites that can be asked now."""
        ...

    def exchange(self, payloads: Mapping[str, bytes], timeout: float | None) -> Mapping[str, Outcome]:
        """Carry each payload to its site and bring back what became of it within ``timeout`` seconds."""
        ...
