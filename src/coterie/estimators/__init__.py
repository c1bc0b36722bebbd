"""scikit-learn's face: thin, no algorithm inside."""

from coterie.estimators.fitting import fit
from coterie.estimators.kernel_kmeans import FederatedKernelKMeans
from coterie.estimators.kernel_pca import FederatedKernelPCA
from coterie.estimators.kmeans import FederatedKMeans

__all__ = ["FederatedKMeans", "FederatedKernelKMeans", "FederatedKernelPCA", "fit"]
