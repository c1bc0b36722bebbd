"""How long rows of features are, found by sums, where the kernel does not say: products of signs have no bound.

As in :mod:`coterie.protocols.limits` every site marks a power of sixteen, anew for every draw of features; the server
learns how many sites marked which.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.messages.schema import Request
from coterie.messages.site_part import Memory, Table, answers
from coterie.messages.verbs import Protocol, total
from coterie.protocols.dspgd_sites import feature_pieces, held_of
from coterie.protocols.limits import Marks, highest, mark

__all__ = ["MarkFeatures", "feature_limits"]


@dataclass(frozen=True)
class MarkFeatures(Request[Marks]):
    """Mark the longest row of A_t[m], its squared length divided by D, and the longest of B_t[m], squared."""

    groups: int
    step: int


@answers(MarkFeatures)
def local_feature_marks(table: Table, memory: Memory, ask: MarkFeatures) -> Marks:
    """The site's marks."""
    held, largest = held_of(memory), 0.0
    for _, features in feature_pieces(table, held, ask.step):
        wide = features.astype(np.float64, copy=False)
        largest = max(largest, float(np.vecdot(wide, wide).max(initial=0.0)) / held.begin.n_features)
    carried = float(np.vecdot(held.b, held.b).max(initial=0.0))
    sizes = np.array([largest, carried])[: ask.groups]
    return Marks(mark(np.array([float(held.counts.sum())]))[0], mark(sizes))


def feature_limits(step: int, eta: float, names: tuple[str, ...]) -> Protocol[dict[str, float]]:
    """``length``: a bound of the squared length of rows of W_t, centered or not, and what sums of features need."""
    found = yield from total(MarkFeatures(2, step), to=names, complete=True)
    drawn, carried = highest(found.sizes)
    return {"length": float(max(4 * eta * drawn + (1 - eta) * carried, drawn, np.sqrt(drawn)))}
