"""k-means from small summaries (Lu et al. 2020): each site sends a summary of its rows, the server solves k-means.

Algorithms 2 and 4 to 6 as pipelines of the stages of :mod:`coterie.methods.edge.stages`; Algorithms 1 and 3 are the
same with ``lift="means"``: clusters found in the reduced space, centers as means of whole rows (1, by sums over the
sites) or of whole points of the coreset (3). Rows leave, projected or not, in every pipeline but ``centers``.
The mean is subtracted first, and ``refine`` steps of Lloyd follow: the paper has neither (docs/errata.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from coterie.errors import InputError
from coterie.extents import shared_out
from coterie.maths import clustering
from coterie.maths.coresets import Summary, allotted, solvable_weights
from coterie.maths.projections import Basis, LinearMap, Projection, lifted, mapped
from coterie.messages.schema import Floats
from coterie.messages.site_api import Rows
from coterie.messages.verbs import Protocol, each, present, total
from coterie.methods.edge.pca import View, dis_pca, mean_of_all
from coterie.methods.edge.questions import SAMPLE, EdgeSettings, fitted_to_budget, summary_asks
from coterie.methods.edge.sites import SendCenters, SumByCell, SummaryPart, SumReducedCost
from coterie.methods.edge.stages import AFTER, JL, Centers, DisPCA, DisSS, Pipeline, Sample, accurate, sized
from coterie.methods.shared.counts import CountRows, PoolRows, check_rows
from coterie.methods.shared.lloyd import KMeansFit, lloyd


@dataclass(frozen=True)
class EdgeFit(KMeansFit):
    """Centers, and how they were found."""

    pipeline: Pipeline
    """With its sizes."""
    summary: Summary
    """What the server saw of all rows, in the reduced space."""
    reduced: Floats
    """X': centers in the space clusters were found in."""
    sizes: tuple[int, ...]
    """Points each site was asked for."""
    shift: Floats | None = None
    maps: tuple[LinearMap, ...] = ()
    """How a row comes into the reduced space: less the shift, through the maps."""

    def reduce(self, rows: Rows) -> Rows:
        """Rows in the space of the summary and of its centers."""
        return mapped(rows, self.shift, self.maps)

    def estimate(self, centers: Floats) -> float:
        """The cost of any centers over all rows, as far as the summary knows it: what a random projection does to
        distances is not undone. Centers outside the subspace of distributed PCA cost their distance from it."""
        if isinstance(self.pipeline.points, Centers):
            raise InputError(
                "no cost can be estimated: the sites sent centers, which do not say how far rows are from them."
            )
        if any(isinstance(linear_map, Basis) for linear_map in self.maps[:-1]):
            raise InputError(
                "no cost can be estimated: a projection follows distributed PCA, so what that left out is unknown."
            )
        summary, maps = self.summary, self.maps
        if maps and isinstance(maps[-1], Basis):
            summary, maps = replace(summary, coordinates=maps[-1].lift(summary.points), basis=None), maps[:-1]
        return summary.cost(np.asarray(mapped(centers, self.shift, maps), np.float64))


def edge_kmeans(settings: EdgeSettings, n_clusters: int, n_columns: int, *, seed: int) -> Protocol[EdgeFit]:
    """Centers of all sites' rows from one summary of each."""
    k, d, asked = n_clusters, n_columns, settings.checked_pipeline()
    names = yield from present()
    held: dict[str, int] = {}
    pipeline = sized(asked, k, d)
    if settings.budget is not None:
        pipeline = fitted_to_budget(settings, asked, k, d, len(names))
    if settings.accuracy is not None:
        counts = yield from each(CountRows())
        held = {name: round(float(reply.shown)) for name, reply in counts.items()}
        n_rows = sum(float(reply.held) for reply in counts.values())
        pipeline = accurate(asked, k, d, n_rows, len(names), settings.accuracy)
    view = View(d, seed, (yield from mean_of_all(d))[1] if settings.subtracts_mean(pipeline) else None)
    for stage in pipeline.common:
        view = yield from _seen_through(view, stage)
    on_server = settings.projects_at_server(pipeline)
    summary, sizes = yield from _summary(view, pipeline, k, on_server, held)
    check_rows(summary.n_rows, k)
    after = _after(pipeline, view)
    if on_server and after is not None:
        reduced, whole = _by_points(summary, after, k, seed)
    else:
        reduced = summary.centers(k, seed=seed)
        whole = reduced if after is None else after.lift(reduced)
    centers = yield from _lifted(whole, view, settings)
    fit = yield from lloyd(centers, max_rounds=settings.refine, tol=0.0)
    maps = view.maps if after is None or on_server else (*view.maps, after)
    return EdgeFit(
        fit.centers, fit.cost, fit.counts, fit.n_rounds, pipeline, summary, reduced, sizes, view.shift, maps
    )


