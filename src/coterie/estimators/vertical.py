"""Kernel principal components and clusters of rows whose columns are at several sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from coterie.engines.inprocess import Schedule, in_process
from coterie.errors import InputError
from coterie.estimators import fitting
from coterie.estimators.base import FederatedEstimator, Rows
from coterie.estimators.checks import check_alignment, check_roster, check_rows_allowed
from coterie.estimators.given import Rules, opened_tables, rules_of
from coterie.maths.clustering import nearest
from coterie.maths.factors import sin_theta
from coterie.messages.site_api import Table
from coterie.methods.vertical.kernel_pca import VerticalFit, project
from coterie.methods.vertical.method import VerticalClusterSettings, VerticalComponentSettings, VerticalParameters
from coterie.parameters import described
from coterie.runtime.run import Progress, run
from coterie.runtime.terms import Terms
from coterie.sites.tables import ArrayTable, PairedTable

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int32]
Columns = Mapping[str, Sequence[Any]] | Sequence[Sequence[Any]]


class VerticalEstimator(VerticalParameters, FederatedEstimator):
    """What those have in common whose sites hold columns of the same rows."""

    _parts: dict[str, tuple[list[int], ArrayTable]] | None = None
    """Of one owner who plays all sites: which columns each has, and the rows."""

    def fit(self, X: npt.ArrayLike, y: Any = None, *, columns: Columns | None = None) -> Self:
        """Fit the rows of ``X``, simulating one site for each of ``columns``: lists of columns by number or name, or
        such lists by the name of their site. Without any, one site has all columns."""
        rows: Rows = validate_data(self, X, dtype=[np.float64, np.float32], order="C", ensure_min_samples=2)
        names = [str(name) for name in getattr(self, "feature_names_in_", range(rows.shape[1]))]
        parts = {
            site: (own, ArrayTable(rows[:, own], columns=[names[i] for i in own], name=site))
            for site, own in split_columns(names, columns).items()
        }
        self._simulate_over({site: table for site, (_, table) in parts.items()}, rows.shape[1])
        self._parts = parts
        return self

    def _set_attributes(self, result: VerticalFit) -> None:
        self.embedding_ = result.embedding
        self.eigenvalues_, self.eigenvectors_ = result.pairs
        self.gamma_, self.error_bound_ = result.gamma, result.error_bound
        self.local_ranks_, self.tags_ = result.ranks, result.alignment.tags
        self.n_components_ = len(self.eigenvalues_)
        self._parts = None

    def sin_theta(self, reference: Any) -> float:
        """How far the components are from a reference, as the Frobenius norm of the sines of the angles between both
        (eq. 11). ``reference``: eigenvectors as columns, rows in this fit's order, or an estimator that has them."""
        check_is_fitted(self)
        vectors = np.asarray(getattr(reference, "eigenvectors_", reference), np.float64)
        return sin_theta(self.eigenvectors_, vectors)

    def _projected(self, X: npt.ArrayLike) -> Floats:
        """Components of rows given whole, each site seeing its own columns; counted in the ledger."""
        check_is_fitted(self)
        if self._parts is None:
            raise InputError(
                "this model was fitted over tables at their sites; use coterie.transform(estimator, tables, new) for "
                "the sites' new rows."
            )
        rows: Rows = validate_data(self, X, reset=False, dtype=[np.float64, np.float32], order="C")
        tables = {
            site: PairedTable(table, ArrayTable(rows[:, own], columns=[c.name for c in table.columns], name=site))
            for site, (own, table) in self._parts.items()
        }
        with in_process(tables) as channel:
            components, _ = run(project(self.result_), channel, method=self.method, ledger=self.ledger_)
        return components


