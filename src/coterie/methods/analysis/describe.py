"""What the columns of all sites' tables hold, by sums: moments, and quantiles from counts in bins.

Over rows or groups two rounds of sums, as for a profile of clusters, with a single cluster that holds all rows.
Privately three releases: what is missing, moments, and counts in bins of the declared ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from coterie.arrays import Floats, Mask
from coterie.errors import InputError
from coterie.messages.verbs import Protocol
from coterie.methods.method import Method, PrivateSettings, RunContext
from coterie.methods.shared.cluster_profiles import ByCenters, Profile, profiled
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.private_profiles import private_profile
from coterie.methods.shared.private_sums import CountInBins, SumMarks, SumWholeColumns

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
FINE = 200
"""Bins over rows: quantiles are within a twentieth of a deviation. Over groups fewer do, since groups hide more."""


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
        found = profile.columns, rows, present, means, deviations, profile.quartiles[0], profile.is_share
        return cls(*found) if profile.noise is None else cls(*found, profile.noise[0], profile.noise[1][0])


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
            assert context.preparation is not None
            found = private_profile(context.preparation, names, context.releases, levels=QUANTILES)
            return Description.of((yield from found))
        whole = np.zeros((1, context.n_columns))
        bins = None if context.grouped else FINE
        asks = ByCenters(tuple(names), None, whole, context.grouped, "algorithm")
        made = yield from profiled(asks, names, grouped=context.grouped, levels=QUANTILES, bins=bins)
        return Description.of(made)


METHOD = Method(
    "describe",
    "What the columns hold: values present, means, deviations, quantiles, shares of categories",
    (CountInBins, SumMarks, SumWholeColumns),
    "1+3d, and 200 for each column of numbers (over groups 1+4d, and 57)",
    "per column the number of values, their sum and squares, and how many lie in which of many bins, over all sites",
    settings=(DescribeSettings,),
)
