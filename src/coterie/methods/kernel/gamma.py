"""The kernel's gamma from sums."""

from __future__ import annotations

import numpy as np

from coterie.maths.kernels import average_distance_gamma
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers, within_columns
from coterie.messages.verbs import Protocol, total
from coterie.methods.shared.counts import check_rows


class Lengths(Reply, content="sums"):
    """The number of rows, their sum, and the sum of their squared lengths."""

    rows: Floats = array(bound="rows", nonnegative=True)
    sums: Floats = array("d", bound="rows * box")
    squares: Floats = array(bound="rows * d * box**2", nonnegative=True)


class SumLengths(Request[Lengths]):
    """Sum up your rows and their squared lengths."""

    d: int


@answers(SumLengths)
def local_lengths(table: Table, memory: Memory, ask: SumLengths) -> Lengths:
    reply = Lengths(np.zeros(()), np.zeros(ask.d), np.asarray(within_columns(table).sum()))
    for block in table.blocks():
        rows = block.rows.astype(np.float64, copy=False)
        each = block.counts
        reply += Lengths(each.sum(), each @ rows, np.asarray(each @ np.vecdot(rows, rows)))
    return reply


def find_gamma(n_columns: int, *, needed: bool = True) -> Protocol[tuple[float, float]]:
    """gamma from the mean squared distance between rows, and N: one round, d + 2 numbers a site.

    Where gamma is not ``needed`` only N counts, and 1 is returned for it.
    """
    lengths = yield from total(SumLengths(n_columns))
    check_rows(float(lengths.rows))
    gamma = average_distance_gamma(float(lengths.rows), lengths.sums, float(lengths.squares)) if needed else 1.0
    return gamma, float(lengths.rows)
