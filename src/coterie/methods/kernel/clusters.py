"""Kernel k-means over all sites' rows: an embedding of the kernel, then linear k-means of the embedded rows.

Lines 16 to 20 of Algorithm 1 of "A communication efficient federated kernel k-means"; the embedding is DSPGD's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.errors import InputError
from coterie.maths.kernels import Kernel
from coterie.messages.schema import Floats, Request
from coterie.messages.verbs import Protocol, total
from coterie.methods.kernel.baselines import ck, rfk, sk
from coterie.methods.kernel.ce_pca import CEPCASettings, ce_pca_kmeans
from coterie.methods.kernel.dspgd.dense import DenseEmbedding, Expand, KeepRows, Project, dspgd_dense
from coterie.methods.kernel.dspgd.protocol import DSPGDSettings, Embedding, dspgd
from coterie.methods.kernel.dspgd.sites import Advance, SendGram, SumFeatures, longest
from coterie.methods.kernel.gamma import SumLengths, find_gamma
from coterie.methods.shared.coresets import coreset
from coterie.methods.shared.costs import Cost, one_round, to_all
from coterie.methods.shared.counts import CountRows
from coterie.methods.shared.lloyd import Close, KMeansFit, closed, lloyd
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.starts import choose_start

BASELINES = ("rfk", "ck", "sk", "ce-pca")
"""The methods kernel k-means by DSPGD is compared with."""


@dataclass(frozen=True)
class KernelProblem:
    """A kernel by name; without gamma, the one found from the rows' distances."""

    name: str = "rbf"
    gamma: float | None = None
    degree: int = 3
    coef0: float = 1.0

    def kernel(self, found: float) -> Kernel:
        """The kernel, once a gamma was found."""
        return Kernel(self.name, found if self.gamma is None else float(self.gamma), self.degree, self.coef0)


@dataclass(frozen=True)
class KernelFit:
    """An embedding and, where there are clusters, those of the embedded rows."""

    kernel: Kernel
    embedding: Any  # what embeds any row: an Embedding of DSPGD, or a map with a method embed
    n_rows: float
    clusters: KMeansFit | None = None
    values: Floats = field(default_factory=lambda: np.zeros(0))
    """Eigenvalues of the kernel matrix."""
    n_starts: int = 1
    """From how many starts the clusters were chosen."""


def embed_by_dspgd(
    problem: KernelProblem,
    settings: DSPGDSettings,
    n_columns: int,
    *,
    seed: int,
) -> Protocol[KernelFit]:
    """gamma by sums, then the top eigenpairs of the kernel matrix of all rows."""
    if problem.gamma is not None:
        problem.kernel(1.0)  # what cannot be is said before anyone is asked
    found, n_rows = yield from find_gamma(n_columns, needed=problem.gamma is None)
    kernel = problem.kernel(found)
    embedding = yield from (dspgd if settings.cem else dspgd_dense)(kernel, settings, seed=seed)
    return KernelFit(kernel, embedding, n_rows, values=embedding.values)


@dataclass(frozen=True)
class BaselineSettings:
    """The knobs of the methods federated kernel k-means is compared with (appendix G)."""

    method: str
    n_components: int
    n_features: int = 200
    """D, of rfk and ce-pca."""
    n_landmarks: int = 500
    """Landmark rows of sk, representative rows of ce-pca."""
    n_points: int = 1000
    """C: the points of a coreset, of rfk and ce-pca."""
    form: str = "phase"


