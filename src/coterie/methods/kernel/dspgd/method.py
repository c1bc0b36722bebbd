"""Kernel k-means and kernel principal components as in "A communication efficient federated kernel k-means"."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coterie.messages.schema import Request
from coterie.messages.verbs import Protocol
from coterie.methods.kernel.clusters import (
    CLUSTERING,
    EmbeddedKMeans,
    KernelFit,
    KernelParameters,
    KernelProblem,
    cluster_by_coreset,
    cluster_embedded,
)
from coterie.methods.kernel.dspgd.dense import DenseEmbedding, Expand, KeepRows, Project, dspgd_dense
from coterie.methods.kernel.dspgd.protocol import DSPGDSettings, Embedding, dspgd
from coterie.methods.kernel.dspgd.sites import (
    Advance,
    BeginKernel,
    Multiply,
    ReportFeatureLength,
    SendGram,
    SumFeatures,
    longest,
)
from coterie.methods.kernel.gamma import SumLengths, find_gamma
from coterie.methods.method import ComponentSettings, Method, RunContext
from coterie.methods.shared.costs import Cost, one_round, to_all
from coterie.methods.shared.counts import CountRows
from coterie.parameters import Allowed, parameter


@dataclass(frozen=True)
class DSPGDFit(KernelFit):
    """An embedding by random features, drawn anew in every iteration."""

    embedding: Embedding


def embed_by_dspgd(
    problem: KernelProblem,
    settings: DSPGDSettings,
    n_columns: int,
    *,
    seed: int,
) -> Protocol[DSPGDFit]:
    """gamma by sums, then the top eigenpairs of the kernel matrix of all rows."""
    if problem.gamma is not None:
        problem.kernel(1.0)  # what cannot be is said before anyone is asked
    gamma, n_rows = yield from find_gamma(n_columns, needed=problem.gamma is None)
    kernel = problem.kernel(gamma)
    embedding = yield from (dspgd if settings.cem else dspgd_dense)(kernel, settings, seed=seed)
    return DSPGDFit(kernel, embedding, n_rows, values=embedding.values)


@dataclass(eq=False, repr=False, kw_only=True)
class DSPGDParameters(KernelParameters):
    """The knobs of DSPGD, with the paper's letters."""

    n_features: int | None = parameter(
        None,
        "D: random features an iteration; None is 40, or twice as many as the threshold needs.",
        Allowed(whole=True, low=1, none=True),
    )
    n_iter: int = parameter(20, "T: iterations.", Allowed(whole=True, low=1))
    threshold: float | None = parameter(
        None,
        "lambda; None takes an eigenvalue of the first iteration: two beyond those that are looked for.",
        Allowed(low=0, none=True),
    )
    step: Any = parameter("1/t", "eta_t: Algorithm 1's 1/t, or 2/t, at most 1, of Theorem 1.", Allowed("1/t", "2/t"))
    solver: Any = parameter(
        "auto",
        "``gram``: sites send the matrix of products at once; ``lanczos``: they multiply it with vectors; ``auto`` "
        "picks the cheaper.",
        Allowed("auto", "gram", "lanczos"),
    )
    cem: bool = parameter(
        True,
        "The paper's communication-efficient mechanism. Without it (method ``dspgd-dense``) an iteration costs N + "
        "M D numbers a Lanczos step, and sites must allow rows: it is what the paper compares with.",
    )
    features: str = parameter(
        "phase", "``phase``: sqrt(2) cos(w'x + b); ``paired``: cos and sin in pairs.", Allowed("phase", "paired")
    )
    precision: str = parameter(
        "float64", "Of the features; sums are in float64 in any case.", Allowed("float64", "float32")
    )

    result_type: ClassVar[type[Any]] = DSPGDFit

    @property
    def method(self) -> str:
        """DSPGD without its mechanism is a method of its own."""
        return "dspgd" if self.cem else "dspgd-dense"

    def dspgd_settings(self, n_components: int, rank: int, *, center: bool) -> DSPGDSettings:
        """What Algorithm 1 runs with."""
        return DSPGDSettings(
            n_components,
            max(40, 2 * rank) if self.n_features is None else self.n_features,
            self.n_iter,
            self.threshold,
            rank,
            self.step,
            self.solver,
            center,
            self.cem,
            self.features,
            self.precision,
        )


