"""What kernel methods have in common: a kernel, an embedding, and linear k-means of the embedded rows.

Lines 16 to 20 of Algorithm 1 of "A communication efficient federated kernel k-means".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.arrays import Indices
from coterie.maths.kernels import KERNELS, Kernel, average_distance_gamma
from coterie.maths.landmarks import LandmarkMap
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers, within_columns
from coterie.messages.verbs import Protocol, total
from coterie.methods.method import COUNT, COUNT_OR_NONE, ClusterSettings, Requests, RunContext, Settings
from coterie.methods.shared.coresets import SampleCoreset, SumCost, coreset
from coterie.methods.shared.counts import check_rows
from coterie.methods.shared.lloyd import Assign, Close, KMeansFit, closed, lloyd
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.restarts import JUDGED, check_n_init, chosen_start, n_init_parameter
from coterie.methods.shared.starts import Split, Summarise
from coterie.parameters import Allowed, parameter

CLUSTERING: Requests = (Assign, Close, Split, *JUDGED, Summarise, SumCost, SampleCoreset)
"""The questions by which embedded rows are clustered."""


class Lengths(Reply, content="sums"):
    """The number of rows, their sum, and the sum of their squared lengths."""

    rows: Floats = array(bound="rows", nonnegative=True)
    sums: Floats = array("d", bound="rows * box[d]")
    squares: Floats = array(bound="rows * d * box**2", nonnegative=True)


class SumLengths(Request[Lengths], doing="summing rows and squared lengths, for gamma"):
    """Sum up your rows and their squared lengths."""

    d: int


@answers(SumLengths)
def local_lengths(table: Table, memory: Memory, ask: SumLengths) -> Lengths:
    reply = Lengths(np.zeros(()), np.zeros(ask.d), np.asarray(within_columns(table).sum()))
    for block in table.blocks():
        rows = block.rows.astype(np.float64, copy=False)
        each = block.counts
        reply += Lengths(each.sum(), each @ rows, np.asarray(each @ np.vecdot(rows, rows)))
    return reply


def find_gamma(n_columns: int, *, needed: bool = True) -> Protocol[tuple[float, float]]:
    """gamma from the mean squared distance between rows, and N: one round, d + 2 numbers a site.

    Where gamma is not ``needed`` only N counts, and 1 is returned for it.
    """
    lengths = yield from total(SumLengths(n_columns))
    check_rows(float(lengths.rows))
    gamma = average_distance_gamma(float(lengths.rows), lengths.sums, float(lengths.squares)) if needed else 1.0
    return gamma, float(lengths.rows)


@dataclass(frozen=True)
class KernelFit:
    """An embedding and, where there are clusters, those of the embedded rows."""

    kernel: Kernel
    embedding: Any
    """What embeds any row: see :class:`coterie.methods.shared.embedded.Embeds`."""
    n_rows: float
    clusters: KMeansFit | None = None
    values: Floats = field(default_factory=lambda: np.zeros(0))
    """Eigenvalues of the kernel matrix."""
    n_starts: int = 1
    """From how many starts the clusters were chosen."""
    server_labels: Mapping[str, Indices] | None = field(default=None, metadata={"in_model": False})
    """By site the cluster of each of its rows, where only the server can put rows to clusters."""


@dataclass(frozen=True)
class LandmarkFit(KernelFit):
    """An embedding by kernel values with some points."""

    embedding: LandmarkMap


@dataclass(eq=False, repr=False, kw_only=True)
class KernelParameters(Settings):
    """Which kernel."""

    kernel: str = parameter(
        "rbf", "The kernel; ``polynomial`` is ``(gamma <x, y> + coef0) ** degree``.", Allowed(*KERNELS)
    )
    gamma: float | None = parameter(
        None,
        "The kernel's gamma, 1 / (2 sigma^2) where a paper has sigma; None takes N^2 / (2 sum of squared distances).",
        Allowed(above=0, none=True),
    )
    degree: int = parameter(3, "Of the polynomial kernel.", COUNT)
    coef0: float = parameter(1.0, "Of the polynomial kernel.", Allowed(low=0))

    def kernel_at(self, gamma: float) -> Kernel:
        """The kernel with the gamma given as a parameter, or else with this one, found from the rows' distances."""
        return Kernel(self.kernel, gamma if self.gamma is None else float(self.gamma), self.degree, self.coef0)


@dataclass(eq=False, repr=False, kw_only=True)
class ComponentsOfClusters(ClusterSettings):
    """Of clusters that are found among the leading components."""

    n_components: int | None = parameter(
        None, "s: components the clusters are found in; None is ``2 * n_clusters``.", COUNT_OR_NONE
    )


@dataclass(eq=False, repr=False, kw_only=True)
class EmbeddedKMeans(ClusterSettings):
    """Of the k-means of embedded rows."""

    init: str = parameter(
        "auto",
        "The start of the k-means of embedded rows, by name; see :class:`FederatedKMeans`.",
        Allowed("auto", "one-shot", "cells", "var-part", "random"),
    )
    n_init: str | int = n_init_parameter()
    tol: float = parameter(
        1e-4, "The shift of the centers at which to stop; see :class:`FederatedKMeans`.", Allowed(low=0)
    )
    max_rounds: int = parameter(100, "The most rounds of Lloyd's algorithm.", Allowed(whole=True, low=0))

    def check(self, n_columns: int) -> None:
        """Raise an error if the parameters do not fit tables with ``n_columns`` columns."""
        super().check(n_columns)
        check_n_init(self.n_init, self.init)


def cluster_embedded(fit: KernelFit, settings: EmbeddedKMeans, context: RunContext) -> Protocol[KMeansFit]:
    """Linear k-means of the embedded rows by sums (ours: no embedded row leaves a site)."""
    values, k = fit.values, int(settings.n_clusters)
    check_rows(fit.n_rows, k)
    deviation = np.sqrt(values / fit.n_rows)
    spread = Spread(fit.n_rows, np.zeros(len(values)), deviation.copy())
    if settings.init != "random":  # the first component has one sign: nearly all of it is its mean
        spread.deviation[:1] = 0.0
    start = yield from chosen_start(settings.init, settings.n_init, k, spread, seed=context.seed)
    tol = settings.tol * float(np.mean(deviation**2))
    return (yield from lloyd(start, max_rounds=settings.max_rounds, tol=tol))


def cluster_by_coreset(fit: KernelFit, n_clusters: int, *, n_points: int, seed: int) -> Protocol[KMeansFit]:
    """Linear k-means of the embedded rows by a coreset of them (the paper's way: embedded rows leave the sites)."""
    points = yield from coreset(n_clusters, len(fit.values), n_points=n_points, seed=seed)
    return (yield from closed(points.centers(n_clusters, seed=seed), 0))
