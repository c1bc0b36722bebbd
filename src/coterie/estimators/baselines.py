"""Kernel k-means by pooled rows, or by features of rows as they are: what the papers compare with."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields

from coterie.estimators.kernels import KernelClusters, KernelParameters
from coterie.messages.verbs import Protocol
from coterie.methods.kernel.clusters import BaselineSettings, KernelFit, cluster_by_baseline
from coterie.methods.shared.prepared import Spread
from coterie.parameters import Allowed, described, parameter


@dataclass(eq=False, repr=False)
class _Baseline(KernelParameters, KernelClusters):
    """Attributes of all baselines are as in :class:`coterie.FederatedKernelKMeans`."""

    n_clusters: int = parameter(8, "How many clusters.", Allowed(whole=True, low=1))
    _: KW_ONLY
    n_components: int | None = parameter(
        None,
        "s: components the clusters are found in; None is ``2 * n_clusters``.",
        Allowed(whole=True, low=1, none=True),
    )

    def protocol(self, n_columns: int, known: Spread | None = None, *, averages: bool = True) -> Protocol[KernelFit]:
        """The method by name."""
        k = int(self.n_clusters)
        sizes = {item.name for item in fields(BaselineSettings)} & {item.name for item in fields(type(self))}
        given = {name: getattr(self, name) for name in sizes - {"n_components"}}
        settings = BaselineSettings(self.method, self.n_components or 2 * k, **given)
        return cluster_by_baseline(self._problem, settings, k, n_columns, seed=self._run_seed)


@described
@dataclass(eq=False, repr=False)
class RandomFeatureKernelKMeans(_Baseline):
    """k-means of random features drawn once, by a coreset of them (Chitta et al. 2012)."""

    _: KW_ONLY
    n_features: int = parameter(200, "D: random features.", Allowed(whole=True, low=1))
    n_points: int = parameter(1000, "C: points of the coreset.", Allowed(whole=True, low=1))
    form: str = parameter(
        "phase", "Of the features: ``phase`` or ``paired`` (cos and sin).", Allowed("phase", "paired")
    )

    method = "rfk"


@described
@dataclass(eq=False, repr=False)
class PooledKernelKMeans(_Baseline):
    """Exact kernel k-means of pooled rows."""

    method = "ck"


@described
@dataclass(eq=False, repr=False)
class NystroemKernelKMeans(_Baseline):
    """Nystroem kernel k-means of pooled rows (Wang et al. 2019)."""

    _: KW_ONLY
    n_landmarks: int = parameter(500, "Rows drawn as landmarks.", Allowed(whole=True, low=1))

    method = "sk"


@described
@dataclass(eq=False, repr=False)
class CEPCAKernelKMeans(_Baseline):
    """Kernel PCA from a few pooled rows, then k-means by a coreset (Balcan et al. 2016)."""

    _: KW_ONLY
    n_features: int = parameter(200, "D: random features.", Allowed(whole=True, low=1))
    n_landmarks: int = parameter(500, "Rows drawn as representatives.", Allowed(whole=True, low=1))
    n_points: int = parameter(1000, "C: points of the coreset.", Allowed(whole=True, low=1))

    method = "ce-pca"
