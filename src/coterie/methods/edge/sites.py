"""What a site is asked in k-means from small summaries (Lu et al. 2020), and in federated PCA.

The server's part is in :mod:`coterie.methods.edge.pipelines` and :mod:`coterie.methods.edge.pca`.
"""

from __future__ import annotations

import hashlib

import numpy as np

from coterie.errors import InputError, MalformedMessage
from coterie.maths.axes import Axes, add_products, principal_axes
from coterie.maths.projections import Basis, LinearMap, Projection, mapped, product
from coterie.maths.spectra import triangle
from coterie.messages.schema import Fields, Floats, Integers, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers, rows_behind, within_columns, within_scatter
from coterie.methods.edge.stages import AFTER, MOST_MAPS
from coterie.methods.shared.coresets import local_solution, put_sample
from coterie.methods.shared.embedded import StreamedTable, raw_of, seen_moments
from coterie.methods.shared.limits import ReportMagnitude
from coterie.methods.shared.starts import own_centers, sample_of


class Viewed(Fields):
    """How a request wants rows to be seen: less ``shift``, projected by seeds, then times the matrix ``onto``.

    Every request says so itself: a site need not remember anything to answer the next one.
    """

    seed: int
    forms: tuple[str, ...]
    projected: Integers = array("maps", dtype="int32")
    """Columns after each projection."""
    shift: Floats = array("shifted")
    """One number a column, or none."""
    onto: Floats = array("columns", "axes")

    def key(self) -> bytes:
        """The view in a few bytes."""
        parts = (self.projected.astype(np.int64), self.shift, np.array(self.onto.shape), self.onto)
        text = repr((self.seed, self.forms, [len(part) for part in parts])).encode()
        return hashlib.sha256(text + b"".join(part.tobytes() for part in parts)).digest()

    def maps(self, d: int) -> list[LinearMap]:
        """The maps for rows of ``d`` columns."""
        fits = len(self.forms) == len(self.projected) <= MOST_MAPS and len(self.shift) in (0, d)
        if not fits or self.seed < 0:
            raise MalformedMessage(f"a view of {len(self.shift)} columns and {len(self.forms)} maps for rows of {d}")
        maps: list[LinearMap] = []
        try:
            for place, (form, p) in enumerate(zip(self.forms, self.projected, strict=True)):
                maps.append(Projection(form, maps[-1].p if maps else d, int(p), self.seed + place))
        except InputError as problem:
            raise MalformedMessage(str(problem)) from None
        if self.onto.size:
            if len(self.onto) != (maps[-1].p if maps else d):
                raise MalformedMessage(f"a basis of {len(self.onto)} columns for another number")
            maps.append(Basis(self.onto))
        return maps


def _seen(table: Table, memory: Memory, ask: Viewed, d: int) -> _MappedTable:
    """A table's rows, of ``d`` columns as a request wants them seen; kept, because the next one wants the same."""
    raw, key, kept = raw_of(table), ask.key(), memory.get("view")
    if kept is None or kept[0] != key or kept[1].raw is not raw:
        shift = ask.shift if len(ask.shift) else None
        kept = memory["view"] = (key, _MappedTable(raw, shift, ask.maps(len(raw.columns))))
    view: _MappedTable = kept[1]
    if d != len(view.columns):
        raise MalformedMessage(f"{d} columns of rows seen as {len(view.columns)}")
    return view


class _MappedTable(StreamedTable):
    """A table's rows less a shift, through maps."""

    def __init__(self, raw: Table, shift: Floats | None, maps: list[LinearMap]) -> None:
        super().__init__(raw, lambda block: mapped(block.rows, shift, maps), maps[-1].p if maps else len(raw.columns))
        self.shift, self.maps = shift, maps


def _axes(table: Table, count: int, seed: int) -> Axes:
    return principal_axes(
        lambda: ((block.rows, block.counts) for block in table.blocks()), len(table.columns), count, seed=seed
    )


def _within_squares(view: _MappedTable, maps: list[LinearMap]) -> float:
    """The squares, through maps, of the rows behind those the table shows."""
    columns, whole = within_columns(view.raw), within_scatter(view.raw)
    if not maps or not columns.any():
        return float(columns.sum())
    turned = product(maps)
    return float(np.vdot(turned, columns[:, None] * turned if whole is None else whole @ turned))


