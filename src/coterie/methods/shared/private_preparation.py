"""Preparation under differential privacy: declared ranges, and moments of columns by noisy sums where needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from coterie.arrays import Floats
from coterie.errors import InputError
from coterie.maths import exact
from coterie.messages.verbs import Protocol, total
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.prepared import Missing, Preparation
from coterie.methods.shared.privacy import CERTAIN, Releases
from coterie.methods.shared.private_sums import SumMarks, SumWholeColumns
from coterie.methods.shared.ranges import Ranges
from coterie.methods.shared.scales import divisors, scale_for
from coterie.methods.shared.whole_rows import WIDEST, ShowWhole

SHARE = 0.1
"""Of what a run may give away, for the means and deviations of columns."""
SHARE_OF_MISSING = 0.05
FAR, MARK = 1 << 12, 64
"""How much farther than any value a missing one is put, and the whole number that stands for it."""
LEAST = 0.01
"""A deviation is at least this share of its column's range."""


def check_private_options(options: PreparationOptions) -> None:
    """Raise, before any question, what cannot be done with differential privacy."""
    wrong = []
    if options.ranges is None:
        wrong.append("needs ranges, the lowest and highest value of every column: noise is made for them.")
    if options.max_share is not None:
        wrong.append("cannot check max_share: whether a site refuses would tell how many rows it has; leave it out.")
    if options.scale == "robust":
        wrong.append("cannot scale by quartiles (scale='robust'); use 'standard' or 'minmax'.")
    if options.halves:
        wrong.append("cannot compare halves; leave it out.")
    if wrong:
        raise InputError(" ".join(f"privacy {problem}" for problem in wrong))


def prepare_privately(
    options: PreparationOptions, names: Sequence[str], ranges: Ranges, releases: Releases
) -> Protocol[Preparation]:
    """Rows within their ranges, scaled; missing values count as the middle of the range (or, where asked for, as the
    noisy mean), or their rows are left out."""
    preparation = within_ranges(ranges, "drop" if options.missing == "drop" else "mean")
    low, middle = ranges.low, preparation.fill
    scale = scale_for(options.scale, names)
    if scale == "minmax":
        preparation = replace(preparation, shift=low, scale=widths(preparation))
    elif scale in ("standard", "columns") or options.missing == "mean":
        missed = Missed(np.zeros((1, len(low))))
        if options.missing == "mean":
            missed = yield from missing_shares(preparation, releases)
        moments = yield from column_moments(preparation, missed, releases)
        (mean,), (deviation,) = moments.means, moments.deviations
        preparation = replace(preparation, fill=mean if options.missing == "mean" else middle)
        if scale in ("standard", "columns"):
            preparation = replace(preparation, shift=mean, scale=divisors(deviation, scale, names))
    yield from total(preparation.request())
    return preparation


def within_ranges(ranges: Ranges, missing: Missing = "mean") -> Preparation:
    """Rows within ranges as they are; what is missing counts as the middle of its range."""
    d, middle = len(ranges.low), (ranges.low + ranges.high) / 2
    return Preparation(missing, middle, np.zeros(d), np.ones(d), False, None, ranges.low, ranges.high)


def see_whole(preparation: Preparation, grid: float, origin: Floats, n_clusters: int = 1) -> Protocol[None]:
    """From now on rows are prepared so, and are whole numbers; that of its cluster, where there are several, is the
    first of each row and stays as it is."""
    if n_clusters > 1:
        ends = {"low": 0.0, "high": n_clusters - 1.0, "fill": 0.0, "shift": 0.0, "scale": 1 / grid}
        with_cluster: dict[str, Any] = {
            name: np.append(first, getattr(preparation, name)) for name, first in ends.items()
        }
        preparation, origin = replace(preparation, **with_cluster), np.append(0.0, origin)
    yield from total(preparation.request())
    yield from total(ShowWhole(grid, 1.0, origin, np.zeros(0), np.zeros((0, 0))))


class Missed(NamedTuple):
    """By cluster and column the share of values that are missing, and the deviation of the noise in their number."""

    shares: Floats
    noise: float = 0.0


def missing_shares(
    preparation: Preparation, releases: Releases, share: float = SHARE_OF_MISSING, n_clusters: int = 1
) -> Protocol[Missed]:
    """What is missing, with noise: it is filled with a number far away, next to which all others are zero."""
    d, far = len(preparation.low), far_from(preparation)
    filled = replace(preparation, fill=np.full(d, far))
    yield from see_whole(filled, far / MARK, np.zeros(d), n_clusters)
    reach = int(np.ceil(MARK * max(1.0, np.sqrt(d) / 2) + np.sqrt(d)))  # a quarter of the columns, in full
    sums = yield from releases.ask(SumMarks, "missing values", share, (0.2, 0.8), n_clusters, d, reach)
    releases.keep(1 - share)
    rows = np.maximum(sums.reply.rows, 1.0)[:, None]
    return Missed(np.clip(sums.reply.sums / MARK / rows, 0.0, 0.95), sums.deviations[1] / MARK)


def far_from(preparation: Preparation) -> float:
    """A number far from every value, to stand for a missing one."""
    return float(2 * FAR * np.abs([preparation.low, preparation.high]).max(initial=1.0))


def widths(preparation: Preparation) -> Floats:
    """Of the declared ranges; 1 where there is one value alone."""
    low, high = preparation.low, preparation.high
    return np.where(high > low, high - low, 1.0)


class NoisyMoments(NamedTuple):
    """By cluster the number of rows; by column, too, mean and deviation; of the noise in the numbers and means."""

    rows: Floats
    means: Floats
    deviations: Floats
    noise_of_rows: float
    noise_of_means: Floats


def column_moments(
    preparation: Preparation, missed: Missed, releases: Releases, share: float = SHARE
) -> Protocol[NoisyMoments]:
    """Noisy means of the values that are there, and deviations once the others are filled with them."""
    (k, d), width = missed.shares.shape, widths(preparation)
    half = np.full(d, 0.5)
    grid = exact.length(half) / (WIDEST - 1)
    scaled = replace(preparation, shift=preparation.low, scale=width)
    yield from see_whole(scaled, grid, half, k)
    reach = int(np.ceil(exact.length(half) / grid + np.sqrt(d) / 2))
    what, parts = "means and deviations of columns", (0.1, 0.45, 0.45)
    sums = yield from releases.ask(SumWholeColumns, what, share, parts, k, d, reach)
    releases.keep(1 - share)
    noise, present = sums.deviations, 1 - missed.shares
    rows = np.maximum(sums.reply.rows, 1.0)
    releases.most_rows = min(releases.most_rows, float(rows.sum() + CERTAIN * noise[0] * np.sqrt(k)))
    there = rows[:, None] * present
    mean = np.clip(sums.reply.sums * grid / there, -0.5, 0.5)
    variance = sums.reply.squares * grid**2 / rows[:, None] - present * mean**2
    deviation = np.sqrt(np.clip(variance, LEAST**2, 0.25))
    of_present = (noise[0] * present) ** 2 + missed.noise**2
    of_means = np.sqrt((noise[1] * grid) ** 2 + mean**2 * of_present) * width / there
    return NoisyMoments(rows, preparation.low + (mean + 0.5) * width, deviation * width, noise[0], of_means)
