"""What the description of a column says, and what is worth knowing of columns before clustering."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np

from coterie.text import count_of

RATIO = 10.0
"""Of two columns' deviations: above it the columns are in very different units."""
MOSTLY = 0.5
"""A larger share of missing values is most of them."""
RARE, FEW = 0.01, 30
"""A category of a smaller share of the rows is rare, and of fewer rows."""
FLAT = 0.2
"""A column varies little where nine in ten of its values are within this share of its deviation."""
HEAVY = 1.8
"""A column has outliers where nine in ten of its values are within so many deviations; of a
normal one it is 3.3."""
SKEWED = 3.0
"""A positive column is skewed where its upper quantile is so many times farther from the median than its
lower one."""
HALF_A_BIN = 0.05
"""How far a quantile may be off, in deviations."""
LIKE_NUMBERS = 0.03
"""How near moments and quartiles of a column are to those of the numbers from 1 to that of its rows."""
_NAME_OF_ID = re.compile(r"(^|[_ .-])(id|ids|key|uuid|guid|number|nr|no)$", re.IGNORECASE)
Scale = Literal["none", "standard", "robust"]


class Finding(Enum):
    """What is worth knowing of columns before clustering."""

    SCALES_DIFFER = "scales differ"
    SKEWED = "skewed"
    OUTLIERS = "outliers"
    CONSTANT = "constant"
    NEARLY_CONSTANT = "nearly constant"
    MOSTLY_MISSING = "mostly missing"
    LIKE_AN_ID = "like an id"
    RARE_CATEGORIES = "rare categories"


@dataclass(frozen=True)
class Note:
    """A finding, the columns it is about, and its number, where it has one."""

    finding: Finding
    columns: tuple[str, ...]
    value: float | None = None

    @property
    def sentence(self) -> str:
        """What was found, and what to do about it."""
        return _SENTENCES[self.finding].format(columns=listed_columns(self.columns), value=self.value)


_SENTENCES = {
    Finding.SCALES_DIFFER: "Deviations differ by a factor of {value:,.0f} ({columns}): without scaling, columns of "
    "large numbers decide alone which rows are near.",
    Finding.SKEWED: "{columns}: positive values with a long upper tail; the logarithm may describe them better.",
    Finding.OUTLIERS: "{columns}: a few values far from all others make up most of the deviation; look at them, or "
    "scale by quantiles.",
    Finding.CONSTANT: "{columns}: all values are the same; leave out what does not vary.",
    Finding.NEARLY_CONSTANT: "{columns}: nearly all values are the same; standard scaling makes the few others count "
    "for much.",
    Finding.MOSTLY_MISSING: "{columns}: more than half of the values are missing; filled with the mean they say "
    "little. Consider leaving such columns out.",
    Finding.LIKE_AN_ID: "{columns}: values that number or name rows; leave them out.",
    Finding.RARE_CATEGORIES: "{columns}: categories of fewer than one in a hundred rows; scaled each by itself they "
    "would count for much.",
}


@dataclass(frozen=True)
class ColumnDescription:
    """One column over all sites; of the numbers what there is, else None."""

    name: str
    kind: Literal["number", "yes or no", "categories"]
    present: float
    missing: float
    mean: float | None = None
    """Of yes or no: the share of 1."""
    deviation: float | None = None
    quantiles: Mapping[str, float] | None = None
    """Within a twentieth of a deviation of those of the values; over groups estimates."""
    shares: Mapping[str, float] | None = None
    """Of the values that are there, by category; what is left to 1 has categories of too few rows to be named."""
    noise: float | None = None
    """The standard deviation of the noise in the mean, in a private description."""


def _varying(columns: Sequence[ColumnDescription]) -> list[ColumnDescription]:
    return [column for column in columns if column.kind == "number" and column.deviation]


