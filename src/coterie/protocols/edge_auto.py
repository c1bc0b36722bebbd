"""k-means with few numbers where no row may leave: what ``pipeline="auto"`` does.

Every site's own centers where sites let averages be seen, cells by sums where they do not; then steps of Lloyd by
sums while they still lower the cost, as far as a budget goes. With a budget below one center a cluster and site, the
same on rows projected at random.
"""

from __future__ import annotations

import numpy as np

from coterie.errors import InputError, RunError
from coterie.maths import clustering
from coterie.messages.schema import Floats
from coterie.messages.verbs import Protocol, present, total
from coterie.protocols.edge_kmeans import SAMPLE, EdgeFit, EdgeSettings, edge_kmeans
from coterie.protocols.edge_stages import JL, Centers, Pipeline
from coterie.protocols.lloyd import Assign, KMeansFit, lloyd
from coterie.protocols.preparation import spread
from coterie.protocols.prepared import Spread
from coterie.protocols.seeding import cells_start, one_shot, var_part

__all__ = ["auto_kmeans"]

WORTHWHILE = 2e-3
"""Steps go on while one lowers the cost by more than this share of it."""
MOST_STEPS = 20


def auto_kmeans(
    n_clusters: int,
    n_columns: int,
    *,
    seed: int,
    refine: int = 0,
    budget: int | None = None,
    min_count: int = 1,
    known: Spread | None = None,
) -> Protocol[KMeansFit | EdgeFit]:
    """Centers by what the sites' policies and the budget allow. Rows are never asked for.

    ``refine`` is how many steps follow at most; 0 leaves it to the gain.
    """
    k, d, n_sites = n_clusters, n_columns, len((yield from present()))
    if budget is not None and budget < n_sites * (k * (d + 1) + k + 1):
        few = EdgeSettings(Pipeline((JL(),), points=Centers()), refine, budget=budget, min_count=min_count)
        return (yield from edge_kmeans(few, k, d, seed=seed))
    try:
        start = yield from one_shot(k, d, seed=seed, min_count=min_count, sample=SAMPLE, complete=True)
        spent = k * (d + 1)
    except (RunError, InputError):
        start, spent = yield from _by_sums(k, d, seed, None if budget is None else budget // n_sites, known)
    steps = refine or MOST_STEPS
    if budget is not None:
        steps = min(steps, (budget // n_sites - spent - k - 1) // (k * (d + 1) + 1))
    centers, taken = yield from _steps(start, max(0, steps))
    fit = yield from lloyd(centers, max_rounds=0)
    return KMeansFit(fit.centers, fit.cost, fit.counts, taken)


def _steps(centers: Floats, most: int) -> Protocol[tuple[Floats, int]]:
    """Steps of Lloyd while they pay: a step to the means lowers the cost by the squares of the centers' moves, times
    their rows, before any row changes its cell."""
    for taken in range(most):
        m = yield from total(Assign(centers))
        moved = clustering.means(m.sums, m.counts, fallback=centers)
        gain = float(m.counts @ ((moved - centers) ** 2).sum(axis=1))
        centers = moved
        if gain <= WORTHWHILE * float(m.cost):
            return centers, taken + 1
    return centers, most


def _by_sums(k: int, d: int, seed: int, budget: int | None, known: Spread | None) -> Protocol[tuple[Floats, int]]:
    """A start no single answer is seen for, and the numbers a site sent for it: cells, or as many as clusters where
    the budget is too small for four times as many."""
    first = 0 if known is not None else 2 * (3 * d + 1)
    costs = {factor: first + _cell_numbers(factor * k, d) for factor in (4, 1)}
    room = np.inf if budget is None else budget - (k + 1)
    factor = next((f for f, cost in costs.items() if cost <= room), None)
    if factor is None:
        raise InputError(
            f"the budget leaves {budget} numbers a site; averages may not be seen, and a start by sums takes "
            f"{costs[1] + k + 1}."
        )
    found = known or (yield from spread(d))
    if factor == 4:
        return (yield from cells_start(k, d, seed=seed, origin=found.mean)), costs[4]
    return (yield from var_part(k, d, origin=found.mean)), costs[1]


def _cell_numbers(n_cells: int, d: int) -> int:
    """What a site sends at most while cells are split: 1, 2, 4, ... of them, 2d + 1 numbers each."""
    cells, spent = 1, 1
    while cells < n_cells:
        cells = min(2 * cells, n_cells)
        spent += cells
    return spent * (2 * d + 1)
