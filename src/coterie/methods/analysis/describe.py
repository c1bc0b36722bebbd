"""What the columns of all sites' tables hold, by sums: moments, and quantiles from counts in bins.

Over rows or groups two rounds of sums, as for a profile of clusters, with a single cluster that holds all rows.
Privately three releases: what is missing, moments, and counts in bins of the declared ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from coterie.arrays import Floats, Integers, Mask
from coterie.errors import InputError
from coterie.maths.quantiles import from_bins
from coterie.messages.contributions import Contribution, Noisy, OneEach, PrivateRequest, contributes, noisy
from coterie.messages.site_api import Memory
from coterie.messages.verbs import Protocol, total
from coterie.methods.method import Method, PrivateSettings, RunContext
from coterie.methods.shared.cluster_profiles import ByCenters, Profile, profiled
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.private_preparation import column_moments, far_from, missing_shares, widths
from coterie.methods.shared.private_sums import SumMarks, SumWholeColumns
from coterie.methods.shared.whole_rows import ShowWhole

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
FINE = 200
"""Bins over rows: quantiles are within a twentieth of a deviation. Over groups fewer do, since groups hide more."""
BINS = 32
"""Of a declared range, in which values are counted privately."""
SHARES = (0.2, 0.4, 1.0)
"""Of what is left for a private description: for missing values, for moments, for counts in bins."""


@dataclass(frozen=True)
class Description:
    """What columns hold: numbers by column, not a number where no value is."""

    columns: tuple[str, ...]
    rows: float
    present: Floats
    """How many values are there."""
    means: Floats
    """Of a column of 0 and 1, the share of 1."""
    deviations: Floats
    quantiles: Floats
    """A row a column, in the order of ``QUANTILES``; none of columns of 0 and 1."""
    is_share: Mask
    """Whether all values are 0 or 1."""
    noise_of_rows: float = 0.0
    """The standard deviation of the noise in the number of rows."""
    noise_of_means: Floats = field(default_factory=lambda: np.zeros(0))
    """By column, in a private description."""

    @classmethod
    def of(cls, profile: Profile) -> Description:
        """The profile of all rows."""
        (rows,), (present,), (means,), (deviations,) = (
            profile.rows.tolist(),
            profile.present,
            profile.means,
            profile.deviations,
        )
        return cls(profile.columns, rows, present, means, deviations, profile.quartiles[0], profile.is_share)


class NoisyBins(Noisy):
    """By column how many values lie in which bin."""

    counts: Integers = noisy("p", "bins", norm="p**0.5")


class CountInBins(PrivateRequest[NoisyBins], doing="counting values in bins with noise"):
    """Count the values of your rows: a whole number from 0 on is that of its bin, one far above a missing value."""

    p: int
    bins: int


@contributes(CountInBins)
def bins_of_rows(rows: Floats, memory: Memory, ask: CountInBins) -> tuple[Contribution, ...]:
    places = np.clip(rows, 0, ask.bins - 1)
    return (OneEach(np.where(rows < 2 * ask.bins, places, -1).astype(np.int64)),)


@dataclass(eq=False, repr=False, kw_only=True)
class DescribeSettings(PrivateSettings):
    """Of a description of columns: it has no parameters but privacy."""

    method = "describe"
    result_type = Description

    def check_options(self, options: PreparationOptions) -> None:
        """Raise an error for what a description does not do with rows."""
        super().check_options(options)
        given = {"scale": options.scale != "none", "missing": options.missing != "refuse"}
        given |= {"max_share": options.max_share is not None}
        given |= {"ranges": options.ranges is not None and self.privacy is None}
        if any(given.values()):
            names = ", ".join(name for name, is_given in given.items() if is_given)
            raise InputError(f"describe is about rows as they are and does not use {names}; leave it out.")

    def protocol(self, context: RunContext) -> Protocol[Description]:
        """What the columns hold over all sites."""
        names = context.names or tuple(f"x{i}" for i in range(context.n_columns))
        if context.releases is not None:
            return (yield from described_privately(context, names))
        whole = np.zeros((1, context.n_columns))
        bins = None if context.grouped else FINE
        asks = ByCenters(tuple(names), None, whole, context.grouped, "algorithm")
        made = yield from profiled(asks, names, grouped=context.grouped, levels=QUANTILES, bins=bins)
        return Description.of(made)


def described_privately(context: RunContext, names: tuple[str, ...]) -> Protocol[Description]:
    """The same within declared ranges, with noise; a category (``sex=f``) from 0 to 1 is a share."""
    assert context.releases is not None
    assert context.preparation is not None
    preparation, releases, d = context.preparation, context.releases, len(names)
    missed = yield from missing_shares(preparation, releases, SHARES[0])
    moments = yield from column_moments(preparation, missed, releases, SHARES[1])
    width = widths(preparation)
    far = replace(preparation, fill=np.full(d, far_from(preparation)), shift=preparation.low, scale=width)
    yield from total(far.request())
    grid = 1 / BINS
    yield from total(ShowWhole(grid, 1.0, np.full(d, grid / 2), np.zeros(0), np.zeros((0, 0))))
    counts = yield from releases.ask(CountInBins, "counts of values", SHARES[2], (1.0,), d, BINS)
    ends = preparation.low, preparation.low + width
    present = moments.n_rows * (1 - missed)
    quantiles = from_bins(nearest_counts(counts.reply.counts, present), *ends, QUANTILES)
    is_share = np.array(["=" in name for name in names]) & (preparation.low == 0) & (preparation.high == 1)
    deviations = moments.deviations / np.sqrt(1 - missed)
    deviations[is_share] = np.sqrt(np.clip(moments.means * (1 - moments.means), 0, 1))[is_share]
    quantiles[is_share] = np.nan
    noise = moments.noise_of_rows, moments.noise_of_means
    return Description(names, moments.n_rows, present, moments.means, deviations, quantiles, is_share, *noise)


def nearest_counts(noisy_counts: Integers, totals: Floats) -> Floats:
    """The nearest counts that are none below 0 and add up to a total, along the last axis.

    Cutting off what is below 0 would add noise of empty bins to the tails.
    """
    ordered = -np.sort(-noisy_counts.astype(float), axis=-1)
    over = (np.cumsum(ordered, axis=-1) - totals[:, None]) / np.arange(1, ordered.shape[-1] + 1)
    last = (ordered > over).sum(axis=-1, keepdims=True) - 1
    return np.asarray(np.maximum(noisy_counts - np.take_along_axis(over, np.maximum(last, 0), -1), 0.0))


METHOD = Method(
    "describe",
    "What the columns hold: values present, means, deviations, quantiles, shares of categories",
    (CountInBins, SumMarks, SumWholeColumns),
    "1+3d, and 200 for each column of numbers (over groups 1+4d, and 57)",
    "per column the number of values, their sum and squares, and how many lie in which of many bins, over all sites",
    settings=(DescribeSettings,),
)
