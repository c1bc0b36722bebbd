"""The server's record of everything that was asked and answered; the only place that counts.

An exchange is recorded once, as an :class:`Exchange`. The journal keeps it as it is; a line of the ledger and an
event are read from it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from coterie.errors import InputError
from coterie.messages.chain import Chain, head_path
from coterie.runtime.outcomes import SiteOutcome

Total = Literal["floats_up", "bytes_up", "bytes_down", "rounds", "rounds_masking"]
TOTALS: tuple[Total, ...] = get_args(Total)
LEDGER_SCHEMA = 1


class SiteCount(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One site's part in one exchange."""

    outcome: SiteOutcome
    floats_up: int
    bytes_up: int
    bytes_down: int

    def line(self) -> list[Any]:
        """Its part of a line of the ledger; why an answer was refused or cannot be used comes last."""
        reason = [self.outcome.reason] if self.outcome.reason else []
        return [self.outcome.kind.value, self.floats_up, self.bytes_up, self.bytes_down, *reason]

    def columns(self) -> dict[str, Any]:
        """Its part of a row of a data frame."""
        outcome = {"outcome": self.outcome.kind.value, "reason": self.outcome.reason or ""}
        return outcome | {name: getattr(self, name) for name in ("floats_up", "bytes_up", "bytes_down")}

    def event(self) -> dict[str, Any]:
        """Its part of an event."""
        reason = {"reason": self.outcome.reason} if self.outcome.reason else {}
        outcome = {"outcome": self.outcome.kind.value, **reason}
        return {**outcome, "bytes_up": self.bytes_up, "bytes_down": self.bytes_down}


class Exchange(msgspec.Struct):
    """One broadcast and one collection."""

    round: int
    attempt: int
    phase: str
    asked: str
    answer: str
    content: str
    seen: str
    sites: dict[str, SiteCount]
    seconds: float = 0.0

    def line(self) -> dict[str, Any]:
        """The exchange as the ledger shows it."""
        facts = {name: getattr(self, name) for name in ("round", "attempt", *_TEXTS)}
        return {**facts, "sites": {name: count.line() for name, count in self.sites.items()}}

    def event(self) -> dict[str, Any]:
        """The exchange as it is reported while the run goes on."""
        facts = {name: getattr(self, name) for name in ("round", "attempt", *_TEXTS) if name != "content"}
        totals = {n: sum(getattr(c, n) for c in self.sites.values()) for n in ("bytes_up", "bytes_down", "floats_up")}
        sites = {name: count.event() for name, count in self.sites.items()}
        return {**facts, **totals, "seconds": round(self.seconds, 6), "sites": sites}


_TEXTS = ("phase", "asked", "answer", "content", "seen")


class Ledger:
    """Every exchange of a run, and totals over them."""

    def __init__(self, method: str = "", run: str = "") -> None:
        self.method = method
        self.run = run
        self.exchanges: list[Exchange] = []
        self._counts_seen: dict[SiteCount, SiteCount] = {}

    def record(self, exchange: Exchange) -> None:
        """Keep one exchange; counts and texts that others have as well are stored once."""
        seen = self._counts_seen
        exchange.sites = {name: seen.setdefault(count, count) for name, count in exchange.sites.items()}
        for name in _TEXTS:
            setattr(exchange, name, sys.intern(getattr(exchange, name)))
        self.exchanges.append(exchange)

    def total(self, what: Total, site: str | None = None) -> int:
        """Numbers or bytes over all sites or one, or rounds (one site's: those it was asked in)."""
        if what not in TOTALS:
            raise ValueError(f"the ledger has no {what!r}; it has {', '.join(TOTALS)}")
        exchanges = [exchange for exchange in self.exchanges if site is None or site in exchange.sites]
        if what in ("rounds", "rounds_masking"):
            is_masking = what == "rounds_masking"
            return sum((exchange.phase == "masking") == is_masking for exchange in exchanges)
        counts = (e.sites.values() if site is None else [e.sites[site]] for e in exchanges)
        return sum(getattr(count, what) for of_exchange in counts for count in of_exchange)

    def sites(self) -> tuple[str, ...]:
        """Every site that was ever asked."""
        return tuple(dict.fromkeys(name for exchange in self.exchanges for name in exchange.sites))

    def lost(self) -> dict[str, int]:
        """The sites that dropped out, and since which round: when last asked, they did not answer.

        A site that declined a question, and answered others, did not drop out.
        """
        since: dict[str, int] = {}
        for exchange in self.exchanges:
            for name, count in exchange.sites.items():
                if count.outcome.is_heard:
                    since.pop(name, None)
                elif not count.outcome.has_declined:
                    since.setdefault(name, exchange.round)
        return since

    def summary(self) -> dict[str, Any]:
        """Totals, over all sites and by site."""
        return {
            "schema": LEDGER_SCHEMA,
            "method": self.method,
            "run": self.run,
            "total": {name: self.total(name) for name in TOTALS},
            "sites": {site: {name: self.total(name, site) for name in TOTALS} for site in self.sites()},
        }

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each exchange and site; ``InputError`` where pandas is not installed."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise InputError(
                "to_frame needs pandas, which is not installed (pip install pandas); or read ledger_.exchanges."
            ) from None
        columns = ("round", "attempt", *_TEXTS, "seconds")
        rows = [
            {name: getattr(exchange, name) for name in columns} | {"site": site} | count.columns()
            for exchange in self.exchanges
            for site, count in exchange.sites.items()
        ]
        return DataFrame(rows, columns=[*columns, "site", "outcome", "reason", "floats_up", "bytes_up", "bytes_down"])

    def write(self, folder: Path) -> None:
        """``ledger.jsonl``, a sealed line an exchange, and ``ledger.json``, the totals."""
        folder.mkdir(parents=True, exist_ok=True)
        lines = folder / "ledger.jsonl"
        for old in (lines, head_path(lines)):
            old.unlink(missing_ok=True)
        chain = Chain(lines)
        for exchange in self.exchanges:
            chain.append({"run": self.run, "method": self.method, **exchange.line()})
        chain.close()
        (folder / "ledger.json").write_text(json.dumps(self.summary(), indent=2) + "\n")

    def __repr__(self) -> str:
        totals: Mapping[str, int] = self.summary()["total"]
        return "Ledger(" + ", ".join(f"{name}={value}" for name, value in totals.items()) + ")"
