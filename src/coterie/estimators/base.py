"""What every federated estimator has: a protocol to run and a way to take in its result."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from coterie.engines.inprocess import in_process
from coterie.errors import InputError
from coterie.messages.site_api import Block, Column
from coterie.messages.verbs import Protocol
from coterie.methods.registry import METHODS
from coterie.methods.shared.agreement import Capabilities, agree
from coterie.methods.shared.preparation import prepare
from coterie.methods.shared.prepared import Missing, Preparation, Spread
from coterie.parameters import check_parameters
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable

Rows = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class PreparationOptions:
    """How rows are to be prepared before a run begins."""

    scale: Literal["none", "standard", "minmax"] = "none"
    missing: Missing = "refuse"
    ranges: tuple[npt.ArrayLike, npt.ArrayLike] | None = None


class FederatedEstimator(BaseEstimator):
    """An estimator whose fit is a run: over sites simulated from one array, or over tables by ``coterie.fit``."""

    ledger_: Ledger
    preparation_: Preparation | None
    _capabilities = Capabilities()
    """What the sites of the run said they allow; of simulated ones, everything."""

    cost_over_groups = "at most"
    """What a cost over groups is beside that of the rows."""

    @property
    def min_group_(self) -> int:
        """The fewest rows in a group where sites showed groups; 0 where they showed rows.

        Over groups sizes count whole groups, and the rows' cost is ``cost_over_groups`` the one reported; over rows
        both are exact.
        """
        return self._capabilities.min_group

    @property
    @abstractmethod
    def method(self) -> str:
        """The method's name in every list: policies, audits, ledgers."""

    @property
    def method_name(self) -> str:
        """The same where parameters say more."""
        return self.method

    @property
    def sends_rows(self) -> bool:
        """Whether rows leave their sites, projected or not: sites must allow it."""
        return METHODS[self.method_name].sends_rows

    @abstractmethod
    def protocol(self, n_columns: int, known: Spread | None = None, *, averages: bool = True) -> Protocol[Any]:
        """The run that fits this estimator to tables of so many columns, whose spread may be known already.

        ``averages`` says whether every site lets its averages be seen, which decides what is ``"auto"``.
        """

    splits_columns = False
    """Whether sites hold other columns of the same rows, rather than other rows of the same columns."""

    def whole_protocol(
        self, columns: Mapping[str, tuple[Column, ...]], options: PreparationOptions
    ) -> Protocol[tuple[Preparation | None, Any]]:
        """Agreement on the columns, preparation and the fit."""
        first = next(iter(columns.values()))
        self._capabilities = yield from agree(first)
        names, d = [column.name for column in first], len(first)
        preparation = yield from prepare(
            d, scale=options.scale, missing=options.missing, ranges=options.ranges, names=names
        )
        fit = yield from self.protocol(d, preparation.spread, averages=self._capabilities.averages)
        return preparation, fit

    def check(self, n_columns: int) -> None:
        """Raise what is wrong with the parameters for tables of so many columns, before anyone is asked."""
        check_parameters(self)

    result_: Any
    result_type: ClassVar[type[Any]]
    """What a run of this estimator finds, as a model keeps it."""

    def set_result(self, result: Any, preparation: Preparation | None, ledger: Ledger) -> None:
        """Set the fitted attributes from what a run found."""
        self.result_, self.preparation_, self.ledger_ = result, preparation, ledger
        self._set_attributes(result)

    @abstractmethod
    def _set_attributes(self, result: Any) -> None: ...

    def settings(self) -> dict[str, Any]:
        """The parameters, as a journal keeps them: two runs with the same settings ask the same questions."""
        plain: dict[str, Any] = {}
        for name, value in self.get_params(deep=False).items():
            plain[name] = np.asarray(value).tolist() if isinstance(value, np.ndarray | list | tuple) else value
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
        return self.preparation_ is not None and self.preparation_.missing == "mean"

    def _prepared(self, X: npt.ArrayLike) -> Rows:
        """Rows that someone gives, checked, as the run saw rows."""
        check_is_fitted(self)
        finite = "allow-nan" if self._fills_missing else True
        rows: Rows = validate_data(
            self, X, reset=False, dtype=[np.float64, np.float32], order="C", ensure_all_finite=finite
        )
        return self.prepared_rows(rows)

    def _simulate(self, X: Rows, sites: npt.ArrayLike | None, weights: Rows | None) -> None:
        """Fit over sites simulated from one owner's rows: plain sums, rows as they are."""
        self.check(X.shape[1])
        self.begin()
        ledger = Ledger()
        with in_process(split_rows(X, sites, weights)) as channel:
            result = run(self.protocol(X.shape[1]), channel, method=self.method_name, ledger=ledger)
        self.set_result(result, None, ledger)


def split_rows(X: Rows, sites: npt.ArrayLike | None, weights: Rows | None) -> Mapping[str, ArrayTable]:
    """One table a site, from one label a row; without labels all rows are one site's."""
    labels = np.zeros(len(X), int) if sites is None else np.asarray(sites)
    if labels.shape != (len(X),):
        raise InputError(f"sites has shape {labels.shape}; one label a row is needed, ({len(X)},).")
    tables = {}
    for name in np.unique(labels):
        own = labels == name
        part = X if sites is None else X[own]
        tables[str(name)] = ArrayTable(part, weights=None if weights is None else weights[own], name=str(name))
    return tables