def cluster_by_baseline(
    problem: KernelProblem, settings: BaselineSettings, n_clusters: int, n_columns: int, *, seed: int
) -> Protocol[KernelFit]:
    """RFK, CK, SK or CE PCA with k-means, by name."""
    found, n_rows = yield from find_gamma(n_columns, needed=problem.gamma is None)
    kernel, size = problem.kernel(found), {"n_components": settings.n_components, "n_columns": n_columns}
    if settings.method == "ck":
        fit = yield from ck(kernel, n_clusters, **size, seed=seed)
    elif settings.method == "sk":
        fit = yield from sk(kernel, n_clusters, n_landmarks=settings.n_landmarks, **size, seed=seed)
    elif settings.method == "rfk":
        fit = yield from rfk(
            kernel,
            n_clusters,
            n_features=settings.n_features,
            n_points=settings.n_points,
            form=settings.form,
            seed=seed,
        )
    else:
        inner = CEPCASettings(settings.n_components, settings.n_features, n_landmarks=settings.n_landmarks)
        _, fit = yield from ce_pca_kmeans(
            kernel, n_clusters, inner, n_columns=n_columns, n_points=settings.n_points, seed=seed
        )
    counts, cost = fit.counts, fit.cost
    if counts is None:
        closing = yield from total(Close(fit.centers))
        counts, cost = closing.counts, float(closing.cost)
    return KernelFit(kernel, fit.embedding, n_rows, KMeansFit(fit.centers, cost, counts, 0), fit.values)


def cluster_embedded(
    made: KernelFit,
    n_clusters: int,
    *,
    init: str,
    max_rounds: int,
    tol: float,
    seed: int,
    averages: bool = True,
) -> Protocol[KMeansFit]:
    """Linear k-means of the embedded rows by sums (ours: no embedded row leaves a site)."""
    values = made.values
    if made.n_rows < n_clusters:
        raise InputError(
            f"the sites hold {made.n_rows:g} rows in all; n_clusters={n_clusters} needs at least as many."
        )
    deviation = np.sqrt(values / made.n_rows)
    spread = Spread(made.n_rows, np.zeros(len(values)), deviation.copy())
    if init != "random":  # the first component has one sign: nearly all of it is its mean, which tells nothing apart
        spread.deviation[:1] = 0.0
    start = yield from choose_start(init, n_clusters, spread, seed=seed, averages=averages)
    return (yield from lloyd(start, max_rounds=max_rounds, tol=tol * float(np.mean(deviation**2))))


def cluster_by_coreset(made: KernelFit, n_clusters: int, *, n_points: int, seed: int) -> Protocol[KMeansFit]:
    """Linear k-means of the embedded rows by a coreset of them (the paper's way: embedded rows leave the sites)."""
    found = yield from coreset(n_clusters, len(made.values), n_points=n_points, seed=seed)
    return (yield from closed(found.centers(n_clusters, seed=seed), 0))


def dspgd_gram_cost(n_sites: int, d: int, made: KernelFit, *, center: bool, method: str = "dspgd") -> Cost:
    """d + 2 numbers a site for gamma; an iteration n(n+1)/2, n = r_t + D, D + 1 to center, and a round to tell."""
    assert isinstance(made.embedding, Embedding)
    length = longest(made.kernel, center=center)

    asks: list[Request[Any]] = [SumLengths(d), *made.embedding.transcript]
    for step in made.embedding.transcript[1:]:
        assert isinstance(step, Advance)
        n = len(step.vectors)
        asks.append(SendGram(step.step, length, n * (n + 1) // 2, n, step.eta, step.means))
        if center:
            asks.append(SumFeatures(step.step, length, len(step.means)))
    return to_all(n_sites, *asks, method=method)


def dspgd_dense_cost(d: int, made: KernelFit, *, center: bool, method: str = "dspgd-dense") -> Cost:
    """d + 2 numbers a site for gamma and 3 for its rows; an iteration Q (N + M D), and D + 1 a site to center."""
    found = made.embedding
    assert isinstance(found, DenseEmbedding)
    length, parts = longest(made.kernel, center=center), list(found.rows.values())
    begin, *steps = found.transcript

    cost = to_all(len(parts), SumLengths(d), begin, CountRows(), method=method)
    cost += one_round([KeepRows(rows) for rows in parts], method=method)
    for step, q in zip(steps, found.n_products, strict=True):
        assert isinstance(step, Advance)
        n_features = len(step.means)
        cost += one_round([Project(step.step, n_features, np.zeros(len(rows))) for rows in parts], method=method) * q
        cost += one_round([Expand(step.step, len(rows), np.zeros(n_features)) for rows in parts], method=method) * q
        cost += to_all(len(parts), SumFeatures(step.step, length, n_features), method=method) * center
    return cost