class Subspace(Reply, content="grams"):
    """A site's leading axes times their singular values, Sigma V', and the squares of all its rows' numbers."""

    rows_of_axes: Floats = array("t", "d", bound="(rows * d)**0.5 * reach * box")
    squares: Floats = array(bound="rows * d * (reach * box)**2", nonnegative=True)


class SendSubspace(Viewed, Request[Subspace], doing="computing each site's principal axes"):
    """Send the first ``t`` rows of Sigma V' of your rows as seen: step 1 of disPCA."""

    t: int = 0
    d: int = 0
    reach: float = 1.0


@answers(SendSubspace)
def local_subspace(table: Table, memory: Memory, ask: SendSubspace) -> Subspace:
    view = _seen(table, memory, ask, ask.d)
    if not 1 <= ask.t <= ask.d:
        raise MalformedMessage(f"{ask.t} axes of {ask.d} columns")
    if not table.n_rows:
        return Subspace.zeros(ask.axes)
    axes = _axes(view, ask.t, ask.seed)
    squares = axes.squares + _within_squares(view, view.maps)
    return Subspace(np.sqrt(axes.values)[:, None] * axes.vectors.T, np.asarray(squares))


class Scatter(Reply, content="grams"):
    """Products of all pairs of a site's columns, as the upper triangle row by row; and of how many rows the products
    within groups are not among them, but their squares alone."""

    packed: Floats = array("entries", bound="rows * (reach * box)**2")
    inexact: Floats = array(bound="rows", nonnegative=True)


class SendScatter(Viewed, Request[Scatter], doing="summing products of columns"):
    """Sum up the products of all pairs of columns over your rows as seen."""

    entries: int = 0
    d: int = 0
    reach: float = 1.0

    @property
    def measure(self) -> ReportMagnitude | None:
        """Rows far from zero would fill a masked sum's digits, so values are measured from the mean."""
        return ReportMagnitude(1, self.shift) if len(self.shift) and not (self.forms or self.onto.size) else None


@answers(SendScatter)
def local_scatter(table: Table, memory: Memory, ask: SendScatter) -> Scatter:
    view = _seen(table, memory, ask, ask.d)
    if ask.entries != ask.d * (ask.d + 1) // 2:
        raise MalformedMessage(f"{ask.entries} products of pairs of {ask.d} columns")
    columns, whole = within_columns(view.raw), within_scatter(view.raw)
    behind = np.diag(columns) if whole is None else whole  # by columns alone where no more is known
    gram = np.array(mapped(mapped(behind, None, view.maps).T, None, view.maps), np.float64)
    for block in view.blocks():
        add_products(gram, block.rows, block.counts)
    is_exact = whole is not None or not columns.any()
    return Scatter(triangle(gram), np.asarray(0.0 if is_exact else float(rows_behind(view.raw))))


class ReducedCost(Reply, content="sums"):
    """The k-means cost of a site's rows as seen at its own solution."""

    cost: Floats = array(bound="16 * rows * d * (reach * box)**2", nonnegative=True)


class SumReducedCost(Viewed, Request[ReducedCost], doing="measuring the sites' k-means costs"):
    """Solve k-means on your own rows as seen: at what cost? Step 1 of disSS."""

    k: int = 0
    d: int = 0
    reach: float = 1.0


@answers(SumReducedCost)
def local_reduced_cost(table: Table, memory: Memory, ask: SumReducedCost) -> ReducedCost:
    """The cost over all rows; zero for a site without rows."""
    view = _seen(table, memory, ask, ask.d)
    solution = local_solution(view, memory, ask.k, ask.d, ask.seed)
    return ReducedCost(np.asarray(solution.cost + _within_squares(view, view.maps)))


def _missed(view: _MappedTable) -> float:
    """What rows as seen leave of the cost: squared distances of rows from the subspace of the view's basis, where the
    last map is one, and those of the rows behind each row."""
    last = view.maps[-1] if view.maps else None
    if not isinstance(last, Basis) or not np.allclose(last.vectors.T @ last.vectors, np.eye(last.p), atol=1e-8):
        return _within_squares(view, view.maps)
    away = _within_squares(view, view.maps[:-1])
    for block, seen in view.pieces():
        rows = mapped(block.rows, view.shift, view.maps[:-1]).astype(np.float64, copy=False)
        left = rows - last.lift(seen.astype(np.float64))
        away += float(block.counts @ np.vecdot(left, left))
    return max(0.0, away)


