"""Principal components of rows that stay at their sites, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_array, check_is_fitted

from coterie.errors import InputError
from coterie.estimators.base import ComponentModel, Rows
from coterie.methods.edge.pca import PCAFit, PCASettings
from coterie.parameters import described


@described
@dataclass(eq=False, repr=False)
class FederatedPCA(PCASettings, ComponentModel):
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
        ``local`` or ``sums``.
    exact_ : bool
        Whether the components are known to be those of the pooled rows: by sums, where every site shows the products
        of its columns. Over groups of smaller sites only squares are known within groups, and close components turn.
    ledger_ : Ledger
        Every question and answer of the run.
    """

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
        components: Rows = (prepared - self.mean_.astype(prepared.dtype)) @ self.components_.T.astype(prepared.dtype)
        return components

    def inverse_transform(self, X: npt.ArrayLike) -> Rows:
        """Rows that have these components and nothing else, in the units of the rows given."""
        check_is_fitted(self)
        components = check_array(X, dtype=[np.float64, np.float32])
        if components.shape[1] != self.n_components_:
            raise InputError(f"X has {components.shape[1]} columns; {self.n_components_} components are needed.")
        rows: Rows = components @ self.components_.astype(components.dtype) + self.mean_.astype(components.dtype)
        return rows if self.preparation_ is None else self.preparation_.undo(rows.astype(np.float64))
