"""k-means of rows as they are, from a start, by sums; and Lloyd's algorithm under a name of its own."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.messages.schema import Floats
from coterie.messages.verbs import Protocol
from coterie.methods.method import ClusterSettings, Method, RunContext
from coterie.methods.shared.counts import check_rows
from coterie.methods.shared.lloyd import Assign, Close, KMeansFit, lloyd
from coterie.methods.shared.preparation import spread
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.restarts import JUDGED, check_n_init, chosen_start, n_init_parameter
from coterie.methods.shared.starts import Split, Summarise
from coterie.parameters import Allowed, parameter


class KMeansSettings(ClusterSettings):
    """Parameters of a k-means of rows as they are: look at the columns' spread, find a start, improve on it."""

    result_type: ClassVar[type[Any]] = KMeansFit
    init: str | npt.ArrayLike = "one-shot"
    n_init: str | int = "auto"
    max_rounds: int = 0
    tol: float = 0.0

    def check(self, n_columns: int) -> None:
        """Raise an error if the parameters do not fit tables with ``n_columns`` columns."""
        super().check(n_columns)
        if not isinstance(self.init, str) and np.shape(self.init) != (self.n_clusters, n_columns):
            raise InputError(
                f"init has shape {np.shape(self.init)}; centers of shape {(self.n_clusters, n_columns)} are needed."
            )
        check_n_init(self.n_init, self.init)

    def protocol(self, context: RunContext) -> Protocol[KMeansFit]:
        """A start, and rounds from there."""
        self.check(context.n_columns)
        columns = context.spread or (yield from spread(context.n_columns))
        check_rows(columns.rows, self.n_clusters)
        init = self.init if isinstance(self.init, str) else np.asarray(self.init, np.float64)
        start = yield from chosen_start(init, self.n_init, self.n_clusters, columns, seed=context.seed)
        return (yield from self.improve(start, columns, context.seed))

    def improve(self, start: Floats, columns: Spread, seed: int) -> Protocol[KMeansFit]:
        """From a start to the result."""
        return lloyd(start, max_rounds=self.max_rounds, tol=self.tol * float(np.mean(columns.deviation**2)))


@dataclass(eq=False, repr=False)
class LloydSettings(KMeansSettings):
    """Parameters of Lloyd's algorithm."""

    _: KW_ONLY
    init: str | npt.ArrayLike = parameter("auto", "Where to start, as in :class:`FederatedKMeans`.", chooses="points")
    n_init: str | int = n_init_parameter()
    max_rounds: int = parameter(100, "The most rounds.", Allowed(whole=True, low=0))
    tol: float = parameter(1e-4, "When to stop, as in :class:`FederatedKMeans`.", Allowed(low=0))

    method = "lloyd"


METHOD = Method(
    "lloyd",
    "Lloyd's k-means over all rows, by sums",
    (Assign, Close, Split, *JUDGED, Summarise),
    "k(d+1)+1 a round and k+1 to close; start: at most 4k(2d+1) + 16k(d+1) a round, then at most 8k(d+1) a round "
    "while starts are compared; one-shot start: k(d+1)",
    "per cluster the sum and number of rows, over all sites; with a one-shot start each site's own centers",
    optional="only with a one-shot start",
    settings=(LloydSettings,),
)
