"""Kernel k-means and kernel principal components by landmarks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

from coterie.messages.verbs import Protocol
from coterie.methods.kernel.clusters import CLUSTERING, EmbeddedKMeans, LandmarkFit, SumLengths, cluster_embedded
from coterie.methods.kernel.landmarks import sites, summed
from coterie.methods.kernel.landmarks.choice import LandmarkChoiceSettings
from coterie.methods.kernel.landmarks.private import (
    check_private_landmarks,
    private_clusters_by_landmarks,
    private_components_by_landmarks,
)
from coterie.methods.kernel.landmarks.protocol import LandmarkParameters, cluster_by_landmarks, embed_by_landmarks
from coterie.methods.kernel.landmarks.whole_features import ShowFeatures
from coterie.methods.method import COUNT_OR_NONE, ComponentSettings, Method, PrivateSettings, RunContext
from coterie.methods.shared.choosing import CHOOSING
from coterie.methods.shared.private_subspace import Box
from coterie.methods.shared.private_sums import PRIVATE
from coterie.methods.shared.restarts import wanted_starts
from coterie.parameters import Allowed, parameter


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLandmarks(PrivateSettings, LandmarkParameters):
    """Landmarks that can be drawn with differential privacy."""

    def check(self, n_columns: int) -> None:
        """Raise an error if the parameters do not fit tables with ``n_columns`` columns."""
        super().check(n_columns)
        if self.privacy is not None:
            check_private_landmarks(self)


@dataclass(eq=False, repr=False)
class LandmarkClusterSettings(PrivateLandmarks, EmbeddedKMeans):
    """Landmarks, clusters of these, and rounds of Lloyd's algorithm among the rows' features."""

    _: KW_ONLY
    n_components: int | None = parameter(
        None, "Components the clusters are found in; None is all there are.", COUNT_OR_NONE
    )
    max_rounds: int = parameter(2, "The most rounds of Lloyd's algorithm.", Allowed(whole=True, low=0))

    used_privately = ("n_clusters", "kernel", "gamma", "n_landmarks")

    def protocol(self, context: RunContext) -> Protocol[LandmarkFit]:
        """Clusters among all features, or among the leading components."""
        if context.releases is not None and context.preparation is not None:
            self.check(context.n_columns)
            box, k = Box(*context.preparation.box), int(self.n_clusters)
            return (yield from private_clusters_by_landmarks(self, k, box, context.releases, context.seed))
        if self.n_components is None:
            k, n_starts = int(self.n_clusters), wanted_starts(self.n_init)
            steps = {"max_rounds": self.max_rounds, "n_starts": n_starts}
            return (yield from cluster_by_landmarks(self, k, context, tol=self.tol, **steps))
        fit = yield from embed_by_landmarks(self, self.n_components, context, center=False, announce=True)
        return replace(fit, clusters=(yield from cluster_embedded(fit, self, context)))


@dataclass(eq=False, repr=False)
class LandmarkComponentSettings(PrivateLandmarks, ComponentSettings):
    """Landmarks, and the Gram of the rows' features."""

    _: KW_ONLY
    center: bool = parameter(True, "Center the kernel matrix, as scikit-learn's KernelPCA does.")

    used_privately = ("n_components", "kernel", "gamma", "n_landmarks", "center")

    def protocol(self, context: RunContext) -> Protocol[LandmarkFit]:
        """The leading components of all rows' features."""
        if context.releases is not None and context.preparation is not None:
            self.check(context.n_columns)
            box, count = Box(*context.preparation.box), int(self.n_components)
            return private_components_by_landmarks(
                self, count, box, context.releases, context.seed, center=self.center
            )
        return embed_by_landmarks(self, self.n_components, context, center=self.center)


METHOD = Method(
    "landmarks",
    "Landmark kernel k-means and kernel PCA: a few coarse averages stand for the kernel of all rows",
    (
        sites.SendLandmarks, summed.UseProjection, summed.SumProjected, summed.SumSquaredDistances,
        summed.CountCells, summed.ShareCells, SumLengths, sites.UseLandmarks, sites.TryLandmarks, sites.MeanByCell,
        sites.SendFeatureGram, *CLUSTERING, *CHOOSING, ShowFeatures, *PRIVATE,
    ),
    "local: q d of a few bits, then k(r+2) of 16 bits a round; summed: m d of a few bits, m(p+1) a round before, "
    "k(r+1)+1 a round after; an embedding: (r+1)(r+2)/2; r features, at most m",
    "local: each site's own coarse centers, means of features by cluster; summed: sums over all sites alone",
    optional="only where every site allows averages (landmarks='summed' never)",
    settings=(LandmarkClusterSettings, LandmarkComponentSettings, LandmarkChoiceSettings),
    use="for clusters that are not convex (kernel k-means), and for kernel PCA",
)  # fmt: skip
