"""How many rows of each site are in each final cluster: per-site results, where the policies of all sites allow them.

Over groups each number counts whole groups, so that it is a function of what the site shows anyway. Verified runs
answer sums alone: there it is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.arrays import Floats, Integers
from coterie.maths import clustering
from coterie.messages.schema import Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers
from coterie.messages.verbs import Protocol, each
from coterie.methods.shared.cluster_profiles import PHASE
from coterie.methods.shared.profiles import labels_of, with_labels


class SiteCounts(Reply, content="composition"):
    """By cluster a site's rows."""

    rows: Floats = array("k", bound="rows", nonnegative=True)


class CountByCenter(Request[SiteCounts], doing="counting each site's rows of the clusters"):
    """How many of your rows are nearest to each center?"""

    centers: Floats = array("k", "s")


@answers(CountByCenter)
def local_composition(table: Table, memory: Memory, ask: CountByCenter) -> SiteCounts:
    reply = SiteCounts.zeros(ask.axes)
    for block, own in with_labels(table, labels_of(table, ask.centers)):
        reply += SiteCounts(clustering.counts_by_cell(own, block.counts, len(ask.centers)))
    return reply


@dataclass(frozen=True)
class Composition:
    """The rows of each cluster by site: a row a cluster, a column a site."""

    sites: tuple[str, ...]
    rows: Floats
    over_groups: bool
    """Whether sites showed groups of rows, which are counted whole."""

    @property
    def shares(self) -> Floats:
        """Of each cluster's rows those of each site; 0 where a cluster is empty."""
        return np.asarray(self.rows / np.maximum(self.rows.sum(axis=1, keepdims=True), 1e-300))

    def records(self) -> list[dict[str, Any]]:
        """A plain record for each cluster and site."""
        return [
            {"cluster": i, "site": site, "rows": float(self.rows[i, j]), "share": float(self.shares[i, j])}
            for i in range(len(self.rows))
            for j, site in enumerate(self.sites)
        ]

    def to_frame(self) -> Any:
        """The rows of each cluster by site, as a data frame of pandas."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=list(self.sites)).rename_axis("cluster")


def run_composition(
    centers: Floats, grouped: bool, labels: Mapping[str, Integers] | None = None
) -> Protocol[Composition]:
    """The composition of a run's final clusters, by centers; or by the ``labels`` of each site's rows, where the
    server has them."""
    if labels is None:
        replies = yield from each(CountByCenter(centers), phase=PHASE)
        counts = {name: reply.rows for name, reply in replies.items()}
    else:
        counts = {name: np.bincount(own, minlength=len(centers)).astype(np.float64) for name, own in labels.items()}
    names = tuple(sorted(counts))
    return Composition(names, np.array([counts[name] for name in names]).T, grouped)
