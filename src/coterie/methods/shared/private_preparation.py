"""Preparation under differential privacy: declared ranges, and moments of columns by noisy sums where needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

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
    if options.profile:
        wrong.append("does not describe clusters by columns yet; leave profile out.")
    if options.scale == "robust":
        wrong.append("cannot scale by quartiles (scale='robust'); use 'standard' or 'minmax'.")
    if options.halves:
        wrong.append("cannot compare halves; leave it out.")
    if wrong:
        raise InputError(" ".join(f"privacy {problem}" for problem in wrong))


def prepare_privately(options: PreparationOptions, names: Sequence[str], releases: Releases) -> Protocol[Preparation]:
    """Rows within their ranges, scaled; missing values count as the middle of the range (or, where asked for, as the
    noisy mean), or their rows are left out."""
    assert options.ranges is not None
    ranges = Ranges.of(options.ranges, len(names))
    low, high, middle = ranges.low, ranges.high, (ranges.low + ranges.high) / 2
    missing: Missing = "drop" if options.missing == "drop" else "mean"
    preparation = Preparation(missing, middle, np.zeros(len(low)), np.ones(len(low)), False, None, low, high)
    scale = scale_for(options.scale, names)
    if scale == "minmax":
        preparation = replace(preparation, shift=low, scale=widths(preparation))
    elif scale in ("standard", "columns") or options.missing == "mean":
        missed = np.zeros(len(low))
        if options.missing == "mean":
            missed = yield from missing_shares(preparation, releases)
        moments = yield from column_moments(preparation, missed, releases)
        mean, deviation = moments.means, moments.deviations
        preparation = replace(preparation, fill=mean if options.missing == "mean" else middle)
        if scale in ("standard", "columns"):
            preparation = replace(preparation, shift=mean, scale=divisors(deviation, scale, names))
    yield from total(preparation.request())
    return preparation


def missing_shares(preparation: Preparation, releases: Releases, share: float = SHARE_OF_MISSING) -> Protocol[Floats]:
    """By column the noisy share of values that are missing: they are filled with a number far away, next to which all
    others are zero."""
    d, far = len(preparation.low), far_from(preparation)
    yield from total(replace(preparation, fill=np.full(d, far)).request())
    yield from total(ShowWhole(far / MARK, 1.0, np.zeros(d), np.zeros(0), np.zeros((0, 0))))
    reach = int(np.ceil(MARK * max(1.0, np.sqrt(d) / 2) + np.sqrt(d)))  # a quarter of the columns, in full
    sums = yield from releases.ask(SumMarks, "missing values", share, (0.2, 0.8), d, reach)
    releases.keep(1 - share)
    return np.asarray(np.clip(sums.reply.sums / MARK / max(float(sums.reply.rows), 1.0), 0.0, 0.95))


def far_from(preparation: Preparation) -> float:
    """A number far from every value, to stand for a missing one."""
    return float(2 * FAR * np.abs([preparation.low, preparation.high]).max(initial=1.0))


def widths(preparation: Preparation) -> Floats:
    """Of the declared ranges; 1 where there is one value alone."""
    low, high = preparation.low, preparation.high
    return np.where(high > low, high - low, 1.0)


class NoisyMoments(NamedTuple):
    """The number of rows, and by column mean and deviation; of the noise in the number and in the means."""

    n_rows: float
    means: Floats
    deviations: Floats
    noise_of_rows: float
    noise_of_means: Floats


def column_moments(
    preparation: Preparation, missed: Floats, releases: Releases, share: float = SHARE
) -> Protocol[NoisyMoments]:
    """Noisy means of the values that are there, and deviations once the others are filled with them."""
    d, width = len(missed), widths(preparation)
    yield from total(replace(preparation, shift=preparation.low, scale=width).request())
    half = np.full(d, 0.5)
    grid = exact.length(half) / (WIDEST - 1)
    yield from total(ShowWhole(grid, 1.0, half, np.zeros(0), np.zeros((0, 0))))
    reach = int(np.ceil(exact.length(half) / grid + np.sqrt(d) / 2))
    sums = yield from releases.ask(
        SumWholeColumns, "means and deviations of columns", share, (0.1, 0.45, 0.45), d, reach
    )
    releases.keep(1 - share)
    n_rows, present = max(float(sums.reply.rows), 1.0), 1 - missed
    releases.most_rows = n_rows + CERTAIN * sums.deviations[0]
    mean = np.clip(sums.reply.sums * grid / (n_rows * present), -0.5, 0.5)
    variance = sums.reply.squares * grid**2 / n_rows - present * mean**2
    deviation = np.sqrt(np.clip(variance, LEAST**2, 0.25))
    noise = sums.deviations[1] * grid * width / (n_rows * present)
    return NoisyMoments(n_rows, preparation.low + (mean + 0.5) * width, deviation * width, sums.deviations[0], noise)
