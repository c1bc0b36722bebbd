"""scikit-learn's face: thin, no algorithm inside."""

from coterie.estimators.edge import EdgeKMeans as EdgeKMeans
from coterie.estimators.fitting import fit as fit
from coterie.estimators.kernels import DSPGDKernelKMeans as DSPGDKernelKMeans
from coterie.estimators.kernels import DSPGDKernelPCA as DSPGDKernelPCA
from coterie.estimators.kernels import FederatedKernelKMeans as FederatedKernelKMeans
from coterie.estimators.kernels import FederatedKernelPCA as FederatedKernelPCA
from coterie.estimators.kmeans import FederatedKMeans as FederatedKMeans
from coterie.estimators.models import load_model as load_model
from coterie.estimators.models import save_model as save_model
from coterie.estimators.pca import FederatedPCA as FederatedPCA
from coterie.estimators.vertical import VerticalKernelKMeans as VerticalKernelKMeans
from coterie.estimators.vertical import VerticalKernelPCA as VerticalKernelPCA
from coterie.estimators.vertical import transform as transform
from coterie.methods.shared.alignment import row_tags as row_tags
from coterie.methods.shared.privacy import Privacy as Privacy
from coterie.sites.tables import open_table as open_table
