"""Features of rows as whole numbers, which private questions are about.

Rows and landmarks are whole numbers, so their distances are exact; a kernel value is a function of one distance,
rounded to a whole number; and features are sums of products of whole numbers, which are exact, too.
"""

from __future__ import annotations

import numpy as np

from coterie.arrays import Floats
from coterie.errors import MalformedMessage
from coterie.maths import exact
from coterie.messages.contributions import EXACT
from coterie.messages.schema import Nothing, Request, array
from coterie.messages.site_api import Memory, Table, remembers
from coterie.methods.kernel.landmarks.sites import MOST_LANDMARKS
from coterie.methods.shared.whole_rows import ShownRows, on_grid, show, whole

KERNEL_UNIT = 1 << 24
"""Whole numbers that stand for a kernel value of 1."""
SMALLEST = 1e-200
"""Projections are taken for at least so long."""
POWERS = {"rbf": 2, "laplacian": 1}
"""Kernels whose values are at most 1, and the power of a distance that they are a function of."""


class ShowFeatures(Request[Nothing], remembered=True, doing="embedding rows as whole numbers"):
    """From now on private questions see a row as ``k(row, landmarks) projection - shift``, in units of ``fine``,
    rounded; before that, rows and landmarks less ``origin`` are rounded to units of ``grid``."""

    kernel: str
    gamma: float
    grid: float
    fine: float
    origin: Floats = array("d")
    landmarks: Floats = array("m", "d")
    projection: Floats = array("m", "r")
    shift: Floats = array("r")

    @property
    def tells_nothing(self) -> bool:
        """Every row has features."""
        return True

    @property
    def rate(self) -> float:
        """gamma, for distances in units of the grid."""
        return self.gamma * self.grid ** POWERS.get(self.kernel, 1)


class WholeFeatures(ShownRows):
    """A table's rows as their features."""

    def __init__(self, table: Table, ask: ShowFeatures) -> None:
        (m, d), r = ask.landmarks.shape, len(ask.shift)
        super().__init__(table, ask, r, max(m, d))
        if d != len(table.columns) or not 1 <= m <= MOST_LANDMARKS:
            raise MalformedMessage(f"{m} landmarks of {d} columns for {len(table.columns)}")
        if ask.kernel not in POWERS or not ask.grid > 0 or not ask.fine > 0 or not 0 <= ask.rate < np.inf:
            raise MalformedMessage(f"there are no features of the kernel {ask.kernel} in such steps")
        self._shown, self._landmarks = ask, on_grid(ask.landmarks, ask.origin, ask.grid)
        largest = max(float(np.abs(ask.projection).sum(axis=0).max(initial=0.0)), SMALLEST)
        self._unit = 2.0 ** np.floor(np.log2(EXACT / (4.0 * KERNEL_UNIT * largest)))
        if not self._unit >= 1:
            raise MalformedMessage("the projection is too long for exact products")
        self._projection = np.rint(ask.projection * self._unit)

    def rounded(self, rows: Floats) -> Floats:
        apart = self._apart(on_grid(rows, self._shown.origin, self._shown.grid))
        values = np.rint(exact.exponential(-self._shown.rate * apart) * KERNEL_UNIT)
        features = (values @ self._projection) / (KERNEL_UNIT * self._unit)
        return whole(features - self._shown.shift, self._shown.fine)

    def _apart(self, rows: Floats) -> Floats:
        """Distances from all landmarks, or their squares: whole numbers, exactly."""
        points = self._landmarks
        if POWERS[self._shown.kernel] == 1:
            return np.stack([np.abs(rows - point).sum(axis=1) for point in points], axis=1)
        return np.asarray(np.vecdot(rows, rows)[:, None] + np.vecdot(points, points) - 2 * (rows @ points.T))


@remembers(ShowFeatures)
def keep_features(table: Table, memory: Memory, ask: ShowFeatures) -> None:
    """Put features before private questions."""
    show(memory, WholeFeatures(table, ask))
