"""The final clusters over two halves of the sites, summed up apart: what one site makes up shows in its half alone.

The halves are drawn from the run's public seed. Which of their differences come from a site that lies, and which from
sites that are unlike, no sum can tell: a difference is a reason to look, not a proof.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.errors import RunError
from coterie.messages.schema import Floats, Request, array
from coterie.messages.site_api import Memory, Table, answers
from coterie.messages.verbs import Protocol, present, total
from coterie.methods.shared.lloyd import Close, KMeansFit, Sizes, local_sizes

SHARE_FACTOR = 4.0
"""A cluster is flagged where its share of one half's rows is more than so many times that of the other's."""
COST_FACTOR = 2.0
"""The cost is flagged where a row's mean cost in one half is more than so many times that in the other."""
FEW_ROWS = 5
"""Added to both halves of a cluster: in clusters of a few rows large factors are chance."""
_DRAW = 0x4A1F
"""Sets the draw apart from others by the same seed."""


class CompareHalf(Request[Sizes], of_half=True, doing="counting the rows of the final clusters in half of the sites"):
    """How many rows are nearest to each of the final centers, and at what cost? Asked of half of the sites."""

    centers: Floats = array("k", "d")


@answers(CompareHalf)
def local_half(table: Table, memory: Memory, ask: CompareHalf) -> Sizes:
    return local_sizes(table, memory, Close(ask.centers))


@dataclass(frozen=True)
class Half:
    """One half of the sites, the rows of each cluster there, and their cost."""

    sites: tuple[str, ...]
    counts: Floats
    cost: float

    @property
    def rows(self) -> float:
        """All rows of the half."""
        return max(float(self.counts.sum()), 1e-300)

    @property
    def row_cost(self) -> float:
        """The mean cost of a row."""
        return self.cost / self.rows


@dataclass(frozen=True)
class Halves:
    """The two halves of a run, or why they were not compared."""

    halves: tuple[Half, Half] | None
    why_not: str = ""

    @property
    def clusters(self) -> list[int]:
        """The clusters that lie mostly in one half."""
        return self.mostly_in_one(SHARE_FACTOR)

    def mostly_in_one(self, most: float) -> list[int]:
        """The clusters whose share of one half's rows is more than ``most`` times that of the other's."""
        if self.halves is None:
            return []
        shares = [(half.counts + FEW_ROWS) / half.rows for half in self.halves]
        factor = np.maximum(shares[0] / shares[1], shares[1] / shares[0])
        return [int(i) for i in np.flatnonzero(factor > most)]

    @property
    def costs_differ(self) -> bool:
        """Whether rows lie much closer to their centers in one half."""
        if self.halves is None:
            return False
        one, other = sorted(half.row_cost for half in self.halves)
        return other > COST_FACTOR * one

    @property
    def disagree(self) -> bool:
        """Whether anything differs by more than its factor."""
        return self.costs_differ or bool(self.clusters)


def compared_halves(centers: Floats, fewest: int, seed: int) -> Protocol[Halves]:
    """Sum up the final clusters over two halves of the sites, of at least ``fewest`` each (0: sites forbid it).

    A dropout on the way does not end the run: the halves are then not compared.
    """
    names = yield from present()
    if not fewest:
        return Halves(None, "a site's policy does not allow it")
    if len(names) < 2 * fewest:
        return Halves(None, f"{len(names)} sites are too few for two halves of at least {fewest}")
    first, second = drawn_halves(names, seed)
    with contextlib.suppress(RunError):
        one = yield from _half(centers, first)
        other = yield from _half(centers, second)
        return Halves((one, other))
    return Halves(None, "a site dropped out on the way")


def drawn_halves(names: tuple[str, ...], seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Two halves of the sites; where their number is odd, the second has one more."""
    order = np.random.default_rng([seed, _DRAW]).permutation(len(names))
    chosen = {names[i] for i in order[: len(names) // 2]}
    in_order = sorted(names)
    return tuple(n for n in in_order if n in chosen), tuple(n for n in in_order if n not in chosen)


def _half(centers: Floats, sites: tuple[str, ...]) -> Protocol[Half]:
    sizes = yield from total(CompareHalf(centers), to=sites, complete=True)
    return Half(sites, np.array(sizes.counts), float(sizes.cost))


def final_centers(result: Any) -> Floats:
    """The centers that a method of clusters ends with, where sites put their rows to them."""
    fit = result if isinstance(result, KMeansFit) else result.clusters
    return np.asarray(fit.centers, np.float64)
