"""k-means from small summaries as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.estimators.base import Rows
from coterie.estimators.kmeans import KMeansModel
from coterie.methods.edge.method import EdgeKMeansSettings
from coterie.methods.edge.pipelines import EdgeFit
from coterie.methods.edge.stages import read_pipeline
from coterie.methods.shared.lloyd import KMeansFit
from coterie.parameters import described


@described
@dataclass(eq=False, repr=False)
class EdgeKMeans(EdgeKMeansSettings, KMeansModel):
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

    def _set_attributes(self, result: KMeansFit) -> None:
        super()._set_attributes(result)
        fit = result if isinstance(result, EdgeFit) else None
        self.pipeline_ = None if fit is None else fit.pipeline.stages
        self.summary_ = None if fit is None else fit.summary
        self._edge_fit = fit

    def reduce(self, X: npt.ArrayLike) -> Rows:
        """Rows, or centers, in the space of ``summary_``."""
        rows = self._prepared(X)
        return self._summarised().reduce(rows)

    def estimate_cost(self, X: npt.ArrayLike) -> float:
        """The cost of any centers over all rows, from ``summary_`` alone, without a question to the sites. Unbiased
        unless rows were projected at random; then as accurate as projected distances are."""
        centers = self._prepared(X)
        return self._summarised().estimate(np.asarray(centers, np.float64))

    def _summarised(self) -> EdgeFit:
        if self._edge_fit is None:
            raise InputError(
                "this model has no summary, because it was fitted with pipeline='auto' or read from a file."
            )
        return self._edge_fit

    def settings(self) -> dict[str, Any]:
        """The parameters, as a journal keeps them."""
        parameters = super().settings()
        if not isinstance(self.pipeline, str):
            parameters["pipeline"] = [repr(stage) for stage in read_pipeline(self.pipeline).stages]
        return parameters
