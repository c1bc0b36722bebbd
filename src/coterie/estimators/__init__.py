"""scikit-learn's face: thin, no algorithm inside."""

from coterie.estimators.fitting import fit
from coterie.estimators.kmeans import FederatedKMeans

__all__ = ["FederatedKMeans", "fit"]
