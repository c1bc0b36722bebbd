"""When a run waits, asks again and gives up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from coterie.errors import InputError


@dataclass(frozen=True)
class Terms:
    """When a run waits, asks again and gives up."""

    deadline: float | None = None
    """Seconds one exchange may take; None waits for ever."""
    quorum: float = 1.0
    """The share of the sites asked (of all sites, where all are asked) that must answer."""
    resends: int = 2
    """How often a question is sent again within its deadline when no answer came or it arrived damaged."""

    def __post_init__(self) -> None:
        if not 0 < self.quorum <= 1:
            raise InputError(f"quorum={self.quorum} is a share of the sites: above 0 and at most 1")
        if self.deadline is not None and not self.deadline > 0:
            raise InputError(f"deadline={self.deadline} seconds; it must be above 0")
        if self.resends < 0:
            raise InputError(f"resends={self.resends}; it cannot be negative")

    def needed(self, size: int) -> int:
        """How many of so many sites must answer."""
        return max(1, math.ceil(self.quorum * size - 1e-9))
