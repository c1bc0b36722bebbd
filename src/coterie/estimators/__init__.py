"""scikit-learn's face: thin, no algorithm inside."""

from coterie.estimators.dspgd import DSPGDKernelKMeans, DSPGDKernelPCA
from coterie.estimators.edge import EdgeKMeans
from coterie.estimators.fitting import fit
from coterie.estimators.kmeans import FederatedKMeans
from coterie.estimators.landmarks import FederatedKernelKMeans, FederatedKernelPCA
from coterie.estimators.pca import FederatedPCA
from coterie.estimators.projecting import transform
from coterie.estimators.vertical import VerticalKernelKMeans, VerticalKernelPCA

__all__ = [
    "DSPGDKernelKMeans",
    "DSPGDKernelPCA",
    "EdgeKMeans",
    "FederatedKMeans",
    "FederatedKernelKMeans",
    "FederatedKernelPCA",
    "FederatedPCA",
    "VerticalKernelKMeans",
    "VerticalKernelPCA",
    "fit",
    "transform",
]