@dataclass(eq=False, repr=False)
class DSPGDClusterSettings(DSPGDParameters, EmbeddedKMeans):
    """An embedding by DSPGD, then k-means."""

    _: KW_ONLY
    n_components: int | None = parameter(
        None,
        "s: components the clusters are found in; None is ``2 * n_clusters``.",
        Allowed(whole=True, low=1, none=True),
    )
    clustering: str = parameter(
        "lloyd",
        "How embedded rows are clustered: by sums, or by ``n_points`` of them (``coreset``, the paper's way).",
        Allowed("lloyd", "coreset"),
    )
    n_points: int = parameter(1000, "Points of a coreset.", Allowed(whole=True, low=1))
    max_rounds: int = parameter(100, "The most rounds of Lloyd's algorithm.", Allowed(whole=True, low=0))

    def protocol(self, context: RunContext) -> Protocol[DSPGDFit]:
        """The embedding, then k-means of the embedded rows."""
        k, seed = int(self.n_clusters), context.seed
        settings = self.dspgd_settings(self.n_components or 2 * k, k + 2, center=False)
        fit = yield from embed_by_dspgd(self.problem, settings, context.n_columns, seed=seed)
        if self.clustering == "coreset":
            return replace(fit, clusters=(yield from cluster_by_coreset(fit, k, n_points=self.n_points, seed=seed)))
        clusters = yield from cluster_embedded(
            fit, k, init=self.init, max_rounds=self.max_rounds, tol=self.tol, seed=seed, averages=context.averages
        )
        return replace(fit, clusters=clusters)


@dataclass(eq=False, repr=False)
class DSPGDComponentSettings(DSPGDParameters, ComponentSettings):
    """The embedding alone."""

    _: KW_ONLY
    center: bool = parameter(True, "Center the kernel matrix, as scikit-learn's KernelPCA does.")

    def protocol(self, context: RunContext) -> Protocol[DSPGDFit]:
        """The embedding."""
        settings = self.dspgd_settings(self.n_components, self.n_components + 2, center=self.center)
        return embed_by_dspgd(self.problem, settings, context.n_columns, seed=context.seed)


def dspgd_gram_cost(n_sites: int, d: int, fit: KernelFit, *, center: bool, method: str = "dspgd") -> Cost:
    """d + 2 numbers a site for gamma; an iteration n(n+1)/2, n = r_t + D, D + 1 to center, and a round to tell."""
    assert isinstance(fit.embedding, Embedding)
    length = longest(fit.kernel, center=center)

    asks: list[Request[Any]] = [SumLengths(d), *fit.embedding.transcript]
    for step in fit.embedding.transcript[1:]:
        assert isinstance(step, Advance)
        n = len(step.vectors)
        asks.append(SendGram(step.step, length, n * (n + 1) // 2, n, step.eta, step.means))
        if center:
            asks.append(SumFeatures(step.step, length, len(step.means)))
    return to_all(n_sites, *asks, method=method)


def dspgd_dense_cost(d: int, fit: KernelFit, *, center: bool, method: str = "dspgd-dense") -> Cost:
    """d + 2 numbers a site for gamma and 3 for its rows; an iteration Q (N + M D), and D + 1 a site to center."""
    embedding = fit.embedding
    assert isinstance(embedding, DenseEmbedding)
    length, parts = longest(fit.kernel, center=center), list(embedding.rows.values())
    begin, *steps = embedding.transcript

    cost = to_all(len(parts), SumLengths(d), begin, CountRows(), method=method)
    cost += one_round([KeepRows(rows) for rows in parts], method=method)
    for step, q in zip(steps, embedding.n_products, strict=True):
        assert isinstance(step, Advance)
        n_features = len(step.means)
        cost += one_round([Project(step.step, n_features, np.zeros(len(rows))) for rows in parts], method=method) * q
        cost += one_round([Expand(step.step, len(rows), np.zeros(n_features)) for rows in parts], method=method) * q
        cost += to_all(len(parts), SumFeatures(step.step, length, n_features), method=method) * center
    return cost


METHOD = Method(
    "dspgd",
    "Federated kernel k-means and kernel PCA: random features, proximal gradient steps, Lanczos or Gram exchange",
    (SumLengths, BeginKernel, ReportFeatureLength, SumFeatures, Multiply, SendGram, Advance, *CLUSTERING),
    "d+2 for gamma; an iteration: n(n+1)/2 (Gram) or Q n (Lanczos), n = r_t + D; then Lloyd by sums, k(s+1)+1 a "
    "round",
    "sums of products of random features over all sites: enough of them give what sites show, groups by default; "
    "then per cluster the sum and number of embedded rows",
    optional="only with a one-shot start (the default where every site allows averages)",
    settings=(DSPGDClusterSettings, DSPGDComponentSettings),
    fixed={"cem": True},
)
DENSE = Method(
    "dspgd-dense",
    "Federated kernel k-means without its communication-efficient mechanism: what the paper compares it with",
    (SumLengths, BeginKernel, CountRows, ReportFeatureLength, SumFeatures, Project, Expand, KeepRows, *CLUSTERING),
    "d+2 for gamma; a Lanczos step: N_m + D, about thirty of them an iteration; then as dspgd",
    "products of single rows' features with vectors of the server's choice, and every embedded row",
    visibility="rows",
    settings=(DSPGDClusterSettings, DSPGDComponentSettings),
    fixed={"cem": False},
    needs_rows=True,
    is_baseline=True,
)
