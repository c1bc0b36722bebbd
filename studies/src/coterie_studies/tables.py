"""Means with intervals over seeds, and tables of them as CSV and Markdown."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["Cell", "Estimate", "Row", "estimate", "markdown", "write_csv"]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, the sample standard deviation, and the interval that holds the mean at 95 %."""

    mean: float
    deviation: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        """Mean ± half the interval; the mean alone where there is none, or none that shows."""
        if self.n == 0:
            return ""
        half = "" if self.n < 2 else _number((self.high - self.low) / 2)
        return _number(self.mean) if half in ("", "0", "0.0000") else f"{_number(self.mean)} ± {half}"


Cell = str | int | float | Estimate
Row = Mapping[str, Cell]


def estimate(values: Iterable[float], *, level: float = 0.95) -> Estimate:
    """The mean with Student's t-interval; values that are undefined (NaN) are left out and not counted."""
    from scipy import stats

    found = np.array([value for value in values if not math.isnan(value)], float)
    n = len(found)
    if n < 2:
        only = float(found[0]) if n else math.nan
        return Estimate(only, math.nan, math.nan, math.nan, n)
    mean, deviation = float(found.mean()), float(found.std(ddof=1))
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * deviation / math.sqrt(n)
    return Estimate(mean, deviation, mean - half, mean + half, n)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Every number in full; an estimate takes five columns."""
    wide = [_widened(row) for row in rows]
    heads = list(dict.fromkeys(name for row in wide for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, heads, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(wide)


def _widened(row: Row) -> dict[str, str | int | float]:
    wide: dict[str, str | int | float] = {}
    for name, cell in row.items():
        if isinstance(cell, Estimate):
            wide[name] = _blank(cell.mean)
            wide[f"{name} sd"] = _blank(cell.deviation)
            wide[f"{name} low"], wide[f"{name} high"] = _blank(cell.low), _blank(cell.high)
            wide[f"{name} n"] = cell.n
        else:
            wide[name] = cell
    return wide


def _blank(value: float) -> float | str:
    return "" if math.isnan(value) else value


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, numbers rounded and to the right."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    right = [all(not isinstance(row.get(name, 0), str) for row in rows) for name in heads]
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(" ---: " if r else " --- " for r in right) + "|"]
    for row in rows:
        lines.append("| " + " | ".join(_shown(row.get(name, "")) for name in heads) + " |")
    return "\n".join(lines) + "\n"


def _shown(cell: Cell) -> str:
    return f"{cell:g}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)


def _number(value: float) -> str:
    """A number with four decimals at most; large ones whole, with thousands apart."""
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
