"""Kernel k-means and kernel principal components by landmarks."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.estimators.kernels import KernelClusters, KernelComponents
from coterie.methods.kernel.landmarks.method import LandmarkClusterSettings, LandmarkComponentSettings
from coterie.parameters import described


@described
@dataclass(eq=False, repr=False)
class FederatedKernelKMeans(LandmarkClusterSettings, KernelClusters):
    """Kernel k-means over rows that stay at their sites, by landmarks.

    The server clusters a few coarse averages of rows in the features they give, sites judge a few such clusterings by
    their rows, and improve on the best in a few rounds.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_components)
        The centers among the embedded rows.
    labels_ : array of shape (n_samples,)
        The cluster of every row given to :meth:`fit`.
    inertia_ : float
        The sum of squared distances of all embedded rows to their centers; over groups of rows an estimate.
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the kernel matrix.
    gamma_ : float
        The kernel's gamma.
    ledger_ : Ledger
        Everything that was asked and answered.
    """


@described
@dataclass(eq=False, repr=False)
class FederatedKernelPCA(LandmarkComponentSettings, KernelComponents):
    """The top eigenpairs of the kernel matrix of rows that stay at their sites, by landmarks.

    A few coarse averages of rows stand for the kernel, and sites send once the products of the features these give.

    Attributes
    ----------
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the (centered) kernel matrix.
    gamma_ : float
        The kernel's gamma.
    embedding_ : LandmarkMap
        What embeds any row.
    ledger_ : Ledger
        Everything that was asked and answered.
    """
