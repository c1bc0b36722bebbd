"""What every federated estimator has: a method's parameters, and fitted attributes from its result."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, check_random_state, validate_data

from coterie.arrays import Mask
from coterie.engines.inprocess import in_process
from coterie.errors import InputError, NoiseWarning
from coterie.estimators.exactness import CostIs, CountsAre, cost_compares, sizes_are
from coterie.messages.site_api import Block
from coterie.messages.verbs import Protocol
from coterie.methods.method import RunContext, RunResult, Settings
from coterie.methods.registry import METHODS
from coterie.methods.shared.agreement import Capabilities
from coterie.methods.shared.cluster_profiles import Profile
from coterie.methods.shared.composition import Composition
from coterie.methods.shared.halves import Halves
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.prepared import Preparation
from coterie.methods.shared.privacy import HIDDEN, Privacy, PrivacySpent
from coterie.methods.shared.selection import selected
from coterie.parameters import parameter
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.secure.certificates import RunCertificate
from coterie.sites.tables import ArrayTable
from coterie.sites.tables.alike import is_frame, names_of, rows_of, table_alike
from coterie.sites.views.units import first_of_each, unit_codes

Rows = npt.NDArray[np.floating[Any]]


@dataclass(eq=False, repr=False, kw_only=True)
class Seeded:
    """Where a run's public seed comes from."""

    random_state: int | np.random.RandomState | None = parameter(None, "Draws the public seed of the run.")


