"""What distinguishes clusters, in original units: the profile of each, over all sites, from two rounds of sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any
from typing import Protocol as Interface

import numpy as np

from coterie.arrays import Floats, Indices, Integers, Mask
from coterie.extents import between, is_asked
from coterie.maths.clustering import beyond_rounding
from coterie.maths.quantiles import QUARTILES, bins_for, from_bins, spans
from coterie.messages.verbs import Protocol, each, total
from coterie.methods.shared.prepared import Preparation
from coterie.methods.shared.profiles import (
    FREE,
    BinCounts,
    ClusterSums,
    CountByCluster,
    CountByLabel,
    SumByCluster,
    SumByLabel,
    count_units,
)
from coterie.methods.shared.ranges import Ranges

FAR = 1e-6
"""Digits are lost where the variance of a column is less than this share of its mean square about the origin: then it
is summed up again about its mean."""
ROUNDING = 1e-12
"""What is less than this share of the mean square over all rows is no variance."""
WHOLE = 1e-9
"""How near sums of squares are to sums where all values are 0 or 1."""
HIDDEN = 0.5
"""Groups hide a normal spread of at most this share of the one they show: more is in the tails of few groups."""
SURE = 2.0
"""A mean differs from that of all rows where it is so many deviations of its noise away."""
PHASE = "profile"
"""Of these questions in the ledger."""


@dataclass(frozen=True)
class Profile:
    """Each cluster by column: arrays have a row a cluster and a column a column, not a number where no value is."""

    columns: tuple[str, ...]
    rows: Floats
    """Of each cluster."""
    present: Floats
    """How many values are there."""
    means: Floats
    """Of a column of 0 and 1, the share of 1."""
    deviations: Floats
    quartiles: Floats
    """Along a last axis; none of columns of 0 and 1."""
    is_share: Mask
    """By column, whether all its values are 0 or 1."""
    over_groups: bool
    """Whether sites showed groups of rows: rows are then counted by whole groups; deviations and quartiles are
    estimates."""
    noise: tuple[float, Floats] | None = None
    """Of a private profile, in which every number is an estimate: the deviation of the noise in each number of rows,
    and in each mean."""

    @property
    def missing(self) -> Floats:
        """How many values are missing."""
        return np.asarray(self.rows[:, None] - self.present)

    @property
    def whole_means(self) -> Floats:
        """By column, over all clusters."""
        return _ratio((self.present * np.nan_to_num(self.means)).sum(axis=0), self.present.sum(axis=0))

    @property
    def whole_deviations(self) -> Floats:
        """By column, over all clusters."""
        about = np.nan_to_num(self.deviations**2 + (self.means - self.whole_means) ** 2)
        deviations = np.sqrt(_ratio((self.present * about).sum(axis=0), self.present.sum(axis=0)))
        return beyond_rounding(deviations, self.whole_means)

    @property
    def differences(self) -> Floats:
        """How far each mean is from that of all rows, in their deviations."""
        return np.where(self.present > 0, _ratio(self.means - self.whole_means, self.whole_deviations), np.nan)

    @property
    def shares_between(self) -> Floats:
        """By column, the share of the variance that is between clusters; 0 where nothing varies."""
        between = (self.present * np.nan_to_num((self.means - self.whole_means) ** 2)).sum(axis=0)
        return np.nan_to_num(_ratio(between, self.present.sum(axis=0) * self.whole_deviations**2))

    def order(self) -> list[int]:
        """The columns by what distinguishes clusters, most first."""
        return [int(place) for place in np.argsort(-self.shares_between, kind="stable")]

    def distinguishing(self, cluster: int, count: int = 3) -> list[int]:
        """The columns in which a cluster differs most from all rows, in deviations; none where it may be noise."""
        size = np.nan_to_num(np.abs(self.differences[cluster]))
        if self.noise is not None:
            size *= np.abs(self.means[cluster] - self.whole_means) > SURE * self.noise[1][cluster]
        return [int(place) for place in np.argsort(-size, kind="stable")[:count] if size[place] > 0]

    def records(self) -> list[dict[str, Any]]:
        """A plain record for all rows and for each cluster, by column; the columns that distinguish most first."""
        lines: list[tuple[str | int, int, dict[str, float]]] = [
            ("all", place, self._whole(place)) for place in self.order()
        ]
        lines += [(i, place, self._of(i, place)) for i in range(len(self.rows)) for place in self.order()]
        return [
            {"cluster": cluster, "column": self.columns[place], **{k: _plain(v) for k, v in values.items()}}
            for cluster, place, values in lines
        ]

    def to_frame(self) -> Any:
        """The records as a data frame of pandas."""
        import pandas as pd

        return pd.DataFrame(self.records())

    def _whole(self, place: int) -> dict[str, float]:
        moments = float(self.whole_means[place]), float(self.whole_deviations[place]), 0.0
        missing = float(self.missing[:, place].sum())
        values = self._record(place, float(self.rows.sum()), moments, np.full(len(QUARTILES), np.nan), missing)
        if self.noise is None:
            return values
        present = self.present[:, place]
        return {**values, "noise_of_mean": float(np.hypot.reduce(present * self.noise[1][:, place]) / present.sum())}

    def _of(self, cluster: int, place: int) -> dict[str, float]:
        here = cluster, place
        moments = float(self.means[here]), float(self.deviations[here]), float(self.differences[here])
        values = self._record(
            place, float(self.rows[cluster]), moments, self.quartiles[here], float(self.missing[here])
        )
        return values if self.noise is None else {**values, "noise_of_mean": float(self.noise[1][here])}

    def _record(
        self, place: int, rows: float, moments: tuple[float, float, float], quartiles: Floats, missing: float
    ) -> dict[str, float]:
        mean, deviation, difference = moments
        return {
            "rows": rows,
            "mean": mean,
            "sd": deviation,
            "difference_in_sd": difference,
            **dict(zip(("q1", "median", "q3"), map(float, quartiles), strict=True)),
            "share": mean if self.is_share[place] else np.nan,
            "missing": missing,
            "variance_between": float(self.shares_between[place]),
        }


def _plain(value: float) -> float | int | None:
    """A number of twelve digits, as files have it: whole ones without a point, none where it is not a number."""
    if value != value:
        return None
    rounded = float(f"{value:.12g}")
    return int(rounded) if rounded.is_integer() else rounded


class Asks(Interface):
    """The two questions behind a profile, however sites learn the cluster of each row."""

    def sums(self, origin: Floats) -> Protocol[ClusterSums]:
        """Columns summed up by cluster, about an origin."""
        ...

    def bins(self, places: Indices, ends: tuple[Floats, Floats], n_bins: int, unit: Floats) -> Protocol[BinCounts]:
        """Values of some of the columns, counted by cluster and bin; bins lie between these ends."""
        ...


@dataclass(frozen=True)
class _Chosen:
    """Columns by name, and their ranges where there are any."""

    columns: tuple[str, ...]
    ranges: Ranges | None

    def at(self, places: Indices) -> tuple[tuple[str, ...], Floats, Floats]:
        """Names, lows and highs of some of them, as a request has them."""
        names, none = tuple(self.columns[place] for place in places), np.zeros(0)
        if self.ranges is None:
            return names, none, none
        return names, self.ranges.low[places], self.ranges.high[places]

    def all(self) -> tuple[tuple[str, ...], Floats, Floats]:
        """Of all of them."""
        return self.at(np.arange(len(self.columns)))


@dataclass(frozen=True)
class ByCenters(_Chosen):
    """Rows are in the cluster whose center is nearest, as they were seen last; a single one holds all rows."""

    centers: Floats
    grouped: bool
    phase: str = PHASE
    """Of the ledger."""

    def sums(self, origin: Floats) -> Protocol[ClusterSums]:
        """One round, over all sites."""
        ask = SumByCluster(*self.all(), self.centers, origin, len(self.centers) if self.grouped else 0)
        box = {} if ask.measure or not self.ranges else {"box": self.ranges.box(origin, np.ones(len(origin)))}
        return (yield from total(ask, limits=box, phase=self.phase))

    def bins(self, places: Indices, ends: tuple[Floats, Floats], n_bins: int, unit: Floats) -> Protocol[BinCounts]:
        """One round, over all sites."""
        ask = CountByCluster(*self.at(places), n_bins, unit, self.centers, *ends)
        return (yield from total(ask, phase=self.phase))


@dataclass(frozen=True)
class ByLabels(_Chosen):
    """Sites are sent the cluster of each row, in the order in which they take rows, and answer each for itself."""

    labels: Mapping[str, Integers]
    n_clusters: int

    def sums(self, origin: Floats) -> Protocol[ClusterSums]:
        """One round; the sites' answers added up."""
        asks = {site: SumByLabel(*self.all(), self.n_clusters, own, origin) for site, own in self.labels.items()}
        return reduce(add, (yield from each(asks, complete=True, phase=PHASE)).values())

    def bins(self, places: Indices, ends: tuple[Floats, Floats], n_bins: int, unit: Floats) -> Protocol[BinCounts]:
        """One round; the sites' answers added up."""
        chosen = self.at(places)
        asks = {site: CountByLabel(*chosen, n_bins, unit, own, *ends) for site, own in self.labels.items()}
        return reduce(add, (yield from each(asks, complete=True, phase=PHASE)).values())


