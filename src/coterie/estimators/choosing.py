"""How many clusters there are over tables that stay where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import validate_data

from coterie.errors import InputError
from coterie.estimators.base import FederatedEstimator, Rows
from coterie.estimators.exactness import CostIs
from coterie.methods.analysis.choose_k import ChooseKSettings
from coterie.methods.kernel.landmarks.choice import LandmarkChoiceSettings
from coterie.methods.shared.choosing import Choice
from coterie.parameters import described


class ChoiceModel(FederatedEstimator):
    """What estimators of the number of clusters have in common."""

    choice_: Choice
    n_clusters_: int | None

    def fit(
        self, X: npt.ArrayLike, y: Any = None, *, sites: Any = None, ranges: Any = None, units: Any = None
    ) -> Self:
        """Judge numbers of clusters of ``X``, simulating one site for every distinct label in ``sites``; with
        differential privacy, within ``ranges``, the lows and highs of all columns, and of ``units``."""
        rows: Rows = validate_data(self, X, dtype=[np.float64, np.float32], order="C", ensure_min_samples=2)
        self._simulate(rows, sites, None, ranges, units)
        return self

    def _set_attributes(self, result: Choice) -> None:
        self.choice_, self.n_clusters_ = result, result.recommended

    def to_frame(self) -> Any:
        """A row for every number of clusters, as a data frame; needs pandas."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_frame needs pandas; install it, or use rows().") from None
        return pandas.DataFrame(list(self.rows())).set_index("k")

    def rows(self) -> Iterator[dict[str, float | None]]:
        """What is known of each number of clusters, by name."""
        return rows_of(self.choice_)


def rows_of(choice: Choice) -> Iterator[dict[str, float | None]]:
    """What is known of each number of clusters, by name; None where a private run did not ask."""
    columns = {
        "cost": choice.costs,
        "silhouette": choice.silhouettes,
        "gap": choice.gaps,
        "gap_error": choice.gap_errors,
        "stability": choice.stabilities,
    }
    for i, k in enumerate(choice.ks.tolist()):
        known = {name: float(values[i]) for name, values in columns.items()}
        yield {"k": k, **{name: value if np.isfinite(value) else None for name, value in known.items()}}


@described
@dataclass(eq=False, repr=False)
class NumberOfClusters(ChooseKSettings, ChoiceModel):
    """Which number of clusters the rows of all sites support, if any: the method ``choose-k``.

    Candidates come from one summary of all rows. One round then judges all of them: the mean simplified silhouette of
    the rows; the gap, by which the cost falls farther from that of one cluster than for rows without clusters
    (Tibshirani et al. 2001); and the stability, the adjusted Rand index of the clusters of two halves of the rows.
    The number with the largest silhouette is recommended if its stability is at least .8 and its gap exceeds its
    error.

    Attributes
    ----------
    choice_ : Choice
        The numbers for every ``k``, the centers of every candidate, and why a number is recommended or not.
    n_clusters_ : int or None
        The number that is recommended; None where none is supported.
    ledger_ : Ledger
        Every question and answer of the run.
    """


@described
@dataclass(eq=False, repr=False)
class NumberOfKernelClusters(LandmarkChoiceSettings, ChoiceModel):
    """How numbers of kernel clusters separate, by landmarks: shown without a recommendation.

    Attributes
    ----------
    choice_ : Choice
        The numbers for every ``k``; as :class:`NumberOfClusters` has it.
    ledger_ : Ledger
        Every question and answer of the run.
    """

    cost_over_groups = CostIs.ESTIMATE
