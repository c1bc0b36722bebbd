"""Kernel k-means and kernel principal components as in "A communication efficient federated kernel k-means"."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from coterie.estimators.kernels import KernelClusters, KernelComponents, KernelParameters, KMeansParameters
from coterie.messages.verbs import Protocol
from coterie.methods.kernel.clusters import KernelFit, cluster_by_coreset, cluster_embedded, embed_by_dspgd
from coterie.methods.kernel.dspgd.protocol import DSPGDSettings
from coterie.methods.shared.prepared import Spread
from coterie.parameters import Allowed, described, parameter


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

    @property
    def method(self) -> str:
        """DSPGD without its mechanism is a method of its own."""
        return "dspgd" if self.cem else "dspgd-dense"

    def _settings(self, n_components: int, rank: int, *, center: bool) -> DSPGDSettings:
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


@described
@dataclass(eq=False, repr=False)
class DSPGDKernelKMeans(DSPGDParameters, KMeansParameters, KernelClusters):
    """Kernel k-means over rows that stay at their sites: an embedding by DSPGD, then k-means by sums.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, eigenvalues_, gamma_, ledger_
        As in :class:`FederatedKernelKMeans`.
    """

    n_clusters: int = parameter(8, "How many clusters.", Allowed(whole=True, low=1))
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

    def protocol(self, n_columns: int, known: Spread | None = None, *, averages: bool = True) -> Protocol[KernelFit]:
        """The embedding, then k-means of the embedded rows."""
        k, seed = int(self.n_clusters), self._run_seed
        settings = self._settings(self.n_components or 2 * k, k + 2, center=False)
        fit = yield from embed_by_dspgd(self._problem, settings, n_columns, seed=seed)
        if self.clustering == "coreset":
            return replace(fit, clusters=(yield from cluster_by_coreset(fit, k, n_points=self.n_points, seed=seed)))
        clusters = yield from cluster_embedded(
            fit, k, init=self.init, max_rounds=self.max_rounds, tol=self.tol, seed=seed, averages=averages
        )
        return replace(fit, clusters=clusters)


@described
@dataclass(eq=False, repr=False)
class DSPGDKernelPCA(DSPGDParameters, KernelComponents):
    """The top eigenpairs of the kernel matrix of rows that stay at their sites, by DSPGD.

    Random features are drawn anew in every iteration; sites send a small matrix of their products (or products with
    it), and a proximal step keeps what stays above a threshold.

    Attributes
    ----------
    eigenvalues_, gamma_, ledger_
        As in :class:`FederatedKernelPCA`; fewer components where fewer eigenvalues stay above the threshold.
    embedding_ : Embedding
        What embeds any row, from public requests alone.
    """

    n_components: int = parameter(2, "s: how many components.", Allowed(whole=True, low=1))
    _: KW_ONLY
    center: bool = parameter(True, "Center the kernel matrix, as scikit-learn's KernelPCA does.")

    def protocol(self, n_columns: int, known: Spread | None = None, *, averages: bool = True) -> Protocol[KernelFit]:
        """The embedding."""
        settings = self._settings(self.n_components, self.n_components + 2, center=self.center)
        return embed_by_dspgd(self._problem, settings, n_columns, seed=self._run_seed)
