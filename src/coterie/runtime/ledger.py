"""The server's count of everything that was asked and answered; the only place that counts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from coterie.messages.chain import Chain, head_path
from coterie.messages.refusals import Refusal

What = Literal["floats_up", "bytes_up", "bytes_down", "rounds", "rounds_masking"]
LEDGER_SCHEMA = 1
_DECLINED = frozenset(code.sentence for code in Refusal if code.is_about_the_question)


GOOD = ("answered", "answered after being brought up to date")
"""Outcomes of a site that answered."""


class SiteCount(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One site's part in one exchange."""

    outcome: str
    """``answered``, or what happened instead, in words."""
    floats_up: int
    bytes_up: int
    bytes_down: int


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


class Ledger:
    """Every exchange of a run, and totals over them."""

    def __init__(self, method: str = "", run: str = "") -> None:
        self.method = method
        self.run = run
        self.exchanges: list[Exchange] = []
        self._counts_seen: dict[SiteCount, SiteCount] = {}

    def record(self, exchange: Exchange) -> None:
        """Write down one exchange; what it says word for word as others did is kept once."""
        seen = self._counts_seen
        exchange.sites = {name: seen.setdefault(count, count) for name, count in exchange.sites.items()}
        for part in ("phase", "asked", "answer", "content", "seen"):
            setattr(exchange, part, sys.intern(getattr(exchange, part)))
        self.exchanges.append(exchange)

    def total(self, what: What, site: str | None = None) -> int:
        """Numbers or bytes over all sites or one, or rounds (one site's: those it was asked in)."""
        if what in ("rounds", "rounds_masking"):
            phase = "algorithm" if what == "rounds" else "masking"
            return sum(
                exchange.phase == phase and (site is None or site in exchange.sites) for exchange in self.exchanges
            )
        if what not in ("floats_up", "bytes_up", "bytes_down"):
            raise ValueError(
                f"the ledger has no {what!r}; it has floats_up, bytes_up, bytes_down, rounds, rounds_masking"
            )
        return sum(getattr(count, what) for _, count in self._counts(site))

    def sites(self) -> tuple[str, ...]:
        """Every site that was ever asked."""
        return tuple(dict.fromkeys(name for exchange in self.exchanges for name in exchange.sites))

    def lost(self) -> dict[str, int]:
        """The sites that were lost on the way, and since which round: when last asked, they did not answer.

        A site that declined a question, and was there for others, was not lost.
        """
        found: dict[str, int] = {}
        for exchange in self.exchanges:
            for name, count in exchange.sites.items():
                if count.outcome.startswith("answered"):
                    found.pop(name, None)
                elif count.outcome not in _DECLINED:
                    found.setdefault(name, exchange.round)
        return found

    def summary(self) -> dict[str, Any]:
        """Totals, over all sites and by site."""
        names: tuple[What, ...] = ("floats_up", "bytes_up", "bytes_down", "rounds", "rounds_masking")
        return {
            "schema": LEDGER_SCHEMA,
            "method": self.method,
            "run": self.run,
            "total": {name: self.total(name) for name in names},
            "sites": {site: {name: self.total(name, site) for name in names} for site in self.sites()},
        }

    def write(self, folder: Path) -> None:
        """``ledger.jsonl``, a sealed line an exchange, and ``ledger.json``, the totals."""
        folder.mkdir(parents=True, exist_ok=True)
        lines = folder / "ledger.jsonl"
        for old in (lines, head_path(lines)):
            old.unlink(missing_ok=True)
        chain = Chain(lines)
        for exchange in self.exchanges:
            chain.append({"run": self.run, "method": self.method, **msgspec.to_builtins(exchange)})
        chain.close()
        (folder / "ledger.json").write_text(json.dumps(self.summary(), indent=2) + "\n")

    def _counts(self, site: str | None) -> Iterator[tuple[str, SiteCount]]:
        for exchange in self.exchanges:
            if site is None:
                yield from exchange.sites.items()
            elif site in exchange.sites:
                yield site, exchange.sites[site]

    def __repr__(self) -> str:
        totals: Mapping[str, int] = self.summary()["total"]
        return "Ledger(" + ", ".join(f"{name}={value}" for name, value in totals.items()) + ")"
