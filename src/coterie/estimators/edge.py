"""k-means from small summaries as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.estimators.kmeans import KMeansModel
from coterie.messages.verbs import Protocol
from coterie.methods.edge.auto import auto_kmeans
from coterie.methods.edge.pipelines import EdgeFit, edge_kmeans
from coterie.methods.edge.questions import EdgeSettings
from coterie.methods.edge.stages import Pipeline, Stage, read_pipeline
from coterie.methods.shared.lloyd import KMeansFit
from coterie.methods.shared.prepared import Spread
from coterie.parameters import Allowed, described, parameter

Rows = npt.NDArray[np.floating[Any]]

NAMED = ("nr", "fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw")
"""Pipelines that are methods of their own in policies, audits and on the command line."""


@described
@dataclass(eq=False, repr=False)
class EdgeKMeans(KMeansModel):
    """k-means from one small summary a site: projected, reduced to a subspace, sampled, in any sensible order.

    Implements Lu et al. (2020) whole: NR, FSS, JL+FSS, FSS+JL, JL+FSS+JL, BKLW and JL+BKLW. In all of these rows
    leave their site, projected or not, so sites must allow it. The default does without: each site's own centers, or
    sums, and a few steps of Lloyd.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, n_rounds_, ledger_
        As in :class:`FederatedKMeans`; rounds are the steps of Lloyd.
    pipeline_ : tuple of stages or None
        The stages with their sizes; None where ``"auto"`` used none.
    summary_ : Summary or None
        What the server saw of all rows, in the reduced space: points, weights, Delta; see :meth:`reduce` and
        :meth:`estimate_cost`.
    """

    n_clusters: int = parameter(8, "How many clusters.", Allowed(whole=True, low=1))
    _: KW_ONLY
    pipeline: str | Sequence[Stage] = parameter(
        "auto",
        "``auto``: every site's own centers where sites let averages be seen, cells by sums where they do not, then "
        "steps of Lloyd by sums while they pay and the budget lasts; no row leaves. Else words joined by ``+``: "
        "``jl`` (random projection), ``pca`` (a site's own), ``sample``, ``fss`` (these two), ``dispca``, "
        "``disss``, ``bklw`` (these two), ``centers`` (a site's own, averages), each with a size where wanted, "
        "``jl:64+pca:10+sample:500``; ``nr``: all rows. Or a list of stages of "
        ":mod:`coterie.methods.edge.stages`.",
    )
    refine: int = parameter(
        0,
        "Steps of Lloyd over the sites afterwards, by sums. The paper has none, and its lift is biased; one step "
        "mends most of it. With ``auto`` the most steps; 0 leaves their number to what they gain.",
    )
    budget: int | None = parameter(
        None,
        "Numbers all sites may send together: sizes that are not given are the largest that fit (own centers stay "
        "``n_clusters`` a site). Agreement on columns, scaling and the limits that masked sums need come on top.",
    )
    accuracy: float | None = parameter(
        None, "Sizes for which the paper's theorems promise a cost of at most ``1 + accuracy`` times the best."
    )
    lift: str = parameter(
        "inverse",
        "Back from a random projection by its pseudo-inverse (``inverse``: Algorithms 2, 4, 5, 6), or by the "
        "``means`` of the rows nearest to each center (Algorithm 1, by one more sum) or of the points (Algorithm "
        "3).",
    )
    center: bool = parameter(
        True, "Subtract the mean first, by a sum: the paper takes it for granted. Only where rows are projected."
    )
    random_state: Any = parameter(None, "Draws the run's public seed: an int, a RandomState or None.")

    @property
    def method(self) -> str:
        """The paper's name of the pipeline, or ``edge-kmeans``."""
        if self._is_auto:
            return "edge-kmeans"
        name = read_pipeline(self.pipeline).name
        return name if name in NAMED else "edge-kmeans"

    @property
    def sends_rows(self) -> bool:
        """All but ``"auto"`` and local centers."""
        return not self._is_auto and read_pipeline(self.pipeline).sends_rows

    def protocol(self, n_columns: int, known: Spread | None = None, *, averages: bool = True) -> Protocol[KMeansFit]:
        """The pipeline, and steps of Lloyd."""
        settings = self._edge_settings(n_columns)
        if settings is None:
            return auto_kmeans(
                self.n_clusters,
                n_columns,
                seed=self._run_seed,
                refine=self.refine,
                budget=self.budget,
                known=known,
                averages=averages,
            )
        return edge_kmeans(settings, self.n_clusters, n_columns, seed=self._run_seed)

    def check(self, n_columns: int) -> None:
        """What cannot work is said before anyone is asked."""
        self._edge_settings(n_columns)

    def _edge_settings(self, n_columns: int) -> EdgeSettings | None:
        """What the parameters ask for, checked; None for ``"auto"``."""
        super().check(n_columns)
        pipeline = Pipeline(()) if self._is_auto else read_pipeline(self.pipeline)
        if self._is_auto and self.accuracy is not None:
            raise InputError("accuracy is for pipelines the theorems are about, such as 'jl+fss'; 'auto' has none.")
        settings = EdgeSettings(pipeline, self.refine, self.lift, self.center, self.budget, self.accuracy)
        return None if self._is_auto else settings

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.pipeline, str) and self.pipeline.strip().lower() == "auto"

    def _set_attributes(self, result: KMeansFit) -> None:
        super()._set_attributes(result)
        made = result if isinstance(result, EdgeFit) else None
        self.pipeline_ = None if made is None else made.pipeline.stages
        self.summary_ = None if made is None else made.summary
        self._edge_fit = made

    def reduce(self, X: npt.ArrayLike) -> Rows:
        """Rows, or centers, in the space of ``summary_``."""
        rows = self._prepared(X)
        return self._summarised().reduce(rows)

    def estimate_cost(self, X: npt.ArrayLike) -> float:
        """What any centers cost over all rows, by ``summary_`` alone: nobody is asked. Unbiased where rows were not
        projected at random, and within what projections do to distances where they were."""
        centers = self._prepared(X)
        return self._summarised().estimate(np.asarray(centers, np.float64))

    def _summarised(self) -> EdgeFit:
        if self._edge_fit is None:
            raise InputError("this model has no summary: it was found by 'auto', or read from a file.")
        return self._edge_fit

    def settings(self) -> dict[str, Any]:
        """The parameters, as a journal keeps them."""
        found = super().settings()
        if not isinstance(self.pipeline, str):
            found["pipeline"] = [repr(stage) for stage in self.pipeline]
        return found
