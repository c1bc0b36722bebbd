"""k-means with the number of clusters that the rows support."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coterie.extents import between
from coterie.messages.schema import Floats
from coterie.messages.verbs import Protocol
from coterie.methods.shared.choosing import LARGEST, SMALLEST, Choice, NoneSupported, choose_k
from coterie.methods.shared.counts import check_rows
from coterie.methods.shared.lloyd import KMeansFit
from coterie.methods.shared.prepared import Spread

AUTO = "auto"


@dataclass(frozen=True)
class ChosenFit(KMeansFit):
    """Clusters, and why there are so many."""

    choice: Choice


def kmeans_of_chosen(
    columns: Spread, seed: int, improve: Callable[[Floats], Protocol[KMeansFit]]
) -> Protocol[ChosenFit]:
    """The centers of the number of clusters that is recommended, improved; ``NoneSupported`` where none is."""
    check_rows(columns.rows, LARGEST)
    choice = yield from choose_k(range(SMALLEST, LARGEST + 1), columns, seed=seed)
    recommended = between(choice.recommended, SMALLEST, LARGEST)
    if recommended is None:
        raise NoneSupported(choice)
    fit = yield from improve(choice.centers_of(recommended))
    return ChosenFit(fit.centers, fit.cost, fit.counts, fit.n_rounds, choice)