class FederatedEstimator(Seeded, Settings, BaseEstimator):
    """An estimator whose fit is a run: over sites simulated from one array, or over tables by ``coterie.fit``."""

    ledger_: Ledger
    preparation_: Preparation | None
    result_: Any
    public_seed_: int
    """What all random choices of the run were drawn from; in a verified run the sites draw it together."""
    certificate_: RunCertificate | None = None
    """What the sites of the run signed; None where sums were plain or columns at several sites."""
    capabilities_ = Capabilities()
    """What the sites of the run allow; simulated sites allow everything."""
    halves_: Halves | None = None
    """The final clusters over two halves of the sites, where that was asked for."""
    profiles_: Profile | None = None
    """What is in each cluster, where that was asked for."""
    composition_: Composition | None = None
    """How many rows of each site are in each cluster, where profiles were asked for and every policy allows it."""
    privacy_: PrivacySpent | None = None
    """What a private run promised, and how it was divided among its releases; sizes and costs are then estimates."""
    na_: Mapping[str, list[Any]] = {}
    """What stood for missing values in the files of all sites, by column, or ``*`` for all."""
    levels_: Sequence[str] = ()
    """The columns of text in these files whose categories sites agreed on: another value is of none of them."""
    _matches_names = False
    """Whether rows given as a data frame are matched by the columns' names, in any order, and text is encoded: in a
    model that was fitted over tables. A model of one array takes frames as scikit-learn does."""
    options_: PreparationOptions | None = None
    """How rows were to be prepared, as asked; None where they were taken as they are."""
    cost_over_groups = CostIs.AT_MOST
    """How a cost over groups compares with the rows' cost."""

    @property
    def min_group_(self) -> int:
        """The fewest rows in a group where sites showed groups; 0 where they showed rows."""
        return self.capabilities_.min_group

    @property
    def counts_are_(self) -> CountsAre:
        """What ``counts_`` count: ``rows``, exactly; ``whole_groups``, each with all its rows; or ``noisy`` rows."""
        return sizes_are(self.min_group_, is_private=self.privacy_ is not None)

    @property
    def cost_is_(self) -> CostIs:
        """How ``inertia_`` compares with the cost of the rows counted: ``exact`` but for rounding, ``at_most`` (the
        rows' cost is no more), or an ``estimate``: with noise, in a kernel's space, and where groups that lack a
        value are left out, since sites may apportion squares to those that are used."""
        is_apportioned = self.options_ is not None and self.options_.missing == "drop"
        return cost_compares(self.counts_are_, CostIs.ESTIMATE if is_apportioned else self.cost_over_groups)

    @property
    def sends_rows(self) -> bool:
        """Whether rows leave their sites, projected or not: sites must allow it."""
        return METHODS[self.method].sends_rows

    @property
    def run_seed(self) -> int:
        """The public seed of the run, once it has begun."""
        return self._run_seed

    def context(self, n_columns: int) -> RunContext:
        """The context of a run over one owner's rows, as they are."""
        return RunContext(n_columns, self._run_seed)

    def set_result(self, result: Any, preparation: Preparation | None, ledger: Ledger) -> None:
        """Set the fitted attributes from the result of a run."""
        self.result_, self.preparation_, self.ledger_ = result, preparation, ledger
        self._set_attributes(result)

    def set_privacy(self, spent: PrivacySpent | None) -> None:
        """Set what a private run promised; warn where its noise leaves little to see."""
        self.privacy_ = spent
        if spent is not None and spent.hides_clusters:
            warnings.warn(HIDDEN, NoiseWarning, stacklevel=4)

    @abstractmethod
    def _set_attributes(self, result: Any) -> None: ...

    def settings(self) -> dict[str, Any]:
        """The parameters, as a journal keeps them: two runs with the same settings ask the same questions."""
        plain: dict[str, Any] = {}
        for name, value in self.get_params(deep=False).items():
            plain[name] = np.asarray(value).tolist() if isinstance(value, np.ndarray | list | tuple) else value
            if isinstance(value, Privacy):
                plain[name] = asdict(value)
        return {**plain, "random_state": self._run_seed}

    def begin(self, resumed: Mapping[str, Any] | None = None) -> None:
        """Draw the run's public seed; a run that is resumed keeps the one it had."""
        state = self.random_state
        if isinstance(state, int | np.integer):
            self._run_seed = int(state)
        elif resumed is not None:
            self._run_seed = int(resumed["random_state"])
        else:
            self._run_seed = int(check_random_state(state).randint(2**31 - 1))
        if not 0 <= self._run_seed < 2**32:
            raise InputError(f"random_state={self._run_seed} must be at least 0 and below 2**32.")

    def prepared_rows(self, rows: Rows) -> Rows:
        """Raw rows as the run saw them."""
        return rows if self.preparation_ is None else self.preparation_.apply(Block(rows)).rows

    @property
    def _fills_missing(self) -> bool:
        return self._treats_missing("mean")

    def _treats_missing(self, so: str) -> bool:
        """Whether the fitted model treats missing values so."""
        preparation = getattr(self, "preparation_", None)
        return preparation is not None and preparation.missing == so

    def _prepared(self, X: npt.ArrayLike) -> Rows:
        """Rows given by a caller, validated, as the run saw rows."""
        return self.prepared_rows(self._checked_rows(X, allow_missing=self._fills_missing))

    def _checked_rows(self, X: Any, *, allow_missing: bool) -> Rows:
        """Rows given by a caller, validated: finite numbers in the columns of the fit."""
        check_is_fitted(self)
        checks: Any = {
            "dtype": [np.float64, np.float32],
            "order": "C",
            "ensure_all_finite": "allow-nan" if allow_missing else True,
        }
        names = [str(name) for name in getattr(self, "feature_names_in_", ())]
        rows: Rows
        is_named = self._matches_names and bool(names) and is_frame(X)
        if is_named and (self.na_ or [str(name) for name in names_of(X)] != names):
            table = table_alike(X, names, self.na_, self.levels_, name="X")
            rows = check_array(rows_of(selected(table, names)), **checks)
        else:
            rows = validate_data(self, X, reset=False, **checks)
        return rows

    def _simulate(
        self,
        X: Rows,
        sites: npt.ArrayLike | None,
        weights: Rows | None,
        ranges: Any = None,
        units: npt.ArrayLike | None = None,
    ) -> None:
        """Fit over sites simulated from one owner's rows: plain sums, rows as they are; or, privately, noisy ones."""
        counted = self._counted(len(X), sites, units)
        if ranges is not None and self.privacy is None:
            raise InputError(
                "ranges are for private runs here; give privacy=Privacy(epsilon=1.0), or leave them out."
            )
        if counted is not None:
            X, sites = X[counted], None if sites is None else np.asarray(sites)[counted]
        self._simulate_over(split_rows(X, sites, weights), X.shape[1], ranges)

    def _counted(self, n_rows: int, sites: npt.ArrayLike | None, units: npt.ArrayLike | None) -> Mask | None:
        """Which rows count, where all rows of one unit are protected together."""
        privacy = Privacy.of(self.privacy)
        unit = None if privacy is None else privacy.unit_column
        if units is None and unit is None:
            return None
        if privacy is None or unit is None:
            raise InputError("units say whose row it is; name what they are: privacy=Privacy(unit='patient').")
        if units is None or np.shape(units) != (n_rows,):
            raise InputError(f"unit={unit!r} needs units, one label a row ({n_rows}): fit(X, ranges=..., units=...).")
        labels = np.zeros(n_rows, int) if sites is None else np.asarray(sites)
        return first_of_each(unit_codes(zip(labels, np.asarray(units, object), strict=True)), privacy.rows_per_unit)

    def _simulate_over(self, tables: Mapping[str, ArrayTable], n_columns: int, ranges: Any = None) -> None:
        self.check(n_columns)
        self.begin()
        self._matches_names = False
        ledger, options = Ledger(), PreparationOptions(ranges=ranges)
        whole: Protocol[RunResult] | None = None
        if self.privacy is not None:
            whole = self.whole_protocol({"": next(iter(tables.values())).columns}, options, self._run_seed)
        with in_process(tables) as channel:
            if whole is None:
                result = run(self.protocol(self.context(n_columns)), channel, method=self.method, ledger=ledger)
                self.set_result(result, None, ledger)
            else:
                outcome = run(whole, channel, method=self.method, ledger=ledger)
                self.set_privacy(outcome.privacy)
                self.set_result(outcome.result, outcome.preparation, ledger)


class ComponentModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FederatedEstimator):
    """What estimators of components have in common."""

    n_components_: int

    def fit(
        self, X: npt.ArrayLike, y: Any = None, *, sites: Any = None, ranges: Any = None, units: Any = None
    ) -> Self:
        """Find the components of the rows of ``X``, simulating one site for every distinct label in ``sites``; with
        differential privacy, within ``ranges``, the lows and highs of all columns, and of ``units``, which say whose
        row it is."""
        rows: Rows = validate_data(self, X, dtype=[np.float64, np.float32], order="C", ensure_min_samples=2)
        self._simulate(rows, sites, None, ranges, units)
        return self

    @property
    def _n_features_out(self) -> int:
        return self.n_components_


def split_rows(X: Rows, sites: npt.ArrayLike | None, weights: Rows | None) -> Mapping[str, ArrayTable]:
    """One table per site, from one label per row; without labels one site has all rows."""
    labels = np.zeros(len(X), int) if sites is None else np.asarray(sites)
    if labels.shape != (len(X),):
        raise InputError(f"sites has shape {labels.shape}; it needs one label per row, ({len(X)},).")
    tables = {}
    for name in np.unique(labels):
        own = labels == name
        part = X if sites is None else X[own]
        tables[str(name)] = ArrayTable(part, weights=None if weights is None else weights[own], name=str(name))
    return tables
