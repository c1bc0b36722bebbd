"""How many rows sites hold, and the rows themselves where sites allow it."""

from __future__ import annotations

import numpy as np

from coterie.errors import InputError, MalformedMessage
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers, rows_at


class RowCounts(Reply, content="sums"):
    """How many rows a site shows, what they count in all, and 1 where they count differently."""

    shown: Floats = array(bound="rows", nonnegative=True)
    held: Floats = array(bound="rows", nonnegative=True)
    weighted: Floats = array(bound="1", nonnegative=True)


class CountRows(Request[RowCounts], doing="counting rows"):
    """How many rows do you hold?"""


class PooledRows(Reply, content="rows"):
    """A site's rows, and what each counts where they count differently."""

    points: Floats = array("rows", "d", bound="box[d]")
    weights: Floats = array("weighted", nonnegative=True)


class PoolRows(Request[PooledRows], doing="pooling rows"):
    """Send all your ``rows`` rows; ``weighted`` is as many, or 0 where every row counts once."""

    rows: int
    d: int
    weighted: int


def check_rows(n_rows: float, n_clusters: int = 0) -> None:
    """Raise where the sites hold no rows, or fewer than clusters; a masked count is not quite whole."""
    if not n_rows > 0:
        raise InputError("the sites hold 0 rows in all; at least one is needed.")
    if n_rows < n_clusters * (1 - 1e-9):
        raise InputError(f"the sites hold {n_rows:g} rows in all; n_clusters={n_clusters} needs at least as many.")


@answers(CountRows)
def local_row_counts(table: Table, memory: Memory, ask: CountRows) -> RowCounts:
    held, weighted = 0.0, False
    for block in table.blocks():
        held += float(block.counts.sum())
        weighted |= block.weights is not None
    return RowCounts(np.asarray(float(table.n_rows)), np.asarray(held), np.asarray(float(weighted)))


@answers(PoolRows)
def local_pooled_rows(table: Table, memory: Memory, ask: PoolRows) -> PooledRows:
    if ask.rows != table.n_rows or ask.weighted not in (0, ask.rows):
        raise MalformedMessage(f"{ask.rows} rows and {ask.weighted} weights: not what this site holds")
    rows, counts = rows_at(table, np.arange(table.n_rows))
    return PooledRows(rows, counts[: ask.weighted])