def profiled(
    asks: Asks,
    columns: Sequence[str],
    *,
    grouped: bool = False,
    origin: Floats | None = None,
    levels: Sequence[float] = QUARTILES,
    bins: int | None = None,
) -> Protocol[Profile]:
    """The profile of clusters by columns, in two questions: sums about ``origin`` (asked twice, where digits would be
    lost), then counts of values in bins.

    ``levels`` are quantiles to give in place of quartiles, from ``bins`` rather than as few as will do.
    """
    names = tuple(columns)
    moments = yield from _summed(asks, np.zeros(len(names)) if origin is None else origin)
    quartiles = np.full((*moments.present.shape, len(levels)), np.nan)
    numbers = np.flatnonzero(~moments.is_share)
    varied = [int(place) for place in numbers if (moments.variance[:, place] > 0).any()]
    counted = np.array(between(varied, [], numbers.tolist()), np.intp)
    if len(counted):
        deviation, (below, above) = np.sqrt(moments.variance[:, counted]), spans(levels)
        first, last = moments.means[:, counted] - below * deviation, moments.means[:, counted] + above * deviation
        unit = count_units(moments.rows)
        reply = yield from asks.bins(counted, (first, last), bins or bins_for(levels), unit)
        hidden = np.minimum(np.sqrt(moments.within[:, counted]), HIDDEN * deviation)
        quartiles[:, counted] = from_bins(reply.counts * unit[:, None, None], first, last, levels, hidden)
    constant = (moments.variance == 0) & ~moments.is_share
    quartiles[constant] = moments.means[constant][:, None]
    return moments.profile(names, quartiles, grouped)


