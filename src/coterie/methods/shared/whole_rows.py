"""Rows as whole numbers, which private questions are about: rounded once, and kept where that is little.

What one row contributes must not depend on any other row, not even in a last digit: a matrix product in floating
point may round a row in another way where one more row stands beside it. So rows become whole numbers one number at a
time, and what is computed of them are sums of products below 2**53, which are exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import fields

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

    @property
    def unit(self) -> float:
        """Of ``fine`` in products with axes; 0 where it or the grid is none."""
        return AXIS_UNIT * self.fine / self.grid if self.grid > 0 else 0.0


class ShownRows(ABC):
    """A table's rows as whole numbers, so many a row; making them takes up to ``held`` numbers a row at a time."""

    def __init__(self, table: Table, ask: Request[Nothing], width: int, held: int) -> None:
        if max(width, held) * FARTHEST**2 >= EXACT:
            raise MalformedMessage(f"rows of {max(width, held)} columns are too long for exact products")
        self.table, self.width, self._ask = table, width, ask
        self._step = max(1, min(PIECE_ROWS, PIECE_BYTES // (8 * max(width, held))))
        self._kept: list[npt.NDArray[np.int16]] | None = None

    @abstractmethod
    def rounded(self, rows: Floats) -> Floats:
        """Rows as whole numbers; each by itself, whatever it holds."""

    def is_same(self, other: ShownRows) -> bool:
        """Whether these are the same rows, shown so."""
        same = type(self._ask) is type(other._ask) and all(
            np.array_equal(getattr(self._ask, item.name), getattr(other._ask, item.name))
            for item in fields(self._ask)
        )
        return self.table is other.table and same

    def pieces(self) -> Iterator[Floats]:
        """Some rows at a time, in double precision."""
        if self._kept is not None:
            yield from (piece.astype(np.float64) for piece in self._kept)
            return
        kept: list[npt.NDArray[np.int16]] = []
        fits = self.table.n_rows * self.width * 2 <= KEPT_BYTES
        for block in self.table.raw_blocks():
            for start in range(0, len(block.rows), self._step):
                with np.errstate(all="ignore"):  # no warning reveals anything about a row
                    piece = self.rounded(block.rows[start : start + self._step].astype(np.float64))
                np.nan_to_num(piece, copy=False)  # whatever a question makes of a row, it is the same the next time
                if fits:
                    kept.append(piece.astype(np.int16))
                yield piece
        self._kept = kept if fits else None


class WholeRows(ShownRows):
    """Rows as they are prepared, or along some axes."""

    def __init__(self, table: Table, ask: ShowWhole) -> None:
        d = len(ask.origin)
        if len(table.columns) != d or len(ask.center) not in (0, d) or not ask.unit > 0:
            raise MalformedMessage(f"rows of {len(table.columns)} columns cannot be shown as whole numbers so")
        self._origin, self._grid, self._center = ask.origin, ask.grid, whole(ask.center, ask.grid)
        self._unit, self._axes = ask.unit, np.rint(ask.turn * AXIS_UNIT)
        if len(self._axes) and not float(np.abs(self._axes).sum(axis=0).max(initial=0.0)) * 2 * WIDEST < EXACT:
            raise MalformedMessage("axes are too long for exact products")
        super().__init__(table, ask, self._axes.shape[1] if len(self._axes) else d, d)

    def rounded(self, rows: Floats) -> Floats:
        shown = on_grid(rows, self._origin, self._grid)
        return whole((shown - self._center) @ self._axes, self._unit) if len(self._axes) else shown


def on_grid(rows: Floats, origin: Floats, grid: float) -> Floats:
    """Rows less an origin in units of ``grid``, rounded; what is missing is none away."""
    return whole(np.nan_to_num(rows - origin, nan=0.0), grid)


def whole(values: Floats, grid: float) -> Floats:
    """Values in units of ``grid``, rounded, and no larger than the largest."""
    return np.asarray(np.clip(np.rint(values / grid), -WIDEST, WIDEST))


@remembers(ShowWhole)
def keep_whole(table: Table, memory: Memory, ask: ShowWhole) -> None:
    """Put these rows before private questions."""
    show(memory, WholeRows(table, ask))


def show(memory: Memory, view: ShownRows) -> None:
    """Put a view of rows before private questions; two of the same table are kept."""
    views: list[ShownRows] = memory.cached(VIEWS, list)
    known = next((own for own in views if own.is_same(view)), view)
    memory[VIEWS] = [known, *(own for own in views if own is not known)][:KEPT_VIEWS]
    memory[ROWS] = known


def whole_rows(memory: Memory) -> ShownRows:
    """The rows that private questions see."""
    if ROWS not in memory:
        raise MalformedMessage("a private question needs whole rows, and the run did not ask for them")
    rows: ShownRows = memory[ROWS]
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