def suggested_scale(columns: Sequence[ColumnDescription]) -> Scale:
    """``none`` where all columns have about one unit, ``robust`` where most have outliers, else ``standard``."""
    numbers = _varying(columns)
    sizes = [column.deviation or 0.0 for column in numbers]
    if len(numbers) > 1 and 2 * sum(map(_has_outliers, numbers)) > len(numbers):
        return "robust"
    mixed = bool(numbers) and len(numbers) < len(columns)
    return "standard" if mixed or (sizes and max(sizes) > RATIO**0.5 * min(sizes)) else "none"


def notes_of(columns: Sequence[ColumnDescription], rows: float) -> Iterator[Note]:
    """Everything that is worth knowing before clustering."""
    numbers = _varying(columns)
    if numbers:
        small, large = (which(numbers, key=lambda c: c.deviation or 0.0) for which in (min, max))
        ratio = (large.deviation or 0.0) / (small.deviation or 1.0)
        if ratio > RATIO:
            yield Note(Finding.SCALES_DIFFER, (large.name, small.name), ratio)
    tests: dict[Finding, Callable[[ColumnDescription], bool]] = {
        Finding.SKEWED: _is_skewed,
        Finding.OUTLIERS: _has_outliers,
        Finding.CONSTANT: _is_constant,
        Finding.NEARLY_CONSTANT: _is_nearly_constant,
        Finding.MOSTLY_MISSING: lambda column: column.missing > MOSTLY * rows,
        Finding.LIKE_AN_ID: lambda column: _is_like_an_id(column, rows),
    }
    for finding, test in tests.items():
        names = tuple(column.name for column in columns if test(column))
        if names:
            yield Note(finding, names)
    rare = tuple(
        f"{column.name}={category}"
        for column in columns
        for category, share in (column.shares or {}).items()
        if 0 < share < RARE
    )
    if rare:
        yield Note(Finding.RARE_CATEGORIES, rare)


def _quantile(column: ColumnDescription, name: str) -> float:
    return (column.quantiles or {}).get(name, np.nan)


def _reach(column: ColumnDescription) -> float:
    """In how many deviations nine in ten values lie; not a number where that is unknown."""
    return (_quantile(column, "95%") - _quantile(column, "5%")) / (column.deviation or np.nan)


def _is_skewed(column: ColumnDescription) -> bool:
    low, middle, high = (_quantile(column, name) for name in ("5%", "50%", "95%"))
    return (
        low > HALF_A_BIN * (column.deviation or 0.0) and high > 2 * middle and high - middle > SKEWED * (middle - low)
    )


def _has_outliers(column: ColumnDescription) -> bool:
    return FLAT < _reach(column) < HEAVY


def _is_constant(column: ColumnDescription) -> bool:
    most = max((column.shares or {}).values(), default=None)
    return column.present > 0 and (column.deviation == 0 or (most == 1 and column.shares.keys() != {"other"}))  # type: ignore[union-attr]


def _is_nearly_constant(column: ColumnDescription) -> bool:
    if column.kind == "yes or no":
        return 0 < min(column.mean or 0.0, 1 - (column.mean or 0.0)) < RARE
    most = max((column.shares or {}).values(), default=0.0)
    return 1 - RARE < most < 1 or _reach(column) <= FLAT


def _is_like_an_id(column: ColumnDescription, rows: float) -> bool:
    """Whether it has categories that no rows share, or numbers spread as those of rows, or is called so."""
    if column.shares is not None:
        return set(column.shares) == {"other"}
    spread = (column.deviation or 0.0) * 12**0.5 / max(rows, 1.0)
    middle = (_quantile(column, "75%") - _quantile(column, "25%")) * 2 / max(rows, 1.0)
    numbers_rows = abs(spread - 1) < LIKE_NUMBERS and abs(middle - 1) < 2 * LIKE_NUMBERS
    return column.kind == "number" and (numbers_rows or bool(_NAME_OF_ID.search(column.name)))


def listed_columns(names: Sequence[str], most: int = 6) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {count_of(len(names) - most, 'other')}"
