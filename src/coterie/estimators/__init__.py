"""scikit-learn's face: thin, no algorithm inside."""

from coterie.estimators.fitting import fit
from coterie.estimators.kernel import FederatedKernelKMeans, FederatedKernelPCA
from coterie.estimators.kmeans import FederatedKMeans

__all__ = ["FederatedKMeans", "FederatedKernelKMeans", "FederatedKernelPCA", "fit"]
