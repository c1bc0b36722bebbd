"""What every benchmark is made of: a name, a claim, and lines of numbers."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Line:
    """One number with what it should stay below (None: only shown)."""

    what: str
    value: float
    unit: str
    limit: float | None = None
    is_aim: bool = False
    """An aim is shown beside the number; a limit that is not an aim fails the benchmark."""

    @property
    def holds(self) -> bool:
        return self.limit is None or self.is_aim or self.value <= self.limit


@dataclass
class Grid:
    """Numbers in rows and columns, only shown."""

    title: str
    headings: tuple[str, ...]
    remark: str = ""
    rows: list[tuple[str, ...]] = field(default_factory=list)


@dataclass
class Result:
    """The lines of one benchmark, a remark, and what does not fit into lines."""

    title: str
    lines: list[Line] = field(default_factory=list)
    remark: str = ""
    grids: list[Grid] = field(default_factory=list)


def alternating(first: Callable[[], object], second: Callable[[], object], repeats: int = 5) -> float:
    """Median of first/second, each pair timed back to back, so that a noisy machine disturbs both alike."""
    ratios = []
    for _ in range(repeats):
        ratios.append(seconds(first) / seconds(second))
    return statistics.median(ratios)


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def data_folder() -> Path | None:
    """The shared data sets, where they are."""
    folder = Path(os.environ.get("COTERIE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    return folder if folder.is_dir() else None