def split_columns(names: Sequence[str], columns: Columns | None) -> dict[str, list[int]]:
    """Which columns each site has, by number; every column is at one site."""
    if columns is None:
        return {"all": list(range(len(names)))}
    if not isinstance(columns, Mapping | Sequence) or isinstance(columns, str):
        raise InputError(f"columns={columns!r}; it must be a list of columns for every site.")
    for own in columns.values() if isinstance(columns, Mapping) else columns:
        if isinstance(own, str) or not hasattr(own, "__iter__"):
            raise InputError(f"columns holds {own!r} instead of a list of one site's columns.")
    by_site = columns if isinstance(columns, Mapping) else {f"site-{i}": own for i, own in enumerate(columns)}
    places = {name: i for i, name in enumerate(names)}
    places_by_site = {str(site): [_place(column, places) for column in own] for site, own in by_site.items()}
    taken = [place for own in places_by_site.values() for place in own]
    if not all(places_by_site.values()) or not places_by_site:
        raise InputError("columns gives a site no columns; every site needs at least one.")
    twice = sorted({place for place in taken if taken.count(place) > 1}) if len(set(taken)) < len(taken) else []
    if twice:
        raise InputError(f"column {names[twice[0]]} is named twice in columns; it can be at one site only.")
    nowhere = [name for i, name in enumerate(names) if i not in set(taken)]
    if nowhere:
        raise InputError(
            f"column {nowhere[0]} is at no site ({len(nowhere)} in all); columns must name every column."
        )
    return places_by_site


def _place(column: Any, places: Mapping[str, int]) -> int:
    if isinstance(column, int | np.integer) and not isinstance(column, bool):
        if not -len(places) <= column < len(places):
            raise InputError(f"columns names column {column}, but there are {len(places)} columns.")
        return int(column) % len(places)
    if str(column) not in places:
        raise InputError(f"columns names {column!r}; there is no such column.")
    return places[str(column)]


@described
@dataclass(eq=False, repr=False)
class VerticalKernelPCA(
    VerticalComponentSettings, ClassNamePrefixFeaturesOutMixin, TransformerMixin, VerticalEstimator
):
    """Kernel principal components of a table whose columns are at several sites, in one round (He et al. 2020).

    Every site sends the leading eigenpairs of its own columns' kernel matrix; the server joins them. A site's
    eigenpairs reveal all distances between its rows, so sites must allow this (``per_site_results = "rows"``).

    Attributes
    ----------
    embedding_ : array of shape (n_samples, n_components)
        The rows' components as the joined matrix has them. ``transform`` of the same rows uses exact kernel values
        and differs where eigenpairs were left out.
    eigenvalues_, eigenvectors_ : arrays of shape (n_components,) and (n_samples, n_components)
        Of the joined matrix, centered or not.
    gamma_ : float
        The kernel's gamma.
    local_ranks_ : dict
        How many eigenpairs each site sent.
    error_bound_ : float
        The joined kernel matrix is no farther than this from the true one (Frobenius norm).
    tags_ : array of shape (n_samples,) or None
        The rows' tags, in the order of ``embedding_``, where rows were matched by a key; :func:`coterie.row_tags`
        makes them of keys, at a site.
    ledger_ : Ledger
        Every question and answer, those of ``transform`` included.
    """

    def transform(self, X: npt.ArrayLike) -> Floats:
        """The components of rows given whole, in a simulation: distances (eq. 10) or products (eq. 9) are summed over
        the sites that hold their columns. :func:`coterie.transform` does it for rows at their sites."""
        return self._projected(X)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_


