"""Reference cases: real tables by site, how they are prepared, and the pooled result that a run is compared with.

The pooled reference is scikit-learn's k-means, best of 20 starts, of the prepared rows of all sites. A run is judged
by the cost of its centers on the same rows, whatever it saw of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans

from coterie.examples.datasets import SiteData, digits, penguins
from coterie.maths.clustering import nearest
from coterie_studies import datasets

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.str_]


@dataclass(frozen=True)
class RawTable:
    """A site's rows as they are: columns of numbers (NaN: missing), then columns of text ("": missing)."""

    columns: tuple[str, ...]
    rows: Floats
    text: Mapping[str, Words] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Case:
    """One reference case."""

    name: str
    load: Callable[[], dict[str, RawTable]]
    ks: tuple[int, ...]
    scale: Literal["none", "standard", "minmax", "mixed"] = "none"
    """``mixed``: numbers standardised, the columns of a text column divided by the root of their total variance."""
    missing: Literal["refuse", "mean"] = "refuse"
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each text column; a column of 0 and 1 for each, named ``column=category``, after the numbers."""
    ranges: Callable[[], tuple[Floats, Floats]] | None = None
    """The stated lows and highs of the columns, for ``minmax``."""
    bars: Mapping[int, float] = field(default_factory=dict)
    """By k, what trials with groups of five reached: the worst of ten seeds, as a ratio to the pooled reference."""


@dataclass(frozen=True)
class Prepared:
    """A case's rows as a method sees them: missing values filled, then ``(x - shift) / scale``."""

    tables: Mapping[str, Floats]
    columns: tuple[str, ...]
    fill: Floats
    shift: Floats
    scale: Floats

    @property
    def rows(self) -> Floats:
        """Of all sites."""
        return np.concatenate(list(self.tables.values()))


@lru_cache(maxsize=1)
def prepared(case: Case) -> Prepared:
    """The rows of a case, with means, deviations and shares over all its sites."""
    loaded = case.load()
    raw = encoded(case, loaded)
    columns = next(iter(loaded.values())).columns
    columns += tuple(f"{column}={value}" for column, values in case.categories.items() for value in values)
    rows = np.concatenate(list(raw.values()))
    fill = np.nanmean(rows, axis=0) if case.missing == "mean" else np.zeros(rows.shape[1])
    filled = np.where(np.isnan(rows), fill, rows) if case.missing == "mean" else rows
    if np.isnan(filled).any():
        raise ValueError(f"{case.name} misses values, and missing={case.missing!r}")
    shift, scale = _affine(case, filled)
    tables = {site: (np.where(np.isnan(own), fill, own) - shift) / scale for site, own in raw.items()}
    return Prepared(tables, columns, fill, shift, scale)


def _affine(case: Case, rows: Floats) -> tuple[Floats, Floats]:
    """What is subtracted from each column, and what it is divided by; constant columns are divided by 1."""
    if case.scale == "none":
        return np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    if case.scale == "minmax":
        if case.ranges is None:
            raise ValueError(f"{case.name} has scale='minmax' and states no ranges")
        low, high = case.ranges()
        return low, np.where(high > low, high - low, 1.0)
    variance = rows.var(axis=0)
    if case.scale == "mixed":
        first = rows.shape[1] - sum(map(len, case.categories.values()))
        for values in case.categories.values():
            variance[first : first + len(values)] = variance[first : first + len(values)].sum()
            first += len(values)
    return rows.mean(axis=0), np.where(variance > 0, np.sqrt(variance), 1.0)


def encoded(case: Case, tables: Mapping[str, RawTable] | None = None) -> dict[str, Floats]:
    """By site, numbers as they are, then 0 and 1 for each category; NaN where a value is missing."""
    return {site: _encoded(case, table) for site, table in (tables or case.load()).items()}


def _encoded(case: Case, table: RawTable) -> Floats:
    """Numbers, then 0 and 1 for each category; NaN where a value is missing."""
    blocks = [table.rows]
    for column, values in case.categories.items():
        words = table.text[column]
        unknown = set(words.tolist()) - {*values, ""}
        if unknown:
            raise ValueError(f"column {column!r} holds {sorted(unknown)}, which are not among {values}")
        blocks.append(np.where((words == "")[:, None], np.nan, words[:, None] == np.array(values)))
    return np.concatenate(blocks, axis=1)


@dataclass(frozen=True)
class Reference:
    """The pooled result: prepared centers, and their cost on all rows."""

    centers: Floats
    cost: float


@lru_cache
def pooled_reference(case: Case, k: int) -> Reference:
    """Scikit-learn's k-means of the prepared rows of all sites, best of 20 starts."""
    centers = KMeans(k, n_init=20, random_state=0).fit(prepared(case).rows).cluster_centers_
    return Reference(centers, true_cost(case, centers))


