"""What is in clusters, with differential privacy: three releases about columns within declared ranges, by cluster.

A single cluster holds all rows: that is a private description. Of several, each row is given the number of its own
first, that of the final center which is nearest to it among the whole numbers in which private questions saw it last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from coterie.arrays import Floats, Integers
from coterie.errors import InputError
from coterie.maths.quantiles import QUARTILES, from_bins
from coterie.messages.schema import Nothing, Request, array
from coterie.messages.site_api import Block, Column, Memory, Table, remembers, unprepared
from coterie.messages.verbs import Protocol, total
from coterie.methods.shared.cluster_profiles import PHASE, Profile
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.prepared import Preparation
from coterie.methods.shared.privacy import Releases
from coterie.methods.shared.private_preparation import (
    column_moments,
    far_from,
    missing_shares,
    see_whole,
    widths,
    within_ranges,
)
from coterie.methods.shared.private_sums import CountInBins, nearest_of_rows
from coterie.methods.shared.ranges import Ranges
from coterie.methods.shared.selection import selected
from coterie.methods.shared.whole_rows import ShownRows, whole_rows

SHARE = 0.15
"""Of what a run may give away, for the profiles of its clusters."""
SHARES = (0.2, 0.4, 1.0)
"""Of what is left for them: for missing values, for moments, for counts in bins."""
BINS = 32
"""Of a declared range, in which values are counted."""
FEW = 2.0
"""Quantiles are given where there are more values than so many deviations of the noise in all bins together."""


class UseLabelled(Request[Nothing], remembered=True, doing="putting rows to their clusters"):
    """From now on show these columns, as they were before anything was done to them, after the cluster of each row:
    the nearest of the centers, among whole rows as they are shown now. A single cluster is not shown."""

    names: tuple[str, ...]
    centers: Floats = array("k", "s")

    @property
    def tells_nothing(self) -> bool:
        """Every row has a nearest center, whatever it holds."""
        return True


@remembers(UseLabelled)
def keep_labelled(table: Table, memory: Memory, ask: UseLabelled) -> None:
    """Put the columns in the table's place, with clusters before them."""
    shown = selected(unprepared(table), ask.names)
    several = len(ask.centers) > 1
    memory.table = LabelledTable(shown, whole_rows(memory), ask.centers) if several else shown


class LabelledTable:
    """A table whose first column is the cluster of each row."""

    def __init__(self, table: Table, rows: ShownRows, centers: Floats) -> None:
        if rows.width != centers.shape[1]:
            raise InputError(f"centers of {centers.shape[1]} numbers for rows of {rows.width}")
        self._table, self._rows, self._centers = table, rows, centers
        self.columns = (Column("cluster"), *table.columns)

    @property
    def n_rows(self) -> int:
        """How many rows are shown."""
        return self._table.n_rows

    @cached_property
    def labels(self) -> Integers:
        """Of the rows, in their order."""
        with np.errstate(all="ignore"):  # no warning reveals anything about a row
            labels = [nearest_of_rows(piece, self._centers)[0] for piece in self._rows.pieces()]
        return np.concatenate([np.zeros(0, np.intp), *labels])

    def raw_blocks(self) -> Iterator[Block]:
        """The rows, each after its cluster."""
        start = 0
        for block in self._table.raw_blocks():
            stop = start + len(block.rows)
            own = self.labels[start:stop, None].astype(block.rows.dtype)
            yield Block(np.hstack([own, block.rows]), block.weights)
            start = stop

    blocks = raw_blocks


def ranges_of_all(options: PreparationOptions, names: Sequence[str]) -> tuple[Ranges, Ranges]:
    """The declared ranges of a run's columns, and of those that its clusters are described by besides, which follow
    them; ``InputError`` that names those without."""
    assert options.ranges is not None
    besides, n, given = [column.name for column in options.besides], len(names), np.size(options.ranges[0])
    if n <= given < n + len(besides):
        without = besides[given - n :]
        raise InputError(
            f"privacy needs a range for every column that clusters are described by, and {', '.join(without)} "
            f"{'has' if len(without) == 1 else 'have'} none; give it in ranges, after those of the run's columns."
        )
    whole = Ranges.of(options.ranges, n + len(besides))
    return Ranges(whole.low[:n], whole.high[:n]), Ranges(whole.low[n:], whole.high[n:])


def private_profile_of_clusters(
    centers: Floats, names: Sequence[str], ranges: Ranges, releases: Releases
) -> Protocol[Profile]:
    """The profile by these columns of a run's clusters, whose centers are in the whole numbers shown last."""
    yield from total(UseLabelled(tuple(names), centers), phase=PHASE)
    return (yield from private_profile(within_ranges(ranges), names, releases, len(centers)))


def private_profile(
    preparation: Preparation,
    names: Sequence[str],
    releases: Releases,
    n_clusters: int = 1,
    levels: Sequence[float] = QUARTILES,
) -> Protocol[Profile]:
    """What is in clusters, within ranges and with noise; a category (``sex=f``) from 0 to 1 is a share."""
    missed = yield from missing_shares(preparation, releases, SHARES[0], n_clusters)
    moments = yield from column_moments(preparation, missed, releases, SHARES[1])
    width, (k, p) = widths(preparation), moments.means.shape
    far = replace(preparation, fill=np.full(p, far_from(preparation)), shift=preparation.low, scale=width)
    yield from see_whole(far, 1 / BINS, np.full(p, 0.5 / BINS), k)
    counts = yield from releases.ask(CountInBins, "counts of values", SHARES[2], (1.0,), k, p, BINS)
    present = moments.rows[:, None] * (1 - missed.shares)
    first, last = (np.broadcast_to(end, (k, p)) for end in (preparation.low, preparation.low + width))
    quantiles = from_bins(nearest_counts(counts.reply.counts, present), first, last, levels)
    quantiles[present < FEW * counts.deviations[0] * np.sqrt(BINS)] = np.nan
    is_share = np.array(["=" in name for name in names]) & (preparation.low == 0) & (preparation.high == 1)
    means, deviations = moments.means, moments.deviations / np.sqrt(1 - missed.shares)
    deviations = np.where(is_share, np.sqrt(np.clip(means * (1 - means), 0, 1)), deviations)
    quantiles[:, is_share] = np.nan
    made = tuple(names), moments.rows, present, means, deviations, quantiles, is_share
    return Profile(*made, over_groups=False, noise=(moments.noise_of_rows, moments.noise_of_means))


def nearest_counts(noisy_counts: Integers, totals: Floats) -> Floats:
    """The nearest counts that are none below 0 and add up to a total, along the last axis.

    Cutting off what is below 0 would add noise of empty bins to the tails.
    """
    ordered = -np.sort(-noisy_counts.astype(float), axis=-1)
    over = (np.cumsum(ordered, axis=-1) - totals[..., None]) / np.arange(1, ordered.shape[-1] + 1)
    last = (ordered > over).sum(axis=-1, keepdims=True) - 1
    return np.asarray(np.maximum(noisy_counts - np.take_along_axis(over, np.maximum(last, 0), -1), 0.0))
