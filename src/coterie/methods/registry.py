"""The one list of methods: for the command line, for policies, for audits and for studies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from coterie.messages.schema import ArraySpec, Content, Request, message_fields, reply_type
from coterie.methods.edge.sites import (
    SendCenters,
    SendScatter,
    SendSubspace,
    SendSummary,
    SumByCell,
    SumReducedCost,
)
from coterie.methods.kernel.baselines import MapFeatures
from coterie.methods.kernel.ce_pca import (
    DrawRows,
    EmbedRows,
    ProjectRows,
    ScoreByLeverage,
    ScoreByResidual,
    SketchFeatures,
)
from coterie.methods.kernel.dspgd.dense import Expand, KeepRows, Project
from coterie.methods.kernel.dspgd.sites import (
    Advance,
    BeginKernel,
    Multiply,
    ReportFeatureLength,
    SendGram,
    SumFeatures,
)
from coterie.methods.kernel.gamma import SumLengths
from coterie.methods.kernel.landmarks.sites import (
    MeanByCell,
    SendFeatureGram,
    SendLandmarks,
    TryLandmarks,
    UseLandmarks,
)
from coterie.methods.kernel.landmarks.summed import (
    CountCells,
    ShareCells,
    SumProjected,
    SumSquaredDistances,
    UseProjection,
)
from coterie.methods.kmeans.federated import Train
from coterie.methods.shared.agreement import Agree
from coterie.methods.shared.alignment import Attend, SendTags
from coterie.methods.shared.coresets import SampleCoreset, SumCost
from coterie.methods.shared.counts import CountRows, PoolRows
from coterie.methods.shared.limits import ReportMagnitude
from coterie.methods.shared.lloyd import Assign, Close
from coterie.methods.shared.preparation import SumColumns
from coterie.methods.shared.prepared import Prepare
from coterie.methods.shared.starts import Split, Summarise
from coterie.methods.vertical.dpca import CountColumns, SendComponents, SolveCopy
from coterie.methods.vertical.sites import (
    Decompose,
    FindRank,
    MeasureSpread,
    ReportProducts,
    SumDistances,
    SumProducts,
    Treat,
)

Requests: TypeAlias = tuple[type[Request[Any]], ...]


class PerSite(StrEnum):
    """Whether the server sees per-site results, or when."""

    NEVER = "no"
    ONE_SHOT = "only with a one-shot start"
    ONE_SHOT_DEFAULT = "only with a one-shot start (the default where every site allows averages)"
    LANDMARKS = "only where every site allows averages (landmarks='summed' never)"
    STAGES = "where every site allows averages; only pipelines of one's own ask for rows"
    LOCAL_AXES = "only with local axes (where every site allows averages)"
    AVERAGES = "yes: every site must allow averages"
    ROWS = "yes: every site must allow rows"

    @property
    def is_always(self) -> bool:
        return self in (PerSite.AVERAGES, PerSite.ROWS)

    @property
    def is_by_start(self) -> bool:
        """Whether it depends on how the method starts."""
        return self in (PerSite.ONE_SHOT, PerSite.ONE_SHOT_DEFAULT)


@dataclass(frozen=True)
class Method:
    """A method by name: what it may ask, what it costs, what it lets the server see."""

    name: str
    title: str
    requests: Requests
    cost: str
    """Numbers up a site, in words and letters."""
    discloses: str
    per_site_results: PerSite = PerSite.NEVER
    needs_rows: bool = False
    """Whether it cannot work with groups of rows, so that sites must exempt it from that protection."""

    @property
    def sends_rows(self) -> bool:
        """Whether it cannot do without rows, projected or not."""
        return self.per_site_results is PerSite.ROWS


def belongs(request: type[Request[Any]], method: str) -> bool:
    """Whether ``method`` may ask this at all; a server cannot dress one method's question as another's."""
    known = METHODS.get(method)
    return known is not None and (request in known.requests or request in PREPARATION)


@dataclass(frozen=True)
class Audited:
    """One array a site can be made to send by a method, read off the types."""

    asked: str
    answer: str
    array: str
    axes: tuple[str | int, ...]
    dtype: str
    bound: str
    content: Content
    holds_rows: bool


def audit(method: str) -> tuple[Audited, ...]:
    """Everything a site can be made to send by a method."""
    if method not in METHODS:
        raise ValueError(f"there is no method called {method!r}; there are {', '.join(sorted(METHODS))}")
    found = []
    for request in (*PREPARATION, *METHODS[method].requests):
        reply = reply_type(request)
        for name, spec, _ in message_fields(reply):
            assert isinstance(spec, ArraySpec)
            bound, rows = "any" if spec.bound is None else spec.bound.text, "rows" in spec.axes
            found.append(
                Audited(request.kind, reply.__name__, name, spec.axes, spec.dtype, bound, reply.content, rows)
            )
    return tuple(found)


# ---------------------------------------------------------------- the list

PREPARATION: Requests = (Agree, ReportMagnitude, SumColumns, Prepare)
"""The questions any method may be preceded by."""
CLUSTERING: Requests = (Assign, Close, Split, Summarise, SumCost, SampleCoreset)
"""The questions by which embedded rows are clustered."""
_CELLS = (UseProjection, SumProjected, SumSquaredDistances, CountCells, ShareCells)
_LANDMARK_FEATURES = (UseLandmarks, TryLandmarks, MeanByCell, SendFeatureGram)
_PRODUCTS = (Project, Expand, KeepRows)
_SUMMARIES = (SendSubspace, SumReducedCost, SendSummary)
_SKETCHES = (SketchFeatures, ScoreByLeverage, DrawRows, ScoreByResidual, ProjectRows, EmbedRows)
_PROJECTED = "single rows, projected, with weights"
_STEPS = "k(d+1)+1 a step of Lloyd, k+1 to close"

_METHODS = (
    Method(
        "lloyd",
        "Lloyd's k-means over all rows, by sums",
        (Assign, Close, Split, Summarise),
        "k(d+1)+1 a round and k+1 to close; start by sums: cells(2d+1) a round; one-shot start: k(d+1)",
        "per cluster the sum and number of rows, over all sites; with a one-shot start each site's own centers",
        PerSite.ONE_SHOT,
    ),
    Method(
        "federated-kmeans",
        "Federated k-means: sampled sites, local epochs, rates (Triebe & Rajagopal 2019)",
        (Train, Close, Split, Summarise),
        "k(d+1) a round from each sampled site and k+1 to close; start by sums: cells(2d+1) a round; "
        "one-shot start: k(d+1)",
        "per cluster the sum and number of rows, over the sampled sites; with a one-shot start each site's centers",
        PerSite.ONE_SHOT_DEFAULT,
    ),
    Method(
        "landmarks",
        "Landmark kernel k-means and kernel PCA: a few coarse averages stand for the kernel of all rows",
        (SendLandmarks, *_CELLS, SumLengths, *_LANDMARK_FEATURES, *CLUSTERING),
        "local: q d of a few bits, then k(r+2) of 16 bits a round; summed: m d of a few bits, m(p+1) a round before, "
        "k(r+1)+1 a round after; an embedding: (r+1)(r+2)/2; r features, at most m",
        "local: each site's own coarse centers, means of features by cluster; summed: sums over all sites alone",
        PerSite.LANDMARKS,
    ),
    Method(
        "dspgd",
        "Federated kernel k-means and kernel PCA: random features, proximal gradient steps, Lanczos or Gram exchange",
        (SumLengths, BeginKernel, ReportFeatureLength, SumFeatures, Multiply, SendGram, Advance, *CLUSTERING),
        "d+2 for gamma; an iteration: n(n+1)/2 (Gram) or Q n (Lanczos), n = r_t + D; then Lloyd by sums, k(s+1)+1 a "
        "round",
        "sums of products of random features over all sites: enough of them give what sites show, groups by default; "
        "then per cluster the sum and number of embedded rows",
        PerSite.ONE_SHOT_DEFAULT,
    ),
    Method(
        "dspgd-dense",
        "Federated kernel k-means without its communication-efficient mechanism: what the paper compares it with",
        (SumLengths, BeginKernel, CountRows, ReportFeatureLength, SumFeatures, *_PRODUCTS, *CLUSTERING),
        "d+2 for gamma; a Lanczos step: N_m + D, about thirty of them an iteration; then as dspgd",
        "products of single rows' features with vectors of the server's choice, and every embedded row",
        PerSite.ROWS,
        needs_rows=True,
    ),
    Method(
        "rfk",
        "k-means of random features drawn once, by a coreset of them (Chitta et al. 2012): a baseline",
        (SumLengths, MapFeatures, SumCost, SampleCoreset, Assign, Close, Split),
        "d+2 for gamma, 1, and (C_m + k)(D+1) for a coreset of C points of D features",
        "features of single rows, from which the rows can be found",
        PerSite.ROWS,
    ),
    *(
        Method(
            name,
            f"{title}: a baseline",
            (SumLengths, CountRows, PoolRows),
            "d+2 for gamma, then all rows",
            "every row",
            PerSite.ROWS,
            needs_rows=True,
        )
        for name, title in (
            ("ck", "Exact kernel k-means of pooled rows"),
            ("sk", "Nystroem kernel k-means of pooled rows (Wang et al. 2019)"),
        )
    ),
    Method(
        "ce-pca",
        "Kernel PCA from a few pooled rows, then k-means by a coreset (Balcan et al. 2016): a baseline",
        (SumLengths, *_SKETCHES, SumCost, SampleCoreset, Close),
        "d+2 for gamma, sketches of d_p (d_s + s) numbers, p rows, and (C_m + k)(s+1) for a coreset",
        "some rows, and components of more",
        PerSite.ROWS,
        needs_rows=True,
    ),
    Method(
        "one-shot",
        "k-means from every site's own centers, in one round",
        (Summarise, Close),
        "k(d+1), and k+1 to close",
        "each site's own cluster centers and their sizes",
        PerSite.AVERAGES,
    ),
    Method(
        "nr",
        "k-means of pooled rows, none of them reduced: a baseline",
        (CountRows, PoolRows, SendSummary, Assign, Close),
        "all rows, 2 before and k+1 to close",
        "every row",
        PerSite.ROWS,
        needs_rows=True,
    ),
    *(
        Method(
            name,
            f"k-means from small summaries: {title}",
            (CountRows, SendSummary, SumByCell, Assign, Close),
            f"d+2 for the mean, {numbers} + 1 for C points of t axes; {_STEPS}",
            _PROJECTED,
            PerSite.ROWS,
        )
        for name, title, numbers in (
            ("fss", "PCA, then a sample (Feldman, Schmidt & Sohler)", "(C+k)(t+1) + t d"),
            ("jl+fss", "a random projection, PCA, then a sample (Lu et al. 2020, Algorithm 2)", "(C+k)(t+1) + t d'"),
            ("fss+jl", "PCA, a sample, then a random projection of it (Algorithm 4)", "(C+k)(d'+1)"),
            ("jl+fss+jl", "a random projection before and after PCA and a sample (Algorithm 6)", "(C+k)(d''+1)"),
        )
    ),
    *(
        Method(
            name,
            f"k-means from small summaries: {title}",
            (CountRows, *_SUMMARIES, SumByCell, Assign, Close),
            f"d+2 for the mean, t {d} + 1 for axes, 1, then (C_m+k)(t+1) + 1 for C points; {_STEPS}",
            f"each site's principal axes; {_PROJECTED}",
            PerSite.ROWS,
        )
        for name, title, d in (
            ("bklw", "distributed PCA, then a distributed sample (Balcan et al. 2014)", "d"),
            ("jl+bklw", "a random projection, then distributed PCA and sample (Lu et al. 2020, Algorithm 5)", "d'"),
        )
    ),
    Method(
        "edge-kmeans",
        "k-means with few numbers: each site's own centers, or sums, and a few steps of Lloyd; or one's own stages",
        (Summarise, SendCenters, Split, Assign, Close, SumByCell, CountRows, PoolRows, *_SUMMARIES),
        "k(d+1), k(d+1)+1 a step, k+1 to close; by sums cells(2d+1) a round in place of the first; stages as named",
        "each site's own centers, or sums alone; with stages of one's own what these disclose",
        PerSite.STAGES,
    ),
    Method(
        "federated-pca",
        "Principal components of all rows: from each site's own axes (disPCA), or from products of columns by sums",
        (Assign, SendSubspace, SendScatter),
        "d+2 for the mean, then t d + 1 (local) or d(d+1)/2 + 1 (sums)",
        "local: each site's principal axes; sums: products of all pairs of columns over all sites",
        PerSite.LOCAL_AXES,
    ),
    Method(
        "vertical-kernel-pca",
        "Kernel PCA and kernel k-means of rows whose columns are at several sites, in one shot (He et al. 2020)",
        (Attend, SendTags, Treat, MeasureSpread, FindRank, Decompose, SumDistances, ReportProducts, SumProducts),
        "D(T+1) for T rows; 3 to meet and T tags where rows have keys, 2 for gamma, 2 for the ranks of a tolerance; "
        "then T a new row (rbf) or one a component of it (linear)",
        "all distances between a site's rows in its own columns, and with them its rows up to a turn; tags tell "
        "which rows are the same",
        PerSite.ROWS,
        needs_rows=True,
    ),
    Method(
        "dpca",
        "PCA of columns at several sites, by ADMM among neighbours (Schizas & Aduroja 2015): a baseline",
        (CountColumns, SolveCopy, SendComponents),
        "D T a step, 12 steps an iteration; 1 and m_j D at the end",
        "a fit of every row to the site's own columns, anew in every step",
        PerSite.ROWS,
        needs_rows=True,
    ),
)
METHODS: dict[str, Method] = {method.name: method for method in _METHODS}
