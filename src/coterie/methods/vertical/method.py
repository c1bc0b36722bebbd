"""Kernel principal components and clusters of rows whose columns are at several sites."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coterie.errors import InputError
from coterie.maths.clustering import nearest, weighted_kmeans
from coterie.messages.site_api import Column
from coterie.messages.verbs import Protocol
from coterie.methods.method import (
    COUNT_OR_NONE,
    ClusterSettings,
    ComponentSettings,
    Method,
    RunContext,
    RunResult,
    Settings,
    values_of,
)
from coterie.methods.shared.agreement import Capabilities
from coterie.methods.shared.alignment import Attend, SendTags
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.profiles import CountByLabel, SumByLabel
from coterie.methods.vertical import sites
from coterie.methods.vertical.dpca import CountColumns, SendComponents, SolveCopy
from coterie.methods.vertical.kernel_pca import VerticalFit, VerticalOptions, VerticalSettings, vertical_kernel_pca
from coterie.methods.vertical.profiles import MeasureNames, SendNames, label_profile
from coterie.parameters import parameter

SPARE = 10
"""Eigenpairs a site sends beyond the components rows are clustered by: components alone were too rough."""


@dataclass(eq=False, repr=False, kw_only=True)
class VerticalParameters(VerticalOptions, Settings):
    """The kernel, and what sites send."""

    method = "vertical-kernel-pca"
    splits_columns: ClassVar[bool] = True
    result_type: ClassVar[type[Any]] = VerticalFit

    @abstractmethod
    def run_settings(self, options: PreparationOptions) -> VerticalSettings:
        """What Algorithm 1 runs with."""

    def check(self, n_columns: int) -> None:
        """Raise an error if parameters are wrong."""
        super().check(n_columns)
        self.run_settings(PreparationOptions())

    def protocol(self, context: RunContext) -> Protocol[VerticalFit]:
        """Algorithm 1, columns treated by their sites."""
        return vertical_kernel_pca(self.run_settings(context.options), seed=context.seed)

    def check_options(self, options: PreparationOptions) -> None:
        """Every site has all rows, and treats its own columns."""
        if options.ranges is not None:
            raise InputError("ranges cannot be used where columns are split between sites: each site scales its own.")
        if options.profile and not isinstance(self, ClusterSettings):
            raise InputError(f"profile is about clusters, and {self.method} finds none here; leave it out.")
        if options.besides:
            raise InputError("profile=True describes clusters by all columns of all sites; name none of them.")
        for name, value in (("max_share", options.max_share), ("halves", options.halves)):
            if value:
                raise InputError(
                    f"{name}={value} cannot be used where columns are split between sites; leave it out."
                )

    def whole_protocol(
        self, columns: Mapping[str, tuple[Column, ...]], options: PreparationOptions, seed: int
    ) -> Protocol[RunResult]:
        """The same: there is nothing to agree on, and every site treats its own columns."""
        self.check_options(options)
        context = RunContext(sum(map(len, columns.values())), seed, options=options)
        fit, profile = (yield from self.protocol(context)), None
        if options.profile and fit.centers is not None:
            labels = nearest(fit.embedding, fit.centers)[0]
            profile = yield from label_profile(labels, len(fit.centers))
        return RunResult(None, fit, Capabilities(), profile=profile)


@dataclass(eq=False, repr=False)
class VerticalComponentSettings(VerticalParameters, ComponentSettings):
    """Components."""

    _: KW_ONLY
    center: bool = parameter(True, "Subtract the features' mean, as PCA does.")

    def run_settings(self, options: PreparationOptions) -> VerticalSettings:
        """What Algorithm 1 runs with."""
        values = values_of(self, VerticalOptions)
        return VerticalSettings(self.n_components, self.center, options.missing, options.scale, **values)


@dataclass(eq=False, repr=False)
class VerticalClusterSettings(VerticalParameters, ClusterSettings):
    """Components, and clusters of these at the server."""

    _: KW_ONLY
    n_components: int | None = parameter(
        None, "Components the rows are clustered by; None is as many as clusters.", COUNT_OR_NONE
    )

    def run_settings(self, options: PreparationOptions) -> VerticalSettings:
        """What Algorithm 1 runs with: a few eigenpairs more than components, at least as many rows as clusters."""
        components = self.n_clusters if self.n_components is None else self.n_components
        values = values_of(self, VerticalOptions)
        if self.local_rank is None and self.tolerance is None:
            values["local_rank"] = components + SPARE
        fewest = max(2, int(self.n_clusters))
        return VerticalSettings(components, True, options.missing, options.scale, fewest, **values)

    def protocol(self, context: RunContext) -> Protocol[VerticalFit]:
        """Algorithm 1, then k-means of the components."""
        fit = yield from super().protocol(context)
        ones, k = np.ones(len(fit.means)), int(self.n_clusters)
        return replace(fit, centers=weighted_kmeans(fit.embedding, ones, k, seed=context.seed))


METHOD = Method(
    "vertical-kernel-pca",
    "Kernel PCA and kernel k-means of rows whose columns are at several sites, in one shot (He et al. 2020)",
    (
        Attend, SendTags, sites.Treat, sites.MeasureSpread, sites.FindRank, sites.Decompose, sites.SumDistances,
        sites.ReportProducts, sites.SumProducts, MeasureNames, SendNames, SumByLabel, CountByLabel,
    ),
    "D(T+1) for T rows; 3 to meet and T tags where rows have keys, 2 for gamma, 2 for the ranks of a tolerance; then "
    "T a new row (rbf) or one a component of it (linear)",
    "all distances between a site's rows in its own columns, and so its rows up to a rotation; tags show "
    "which rows are the same",
    visibility="rows",
    settings=(VerticalClusterSettings, VerticalComponentSettings),
    needs_rows=True,
    use="where sites hold different columns of the same rows",
)  # fmt: skip
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
