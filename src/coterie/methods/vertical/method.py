"""Kernel principal components and clusters of rows whose columns are at several sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coterie.errors import InputError
from coterie.maths.clustering import weighted_kmeans
from coterie.messages.site_api import Column
from coterie.messages.verbs import Protocol
from coterie.methods.method import ClusterSettings, ComponentSettings, Method, RunContext, RunResult, Settings
from coterie.methods.shared.agreement import Capabilities
from coterie.methods.shared.alignment import Attend, SendTags
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.vertical.dpca import CountColumns, SendComponents, SolveCopy
from coterie.methods.vertical.kernel_pca import VerticalFit, VerticalSettings, vertical_kernel_pca
from coterie.methods.vertical.sites import (
    Decompose,
    FindRank,
    MeasureSpread,
    ReportProducts,
    SumDistances,
    SumProducts,
    Treat,
)
from coterie.parameters import parameter

SPARE = 10
"""Eigenpairs a site sends beyond the components rows are clustered by: components alone were too rough."""


@dataclass(eq=False, repr=False, kw_only=True)
class VerticalParameters(Settings):
    """The kernel, and what sites send."""

    kernel: str = parameter("rbf", "``rbf``: ``exp(-gamma |x - y|^2)``, or ``linear``: ``x'y``.")
    gamma: float | None = parameter(
        None,
        "Of rbf, 1 / (2 sigma^2) in the paper's letters; None asks the sites how far their columns spread and takes "
        "the inverse of twice the mean squared distance.",
    )
    local_rank: int | None = parameter(
        None,
        "D: how many eigenpairs a site sends, D (T + 1) numbers; None is as many as components (for clusters ten "
        "more). With a tolerance the most it may send.",
    )
    tolerance: float | None = parameter(
        None,
        "Lets each site send as few eigenpairs as keep the kernel matrix of all columns within this share of its "
        "trace (Frobenius norm; Lemma 2): first the ranks, then the pairs.",
    )
    precision: str = parameter("float64", "Of eigenvectors and distances on the wire, ``float64`` or ``float32``.")

    method = "vertical-kernel-pca"
    splits_columns: ClassVar[bool] = True
    result_type: ClassVar[type[Any]] = VerticalFit

    def vertical_settings(self, options: PreparationOptions) -> VerticalSettings:
        """What Algorithm 1 runs with."""
        raise NotImplementedError

    def check(self, n_columns: int) -> None:
        """Raise what is wrong with the parameters."""
        super().check(n_columns)
        self.vertical_settings(PreparationOptions())

    def protocol(self, context: RunContext) -> Protocol[VerticalFit]:
        """Algorithm 1, columns treated by their sites."""
        return vertical_kernel_pca(self.vertical_settings(context.options), seed=context.seed)

    def whole_protocol(
        self, columns: Mapping[str, tuple[Column, ...]], options: PreparationOptions, seed: int
    ) -> Protocol[RunResult]:
        """The same: there is nothing to agree on, and every site treats its own columns."""
        if options.ranges is not None:
            raise InputError("ranges: each site scales its own columns; there are no common ones to declare.")
        context = RunContext(sum(map(len, columns.values())), seed, options=options)
        return RunResult(None, (yield from self.protocol(context)), Capabilities())


@dataclass(eq=False, repr=False)
class VerticalComponentSettings(VerticalParameters, ComponentSettings):
    """Components."""

    _: KW_ONLY
    center: bool = parameter(True, "Take the features' mean off, as for PCA.")

    def vertical_settings(self, options: PreparationOptions) -> VerticalSettings:
        """What Algorithm 1 runs with."""
        return VerticalSettings(
            self.n_components, self.kernel, self.gamma, self.local_rank, self.center, self.tolerance,
            self.precision, options.missing, options.scale,
        )  # fmt: skip


@dataclass(eq=False, repr=False)
class VerticalClusterSettings(VerticalParameters, ClusterSettings):
    """Components, and clusters of these at the server."""

    _: KW_ONLY
    n_components: int | None = parameter(None, "Components the rows are clustered by; None is as many as clusters.")

    def vertical_settings(self, options: PreparationOptions) -> VerticalSettings:
        """What Algorithm 1 runs with."""
        components = self.n_clusters if self.n_components is None else self.n_components
        rank = components + SPARE if self.local_rank is None and self.tolerance is None else self.local_rank
        return VerticalSettings(
            components, self.kernel, self.gamma, rank, True, self.tolerance, self.precision, options.missing,
            options.scale, max(2, int(self.n_clusters)),
        )  # fmt: skip

    def protocol(self, context: RunContext) -> Protocol[VerticalFit]:
        """Algorithm 1, then k-means of the components."""
        fit = yield from super().protocol(context)
        ones, k = np.ones(len(fit.means)), int(self.n_clusters)
        return replace(fit, centers=weighted_kmeans(fit.embedding, ones, k, seed=context.seed))


METHOD = Method(
    "vertical-kernel-pca",
    "Kernel PCA and kernel k-means of rows whose columns are at several sites, in one shot (He et al. 2020)",
    (Attend, SendTags, Treat, MeasureSpread, FindRank, Decompose, SumDistances, ReportProducts, SumProducts),
    "D(T+1) for T rows; 3 to meet and T tags where rows have keys, 2 for gamma, 2 for the ranks of a tolerance; then "
    "T a new row (rbf) or one a component of it (linear)",
    "all distances between a site's rows in its own columns, and with them its rows up to a rotation; tags tell "
    "which rows are the same",
    visibility="rows",
    settings=(VerticalClusterSettings, VerticalComponentSettings),
    needs_rows=True,
    use="where sites hold different columns of the same rows",
)
DPCA = Method(
    "dpca",
    "PCA of columns at several sites, by ADMM among neighbours (Schizas & Aduroja 2015): a baseline",
    (CountColumns, SolveCopy, SendComponents),
    "D T a step, 12 steps an iteration; 1 and m_j D at the end",
    "a fit of every row to the site's own columns, anew in every step",
    visibility="rows",
    needs_rows=True,
    is_baseline=True,
)