def _seen_through(view: View, stage: JL | DisPCA) -> Protocol[View]:
    """One more map that all sites share."""
    if isinstance(stage, JL):
        return view.projected(stage.n_columns or view.width, stage.form)
    t2, t1 = stage.n_components or view.width, stage.local_rank or view.width
    axes, _ = yield from dis_pca(view, t2, t1)
    return view.then(Basis(axes.vectors))


def _after(pipeline: Pipeline, view: View) -> Projection | None:
    """The projection of a sample, if there is one."""
    if pipeline.after is None:
        return None
    return Projection(pipeline.after.form, view.width, pipeline.after.n_columns or view.width, view.seed + AFTER)


def _lifted(centers: Floats, view: View, settings: EdgeSettings) -> Protocol[Floats]:
    """Centers of rows as seen, as centers of rows: X' Pi^+, or the means of the rows that are nearest to them."""
    back = lifted(centers, view.maps) + (0.0 if view.shift is None else view.shift)
    if settings.lift == "inverse" or not any(isinstance(linear_map, Projection) for linear_map in view.maps):
        return back
    moments = yield from total(SumByCell(*view.fields(), centers, view.d))
    return clustering.means(moments.sums, moments.counts, fallback=back)


def _by_points(summary: Summary, after: Projection, k: int, seed: int) -> tuple[Floats, Floats]:
    """Lines 2 to 7 of Algorithm 3: clusters of projected points, and the means of the points themselves."""
    points, weights = summary.points, solvable_weights(summary.weights)
    projected = np.asarray(after.apply(points), np.float64)
    reduced = clustering.weighted_kmeans(projected, weights, k, seed=seed)
    m = clustering.moments_of(points, *clustering.nearest(projected, reduced), k, weights)
    return reduced, clustering.means(m.sums, m.counts, fallback=after.lift(reduced))


def _summary(
    view: View, pipeline: Pipeline, k: int, on_server: bool, held: Mapping[str, int]
) -> Protocol[tuple[Summary, tuple[int, ...]]]:
    """Every site's summary of its rows as seen, together; ``held`` are the rows of each site where they are known."""
    points = pipeline.points
    if isinstance(points, Centers):
        summary = yield from _own_centers(view, points.n_centers or k, k)
        return summary, ()
    if isinstance(points, DisSS):
        replies = yield from each(SumReducedCost(*view.fields(), k, view.width, view.reach))
        costs = np.array([float(reply.cost) for reply in replies.values()])
        sizes = dict(zip(replies, shared_out(allotted(points.n_points or 0, costs)), strict=True))
        if held and (points.n_points or 0) >= sum(held.values()):
            sizes = {name: held.get(name, size) for name, size in sizes.items()}
    elif isinstance(points, Sample):
        names = yield from present()
        each_site = -(-(points.n_points or 0) // len(names))
        sizes = {name: min(each_site, held.get(name, each_site)) for name in names}
    else:
        counts = yield from each(CountRows())
        sizes = {name: round(float(reply.shown)) for name, reply in counts.items()}
        if not pipeline.stages and not any(float(reply.weighted) for reply in counts.values()):
            pooled = yield from each({name: PoolRows(size, view.d, 0) for name, size in sizes.items()})
            rows = np.concatenate([part.points for part in pooled.values()]).astype(np.float64)
            return Summary(rows, np.ones(len(rows))), tuple(sizes.values())
        k = 0
    reach = _reach(view, pipeline, on_server)
    parts = yield from each(summary_asks(view, pipeline, k, sizes, on_server, reach))
    return Summary.union([_read(part) for part in parts.values()]), tuple(sizes.values())


def _reach(view: View, pipeline: Pipeline, on_server: bool) -> float:
    """How much larger than a row's numbers those of a point that is sent can be."""
    after = None if on_server else _after(pipeline, view)
    turned = float(np.sqrt(view.width)) if pipeline.pca or after else 1.0
    return view.reach * turned * (1.0 if after is None else max(1.0, float(np.linalg.norm(after.dense, 2))))


def _read(part: SummaryPart) -> Summary:
    points = np.concatenate([part.points, part.centers]).astype(np.float64)
    weights = np.concatenate([part.weights, part.left]).astype(np.float64)
    basis = part.basis.astype(np.float64) if len(part.basis) else None
    return Summary(points, weights, float(part.delta), basis)


def _own_centers(view: View, q: int, k: int) -> Protocol[Summary]:
    """Every site's own centers, each a point as heavy as the rows it stands for."""
    parts = yield from each(SendCenters(*view.fields(), q, view.width, SAMPLE, view.reach))
    summary = Summary.union([Summary(part.centers.astype(float), part.counts) for part in parts.values()])
    if len(summary.weights) < k:
        raise InputError(
            f"the sites sent {len(summary.weights)} centers of their own for {k} clusters. A site sends at most one "
            "for two of its rows; use fewer clusters."
        )
    return summary