def true_cost(case: Case, centers: Floats, *, units: Literal["prepared", "raw"] = "prepared") -> float:
    """The sum over all true prepared rows of the squared distance to the nearest center."""
    known = prepared(case)
    near = centers if units == "prepared" else (centers - known.shift) / known.scale
    return float(sum(nearest(own, near)[1].sum() for own in known.tables.values()))


# ---------------------------------------------------------------- the tables


def _by_site(data: SiteData) -> dict[str, RawTable]:
    return {site: RawTable(data.columns, rows) for site, rows in data.by_site().items()}


def _dealt(columns: tuple[str, ...], rows: npt.NDArray[Any]) -> dict[str, RawTable]:
    """Rows dealt out among five sites at random, always in the same way."""
    site = np.random.default_rng(0).integers(0, 5, len(rows))
    return {f"site-{i}": RawTable(columns, rows[site == i].astype(float)) for i in range(5)}


def _dealt_anew(load: Callable[[], SiteData]) -> dict[str, RawTable]:
    data = load()
    return _dealt(data.columns, data.rows)


WORDS = {
    "cp": {1: "typical angina", 2: "atypical angina", 3: "other pain", 4: "no pain"},
    "restecg": {0: "normal", 1: "ST-T abnormal", 2: "hypertrophy"},
    "slope": {1: "up", 2: "flat", 3: "down"},
    "thal": {3: "normal", 6: "fixed defect", 7: "reversible defect"},
}


def _heart() -> dict[str, RawTable]:
    """All 13 columns of the four hospitals, a value of 0 as it is."""
    z = datasets.stored("heart_disease")
    names = tuple(map(str, z["feature_names"]))
    return {str(s): RawTable(names, z["X"][z["site"] == i].astype(float)) for i, s in enumerate(z["site_names"])}


def _heart_with_text() -> dict[str, RawTable]:
    """The same with four columns as words."""
    out = {}
    for site, table in _heart().items():
        numbers = [i for i, name in enumerate(table.columns) if name not in WORDS]
        text = {}
        for name, words in WORDS.items():
            values = table.rows[:, table.columns.index(name)]
            text[name] = np.array(["" if np.isnan(value) else words[int(value)] for value in values])
        out[site] = RawTable(tuple(table.columns[i] for i in numbers), table.rows[:, numbers], text)
    return out


def _beijing_air(step: int) -> dict[str, RawTable]:
    """Hourly values of twelve stations, every hour or every so many of all rows."""
    z = datasets.stored("beijing_air")
    rows, site, names = z["X"][::step].astype(float), z["site"][::step], tuple(map(str, z["feature_names"]))
    return {str(name): RawTable(names, rows[site == i]) for i, name in enumerate(z["site_names"])}


COVTYPE = (
    *("elevation", "aspect", "slope", "hydrology_across", "hydrology_down"),
    *("roadways", "shade_9", "shade_12", "shade_15", "fire_points"),
)


def _covtype() -> dict[str, RawTable]:
    """60,000 patches drawn at random, the ten columns of numbers."""
    numbers = datasets.stored("covtype")["X"][:, : len(COVTYPE)]
    return _dealt(COVTYPE, numbers[np.random.default_rng(0).permutation(len(numbers))[:60_000]])


def _covtype_ranges() -> tuple[Floats, Floats]:
    """Of all 581,012 patches."""
    numbers = datasets.stored("covtype")["X"][:, : len(COVTYPE)]
    return numbers.min(axis=0).astype(float), numbers.max(axis=0).astype(float)


CATEGORIES = {name: tuple(words.values()) for name, words in WORDS.items()}
CASES = {
    case.name: case
    for case in (
        Case("heart", _heart, (2, 4, 5), "standard", "mean", bars={2: 1.006, 5: 1.028}),
        Case("heart-text", _heart_with_text, (4,), "standard", "mean", CATEGORIES),
        Case("heart-mixed", _heart_with_text, (4,), "mixed", "mean", CATEGORIES),
        Case("digits", partial(_dealt_anew, digits), (10,), bars={10: 1.010}),
        Case("wisdm", lambda: _by_site(datasets.wisdm()), (5, 6), "standard", "mean", bars={5: 1.009}),
        Case("mushrooms", partial(_dealt_anew, datasets.mushrooms), (8,), bars={8: 1.008}),
        Case("pjm", lambda: _by_site(datasets.pjm_load_shapes()), (8,), bars={8: 1.003}),
        Case("air", partial(_beijing_air, 1), (8,), "standard", "mean", bars={8: 1.005}),
        Case("air-quick", partial(_beijing_air, 6), (8,), "standard", "mean", bars={8: 1.005}),
        Case("penguins", lambda: _by_site(penguins().complete()), (3,), "standard"),
        Case("covtype", _covtype, (7,), "minmax", ranges=_covtype_ranges, bars={7: 1.015}),
        Case("mnist", partial(_dealt_anew, datasets.mnist), (10,), bars={10: 1.0005}),
    )
}
"""By name; ``air-quick`` has every sixth row of ``air``."""
