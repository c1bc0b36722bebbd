"""Kernel k-means and kernel principal components by landmarks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

from coterie.messages.verbs import Protocol
from coterie.methods.kernel.clusters import CLUSTERING, EmbeddedKMeans, LandmarkFit, SumLengths, cluster_embedded
from coterie.methods.kernel.landmarks import sites, summed
from coterie.methods.kernel.landmarks.protocol import LandmarkParameters, cluster_by_landmarks, embed_by_landmarks
from coterie.methods.method import COUNT_OR_NONE, ComponentSettings, Method, RunContext
from coterie.parameters import Allowed, parameter


@dataclass(eq=False, repr=False)
class LandmarkClusterSettings(LandmarkParameters, EmbeddedKMeans):
    """Landmarks, clusters of these, and rounds of Lloyd's algorithm among the rows' features."""

    _: KW_ONLY
    n_components: int | None = parameter(
        None, "Components the clusters are found in; None is all there are.", COUNT_OR_NONE
    )
    max_rounds: int = parameter(2, "The most rounds of Lloyd's algorithm.", Allowed(whole=True, low=0))

    def protocol(self, context: RunContext) -> Protocol[LandmarkFit]:
        """Clusters among all features, or among the leading components."""
        if self.n_components is None:
            k, max_rounds = int(self.n_clusters), self.max_rounds
            return (yield from cluster_by_landmarks(self, k, context, max_rounds=max_rounds, tol=self.tol))
        fit = yield from embed_by_landmarks(self, self.n_components, context, center=False, announce=True)
        return replace(fit, clusters=(yield from cluster_embedded(fit, self, context)))


@dataclass(eq=False, repr=False)
class LandmarkComponentSettings(LandmarkParameters, ComponentSettings):
    """Landmarks, and the Gram of the rows' features."""

    _: KW_ONLY
    center: bool = parameter(True, "Center the kernel matrix, as scikit-learn's KernelPCA does.")

    def protocol(self, context: RunContext) -> Protocol[LandmarkFit]:
        """The leading components of all rows' features."""
        return embed_by_landmarks(self, self.n_components, context, center=self.center)


METHOD = Method(
    "landmarks",
    "Landmark kernel k-means and kernel PCA: a few coarse averages stand for the kernel of all rows",
    (
        sites.SendLandmarks, summed.UseProjection, summed.SumProjected, summed.SumSquaredDistances,
        summed.CountCells, summed.ShareCells, SumLengths, sites.UseLandmarks, sites.TryLandmarks, sites.MeanByCell,
        sites.SendFeatureGram, *CLUSTERING,
    ),
    "local: q d of a few bits, then k(r+2) of 16 bits a round; summed: m d of a few bits, m(p+1) a round before, "
    "k(r+1)+1 a round after; an embedding: (r+1)(r+2)/2; r features, at most m",
    "local: each site's own coarse centers, means of features by cluster; summed: sums over all sites alone",
    optional="only where every site allows averages (landmarks='summed' never)",
    settings=(LandmarkClusterSettings, LandmarkComponentSettings),
    use="for clusters that are not convex (kernel k-means), and for kernel PCA",
)  # fmt: skip
