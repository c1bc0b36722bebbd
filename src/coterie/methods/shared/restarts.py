"""Several starts of k-means at the price of a few rounds: the server finds them for free, sites judge them.

From the means of cells the server knows many solutions without asking. A number each says what they cost. The best
take steps of Lloyd's algorithm, all in one round, whose sums also say what each costs; the better half goes on, until
one is left. Solutions that become the same are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.errors import InputError
from coterie.maths import clustering
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers, within_columns
from coterie.messages.verbs import Protocol, total
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.starts import START_BITS, points_of, starts_of
from coterie.parameters import Allowed, parameter


class StartCosts(Reply, content="sums"):
    """Per start the squared distances of a site's rows to the nearest of its centers."""

    costs: Floats = array("starts", bound="rows * d * (box + centers)**2", nonnegative=True)


class CompareStarts(Request[StartCosts], doing="comparing several starts"):
    """How far are your rows from each of several sets of centers?"""

    centers: Floats = array("starts", "k", "d")


class EachMoments(Reply, content="sums"):
    """Per start and center the sum and number of a site's rows nearest to it; per start their squared distances."""

    sums: Floats = array("starts", "k", "d", bound="rows * box[d]")
    counts: Floats = array("starts", "k", bound="rows", nonnegative=True)
    costs: Floats = array("starts", bound="rows * d * (box + centers)**2", nonnegative=True)


class AssignEach(Request[EachMoments], doing="improving several starts"):
    """For each of several sets of centers, put every row to its nearest one."""

    centers: Floats = array("starts", "k", "d")


@answers(CompareStarts)
def local_start_costs(table: Table, memory: Memory, ask: CompareStarts) -> StartCosts:
    costs = np.full(len(ask.centers), within_columns(table).sum())
    for block in table.blocks():
        costs += [float(clustering.nearest(block.rows, own)[1] @ block.counts) for own in ask.centers]
    return StartCosts(costs)


@answers(AssignEach)
def local_each_moments(table: Table, memory: Memory, ask: AssignEach) -> EachMoments:
    reply = EachMoments.zeros(ask.axes)
    for block in table.blocks():
        parts = [clustering.moments(block.rows, own, block.weights) for own in ask.centers]
        reply += EachMoments(*(np.array(part) for part in zip(*parts, strict=True)))
    return EachMoments(reply.sums, reply.counts, reply.costs + within_columns(table).sum())


JUDGED: tuple[type[Request[Any]], ...] = (CompareStarts, AssignEach)
"""The questions by which starts are compared."""
STARTS, TRIED = 8, 6
"""So many starts where nothing else is asked for; for each, so many solutions are compared first."""
STEPS = (3, 4, 6)
"""Steps that starts take together before the better half goes on: more, the fewer there are."""
RESTARTED = ("auto", "cells", "random")
"""The names of starts of which there can be several."""


def n_init_parameter() -> Any:
    """The parameter that says from how many starts clusters are chosen."""
    return parameter(
        "auto",
        "How many starts are compared on the sites' rows: all improve in joint rounds, and the better half goes on. "
        f"``auto`` is {STARTS} with ``init='auto'``, fewer for very many numbers or few rows, else 1. More than 1 "
        "needs init auto, cells or random.",
        Allowed("auto", whole=True, low=1, high=1000),
    )


def check_n_init(n_init: str | int, init: object) -> None:
    """Raise ``InputError`` for several of a start that is always the same."""
    if not isinstance(n_init, str) and n_init > 1 and not (isinstance(init, str) and init in RESTARTED):
        named = repr(init) if isinstance(init, str) else "an array"
        raise InputError(
            f"n_init={n_init} needs starts that differ, and init is {named}; use n_init=1, or init='auto'."
        )


def wanted_starts(n_init: str | int) -> int:
    """How many starts there are to be."""
    return STARTS if isinstance(n_init, str) else int(n_init)


def _n_starts(n_init: str | int, init: object, n_clusters: int, spread: Spread) -> int:
    if not isinstance(n_init, str):
        return int(n_init)
    several = isinstance(init, str) and init == "auto"
    return max(1, min(STARTS, points_of(n_clusters, spread) // n_clusters)) if several else 1


def chosen_start(
    init: str | Floats, n_init: str | int, n_clusters: int, spread: Spread, *, seed: int
) -> Protocol[Floats]:
    """Centers from the best of several starts by name, or from the only one."""
    check_n_init(n_init, init)
    most = _n_starts(n_init, init, n_clusters, spread)
    is_auto = isinstance(init, str) and init == "auto"  # of its three kinds of points no kind is always the best
    tried = TRIED * most if most > 1 or is_auto else 1
    starts = yield from starts_of(init, n_clusters, spread, seed=seed, most=tried)
    return (yield from best_of(starts, most))


def best_of(starts: Sequence[Floats], most: int) -> Protocol[Floats]:
    """Centers from the best of some starts, of which so many improve together before the better half goes on."""
    left, steps = list(starts), iter(STEPS)
    if len(left) > most:
        costs = (yield from total(CompareStarts(np.array(left)), bits=START_BITS)).costs
        left = [left[i] for i in clustering.smallest_first(costs)[:most]]
    while len(left) > 1:
        kept, n_steps = (len(left) + 1) // 2, next(steps, STEPS[-1])
        for _ in range(n_steps):
            left = yield from _improved(left)
        left = left[:kept]
    return left[0]


def _improved(starts: Sequence[Floats]) -> Protocol[list[Floats]]:
    """Starts after a step of Lloyd's algorithm, the best first; one of those that cost the same."""
    m = yield from total(AssignEach(np.array(starts)), bits=START_BITS)
    moved = [clustering.means(*parts, fallback=own) for *parts, own in zip(m.sums, m.counts, starts, strict=True)]
    return [moved[i] for i in clustering.distinct_first(m.costs)]
