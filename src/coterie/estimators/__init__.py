"""scikit-learn's face: thin, no algorithm inside."""

from coterie.estimators.dspgd import DSPGDKernelKMeans, DSPGDKernelPCA
from coterie.estimators.edge import EdgeKMeans
from coterie.estimators.fitting import fit
from coterie.estimators.kmeans import FederatedKMeans
from coterie.estimators.landmarks import FederatedKernelKMeans, FederatedKernelPCA
from coterie.estimators.models import load_model, save_model
from coterie.estimators.pca import FederatedPCA
from coterie.estimators.projecting import transform
from coterie.estimators.vertical import VerticalKernelKMeans, VerticalKernelPCA
from coterie.methods.shared.alignment import row_tags
from coterie.sites.tables import open_table

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
    "load_model",
    "open_table",
    "row_tags",
    "save_model",
    "transform",
]
