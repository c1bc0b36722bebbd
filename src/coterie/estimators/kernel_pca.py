"""Kernel principal components as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from coterie.estimators.base import FederatedEstimator
from coterie.estimators.kernel_settings import KernelParameters, embedded_rows
from coterie.messages.verbs import Protocol
from coterie.protocols.kernel_kmeans import (
    KernelFit,
    embed_by_dspgd,
)
from coterie.protocols.landmarks import embed_by_landmarks
from coterie.protocols.prepared import Spread

Rows = npt.NDArray[np.floating[Any]]


@dataclass(eq=False, repr=False)
class FederatedKernelPCA(KernelParameters, ClassNamePrefixFeaturesOutMixin, TransformerMixin, FederatedEstimator):
    """The top eigenpairs of the kernel matrix of rows that stay at their sites.

    By landmarks (the default): a few coarse averages of rows stand for the kernel, and sites send once the products
    of the features these give. Or by DSPGD of "A communication efficient federated kernel k-means": random features
    drawn anew in every iteration, of which sites send a small matrix of products (or products with it), and a
    proximal step.

    Parameters
    ----------
    n_components : int, default=2
        s: how many components; fewer where fewer eigenvalues stay above the threshold.
    kernel : {"rbf", "laplacian", "polynomial"}, default="rbf"
        The kernel; polynomial is ``(gamma <x, y> + coef0) ** degree``.
    gamma : float, default=None
        The kernel's gamma (where a paper has sigma, 1 / (2 sigma^2)); None takes N^2 / (2 sum of squared distances).
    degree, coef0 : int and float, default=3 and 1.0
        Of the polynomial kernel.
    center : bool, default=True
        Center the kernel matrix, as scikit-learn's KernelPCA does.
    method : {"landmarks", "dspgd", "dspgd-dense"}, default="landmarks"
        How the eigenpairs are found; the last is DSPGD with ``cem=False``.
    landmarks : {"auto", "local", "summed"} or array of points, default="auto"
        Of method landmarks. ``local``: each site's own coarse centers are seen. ``summed``: means of cells over all
        sites, of which no per-site result is seen. ``auto`` takes local where every site lets averages be seen. An
        array: points known beforehand.
    n_landmarks : int, default=None
        About how many over all sites. None begins with 5 a cluster, at least 30, and asks for more, once, where these
        miss much. (Pooled rows of sk and ce-pca: 500.)
    landmark_bits : int, default=4
        Bits of each coordinate of a landmark, 1 to 8.
    value_range : (float, float), default=None
        The smallest and largest value of any prepared row, where they are public: saves a sum in the summed way.
    n_features : int, default=40
        Of DSPGD, as are all that follow. D: random features an iteration.
    n_iter : int, default=20
        T: iterations.
    threshold : float, default=None
        lambda; None takes the (n_components + 2)-th eigenvalue of the first iteration.
    step : {"1/t", "2/t"}, default="1/t"
        eta_t: Algorithm 1's, or min(1, 2/t) of Theorem 1.
    solver : {"auto", "gram", "lanczos"}, default="auto"
        Whether sites send the matrix of products at once or multiply it with vectors; auto picks the cheaper.
    cem : bool, default=True
        The paper's communication-efficient mechanism. Without it (method ``dspgd-dense``) an iteration costs N + M D
        numbers a Lanczos step, and sites must allow rows: it is what the paper compares with.
    features : {"phase", "paired"}, default="phase"
        sqrt(2) cos(w'x + b), or cos and sin in pairs (n_features even).
    precision : {"float64", "float32"}, default="float64"
        Of the features; sums are in float64 in any case.
    random_state : int, RandomState or None, default=None
        Draws the run's public seed.

    Attributes
    ----------
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the (centered) kernel matrix.
    gamma_ : float
        The kernel's gamma.
    embedding_ : Embedding
        What embeds any row, from public requests alone.
    ledger_ : Ledger
        Everything that was asked and answered.
    """

    n_components: int = 2
    _: KW_ONLY
    center: bool = True

    def fit(self, X: npt.ArrayLike, y: Any = None, *, sites: Any = None) -> Self:
        """Find the components of the rows of ``X``, simulating one site for every distinct label in ``sites``."""
        rows: Rows = validate_data(self, X, dtype=[np.float64, np.float32], order="C", ensure_min_samples=2)
        self._simulate(rows, sites, None)
        return self

    def protocol(self, n_columns: int, known: Spread | None = None, *, averages: bool = True) -> Protocol[KernelFit]:
        """The components by landmarks, or by DSPGD."""
        problem, seed = self.kernel_problem(), self._run_seed
        n_components = int(self.n_components)
        if self.method == "landmarks":
            return embed_by_landmarks(
                problem, self.landmark_settings(), n_components, n_columns, center=self.center, seed=seed,
                averages=averages,
            )  # fmt: skip
        settings = self.dspgd_settings(n_components, n_components + 2, center=self.center)
        return embed_by_dspgd(problem, settings, n_columns, seed=seed)

    def _set_attributes(self, result: KernelFit) -> None:
        self.embedding_, self.gamma_ = result.embedding, result.kernel.gamma
        self.eigenvalues_ = result.values
        self.n_components_ = len(self.eigenvalues_)

    def transform(self, X: npt.ArrayLike) -> Rows:
        """The components of rows, as the sites found them for theirs."""
        return embedded_rows(self.embedding_, self._prepared(X))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_
