"""k-means with few numbers where no row may leave: what ``pipeline="auto"`` does."""

from __future__ import annotations

from math import inf

from coterie.errors import InputError
from coterie.extents import is_over
from coterie.maths import clustering
from coterie.messages.schema import Floats
from coterie.messages.verbs import Protocol, present, total
from coterie.methods.edge.pipelines import EdgeFit, edge_kmeans
from coterie.methods.edge.questions import FEWEST_POINTS, SAMPLE, EdgeSettings, numbers_sent
from coterie.methods.edge.stages import JL, Centers, Pipeline
from coterie.methods.method import RunContext
from coterie.methods.shared.counts import check_rows
from coterie.methods.shared.lloyd import Assign, KMeansFit, lloyd
from coterie.methods.shared.preparation import spread
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.starts import cells_by_round, cells_start, one_shot, var_part

WORTHWHILE = 2e-3
"""Steps go on while one lowers the cost by more than this share of it."""
MOST_STEPS = 20


def auto_kmeans(settings: EdgeSettings, n_clusters: int, context: RunContext) -> Protocol[KMeansFit | EdgeFit]:
    """Centers as good as the budget and the sites' policies allow. Rows are never asked for."""
    k, d, seed, averages = n_clusters, context.n_columns, context.seed, context.averages
    n_sites, budget = len((yield from present())), settings.budget
    room = inf if budget is None else budget // n_sites
    start_numbers, step_numbers, closing_numbers = k * (d + 1), k * (d + 1) + 1, k + 1
    if room < start_numbers + closing_numbers:
        return (yield from _projected(k, d, n_sites, seed, budget or 0, averages))
    spent, start, why = 0, None, "sites do not allow averages"
    if averages:
        spent = start_numbers  # also where they are too few for a start
        try:
            start = yield from one_shot(k, d, seed=seed, sample=SAMPLE)
        except InputError as problem:
            why = str(problem)
    if start is None:
        start, more = yield from _by_sums(k, d, seed, room - spent - closing_numbers, context.spread, why)
        spent += more
    left = (room - spent - closing_numbers) / step_numbers
    centers, taken = yield from _steps(start, int(max(0, min(settings.refine or MOST_STEPS, left))))
    fit = yield from lloyd(centers, max_rounds=0)
    return KMeansFit(fit.centers, fit.cost, fit.counts, taken)


def _projected(k: int, d: int, n_sites: int, seed: int, budget: int, averages: bool) -> Protocol[EdgeFit]:
    """Own centers of projected rows, lifted: what there is when a budget is below one center a cluster and site."""
    enough = n_sites * (k * (d + 1) + k + 1)
    stages = Pipeline((JL(),), points=Centers())
    settings = EdgeSettings(pipeline=stages, budget=budget)
    least = min(enough, numbers_sent(settings, stages, FEWEST_POINTS, k, d, n_sites))
    if budget < least:
        raise InputError(f"budget={budget} is too small for {k} clusters of {d} columns; use at least {least}.")
    if not averages:
        raise InputError(f"budget={budget} needs sites that allow averages; with sums alone use at least {enough}.")
    return (yield from edge_kmeans(settings, k, d, seed=seed))


def _steps(centers: Floats, most: int) -> Protocol[tuple[Floats, int]]:
    """Steps of Lloyd while they pay: a step to the means lowers the cost by the squares of the centers' moves, times
    their rows, before any row changes its cell."""
    for taken in range(most):
        m = yield from total(Assign(centers))
        moved = clustering.means(m.sums, m.counts, fallback=centers)
        gain = float((m.counts * ((moved - centers) ** 2).sum(axis=1)).sum())
        centers = moved
        if is_over(gain <= WORTHWHILE * float(m.cost)):
            return centers, taken + 1
    return centers, most


def _by_sums(k: int, d: int, seed: int, room: float, known: Spread | None, why: str) -> Protocol[tuple[Floats, int]]:
    """A start for which no per-site result is seen, and how many numbers a site sends for it at most: four cells a
    cluster, or one where there is no room for so many."""
    first = 0 if known is not None else 2 * (3 * d + 1)
    most = {factor: sum(cells_by_round(factor * k)) * (2 * d + 1) for factor in (4, 1)}
    factor = 4 if first + most[4] <= room else 1
    if first + most[factor] > room:
        raise InputError(
            f"the budget leaves {room:g} numbers a site for a start by sums, which needs {first + most[1]} ({why})."
        )
    columns = known or (yield from spread(d))
    check_rows(columns.rows, k)
    if factor == 4:
        start = yield from cells_start(k, d, seed=seed, about=columns, most_numbers=most[4])
    else:
        start = yield from var_part(k, d, about=columns, most_numbers=most[1])
    return start, first + most[factor]