@described
@dataclass(eq=False, repr=False)
class VerticalKernelKMeans(VerticalClusterSettings, ClusterMixin, VerticalEstimator):
    """Kernel k-means of rows whose columns are at several sites: k-means of their components, at the server.

    Sites send what :class:`VerticalKernelPCA` has them send, and nothing more.

    Attributes
    ----------
    labels_ : array of shape (n_samples,)
        The rows' clusters, in the order of ``embedding_``.
    cluster_centers_ : array of shape (n_clusters, n_components)
        Centers among the components.
    counts_ : array of shape (n_clusters,)
        Rows by cluster.
    inertia_ : float
        Squared distances of the components from their centers.
    embedding_ : array of shape (n_samples, n_components)
        The rows' components.
    eigenvalues_, eigenvectors_, gamma_, local_ranks_, error_bound_, tags_, ledger_
        As in :class:`VerticalKernelPCA`.
    """

    def _set_attributes(self, result: VerticalFit) -> None:
        super()._set_attributes(result)
        if result.centers is None:
            raise ValueError("there are no centers in it")
        self.cluster_centers_ = result.centers
        labels, squared = nearest(self.embedding_, result.centers)
        self.labels_, self.inertia_ = labels.astype(np.int32), float(squared.sum())
        self.counts_ = np.bincount(self.labels_, minlength=len(result.centers)).astype(np.float64)

    def predict(self, X: npt.ArrayLike) -> Labels:
        """The nearest center of every row, in a simulation."""
        return self.label_components(self._projected(X))

    def label_components(self, components: npt.ArrayLike) -> Labels:
        """The nearest center of every row of components, such as :func:`coterie.transform` finds."""
        check_is_fitted(self)
        labels: Labels = nearest(np.asarray(components, np.float64), self.cluster_centers_)[0].astype(np.int32)
        return labels


class Projected(NamedTuple):
    """Components of new rows, and the rows' tags where they were matched by a key."""

    components: Floats
    tags: npt.NDArray[np.uint64] | None


def transform(
    estimator: VerticalEstimator,
    tables: Any,
    new: Any,
    *,
    policy: Rules | Mapping[str, Rules] | None = None,
    sums: Literal["masked", "plain"] = "masked",
    key: str | None = None,
    terms: Terms | None = None,
    watch: Callable[[Progress], None] | None = None,
    schedule: Schedule | None = None,
) -> Projected:
    """The components of sites' ``new`` rows, as those of ``tables``, which the estimator was fitted on.

    Distances of new rows from the others (rbf) or their products with the components (linear) are summed over the
    sites, masked unless ``sums="plain"``. Counted in the estimator's ledger. Options as for :func:`coterie.fit`.
    """
    if not isinstance(estimator, VerticalEstimator):
        raise InputError(f"{type(estimator).__name__} embeds rows itself; call estimator.transform(rows).")
    check_is_fitted(estimator)
    layers = fitting.layers_of(sums)
    fitted, later = opened_tables(tables, key), opened_tables(new, key)
    sites = set(estimator.local_ranks_)
    if set(fitted) != sites or set(later) != sites:
        raise InputError(f"tables and new need an entry for every site: {', '.join(sorted(sites))}.")
    _check_columns(estimator, fitted)
    rules = rules_of(policy, fitted)
    check_rows_allowed(estimator, rules)
    check_alignment(fitted, rules)
    if sums == "masked":
        check_roster(rules)
    paired = {name: PairedTable(table, later[name]) for name, table in fitted.items()}
    with in_process(paired, policy=rules, schedule=schedule) as channel:
        projected = run(
            project(estimator.result_),
            channel,
            method=estimator.method,
            terms=terms,
            layers=layers,
            ledger=estimator.ledger_,
            watch=watch,
        )
    return Projected(*projected)


def _check_columns(estimator: VerticalEstimator, tables: Mapping[str, Table]) -> None:
    """The tables' columns are those of the fit, where it knows them by site."""
    then = [str(name) for name in getattr(estimator, "feature_names_in_", ())]
    for site, table in tables.items():
        now = fitting.column_names(estimator, {site: table.columns})
        kept = [name for name in then if name in set(now)]
        if estimator._parts is None and kept != now:
            apart = next((name for name in now if name not in then), "their order")
            raise InputError(f"the tables do not have the columns the components were found from: {apart} at {site}.")
    if estimator._parts is None and sum(len(table.columns) for table in tables.values()) != len(then):
        raise InputError(f"the tables do not have the {len(then)} columns the components were found from.")
