"""Medians and interquartile ranges of columns over all sites, by counts in bins that are made finer where needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.arrays import Floats, Mask
from coterie.extents import between
from coterie.maths.quantiles import CLOSE, QUARTILES, bins_for, from_bins
from coterie.messages.verbs import Protocol
from coterie.methods.shared.cluster_profiles import ByCenters, profiled
from coterie.methods.shared.profiles import count_units
from coterie.methods.shared.ranges import Ranges

FINER = 6
"""So many more rounds at most; each makes bins about eleven times as fine."""
COARSE = 4.0
"""An interquartile range of fewer times its uncertainty is not known well enough."""
DIGITS = 24
"""Binary ones of a deviation that are kept, so that every machine has the same numbers."""


@dataclass(frozen=True)
class WholeQuartiles:
    """What is known of each column over all rows."""

    rows: float
    present: Floats
    mean: Floats
    deviation: Floats
    median: Floats
    width: Floats
    """The interquartile range."""
    is_spread: Mask
    """Whether the quartiles differ: otherwise half of the values are the same, as far as bins tell."""


def whole_quartiles(
    names: Sequence[str], wanted: Mask, *, grouped: bool, ranges: Ranges | None
) -> Protocol[WholeQuartiles]:
    """Median and interquartile range of the columns that are wanted, of the values that are present.

    A column with a few values far away has a deviation so large that its quartiles lie in one bin: they are then
    looked for in finer bins, around where they were found.
    """
    asks = ByCenters(tuple(names), ranges, np.zeros((1, len(names))), grouped, "algorithm")
    whole = yield from profiled(asks, names, grouped=grouped)
    quartiles, deviation = np.nan_to_num(whole.quartiles[0]), np.nan_to_num(whole.deviations[0])
    sought = wanted & ~whole.is_share & (deviation > 0)
    unsure, unit, n_bins = 2 * CLOSE * deviation, count_units(whole.rows), bins_for(QUARTILES)
    for _ in range(FINER):
        found = np.flatnonzero(sought & (_width(quartiles) < COARSE * unsure)).tolist()
        coarse = np.array(between(found, [], np.flatnonzero(sought).tolist()), np.intp)
        if not len(coarse):
            break
        first, last = (quartiles[coarse, 0] - unsure[coarse])[None], (quartiles[coarse, 2] + unsure[coarse])[None]
        reply = yield from asks.bins(coarse, (first, last), n_bins, unit)
        quartiles[coarse] = from_bins(reply.counts * unit[:, None, None], first, last, QUARTILES)[0]
        unsure[coarse] = ((last - first) / n_bins)[0]
    grid = np.where(sought, np.ldexp(1.0, np.frexp(unsure)[1] - DIGITS), 1.0)
    rounded = np.rint(quartiles / grid[:, None]) * grid[:, None]
    is_spread = sought & (_width(rounded) > 2 * unsure)
    mean = np.nan_to_num(whole.means[0])
    return WholeQuartiles(
        float(whole.rows.sum()), whole.present[0], mean, deviation, rounded[:, 1], _width(rounded), is_spread
    )


def _width(quartiles: Floats) -> Floats:
    return np.asarray(quartiles[:, 2] - quartiles[:, 0])
