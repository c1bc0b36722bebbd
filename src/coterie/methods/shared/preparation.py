"""What any method can be preceded by: imputation and scaling, found by sums over columns.

Sites end up with a prepared view of their table, which later questions see in its place. What they receive is public
(means, deviations, ranges), so a site that joins late or restarts can catch up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.maths.clustering import beyond_rounding
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import Column, Memory, Table, answers, within_columns
from coterie.messages.verbs import Protocol, total
from coterie.methods.shared.limits import ReportMagnitude
from coterie.methods.shared.prepared import Missing, Preparation, Spread
from coterie.methods.shared.quartiles import whole_quartiles
from coterie.methods.shared.ranges import Ranges
from coterie.methods.shared.scales import SCALES, Scale, category_blocks, divisors, scale_for
from coterie.methods.shared.selection import complete
from coterie.methods.shared.shares import limit_share


class ColumnSums(Reply, content="sums"):
    """The number of rows; per column how many values are present, their sum and their squares about an origin."""

    rows: Floats = array(bound="rows", nonnegative=True)
    present: Floats = array("d", bound="rows", nonnegative=True)
    sums: Floats = array("d", bound="rows * box[d]")
    squares: Floats = array("d", bound="rows * box[d]**2", nonnegative=True)


class SumColumns(Request[ColumnSums], doing="summing columns"):
    """Sum up every column about ``origin``, missing values left out (``drop``: whole rows)."""

    drop: bool
    origin: Floats = array("d")

    @property
    def measure(self) -> ReportMagnitude:
        """Columns may be in very different units, so each has its own limit."""
        return ReportMagnitude(len(self.origin), self.origin)


@answers(SumColumns)
def local_column_sums(table: Table, memory: Memory, ask: SumColumns) -> ColumnSums:
    used = complete(table) if ask.drop else table
    reply = ColumnSums.zeros(ask.axes)
    for block in used.raw_blocks():
        about = np.where(np.isnan(block.rows), 0.0, block.rows - ask.origin)
        each = block.values
        reply += ColumnSums(
            block.counts.sum(), each.sum(axis=0), (each * about).sum(axis=0), (each * about**2).sum(axis=0)
        )
    return replace(reply, squares=reply.squares + within_columns(used))


@dataclass(frozen=True)
class PreparationOptions:
    """How rows are to be prepared before a run begins."""

    scale: Scale = "none"
    missing: Missing = "refuse"
    ranges: tuple[npt.ArrayLike, npt.ArrayLike] | None = None
    """The lowest and the highest value of every column: what lies outside is clipped, with ``minmax`` refused. Those
    of the columns besides come last, and are needed in private runs alone."""
    max_share: float | None = None
    """The largest share of all rows that one site may hold; a site that holds more refuses to take part."""
    halves: bool = False
    """Whether the final clusters are summed up over two halves of the sites as well, to be compared."""
    besides: tuple[Column, ...] = ()
    """Columns that the method does not see, but that sites must hold to describe clusters by them."""
    profile: bool = False
    """Whether the final clusters are described by all of these columns, in original units."""

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise InputError(f"scale={self.scale!r} is unknown; use {', '.join(SCALES[:-1])} or {SCALES[-1]}.")
        if self.max_share is not None and not 0 < self.max_share <= 1:
            raise InputError(f"max_share={self.max_share!r}; it is a share of all rows, above 0 and at most 1.")

    def check(self, n_sites: int) -> None:
        """Raise, before anything is sent, what cannot hold for so many sites."""
        if self.max_share is not None and self.max_share * n_sites < 1:
            raise InputError(
                f"max_share={self.max_share:g} of all rows cannot hold for {n_sites} sites: one of them has at least "
                f"{1 / n_sites:.3g} of them; use at least that, or more sites."
            )


def spread(n_columns: int, *, missing: Missing = "refuse", names: Sequence[str] | None = None) -> Protocol[Spread]:
    """Mean and deviation of every column over all rows, by sums.

    Two rounds, the second about the first one's mean, so that no digits are lost far from zero. A column without
    spread has deviation 0. With ``missing="mean"`` columns count as filled with their mean.
    """
    mean = yield from _mean(n_columns, names, drop=missing == "drop")
    second = yield from total(SumColumns(missing == "drop", mean))
    counted = np.broadcast_to(second.rows, second.present.shape) if missing == "mean" else second.present
    left = _divided(second.sums, second.present)  # what rounding left of the mean
    variance = _divided(second.squares, counted) - left**2
    deviation = np.sqrt(np.maximum(variance, 0.0))
    return Spread(float(second.rows), mean + left, beyond_rounding(deviation, mean))


def prepare(
    n_columns: int,
    *,
    scale: Scale = "none",
    missing: Missing = "refuse",
    ranges: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    max_share: float | None = None,
    names: Sequence[str] | None = None,
    grouped: bool = False,
) -> Protocol[Preparation]:
    """Any of the preparations by name; with ``missing="mean"`` columns are filled with their mean first.

    ``standard``: mean 0 and variance 1 for every column of all rows together, scikit-learn's StandardScaler by sums:
    two rounds of :func:`spread` and one to announce it. Constant columns are only shifted. The columns of one text
    column, by their ``names``, have variance 1 together, and where there are no others they stay 0 and 1
    (:mod:`coterie.methods.shared.scales`); ``columns``: each by itself. ``robust``: numbers by their median and
    interquartile range, by sums and counts in bins, in two to eight rounds; where sites show groups of rows
    (``grouped``) both are estimates. ``minmax``: every column to 0..1 by declared ``ranges`` (lows, highs).

    With declared ``ranges`` every value counts as the nearest one of its column's range, before anything else; with
    ``minmax`` a site that holds a value outside refuses to go on. Masked sums are then sized by the ranges, column by
    column, and nobody is asked how large values are.

    With ``max_share`` a site that then holds a larger share of all rows refuses to go on.
    """
    scale = scale_for(scale, names)
    if scale == "minmax" and ranges is None:
        raise InputError("scale='minmax' needs ranges, the lowest and highest value of every column")
    within = None if ranges is None else Ranges.of(ranges, n_columns, refuses=scale == "minmax")
    low, high = (np.zeros(0), np.zeros(0)) if within is None else (within.low, within.high)
    if within is not None and (scale not in ("none", "minmax") or missing == "mean"):
        zeros, ones = np.zeros(n_columns), np.ones(n_columns)  # sums before the rows are prepared
        yield from total(Preparation("keep", zeros, zeros, ones, within.refuses, None, low, high).request())
    if scale == "robust":
        made = yield from _by_quartiles(names, missing, within, grouped)
    else:
        made = yield from _by_moments(n_columns, scale, missing, names, within)
    preparation = Preparation(missing, made.fill, made.shift, made.factor, scale == "minmax", made.known, low, high)
    if scale != "none" or missing != "refuse" or within is not None:
        yield from total(preparation.request())
    if max_share is not None:
        yield from limit_share(max_share)
    return preparation


class _Scaling(NamedTuple):
    """What fills missing values, what columns are shifted and divided by, and their spread then, if it is known."""

    fill: Floats
    shift: Floats
    factor: Floats
    known: Spread | None = None


def _by_moments(
    n_columns: int, scale: Scale, missing: Missing, names: Sequence[str] | None, within: Ranges | None
) -> Protocol[_Scaling]:
    """By means and deviations, by declared ranges, or not at all."""
    if scale in ("standard", "columns"):
        columns = yield from spread(n_columns, missing=missing, names=names)
        factor = divisors(columns.deviation, scale, names)
        known = Spread(columns.rows, np.zeros(n_columns), columns.deviation / factor)
        return _Scaling(columns.mean, columns.mean, factor, known)
    shift, factor = np.zeros(n_columns), np.ones(n_columns)
    if scale == "minmax" and within is not None:
        shift, factor = within.low, np.where(within.high > within.low, within.high - within.low, 1.0)
    fill = (yield from _mean(n_columns, names)) if missing == "mean" else shift
    return _Scaling(fill, shift, factor)


def _by_quartiles(
    names: Sequence[str] | None, missing: Missing, within: Ranges | None, grouped: bool
) -> Protocol[_Scaling]:
    """By medians and interquartile ranges of the values that are present; categories, and columns of which half the
    values are the same, by means and deviations."""
    if names is None:
        raise InputError("scale='robust' needs the names of the columns")
    is_number = np.ones(len(names), bool)
    is_number[[place for block in category_blocks(names) for place in block]] = False
    whole = yield from whole_quartiles(names, is_number, grouped=grouped, ranges=within)
    _check_present(whole.present, whole.rows, names)
    shift = np.where(whole.is_spread, whole.median, whole.mean)
    factor = np.where(whole.is_spread, whole.width, divisors(whole.deviation, "standard", names))
    if missing == "drop":  # of which rows are left nothing is known
        return _Scaling(whole.mean, shift, factor)
    share = whole.present / whole.rows if missing == "mean" and whole.rows else 1.0
    known = Spread(whole.rows, (whole.mean - shift) / factor, whole.deviation * np.sqrt(share) / factor)
    return _Scaling(whole.mean, shift, factor, known)


def _mean(n_columns: int, names: Sequence[str] | None, *, drop: bool = False) -> Protocol[Floats]:
    """Of every column; one without a single value has no mean. Where there are no rows at all, others say so."""
    reply = yield from total(SumColumns(drop, np.zeros(n_columns)))
    _check_present(reply.present, float(reply.rows), names)
    return _divided(reply.sums, reply.present)


def _check_present(present: Floats, rows: float, names: Sequence[str] | None) -> None:
    empty = np.flatnonzero(present == 0)
    if len(empty) and rows > 0:
        which = repr(names[empty[0]]) if names else f"number {empty[0] + 1}"
        raise InputError(f"column {which} has no value at any site; leave it out.")


def _divided(sums: Floats, counts: Floats) -> Floats:
    return np.where(counts > 0, sums / np.maximum(counts, 1e-300), 0.0)
