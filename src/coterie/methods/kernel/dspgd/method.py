"""Kernel k-means and kernel principal components as in "A communication efficient federated kernel k-means"."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

from coterie.messages.verbs import Protocol
from coterie.methods.kernel.clusters import (
    CLUSTERING,
    ComponentsOfClusters,
    EmbeddedKMeans,
    KernelFit,
    KernelParameters,
    SumLengths,
    cluster_by_coreset,
    cluster_embedded,
    find_gamma,
)
from coterie.methods.kernel.dspgd import dense, sites
from coterie.methods.kernel.dspgd.protocol import DSPGDOptions, DSPGDSettings, Embedding, dspgd
from coterie.methods.method import COUNT, ComponentSettings, Method, RunContext, values_of
from coterie.methods.shared.counts import CountRows
from coterie.parameters import Allowed, check_parameters, parameter


@dataclass(frozen=True)
class DSPGDFit(KernelFit):
    """An embedding by random features, drawn anew in every iteration."""

    embedding: Embedding


def embed_by_dspgd(
    parameters: KernelParameters, settings: DSPGDSettings, n_columns: int, *, seed: int
) -> Protocol[DSPGDFit]:
    """gamma by sums, then the top eigenpairs of the kernel matrix of all rows."""
    check_parameters(parameters)
    gamma, n_rows = yield from find_gamma(n_columns, needed=parameters.gamma is None)
    kernel = parameters.kernel_at(gamma)
    embedding = yield from (dspgd if settings.cem else dense.dspgd_dense)(kernel, settings, seed=seed)
    return DSPGDFit(kernel, embedding, n_rows, values=embedding.values)


@dataclass(eq=False, repr=False, kw_only=True)
class DSPGDParameters(DSPGDOptions, KernelParameters):
    """The kernel, and the parameters of DSPGD."""

    result_type: ClassVar[type[Any]] = DSPGDFit

    @property
    def method(self) -> str:
        """DSPGD without its mechanism is a method of its own."""
        return "dspgd" if self.cem else "dspgd-dense"

    @abstractmethod
    def run_settings(self) -> DSPGDSettings:
        """What Algorithm 1 runs with."""

    def check(self, n_columns: int) -> None:
        """Raise an error if parameters are wrong, alone or together."""
        super().check(n_columns)
        self.run_settings()


@dataclass(eq=False, repr=False)
class DSPGDClusterSettings(DSPGDParameters, ComponentsOfClusters, EmbeddedKMeans):
    """An embedding by DSPGD, then k-means."""

    _: KW_ONLY
    clustering: str = parameter(
        "lloyd",
        "How embedded rows are clustered: by sums, or by ``n_points`` of them (``coreset``, the paper's way).",
        Allowed("lloyd", "coreset"),
    )
    n_points: int = parameter(1000, "Points of a coreset.", COUNT)

    def run_settings(self) -> DSPGDSettings:
        """As many components as are asked for; the threshold is the (k + 2)-th eigenvalue."""
        k = int(self.n_clusters)
        return DSPGDSettings(self.n_components or 2 * k, k + 2, **values_of(self, DSPGDOptions))

    def protocol(self, context: RunContext) -> Protocol[DSPGDFit]:
        """The embedding, then k-means of the embedded rows."""
        k, seed = int(self.n_clusters), context.seed
        fit = yield from embed_by_dspgd(self, self.run_settings(), context.n_columns, seed=seed)
        if self.clustering == "coreset":
            return replace(fit, clusters=(yield from cluster_by_coreset(fit, k, n_points=self.n_points, seed=seed)))
        return replace(fit, clusters=(yield from cluster_embedded(fit, self, context)))


@dataclass(eq=False, repr=False)
class DSPGDComponentSettings(DSPGDParameters, ComponentSettings):
    """The embedding alone."""

    _: KW_ONLY
    center: bool = parameter(True, "Center the kernel matrix, as scikit-learn's KernelPCA does.")

    def run_settings(self) -> DSPGDSettings:
        """The threshold is two eigenvalues beyond the components."""
        values = values_of(self, DSPGDOptions)
        return DSPGDSettings(self.n_components, self.n_components + 2, self.center, **values)

    def protocol(self, context: RunContext) -> Protocol[DSPGDFit]:
        """The embedding."""
        return embed_by_dspgd(self, self.run_settings(), context.n_columns, seed=context.seed)


METHOD = Method(
    "dspgd",
    "Federated kernel k-means and kernel PCA: random features, proximal gradient steps, Lanczos or Gram exchange",
    (
        SumLengths,
        sites.BeginKernel,
        sites.ReportFeatureLength,
        sites.SumFeatures,
        sites.Multiply,
        sites.SendGram,
        sites.Advance,
        *CLUSTERING,
    ),
    "d+2 for gamma; an iteration: n(n+1)/2 (Gram) or Q n (Lanczos), n = r_t + D; then Lloyd by sums, k(s+1)+1 a "
    "round",
    "sums of products of random features over all sites, enough of which reveal what sites show (groups by default); "
    "then per cluster the sum and number of embedded rows",
    optional="only with a one-shot start",
    settings=(DSPGDClusterSettings, DSPGDComponentSettings),
    fixed={"cem": True},
)
DENSE = Method(
    "dspgd-dense",
    "Federated kernel k-means without its communication-efficient mechanism: what the paper compares it with",
    (
        SumLengths,
        sites.BeginKernel,
        CountRows,
        sites.ReportFeatureLength,
        sites.SumFeatures,
        dense.Project,
        dense.Expand,
        dense.KeepRows,
        *CLUSTERING,
    ),
    "d+2 for gamma; a Lanczos step: N_m + D, about thirty of them an iteration; then as dspgd",
    "products of single rows' features with vectors of the server's choice, and every embedded row",
    visibility="rows",
    settings=(DSPGDClusterSettings, DSPGDComponentSettings),
    fixed={"cem": False},
    needs_rows=True,
    is_baseline=True,
)
