"""What sites are asked in k-means from small summaries, round by round: for the run, for its cost, for a budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from coterie.errors import InputError
from coterie.maths.coresets import allotted
from coterie.maths.projections import Basis, Projection
from coterie.messages.schema import Request
from coterie.methods.edge.pca import View
from coterie.methods.edge.sites import SendCenters, SendSubspace, SendSummary, SumByCell, SumReducedCost
from coterie.methods.edge.stages import JL, Centers, DisSS, Pipeline, Stage, check_accuracy, read_pipeline, sized
from coterie.methods.method import COUNT_OR_NONE
from coterie.methods.shared.counts import CountRows, PoolRows
from coterie.methods.shared.lloyd import Assign
from coterie.parameters import Allowed, check_parameters, parameter

SAMPLE = 10_000
"""Rows a site finds its own centers with: nothing follows that would mend rough ones."""
FEWEST_POINTS, MOST_POINTS = 2, 1 << 22
"""Of a summary whose size comes from a budget."""

N = TypeVar("N")


@dataclass(eq=False, repr=False, kw_only=True)
class EdgeSettings:
    """A pipeline, and what follows it."""

    pipeline: str | Sequence[Stage] | Pipeline = parameter(
        "auto",
        "``auto``: every site's own centers where sites allow averages, cells by sums where they do not, then "
        "steps of Lloyd by sums while they lower the cost enough and the budget lasts; no row leaves. Or words "
        "joined by ``+``: ``jl`` (random projection), ``pca`` (a site's own), ``sample``, ``fss`` (these two), "
        "``dispca``, ``disss``, ``bklw`` (these two), ``centers`` (a site's own), each with a size where wanted: "
        "``jl:64+pca:10+sample:500``; ``nr`` sends all rows. Or a list of stages of "
        ":mod:`coterie.methods.edge.stages`.",
        chooses="parameters",
    )
    refine: int = parameter(
        0,
        "Steps of Lloyd over the sites afterwards, by sums. The paper has none, but its lift is biased, and one step "
        "removes most of the bias. With ``auto`` the most steps; 0 stops when a step gains little.",
        Allowed(whole=True, low=0),
    )
    budget: int | None = parameter(
        None,
        "How many numbers all sites may send together. Sizes not given are the largest that fit (``centers`` stays "
        "at ``n_clusters`` a site). Agreement on columns, scaling and the limits for masked sums come on top.",
        COUNT_OR_NONE,
    )
    accuracy: float | None = parameter(
        None,
        "Sizes for which the paper's theorems promise a cost of at most ``1 + accuracy`` times the best.",
        Allowed(above=0, none=True),
    )
    lift: str = parameter(
        "inverse",
        "Undo a random projection by its pseudo-inverse (``inverse``: Algorithms 2, 4, 5, 6), or by the "
        "``means`` of the rows nearest to each center (Algorithm 1, by one more sum) or of the points (Algorithm "
        "3).",
        Allowed("inverse", "means"),
    )
    center: bool = parameter(
        True, "Subtract the mean first, found by a sum, where rows are projected; the paper assumes it."
    )

    @property
    def is_auto(self) -> bool:
        """Whether no pipeline is named."""
        return isinstance(self.pipeline, str) and self.pipeline.strip().lower() == "auto"

    def checked_pipeline(self) -> Pipeline:
        """The stages, none for ``"auto"``; raises what is wrong with the parameters."""
        check_parameters(self)
        if not isinstance(self.center, bool | np.bool_):
            raise InputError(f"center={self.center!r} must be True or False.")
        pipeline = Pipeline(()) if self.is_auto else read_pipeline(self.pipeline)
        if self.accuracy is not None:
            if self.budget is not None:
                raise InputError("budget and accuracy both decide the sizes; give one of them.")
            if self.is_auto:
                raise InputError("accuracy needs a pipeline such as 'jl+fss'; it is not for 'auto'.")
            check_accuracy(pipeline, self.accuracy)
        return pipeline

    def subtracts_mean(self, pipeline: Pipeline) -> bool:
        """Whether the mean is subtracted first: where rows are projected, random or not."""
        return self.center and bool(pipeline.common or pipeline.pca or pipeline.after)

    def projects_at_server(self, pipeline: Pipeline) -> bool:
        """Algorithm 3: points come whole, and are projected only to find clusters."""
        return self.lift == "means" and pipeline.after is not None and not pipeline.common


def summary_asks(
    view: View, pipeline: Pipeline, k: int, sizes: Mapping[N, int], on_server: bool, reach: float
) -> dict[N, SendSummary]:
    """What every site is asked for; a basis of its own is sent where that is less than whole points."""
    d, t = view.width, 0 if pipeline.pca is None else pipeline.pca.n_components or view.width
    after = None if on_server else pipeline.after
    asks = {}
    for place, (name, size) in enumerate(sizes.items()):
        own = t if t and after is None and (size + k) * t + t * d < (size + k) * d else 0
        width = (after.n_columns or d) if after else own or d
        form = after.form if after else ""
        asks[name] = SendSummary(*view.fields(), size, k, d, t, own, width, form, place, reach)
    return asks


def summary_rounds(
    settings: EdgeSettings, pipeline: Pipeline, k: int, d: int, sizes: Sequence[int], n_sites: int, seed: int
) -> Iterator[list[Request[Any]]]:
    """What sites are asked in every round before the steps of Lloyd."""
    if settings.accuracy is not None:
        yield [CountRows()] * n_sites
    if settings.subtracts_mean(pipeline):
        yield [Assign(np.zeros((1, d)))] * n_sites
    view = View(d, seed, np.zeros(d) if settings.subtracts_mean(pipeline) else None)
    for stage in pipeline.common:
        if isinstance(stage, JL):
            view = view.projected(stage.n_columns or view.width, stage.form)
            continue
        t2, t1 = stage.n_components or view.width, stage.local_rank or view.width
        yield [SendSubspace(*view.fields(), t1, view.width, 1.0)] * n_sites
        view = view.then(Basis(np.eye(view.width, t2)))
    points = pipeline.points
    if isinstance(points, Centers):
        yield [SendCenters(*view.fields(), points.n_centers or k, view.width, SAMPLE, 1.0)] * n_sites
    else:
        if isinstance(points, DisSS):
            yield [SumReducedCost(*view.fields(), k, view.width, 1.0)] * n_sites
        elif points is None:
            yield [CountRows()] * n_sites
        if pipeline.stages:
            own = 0 if points is None else k
            at_server = settings.projects_at_server(pipeline)
            yield list(summary_asks(view, pipeline, own, dict(enumerate(sizes)), at_server, 1.0).values())
        else:
            yield [PoolRows(size, view.d, 0) for size in sizes]
    if settings.lift == "means" and any(isinstance(linear_map, Projection) for linear_map in view.maps):
        yield [SumByCell(*view.fields(), np.zeros((k, view.width)), d)] * n_sites


def fitted_to_budget(settings: EdgeSettings, asked: Pipeline, k: int, d: int, n_sites: int) -> Pipeline:
    """The largest sizes, of those not given, with which all sites together send no more numbers than the budget."""
    budget = settings.budget or 0
    if asked.points is None:
        raise InputError(f"budget={budget}: {asked.name} sends every row; add a sample.")
    least = numbers_sent(settings, asked, FEWEST_POINTS, k, d, n_sites)
    if least > budget:
        raise InputError(f"budget={budget} is too small; {asked.name} over {n_sites} sites sends at least {least}.")
    low, high = FEWEST_POINTS, MOST_POINTS
    while low < high:
        middle = (low + high + 1) // 2
        fits = numbers_sent(settings, asked, middle, k, d, n_sites) <= budget
        low, high = (middle, high) if fits else (low, middle - 1)
    return sized(asked, k, d, low, roomy=False)


def numbers_sent(settings: EdgeSettings, asked: Pipeline, n_points: int, k: int, d: int, n_sites: int) -> int:
    """What all sites send with sizes, of those not given, for so many points."""
    pipeline = sized(asked, k, d, n_points, roomy=False)
    s = getattr(pipeline.points, "n_points", 0) or 0
    shares = allotted(s, np.ones(n_sites)) if isinstance(pipeline.points, DisSS) else [-(-s // n_sites)] * n_sites
    rounds = summary_rounds(settings, pipeline, k, d, shares, n_sites, 0)
    steps = settings.refine * (k * (d + 1) + 1) + k + 1
    return sum(ask.layout.numbers for asks in rounds for ask in asks) + n_sites * steps
