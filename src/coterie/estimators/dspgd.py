"""Kernel k-means and kernel principal components as in "A communication efficient federated kernel k-means"."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.estimators.kernels import KernelClusters, KernelComponents
from coterie.methods.kernel.dspgd.method import DSPGDClusterSettings, DSPGDComponentSettings
from coterie.parameters import described


@described
@dataclass(eq=False, repr=False)
class DSPGDKernelKMeans(DSPGDClusterSettings, KernelClusters):
    """Kernel k-means over rows that stay at their sites: an embedding by DSPGD, then k-means by sums.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, eigenvalues_, gamma_, ledger_
        As in :class:`FederatedKernelKMeans`.
    """


@described
@dataclass(eq=False, repr=False)
class DSPGDKernelPCA(DSPGDComponentSettings, KernelComponents):
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
