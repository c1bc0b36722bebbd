"""Seconds and memory that a run is likely to take, from constants that `python -m benchmarks plan` measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec


class Speed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one engine: what each of these adds to a run's seconds, and the memory of its processes."""

    begin: float
    """Once a run."""
    exchange: float
    answer: float
    """For each site and exchange."""
    pair: float
    """For each pair of sites of a masked sum: what a mask takes."""
    megabyte: float
    million_values: float
    """Read of a site's view of its table, in one exchange."""
    million_values_grouped: float
    """Of rows that are put into groups, once."""
    memory: float
    """Megabytes of the process that a site's work is done in."""
    server_memory: float
    """Megabytes of the server's process."""


class Speeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The constants, and the machine they were measured on."""

    machine: str
    engines: dict[str, Speed]


@cache
def speeds() -> Speeds:
    """The constants that come with this version."""
    return msgspec.json.decode(files("coterie.planning").joinpath("speeds.json").read_bytes(), type=Speeds)


@dataclass(frozen=True)
class Work:
    """What a run has to do."""

    exchanges: int
    answers: int
    pairs: int
    n_bytes: int
    values: int
    """Of the rows that sites show, over all sites and exchanges."""
    values_grouped: int
    """Of all rows that are put into groups."""

    def counts(self) -> Mapping[str, float]:
        """By constant, how often it is added."""
        return {
            "begin": 1,
            "exchange": self.exchanges,
            "answer": self.answers,
            "pair": self.pairs,
            "megabyte": self.n_bytes / 1e6,
            "million_values": self.values / 1e6,
            "million_values_grouped": self.values_grouped / 1e6,
        }

    def seconds(self, speed: Speed) -> float:
        """On the machine that was measured, with nothing else to do."""
        return sum(count * float(getattr(speed, name)) for name, count in self.counts().items())


@dataclass(frozen=True)
class Estimates:
    """What a run is likely to take with one engine; no promise."""

    seconds: float
    """As over made-up rows."""
    seconds_least: float
    seconds_most: float | None
    memory: float
    """Megabytes of the process that a site's work is done in; in one process, of all sites together."""
    server_memory: float
    """Megabytes of the server's process; the same one where all is done in one process."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values; digits that mean nothing are left out."""
        return {name: None if value is None else float(f"{value:.3g}") for name, value in vars(self).items()}
