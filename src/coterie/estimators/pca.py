"""Principal components of rows that stay at their sites, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator
from coterie.messages.verbs import Protocol
from coterie.methods.edge.pca import PCAFit, federated_pca
from coterie.methods.shared.prepared import Spread
from coterie.parameters import Allowed, described, parameter

Rows = npt.NDArray[np.floating[Any]]


@described
@dataclass(eq=False, repr=False)
class FederatedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FederatedEstimator):
    """Principal components of all sites' rows, without a row leaving its site.

    By disPCA (Balcan et al. 2014) each site sends its own leading axes; exact where ``local_rank`` is no less than
    the rank of every site's rows. By sums the products of all pairs of columns are added up, and no per-site result
    is seen: exact over rows, and over groups where every site holds many rows a column and has no thin cells (see
    docs/protection.md); ``exact_`` says so.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        Principal axes, the strongest first; signs make the largest entry of each positive.
    explained_variance_, explained_variance_ratio_, singular_values_ : arrays of shape (n_components,)
        As in scikit-learn's PCA.
    mean_ : array of shape (n_features,)
        The mean of all rows, in prepared units; zeros where it is not subtracted.
    n_samples_ : float
        How many rows there are.
    solver_ : str
        Which way was taken.
    exact_ : bool
        Whether the components are known to be those of the pooled rows: by sums, where every site shows the products
        of its columns. Over groups of smaller sites only squares are known within groups, and close components turn.
    ledger_ : Ledger
        Everything that was asked and answered.
    """

    n_components: int = parameter(2, "How many components.", Allowed(whole=True, low=1))
    _: KW_ONLY
    solver: str = parameter(
        "sums",
        "``sums``: products of all pairs of columns, ``d (d + 1) / 2 + 1`` numbers a site; ``local``: disPCA, "
        "``local_rank * d + 1`` numbers; ``auto``: whichever is less, and sums where not every site lets its "
        "averages be seen.",
        Allowed("sums", "local", "auto"),
    )
    local_rank: int | None = parameter(
        None,
        "t1, the axes each site sends where local; None is twice ``n_components``.",
        Allowed(whole=True, low=1, none=True),
    )
    center: bool = parameter(True, "Subtract the mean of all rows first, found by a sum.")
    random_state: Any = parameter(None, "Draws the run's public seed: used at sites with more than 2048 columns.")

    method = "federated-pca"
    result_type = PCAFit

    def fit(self, X: npt.ArrayLike, y: Any = None, *, sites: Any = None) -> Self:
        """Find the components of the rows of ``X``, simulating one site for every distinct label in ``sites``."""
        rows: Rows = validate_data(self, X, dtype=[np.float64, np.float32], order="C", ensure_min_samples=2)
        self._simulate(rows, sites, None)
        return self

    def protocol(self, n_columns: int, known: Spread | None = None, *, averages: bool = True) -> Protocol[PCAFit]:
        """disPCA, or sums."""
        self.check(n_columns)
        return federated_pca(
            int(self.n_components),
            n_columns,
            local_rank=None if self.local_rank is None else int(self.local_rank),
            solver=self.solver,
            center=self.center,
            seed=self._run_seed,
            averages=averages,
        )

    def check(self, n_columns: int) -> None:
        """What cannot work is said before anyone is asked."""
        super().check(n_columns)
        if self.n_components > n_columns:
            raise InputError(
                f"n_components={self.n_components} of {n_columns} columns; 1 to {n_columns} are possible."
            )

    def _set_attributes(self, result: PCAFit) -> None:
        self.solver_, self.exact_ = result.solver, result.is_exact
        self.components_ = result.axes.vectors.T
        self.mean_, self.n_samples_ = result.mean, result.n_rows
        free = max(1.0, result.n_rows - 1.0)
        squares = np.maximum(result.axes.values, 0.0)
        self.singular_values_ = np.sqrt(squares)
        self.explained_variance_ = squares / free
        self.explained_variance_ratio_ = squares / (result.squares if result.squares > 0 else 1.0)
        self.n_components_ = len(self.components_)

    def transform(self, X: npt.ArrayLike) -> Rows:
        """The components of rows."""
        prepared = self._prepared(X)
        made: Rows = (prepared - self.mean_.astype(prepared.dtype)) @ self.components_.T.astype(prepared.dtype)
        return made

    def inverse_transform(self, X: npt.ArrayLike) -> Rows:
        """Rows that have these components and nothing else, in the units of the rows given."""
        check_is_fitted(self)
        found = check_array(X, dtype=[np.float64, np.float32])
        if found.shape[1] != self.n_components_:
            raise InputError(f"X has {found.shape[1]} columns; {self.n_components_} components are needed.")
        made: Rows = found @ self.components_.astype(found.dtype) + self.mean_.astype(found.dtype)
        return made if self.preparation_ is None else self.preparation_.undo(made.astype(np.float64))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_
