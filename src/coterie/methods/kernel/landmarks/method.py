"""Kernel k-means and kernel principal components by landmarks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coterie.messages.verbs import Protocol
from coterie.methods.kernel.clusters import (
    CLUSTERING,
    EmbeddedKMeans,
    KernelParameters,
    LandmarkFit,
    cluster_embedded,
)
from coterie.methods.kernel.gamma import SumLengths
from coterie.methods.kernel.landmarks.protocol import LandmarkSettings, cluster_by_landmarks, embed_by_landmarks
from coterie.methods.kernel.landmarks.sites import (
    MeanByCell,
    SendFeatureGram,
    SendLandmarks,
    TryLandmarks,
    UseLandmarks,
)
from coterie.methods.kernel.landmarks.summed import (
    CountCells,
    ShareCells,
    SumProjected,
    SumSquaredDistances,
    UseProjection,
)
from coterie.methods.method import ComponentSettings, Method, RunContext
from coterie.parameters import Allowed, parameter


@dataclass(eq=False, repr=False, kw_only=True)
class LandmarkParameters(KernelParameters):
    """How landmarks are found."""

    landmarks: Any = parameter(
        "auto",
        "``local``: each site's own coarse centers are seen. ``summed``: means of cells over all sites, of which no "
        "per-site result is seen. ``auto`` takes local where every site lets averages be seen. An array: points "
        "known beforehand.",
    )
    n_landmarks: int | None = parameter(
        None,
        "About how many over all sites. None begins with 5 a cluster, at least 30, and asks for more, once, where "
        "these miss much.",
        Allowed(whole=True, low=1, none=True),
    )
    landmark_bits: int = parameter(
        4, "Bits of each coordinate of a landmark, 1 to 8.", Allowed(whole=True, low=1, high=8)
    )
    value_range: tuple[float, float] | None = parameter(
        None, "The smallest and largest value of any prepared row, where they are public: saves a sum where summed."
    )

    method = "landmarks"
    result_type: ClassVar[type[Any]] = LandmarkFit

    @property
    def landmark_settings(self) -> LandmarkSettings:
        """How landmarks are found."""
        is_named = isinstance(self.landmarks, str)
        return LandmarkSettings(
            self.landmarks if is_named else "auto",
            None if is_named else np.asarray(self.landmarks, np.float64),
            self.n_landmarks,
            self.landmark_bits,
            value_range=self.value_range,
        )


@dataclass(eq=False, repr=False)
class LandmarkClusterSettings(LandmarkParameters, EmbeddedKMeans):
    """Landmarks, clusters of these, and rounds of Lloyd's algorithm among the rows' features."""

    _: KW_ONLY
    n_components: int | None = parameter(
        None, "Components the clusters are found in; None is all there are.", Allowed(whole=True, low=1, none=True)
    )
    max_rounds: int = parameter(2, "The most rounds of Lloyd's algorithm.", Allowed(whole=True, low=0))

    def protocol(self, context: RunContext) -> Protocol[LandmarkFit]:
        """Clusters among all features, or among the leading components."""
        k, seed = int(self.n_clusters), context.seed
        rounds: dict[str, Any] = {
            "max_rounds": self.max_rounds, "tol": self.tol, "seed": seed, "averages": context.averages,
        }  # fmt: skip
        problem, settings, d = self.problem, self.landmark_settings, context.n_columns
        if self.n_components is None:
            return (yield from cluster_by_landmarks(problem, settings, k, d, **rounds))
        fit = yield from embed_by_landmarks(
            problem, settings, self.n_components, d, center=False, seed=seed, averages=context.averages, announce=True
        )
        return replace(fit, clusters=(yield from cluster_embedded(fit, k, init=self.init, **rounds)))


@dataclass(eq=False, repr=False)
class LandmarkComponentSettings(LandmarkParameters, ComponentSettings):
    """Landmarks, and the Gram of the rows' features."""

    _: KW_ONLY
    center: bool = parameter(True, "Center the kernel matrix, as scikit-learn's KernelPCA does.")

    def protocol(self, context: RunContext) -> Protocol[LandmarkFit]:
        """The leading components of all rows' features."""
        return embed_by_landmarks(
            self.problem, self.landmark_settings, self.n_components, context.n_columns, center=self.center,
            seed=context.seed, averages=context.averages,
        )  # fmt: skip


METHOD = Method(
    "landmarks",
    "Landmark kernel k-means and kernel PCA: a few coarse averages stand for the kernel of all rows",
    (
        SendLandmarks, UseProjection, SumProjected, SumSquaredDistances, CountCells, ShareCells, SumLengths,
        UseLandmarks, TryLandmarks, MeanByCell, SendFeatureGram, *CLUSTERING,
    ),
    "local: q d of a few bits, then k(r+2) of 16 bits a round; summed: m d of a few bits, m(p+1) a round before, "
    "k(r+1)+1 a round after; an embedding: (r+1)(r+2)/2; r features, at most m",
    "local: each site's own coarse centers, means of features by cluster; summed: sums over all sites alone",
    optional="only where every site allows averages (landmarks='summed' never)",
    settings=(LandmarkClusterSettings, LandmarkComponentSettings),
    use="for clusters that are not convex (kernel k-means), and for kernel PCA",
)  # fmt: skip