def run_profile(
    centers: Floats,
    columns: Sequence[str],
    preparation: Preparation,
    grouped: bool,
    labels: Mapping[str, Integers] | None = None,
) -> Protocol[Profile]:
    """The profile of a run's final clusters by its columns, which come first, and others.

    ``labels`` are by site those of its rows, where sites cannot put them to centers.

    Values count as nearest to the run's declared ranges, as they did in the run.
    """
    n_others = len(columns) - len(preparation.shift)
    ranges = preparation.ranges
    if ranges is not None:
        free = np.full(n_others, FREE)
        ranges = Ranges(np.append(ranges.low, -free), np.append(ranges.high, free))
    chosen = tuple(columns), ranges
    asks = ByCenters(*chosen, centers, grouped) if labels is None else ByLabels(*chosen, labels, len(centers))
    origin = np.append(preparation.shift, np.zeros(n_others))
    return (yield from profiled(asks, columns, grouped=grouped, origin=origin))


def joined(parts: Mapping[str, Profile]) -> Profile:
    """One profile of the same clusters by the columns of several sites."""
    profiles = parts.values()
    return Profile(
        tuple(f"{site}.{column}" for site, part in parts.items() for column in part.columns),
        next(iter(profiles)).rows,
        np.concatenate([part.present for part in profiles], axis=1),
        np.concatenate([part.means for part in profiles], axis=1),
        np.concatenate([part.deviations for part in profiles], axis=1),
        np.concatenate([part.quartiles for part in profiles], axis=1),
        np.concatenate([part.is_share for part in profiles]),
        over_groups=False,
    )


