"""Amounts that are known before a run: exactly, or between two ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.planning.rehearsal import Rehearsed
from coterie.runtime.ledger import Ledger

Measure = Callable[[Ledger], int]


@dataclass(frozen=True)
class Amount:
    """A whole number that a run takes of something."""

    least: int
    most: int | None
    """None where nothing useful bounds it."""
    likely: int | None = None
    """What a run over made-up rows takes: an estimate; None where that cannot be rehearsed."""

    @property
    def is_exact(self) -> bool:
        """Whether it is known exactly."""
        return self.least == self.most

    @property
    def estimate(self) -> int:
        """The number itself where it is exact, else an estimate of it."""
        return self.least if self.likely is None else self.likely

    def __contains__(self, value: int) -> bool:
        return self.least <= value and (self.most is None or value <= self.most)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"least": self.least, "most": self.most, "likely": self.likely, "is_exact": self.is_exact}


@dataclass(frozen=True)
class Rehearsals:
    """Rehearsals of one run: with the least and the most of what rows decide, and over made-up rows."""

    least: Rehearsed
    most: Rehearsed | None
    likely: Rehearsed | None

    @property
    def is_shared_out(self) -> bool:
        """Whether rows decide how much each site sends of what all send together."""
        return self.least.is_shared_out

    def amount(self, measure: Measure, slack: Callable[[Rehearsed], tuple[int, int]] | None = None) -> Amount:
        """What ``measure`` says of all rehearsals; ``slack``: how much less and more it may be."""
        slack = slack or (lambda _: (0, 0))
        likely = None if self.likely is None else measure(self.likely.ledger)
        if self.most is self.least:
            return Amount(measure(self.least.ledger), measure(self.least.ledger), likely)
        least = measure(self.least.ledger) - slack(self.least)[0]
        return Amount(least, None if self.most is None else measure(self.most.ledger) + slack(self.most)[1], likely)


def bytes_down(rehearsals: Rehearsals, site: str | None = None) -> Amount:
    """To one site, or to all."""

    def own(by_site: Mapping[str, int]) -> int:
        return sum(by_site.values()) if site is None else by_site[site]

    return rehearsals.amount(
        lambda ledger: ledger.total("bytes_down", site), lambda made: (own(made.narrower), own(made.wider))
    )


def bytes_up(rehearsals: Rehearsals, site: str | None = None) -> Amount:
    """From one site, or from all; of what rows share out, one site may send all or nothing."""
    whole = rehearsals.amount(lambda ledger: ledger.total("bytes_up"))
    if site is None:
        return whole
    own = rehearsals.amount(lambda ledger: ledger.total("bytes_up", site))
    return Amount(0, whole.most, own.likely) if rehearsals.is_shared_out else own


def longest(ledger: Ledger) -> int:
    """Bytes of the largest message."""
    counts = (count for exchange in ledger.exchanges for count in exchange.sites.values())
    return max((max(count.bytes_up, count.bytes_down) for count in counts), default=0)


def largest_message(rehearsals: Rehearsals) -> Amount:
    """Of a run; with the most rounds a single one may be smaller than with fewer."""
    made = rehearsals.amount(longest)
    ends = [end for end in (made.least, made.most, made.likely) if end is not None]
    return Amount(min(ends), None if made.most is None else max(ends), made.likely)
