"""k-means from a start, by sums."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.messages.schema import Floats
from coterie.messages.verbs import Protocol
from coterie.methods.method import ClusterSettings, RunContext
from coterie.methods.shared.counts import check_rows
from coterie.methods.shared.lloyd import KMeansFit, lloyd
from coterie.methods.shared.preparation import spread
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.starts import choose_start


class KMeansSettings(ClusterSettings):
    """Parameters of a k-means of rows as they are: look at the columns' spread, find a start, improve on it."""

    result_type: ClassVar[type[Any]] = KMeansFit
    init: str | npt.ArrayLike = "one-shot"
    max_rounds: int = 0
    tol: float = 0.0

    def check(self, n_columns: int) -> None:
        """Raise what is wrong with the parameters for tables of so many columns."""
        super().check(n_columns)
        if not isinstance(self.init, str) and np.shape(self.init) != (self.n_clusters, n_columns):
            raise InputError(
                f"init has shape {np.shape(self.init)}; centers of shape {(self.n_clusters, n_columns)} are needed."
            )

    def protocol(self, context: RunContext) -> Protocol[KMeansFit]:
        """A start, and rounds from there."""
        self.check(context.n_columns)
        columns = context.spread or (yield from spread(context.n_columns))
        check_rows(columns.rows, self.n_clusters)
        init = self.init if isinstance(self.init, str) else np.asarray(self.init, np.float64)
        start = yield from choose_start(init, self.n_clusters, columns, seed=context.seed, averages=context.averages)
        return (yield from self.improve(start, columns, context.seed))

    def improve(self, start: Floats, columns: Spread, seed: int) -> Protocol[KMeansFit]:
        """From a start to the result."""
        return lloyd(start, max_rounds=self.max_rounds, tol=self.tol * float(np.mean(columns.deviation**2)))
