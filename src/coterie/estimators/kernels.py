"""Kernel k-means and kernel principal components, by landmarks and by DSPGD."""

from __future__ import annotations

from dataclasses import dataclass

import numpy.typing as npt

from coterie.estimators.base import ComponentModel, Rows
from coterie.estimators.exactness import CostIs
from coterie.estimators.kmeans import ClusterModel
from coterie.methods.kernel.clusters import KernelFit
from coterie.methods.kernel.dspgd.method import DSPGDClusterSettings, DSPGDComponentSettings
from coterie.methods.kernel.landmarks.method import LandmarkClusterSettings, LandmarkComponentSettings
from coterie.methods.shared.embedded import Embeds
from coterie.parameters import described


class KernelClusters(ClusterModel):
    """Centers among embedded rows."""

    embedding_: Embeds
    cost_over_groups = CostIs.ESTIMATE
    _fewest_rows = 2

    def _set_attributes(self, result: KernelFit) -> None:
        if result.clusters is None:
            raise ValueError("there are no centers in it")
        self.embedding_, self.gamma_ = result.embedding, result.kernel.gamma
        self.eigenvalues_ = result.values
        self.cluster_centers_ = result.clusters.centers
        self.n_components_ = self.cluster_centers_.shape[1]
        self._set_clusters(result.clusters)

    def prepared_rows(self, rows: Rows) -> Rows:
        """Raw rows in the embedding."""
        return self.embedding_.embed(super().prepared_rows(rows))

    def center_columns(self) -> list[str] | None:
        """Names of a center's coordinates."""
        return [f"component{i}" for i in range(self.n_components_)]


class KernelComponents(ComponentModel):
    """Components of rows in a kernel's space."""

    embedding_: Embeds

    def _set_attributes(self, result: KernelFit) -> None:
        self.embedding_, self.gamma_ = result.embedding, result.kernel.gamma
        self.eigenvalues_ = result.values
        self.n_components_ = len(self.eigenvalues_)

    def transform(self, X: npt.ArrayLike) -> Rows:
        """The components of rows, as the sites found them for theirs."""
        return self.embedding_.embed(self._prepared(X))


@described
@dataclass(eq=False, repr=False)
class FederatedKernelKMeans(LandmarkClusterSettings, KernelClusters):
    """Kernel k-means over rows that stay at their sites, by landmarks.

    A few coarse averages of rows serve as landmarks. The server clusters them in the kernel's space. Sites compare a
    few such clusterings on their rows and improve the best in a few rounds.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_components)
        The centers among the embedded rows.
    labels_ : array of shape (n_samples,)
        The cluster of every row given to :meth:`fit`.
    inertia_ : float
        The sum of squared distances of all embedded rows to their centers; over groups of rows an estimate.
    cost_is_, counts_are_ : str
        How exact ``inertia_`` and the sizes ``counts_`` are, as in :class:`FederatedKMeans`.
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the kernel matrix; over groups of rows estimates, mostly too small.
    gamma_ : float
        The kernel's gamma.
    ledger_ : Ledger
        Every question and answer of the run.
    """


@described
@dataclass(eq=False, repr=False)
class FederatedKernelPCA(LandmarkComponentSettings, KernelComponents):
    """The top eigenpairs of the kernel matrix of rows that stay at their sites, by landmarks.

    A few coarse averages of rows serve as landmarks. Sites send the products of their rows' features once.

    Attributes
    ----------
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the (centered) kernel matrix; over groups of rows estimates, mostly too small.
    gamma_ : float
        The kernel's gamma.
    embedding_ : LandmarkMap
        What embeds any row.
    ledger_ : Ledger
        Every question and answer of the run.
    """


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

    Random features are drawn anew in every iteration. Sites send a small matrix of products of features, or products
    of it with vectors. A proximal step keeps the eigenvalues above a threshold.

    Attributes
    ----------
    eigenvalues_, gamma_, ledger_
        As in :class:`FederatedKernelPCA`; fewer components where fewer eigenvalues stay above the threshold.
    embedding_ : Embedding
        What embeds any row, from public requests alone.
    """
