"""Labels of the rows a model was fitted on, where these are at hand: found when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import NotFittedError

from coterie.messages.site_api import Table
from coterie.methods.shared.selection import selected
from coterie.sites.tables import Reading
from coterie.sites.tables.alike import table_alike
from coterie.sites.tables.opening import READING

Labels = npt.NDArray[np.int32]


class Labelled:
    """The labels of a fitted clustering."""

    feature_names_in_: Any
    label_rows: Any
    na_: Mapping[str, list[Any]]
    levels_: Sequence[str]
    _labels: Labels | None = None
    _by_site: dict[str, Labels] | None = None
    _tables: Mapping[str, Table] | None = None
    """The sites' tables, where one owner holds them."""
    _whole: Any = None
    """The one table that was split into those of the sites, if there was one."""
    _reading = READING
    """How that one was read."""

    def keep_tables(self, tables: Mapping[str, Table], whole: Any = None, how: Reading = READING) -> None:
        """Keep the tables of a fit; no row is looked at before labels are asked for."""
        self._tables, self._whole, self._reading = tables, whole, how
        self._labels = self._by_site = None

    @property
    def labels_by_site_(self) -> dict[str, Labels]:
        """By site the cluster of every row, in the order of its table; -1 for a row that the preparation leaves out.

        Only after :func:`coterie.fit`. They are those of the rows as the tables are when first asked.
        """
        if self._by_site is None:
            if self._tables is None:
                raise self._without("labels_by_site_")
            self._by_site = {name: self._labels_of(table) for name, table in self._tables.items()}
        return self._by_site

    @property
    def labels_(self) -> Labels:
        """The cluster of every row, as ``predict`` of the same rows has it: site after site, or in the order of the
        one table that was split into sites."""
        if self._labels is None:
            if self._tables is None:
                raise self._without("labels_")
            if self._whole is not None:
                names = [str(name) for name in self.feature_names_in_]
                whole = table_alike(self._whole, names, self.na_, self.levels_, self._reading)
                self._labels = self._labels_of(whole)
            else:
                self._labels = np.concatenate(list(self.labels_by_site_.values()))
        return self._labels

    @labels_.setter
    def labels_(self, labels: Labels) -> None:
        self._tables = self._whole = self._by_site = None
        self._labels = labels

    def _labels_of(self, table: Table) -> Labels:
        own = selected(table, [str(name) for name in self.feature_names_in_])
        parts = [self.label_rows(block.rows) for block in own.raw_blocks()]
        return np.concatenate([np.zeros(0, np.int32), *parts])

    def _without(self, name: str) -> AttributeError:
        """Why there are no labels."""
        kind = type(self).__name__
        if not hasattr(self, "result_"):
            return NotFittedError(f"this {kind} is not fitted yet, so it has no {name}; call fit first.")
        return AttributeError(
            f"this {kind} has no {name}: the rows it was fitted on are not at hand here; call predict with rows."
        )

    def __getstate__(self) -> dict[str, Any]:
        """The model without the rows it was fitted on; labels that were asked for before are part of it."""
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        return {name: value for name, value in state.items() if name not in ("_tables", "_whole", "_reading")}
