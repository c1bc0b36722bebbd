"""Kernel k-means by pooled rows, or by features of rows as they are: what the papers compare with."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.estimators.kernels import KernelClusters
from coterie.methods.kernel.baselines import CKSettings, RFKSettings, SKSettings
from coterie.methods.kernel.ce_pca import CEPCAClusterSettings
from coterie.parameters import described


@described
@dataclass(eq=False, repr=False)
class RandomFeatureKernelKMeans(RFKSettings, KernelClusters):
    """k-means of random features drawn once, by a coreset of them (Chitta et al. 2012)."""


@described
@dataclass(eq=False, repr=False)
class PooledKernelKMeans(CKSettings, KernelClusters):
    """Exact kernel k-means of pooled rows."""


@described
@dataclass(eq=False, repr=False)
class NystroemKernelKMeans(SKSettings, KernelClusters):
    """Nystroem kernel k-means of pooled rows (Wang et al. 2019)."""


@described
@dataclass(eq=False, repr=False)
class CEPCAKernelKMeans(CEPCAClusterSettings, KernelClusters):
    """Kernel PCA from a few pooled rows, then k-means by a coreset (Balcan et al. 2016)."""
