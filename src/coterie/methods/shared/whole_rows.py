"""Rows as whole numbers, which private questions are about: rounded once, and kept where that is little.

What one row contributes must not depend on any other row, not even in a last digit: a matrix product in floating
point may round a row in another way where one more row stands beside it. So rows become whole numbers one number at a
time, and what is computed of them are sums of products below 2**53, which are exact.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from coterie.arrays import Floats, Integers
from coterie.errors import MalformedMessage
from coterie.messages.contributions import EXACT, PIECE_ROWS
from coterie.messages.schema import Nothing, Request, array
from coterie.messages.site_api import Memory, Table, remembers

WIDEST = (1 << 15) - 1
"""The largest whole number of a row; what lies farther out is moved there."""
FARTHEST = 1 << 17
"""The largest whole number of a difference from something a question names."""
AXIS_UNIT = 1 << 20
"""Whole numbers that stand for 1 in axes."""
PIECE_BYTES = 8 << 20
KEPT_BYTES = 256 << 20
"""Whole rows are kept where they fit into this."""
KEPT_VIEWS = 2
ROWS, VIEWS = "whole_rows.rows", "whole_rows.views"


class ShowWhole(Request[Nothing], remembered=True, doing="rounding rows to whole numbers"):
    """From now on private questions see a row as ``(row - origin) / grid``, rounded; then, where axes to ``turn``
    onto are given, less ``center`` (counted from the origin), along these axes, in units of ``fine``."""

    grid: float
    fine: float
    origin: Floats = array("d")
    center: Floats = array("turned")
    turn: Floats = array("turned", "s")

    @property
    def tells_nothing(self) -> bool:
        """Every row has a whole number."""
        return True


class WholeRows:
    """A table's rows as whole numbers."""

    def __init__(self, table: Table, ask: ShowWhole) -> None:
        self.table, self._ask, d = table, ask, len(ask.origin)
        if len(table.columns) != d or len(ask.center) not in (0, d) or not (ask.grid > 0 and ask.fine > 0):
            raise MalformedMessage(f"rows of {len(table.columns)} columns cannot be shown as whole numbers so")
        if d * FARTHEST**2 >= EXACT:
            raise MalformedMessage(f"rows of {d} columns are too long for exact products")
        self._center = whole(ask.center, ask.grid)
        self._axes = np.rint(ask.turn * AXIS_UNIT)
        if len(self._axes) and not float(np.abs(self._axes).sum(axis=0).max(initial=0.0)) * 2 * WIDEST < EXACT:
            raise MalformedMessage("axes are too long for exact products")
        self.width = self._axes.shape[1] if len(self._axes) else d
        self._kept: list[npt.NDArray[np.int16]] | None = None

    def shows(self, table: Table, ask: ShowWhole) -> bool:
        """Whether these are the rows of a table, shown so."""
        names = ("origin", "center", "turn")
        same = all(np.array_equal(getattr(self._ask, name), getattr(ask, name)) for name in names)
        return table is self.table and same and (self._ask.grid, self._ask.fine) == (ask.grid, ask.fine)

    def pieces(self) -> Iterator[Floats]:
        """Some rows at a time, in double precision."""
        if self._kept is not None:
            yield from (piece.astype(np.float64) for piece in self._kept)
            return
        kept: list[npt.NDArray[np.int16]] = []
        fits = self.table.n_rows * self.width * 2 <= KEPT_BYTES
        step = max(1, min(PIECE_ROWS, PIECE_BYTES // (8 * max(self.width, len(self._ask.origin)))))
        for block in self.table.raw_blocks():
            for start in range(0, len(block.rows), step):
                piece = self._rounded(block.rows[start : start + step].astype(np.float64))
                if fits:
                    kept.append(piece.astype(np.int16))
                yield piece
        self._kept = kept if fits else None

    def _rounded(self, rows: Floats) -> Floats:
        """Each row by itself, whatever it holds."""
        with np.errstate(all="ignore"):
            shown = whole(np.nan_to_num(rows - self._ask.origin, nan=0.0), self._ask.grid)
            if len(self._axes):
                turned = (shown - self._center) @ self._axes
                shown = whole(turned, AXIS_UNIT * self._ask.fine / self._ask.grid)
        return shown


def whole(values: Floats, grid: float) -> Floats:
    """Values in units of ``grid``, rounded, and no larger than the largest."""
    return np.asarray(np.clip(np.rint(values / grid), -WIDEST, WIDEST))


@remembers(ShowWhole)
def keep_whole(table: Table, memory: Memory, ask: ShowWhole) -> None:
    """Put these rows before private questions; two views of the same table are kept."""
    views: list[WholeRows] = memory.cached(VIEWS, list)
    known = next((view for view in views if view.shows(table, ask)), None) or WholeRows(table, ask)
    memory[VIEWS] = [known, *(view for view in views if view is not known)][:KEPT_VIEWS]
    memory[ROWS] = known


def whole_rows(memory: Memory) -> WholeRows:
    """The rows that private questions see."""
    if ROWS not in memory:
        raise MalformedMessage("a private question needs whole rows, and the run did not ask for them")
    rows: WholeRows = memory[ROWS]
    return rows


def nearest_whole(rows: Floats, centers: Floats) -> Integers:
    """For each row of whole numbers the nearest center of whole numbers, exactly; the first of several."""
    return np.asarray((np.vecdot(centers, centers) - 2 * (rows @ centers.T)).argmin(axis=1))


def shortened(rows: Floats, reach: float) -> Floats:
    """Rows of whole numbers at most ``reach`` long: longer ones are scaled and rounded so that they are."""
    squares = np.vecdot(rows, rows)
    long = np.flatnonzero(squares > reach * reach)
    if not len(long):
        return rows
    result = rows.copy()
    room = max(0.0, reach - np.sqrt(rows.shape[1]) / 2)  # rounding adds at most half of one to each number
    result[long] = np.rint(rows[long] * (room / np.sqrt(squares[long]))[:, None] * (1 - 1e-12))
    return result
