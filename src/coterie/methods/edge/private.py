"""Principal components with differential privacy: moments of all rows, then one noisy sum of their products."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coterie.arrays import Floats
from coterie.maths import exact
from coterie.maths.spectra import Ritz
from coterie.messages.verbs import Protocol, total
from coterie.methods.shared.privacy import Releases
from coterie.methods.shared.private_subspace import Box, private_moments, private_products, quiet_radius
from coterie.methods.shared.whole_rows import WIDEST, ShowWhole

MOMENTS = 0.1
"""Of what a run may give away; the products have the rest."""


class PrivateComponents(NamedTuple):
    """What is subtracted, the leading axes with their squares, all squares, and the number of rows: estimates."""

    mean: Floats
    axes: Ritz
    squares: float
    n_rows: float


def private_components(
    n_components: int, box: Box, releases: Releases, *, center: bool
) -> Protocol[PrivateComponents]:
    """The leading axes of rows less their mean (or as they are), of which none is farther away than most are."""
    grid = box.radius / (WIDEST - 1)
    yield from total(ShowWhole(grid, 1.0, box.middle, np.zeros(0), np.zeros((0, 0))))
    moments = yield from private_moments(box, releases, MOMENTS, grid)
    mean = np.clip(moments.mean + box.middle, box.low, box.high) if center else np.zeros(len(box.low))
    shift = mean - box.middle
    apart = exact.length(moments.mean - shift)
    spread = float(np.hypot(moments.spread, apart))
    radius = quiet_radius(moments, spread, releases, 1 - MOMENTS, box.radius + exact.length(shift))
    products = yield from private_products(shift, radius, releases, 1 - MOMENTS, grid)
    squares, axes = moments.n_rows * spread**2, products.components(n_components)
    axes = axes._replace(values=axes.values * products.lost(squares))
    return PrivateComponents(mean, axes, max(squares, float(axes.values.sum())), moments.n_rows)
