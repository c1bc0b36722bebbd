"""The moments of cells of rows, gathered block by block under the eyes of a site's guard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.maths import clustering
from coterie.messages.schema import Floats
from coterie.messages.site_part import Block, CellMoments, Guard, Rows, Table

__all__ = ["GuardedCells", "block_cells", "guarded_cells", "local_cells", "may_tell_of_all", "seen_cells"]


class GuardedCells:
    """Cells around points: how many rows each holds, their sums and squares about its point."""

    def __init__(self, guard: Guard, points: Floats, seen_as: bytes = b"") -> None:
        self._watched, self._points, self._k = guard.cells(len(points), seen_as), points, len(points)
        self._counts, self._sums, self._squares = np.zeros(self._k), np.zeros(points.shape), np.zeros(self._k)

    def see(self, block: Block, labels: npt.NDArray[Any]) -> None:
        """The next rows, and the cell each is in."""
        self._watched.see(block, labels)
        away = block.rows - self._points[labels]
        self._counts += clustering.counts_by_cell(labels, block.counts, self._k)
        self._sums += clustering.sums_by_cell(away, labels, block.counts, self._k)
        self._squares += clustering.counts_by_cell(labels, np.vecdot(away, away) * block.counts, self._k)

    @property
    def moments(self) -> CellMoments:
        """What the cells really hold."""
        return CellMoments.about(self._points, self._counts, self._sums, self._squares)

    def released(self) -> CellMoments:
        """What of it may leave."""
        return self._watched.release(self.moments)


def guarded_cells(table: Table, guard: Guard, points: Floats) -> GuardedCells:
    """The cells of a table's rows nearest to each point."""
    cells = GuardedCells(guard, points)
    for block in table.blocks():
        cells.see(block, clustering.nearest(block.rows, points)[0])
    return cells


def local_cells(table: Table, guard: Guard | None, points: Floats, seen_as: bytes = b"") -> CellMoments:
    """The moments of the rows nearest to each point, as far as a guard, where there is one, lets them go."""
    return _cells(table.blocks(), guard, points, seen_as)


def block_cells(block: Block, guard: Guard | None, points: Floats) -> CellMoments:
    """The same of some rows, by their places."""
    return _cells([block], guard, points)


def _cells(blocks: Iterable[Block], guard: Guard | None, points: Floats, seen_as: bytes = b"") -> CellMoments:
    k = len(points)
    if guard is not None:
        cells = GuardedCells(guard, points, seen_as)
        for block in blocks:
            cells.see(block, clustering.nearest(block.rows, points)[0])
        return cells.released()
    counts, sums, squares = np.zeros(k), np.zeros(points.shape), np.zeros(k)
    for block in blocks:
        labels, squared = clustering.nearest(block.rows, points)
        counts += clustering.counts_by_cell(labels, block.counts, k)
        sums += clustering.sums_by_cell(block.rows, labels, block.counts, k)
        squares += clustering.counts_by_cell(labels, squared * block.counts, k)
    return CellMoments.about(points, counts, sums - counts[:, None] * points, squares)


def seen_cells(pieces: Iterable[tuple[Block, Rows]], guard: Guard | None, points: Floats, width: int) -> CellMoments:
    """The moments of ``width`` columns over cells that are found as rows are seen in another way: each piece is the
    rows that are summed up, and the same rows as points see them."""
    k = len(points)
    watched = None if guard is None else guard.cells(k)
    counts, sums, squares = np.zeros(k), np.zeros((k, width)), np.zeros(k)
    for block, seen in pieces:
        labels = clustering.nearest(seen, points)[0]
        counts += clustering.counts_by_cell(labels, block.counts, k)
        sums += clustering.sums_by_cell(block.rows, labels, block.counts, k)
        lengths = np.vecdot(block.rows, block.rows).astype(np.float64)
        squares += clustering.counts_by_cell(labels, lengths * block.counts, k)
        if watched is not None:
            watched.see(block, labels)
    found = CellMoments.about(np.zeros(width), counts, sums, squares)
    return found if watched is None else watched.release(found)


def may_tell_of_all(table: Table, guard: Guard | None, beside: bytes | None = None) -> bool:
    """Whether a sum over all rows of a table may leave; ``beside`` names what else it tells, which may be news where
    other sums over all rows are none."""
    if guard is None:
        return True
    watched = guard.cells(1)
    for block in table.blocks():
        watched.see(block, np.zeros(len(block.rows), np.intp))
    return watched.release_whole(beside)