def _summed(asks: Asks, origin: Floats) -> Protocol[_Moments]:
    """The moments of all clusters, about another origin where that is far from the values."""
    moments = _Moments.of((yield from asks.sums(origin)), origin)
    if is_asked(bool(moments.is_far.any())):
        far = moments.is_far if moments.is_far.any() else ~moments.is_far
        origin = np.where(far, moments.whole_means, origin)
        moments = _Moments.of((yield from asks.sums(origin)), origin)
    return moments


@dataclass(frozen=True)
class _Moments:
    """Moments by cluster and column, of values as they are; where no value is, those of a constant."""

    rows: Floats
    present: Floats
    means: Floats
    variance: Floats
    """Of the rows shown."""
    within: Floats
    """What groups hide of the variance."""
    whole_means: Floats
    is_share: Mask
    is_far: Mask
    """By column, whether the origin is so far from the values that digits are lost."""

    @classmethod
    def of(cls, sums: ClusterSums, origin: Floats) -> _Moments:
        """Additions in one order: server and sites come to the same bits."""
        n, shown, within = sums.present, sums.squares, sums.within if len(sums.within) else 0 * sums.squares
        n_whole, first, second = added(n), added(sums.sums), added(shown + within)
        mean, square = _ratio(first, n_whole), _ratio(second, n_whole)
        about = np.where(n > 0, _ratio(sums.sums, n), mean)
        variance = np.maximum(_ratio(shown, n) - about**2, 0.0)
        variance = np.where(variance > ROUNDING * _ratio(second, n), variance, 0.0)
        raw, raw_square = first + origin * n_whole, second + 2 * origin * first + origin**2 * n_whole
        is_share = (np.abs(raw_square - raw) <= WHOLE * np.abs(raw)) & (raw >= 0)
        is_far = ~is_share & (square - mean**2 < FAR * square)
        hidden = _ratio(within, n)
        varies = beyond_rounding(np.sqrt(variance + hidden), about + origin) > 0
        parts = about + origin, variance * varies, hidden * varies, mean + origin
        return cls(sums.rows, n, *parts, is_share, is_far)

    def profile(self, names: tuple[str, ...], quartiles: Floats, grouped: bool) -> Profile:
        """With quartiles from bins; a column of 0 and 1 has the deviation of its share."""
        share = np.clip(self.means, 0.0, 1.0)
        variance = np.where(self.is_share, share * (1 - share), self.variance + self.within)
        there = self.present > 0
        means, deviations = (np.where(there, part, np.nan) for part in (self.means, np.sqrt(variance)))
        quartiles = np.where(there[..., None], quartiles, np.nan)
        return Profile(names, self.rows, self.present, means, deviations, quartiles, self.is_share, grouped)


def added(rows: Floats) -> Floats:
    """The sum of rows, one after the other."""
    return reduce(np.add, rows)


def _ratio(values: Floats, counts: Floats) -> Floats:
    """The quotient; 0 where nothing is counted."""
    values, counts = np.broadcast_arrays(values, counts)
    return np.divide(values, counts, out=np.zeros(values.shape), where=counts > 0)