class SummaryPart(Reply, content="rows"):
    """Sampled rows as seen and a site's own centers, with weights that add up to its rows (unused places have weight
    0), the basis these are coordinates in where it is the site's own, and what bases and the table's view leave of
    the rows: Delta."""

    points: Floats = array("rows", "width", bound="reach * box")
    weights: Floats = array("rows", nonnegative=True)
    centers: Floats = array("k", "width", bound="reach * box")
    left: Floats = array("k")
    basis: Floats = array("own", "d", bound="2")
    delta: Floats = array(nonnegative=True)


class SendSummary(Viewed, Request[SummaryPart], doing="sampling a coreset"):
    """Draw ``rows`` of your rows as seen by their squared distance to your own solution of k-means.

    With ``t`` above 0 only in the subspace of your own first t principal axes; coordinates are sent with the basis
    (``own`` = t), or as points without it (0). ``form`` and ``width`` project what is sent once more.
    """

    rows: int = 0
    k: int = 0
    d: int = 0
    t: int = 0
    own: int = 0
    width: int = 0
    form: str = ""
    place: int = 0
    """Of the site among those asked, so that no two draw by the same chance."""
    reach: float = 1.0


@answers(SendSummary)
def local_summary(table: Table, memory: Memory, ask: SendSummary) -> SummaryPart:
    """A site's share of the summary: a sample and centers, or all rows where they fit."""
    reply, view = SummaryPart.zeros(ask.axes), _seen(table, memory, ask, ask.d)
    if not 0 <= ask.t <= ask.d or ask.own not in (0, ask.t) or not 1 <= ask.width <= ask.d:
        raise MalformedMessage(f"a summary of {ask.t} axes and {ask.width} columns, of rows of {ask.d}")
    if not table.n_rows:
        return reply
    seen, basis = view, None
    reply.delta[...] = _missed(view)
    if ask.t:
        axes = _axes(view, ask.t, ask.seed)
        basis = Basis(axes.vectors)
        seen = _MappedTable(view, None, [basis])
        reply.delta[...] += axes.missed
        reply.basis[:] = basis.vectors.T[: ask.own]

    def sent(points: Floats) -> Floats:
        """Points as they travel: coordinates as they are, as points, or projected."""
        whole = points if ask.own or basis is None else basis.lift(points)
        if ask.own or not ask.form:
            return whole
        return np.asarray(Projection(ask.form, ask.d, ask.width, ask.seed + AFTER).apply(whole))

    put_sample(reply, seen, memory, ask, len(seen.columns), sent)
    return reply


class ReducedCenters(Reply, content="averages"):
    """A site's own k-means centers of its rows as seen, and how many each stands for; unused places have count 0."""

    centers: Floats = array("q", "d", bound="reach * box")
    counts: Floats = array("q", bound="rows", nonnegative=True)


class SendCenters(Viewed, Request[ReducedCenters], doing="clustering each site's own rows"):
    """Cluster your own rows as seen into at most ``q`` centers."""

    q: int = 0
    d: int = 0
    sample: int = 0
    reach: float = 1.0


@answers(SendCenters)
def local_reduced_centers(table: Table, memory: Memory, ask: SendCenters) -> ReducedCenters:
    view = _seen(table, memory, ask, ask.d)
    return ReducedCenters(*own_centers(view, ask.q, ask.d, sample_of(view, ask.sample, ask.seed)))


class WholeMoments(Reply, content="sums"):
    """Per center the sum and number of a site's rows that are, as seen, nearest to it; the sums are of whole rows."""

    sums: Floats = array("k", "d", bound="rows * box[d]")
    counts: Floats = array("k", bound="rows", nonnegative=True)


class SumByCell(Viewed, Request[WholeMoments], doing="summing rows by cluster"):
    """Put every row as seen to its nearest center, and sum up whole rows: lines 4 to 7 of Algorithm 1."""

    centers: Floats = array("k", "p")
    d: int = 0


@answers(SumByCell)
def local_whole_moments(table: Table, memory: Memory, ask: SumByCell) -> WholeMoments:
    view = _seen(table, memory, ask, ask.axes["p"])
    if ask.d != len(view.raw.columns):
        raise MalformedMessage(f"sums of {ask.d} columns of rows of {len(view.raw.columns)}")
    return WholeMoments(*seen_moments(view.pieces(), ask.centers, ask.d))
