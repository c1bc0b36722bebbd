"""scikit-learn's face: thin, no algorithm inside."""

from coterie.estimators.edge import EdgeKMeans
from coterie.estimators.fitting import fit
from coterie.estimators.kernel_kmeans import FederatedKernelKMeans
from coterie.estimators.kernel_pca import FederatedKernelPCA
from coterie.estimators.kmeans import FederatedKMeans
from coterie.estimators.pca import FederatedPCA

__all__ = ["EdgeKMeans", "FederatedKMeans", "FederatedKernelKMeans", "FederatedKernelPCA", "FederatedPCA", "fit"]
