"""Several starts of k-means at the price of a few rounds: the server finds candidates for free, sites judge them.

From the means of cells the server knows many solutions without asking. All of them take a step of Lloyd's algorithm
in one round, whose sums say what each costs; the better half goes on, until one is left.
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
from coterie.parameters import Allowed, parameter


class EachMoments(Reply, content="sums"):
    """Per start and center the sum and number of a site's rows nearest to it; per start their squared distances."""

    sums: Floats = array("all", "d", bound="rows * box[d]")
    counts: Floats = array("all", bound="rows", nonnegative=True)
    costs: Floats = array("starts", bound="rows * d * (box + centers)**2", nonnegative=True)


class AssignEach(Request[EachMoments], doing="comparing several starts"):
    """For each of several sets of centers, put every row to its nearest one."""

    starts: int
    centers: Floats = array("all", "d")


@answers(AssignEach)
def local_each(table: Table, memory: Memory, ask: AssignEach) -> EachMoments:
    reply = EachMoments.zeros(ask.axes)
    sets = ask.centers.reshape(max(ask.starts, 1), -1, ask.centers.shape[1])
    for block in table.blocks():
        parts = [clustering.moments(block.rows, centers, block.weights) for centers in sets]
        sums, counts, costs = zip(*parts, strict=True)
        reply += EachMoments(np.concatenate(sums), np.concatenate(counts), np.array(costs))
    return EachMoments(reply.sums, reply.counts, reply.costs + within_columns(table).sum())


STARTS = 8
"""So many where nothing else is asked for."""
RESTARTED = ("auto", "cells", "random")
"""The names of starts of which there can be several."""


def n_init_parameter() -> Any:
    """The parameter that says from how many starts clusters are chosen."""
    return parameter(
        "auto",
        "How many starts are compared on the sites' rows, in a few rounds: the better half goes on. ``auto``: "
        f"{STARTS} with the start auto, cells or random, else 1.",
        Allowed("auto", whole=True, low=1, high=1000),
    )


def n_starts(n_init: str | int, init: object) -> int:
    """How many starts there are; ``InputError`` for several of a start that is always the same."""
    several = isinstance(init, str) and init in RESTARTED
    if isinstance(n_init, str):
        return STARTS if several else 1
    if n_init > 1 and not several:
        named = repr(init) if isinstance(init, str) else "centers that are given"
        raise InputError(
            f"n_init={n_init} needs different starts, and init is {named}; use n_init=1, or init='auto'."
        )
    return int(n_init)


def best_of(starts: Sequence[Floats]) -> Protocol[Floats]:
    """Centers from the best of some starts: all take a step in one round, and the better half goes on."""
    left = list(starts)
    while len(left) > 1:
        reply = yield from total(AssignEach(len(left), np.concatenate(left)))
        sums, counts = (part.reshape(len(left), -1, *part.shape[1:]) for part in (reply.sums, reply.counts))
        order = np.argsort(reply.costs, kind="stable")[: len(left) // 2]
        left = [clustering.means(sums[i], counts[i], fallback=left[i]) for i in order]
    return left[0]
