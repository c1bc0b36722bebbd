"""DPCA over sites that hold different columns of the same rows: what He et al. 2020 compare with (section V.B).

A reconstruction after the text; the source is not at hand: see :mod:`coterie.maths.dpca` for what is computed.
Sites talk to the server only, so it relays: for each site it adds up the copies of the site's neighbours in a ring,
and keeps the site's multipliers, which are sums of differences of copies it has relayed. A site is told the copy its
outer step began with and the pull of its neighbours, 2 T D numbers, where n - 1 neighbours would send (n - 1) T D; it
remembers nothing. A copy has D numbers for every row, and the server chooses what rows are combined with: all that is
made of rows is declared as rows, and a default policy refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from coterie.errors import InputError, MalformedMessage
from coterie.maths.dpca import loadings, next_copy, orthonormal, pulled, ring, start_copy
from coterie.messages.schema import Floats, Integers, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers, rows_at
from coterie.messages.verbs import Protocol, each


class ColumnCount(Reply, content="rows"):
    """m_j: how many columns a site holds; for sites that take part with their rows."""

    columns: Integers = array(dtype="uint32")


class CountColumns(Request[ColumnCount], doing="counting columns"):
    """How many columns do you hold?"""


@answers(CountColumns)
def local_column_count(table: Table, memory: Memory, ask: CountColumns) -> ColumnCount:
    return ColumnCount(np.asarray(len(table.columns)))


class Copy(Reply, content="rows"):
    """Y_j: D numbers for every row."""

    copy: Floats = array("rows", "rank")


class SolveCopy(Request[Copy], doing="taking an ADMM step"):
    """One inner step: the copy that suits your rows and your neighbours' pull.

    ``begun`` is your copy at the outer step's beginning, for which you solve for B_j; ``weight`` is 2 rho times the
    number of your neighbours.
    """

    weight: float
    begun: Floats = array("rows", "rank")
    pull: Floats = array("rows", "rank")


@answers(SolveCopy)
def local_copy(table: Table, memory: Memory, ask: SolveCopy) -> Copy:
    """A step of ADMM at one site."""
    if not (math.isfinite(ask.weight) and ask.weight > 0):
        raise MalformedMessage(f"a weight of {ask.weight}; it is above 0")
    rows = _rows_for(table, ask.begun)
    return Copy(next_copy(rows, loadings(rows, ask.begun), ask.pull, ask.weight))


class Components(Reply, content="rows"):
    """B_j. No number is a row's, but rows are combined as the server says: with a copy that is 1 in one row and 0 in
    all others, B_j is that row."""

    components: Floats = array("columns", "rank")


class SendComponents(Request[Components], doing="collecting the components"):
    """Send your part of the components, for your last copy."""

    columns: int
    begun: Floats = array("rows", "rank")


@answers(SendComponents)
def local_components(table: Table, memory: Memory, ask: SendComponents) -> Components:
    """The site's columns as combinations of the copy's."""
    if ask.columns != len(table.columns):
        raise MalformedMessage(f"{ask.columns} columns, not the {len(table.columns)} of this site")
    return Components(loadings(_rows_for(table, ask.begun), ask.begun))


def _rows_for(table: Table, copy: Floats) -> Floats:
    """The site's rows, once a copy is found to fit them."""
    n_rows, rank = copy.shape
    if n_rows != table.n_rows:
        raise MalformedMessage(f"a copy for {n_rows} rows, not the {table.n_rows} of this site")
    if not 1 <= rank <= n_rows:
        raise MalformedMessage(f"{rank} components of {n_rows} rows")
    rows, counts = rows_at(table, np.arange(n_rows))
    if (counts != 1).any():
        raise InputError("rows with weights cannot be matched with other sites'.")
    return rows


@dataclass(frozen=True)
class DPCAFit:
    """What a run of DPCA found, by site in the order of their names, which is that of the ring."""

    history: tuple[Mapping[str, Floats], ...]
    """The orthonormal copies after every outer step."""
    components: Mapping[str, Floats]
    """B_j, for the last copies."""

    @property
    def stacked(self) -> Floats:
        """All B_j, one below the other: it spans the principal subspace of all columns."""
        return np.concatenate(list(self.components.values()))


def dpca(
    n_components: int, *, n_rows: int, neighbours: int, n_iter: int, inner: int = 12, rho: float = 4.0, seed: int
) -> Protocol[DPCAFit]:
    """Leading components of all sites' columns, by agreement between neighbours.

    Sites that are there at the beginning take part to the end: one lost on the way ends the run, as the components
    would be those of other columns.
    """
    if n_iter < 1 or inner < 1:
        raise InputError(f"n_iter={n_iter} and inner={inner} must be at least 1.")
    if not (math.isfinite(rho) and rho > 0):
        raise InputError(f"rho={rho} must be above 0.")
    start = start_copy(n_rows, n_components, seed)
    counted = yield from each(CountColumns())
    names = sorted(counted)
    near = ring(len(names), neighbours)
    copies, multipliers = [start] * len(names), [np.zeros_like(start)] * len(names)
    history = []
    for _ in range(n_iter):
        begun = copies
        for _ in range(inner):
            multipliers, pulls = pulled(multipliers, copies, near, rho)
            weights = [2 * rho * len(some) for some in near]
            asks = [SolveCopy(*stated) for stated in zip(weights, begun, pulls, strict=True)]
            found = yield from each(dict(zip(names, asks, strict=True)), complete=True)
            copies = [found[name].copy for name in names]
        copies = [orthonormal(copy) for copy in copies]
        history.append(dict(zip(names, copies, strict=True)))
    last = {name: SendComponents(int(counted[name].columns), copy) for name, copy in history[-1].items()}
    parts = yield from each(last, complete=True)
    return DPCAFit(tuple(history), {name: parts[name].components for name in names})
