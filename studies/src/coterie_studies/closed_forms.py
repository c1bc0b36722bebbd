"""What each method costs, in closed form by its paper's formulas, to be compared with the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from msgspec.json import encode

from coterie.maths.factors import found_for
from coterie.messages.codec import answer_header_bytes, encode_body, question_header_bytes
from coterie.messages.schema import Request
from coterie.methods.analysis.compare import CompareSettings, LabelTwice
from coterie.methods.analysis.describe import FINE
from coterie.methods.edge.pca import View, scatter_request, subspace_request
from coterie.methods.edge.questions import EdgeSettings, summary_rounds
from coterie.methods.edge.stages import Pipeline
from coterie.methods.kernel.baselines import BaselineFit, MapFeatures
from coterie.methods.kernel.ce_pca import (
    CEPCAFit,
    CEPCASettings,
    DrawRows,
    EmbedRows,
    ProjectRows,
    ScoreByLeverage,
    ScoreByResidual,
    sketch_request,
)
from coterie.methods.kernel.clusters import KernelFit, LandmarkFit, SumLengths
from coterie.methods.kernel.dspgd import dense
from coterie.methods.kernel.dspgd import sites as dspgd_sites
from coterie.methods.kernel.dspgd.protocol import Embedding
from coterie.methods.kernel.landmarks.protocol import LandmarkParameters, local_request
from coterie.methods.kernel.landmarks.sites import MeanByCell, TryLandmarks
from coterie.methods.kmeans.federated import FederatedSettings
from coterie.methods.shared.alignment import Alignment, Attend, SendTags
from coterie.methods.shared.choosing import RateCandidates, SumHalves
from coterie.methods.shared.coresets import SampleCoreset, SumCost
from coterie.methods.shared.counts import CountRows, PoolRows
from coterie.methods.shared.lloyd import Assign, Close
from coterie.methods.shared.plain import plain
from coterie.methods.shared.preparation import SumColumns
from coterie.methods.shared.prepared import Preparation
from coterie.methods.shared.profiles import CountByCluster, SumByCluster
from coterie.methods.shared.starts import CELLS_A_CLUSTER, PLACE_MOVES, Summarise, cells_by_round, split_request
from coterie.methods.vertical.dpca import CountColumns, SendComponents, SolveCopy
from coterie.methods.vertical.kernel_pca import VerticalFit, new_row_questions
from coterie.methods.vertical.sites import Decompose, FindRank, MeasureSpread

VERTICAL = "vertical-kernel-pca"


@dataclass(frozen=True)
class Cost:
    """Numbers and bytes over all sites, and rounds."""

    floats_up: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    rounds: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: int) -> Cost:
        return Cost(*(times * count for count in astuple(self)))


def one_round(requests: Sequence[Request[Any]], *, method: str) -> Cost:
    """One round in which every site is asked something of its own."""
    down = sum(question_header_bytes(method) + len(encode_body(ask, {}).data) for ask in requests)
    up = sum(answer_header_bytes(method) + ask.layout.n_bytes for ask in requests)
    return Cost(sum(ask.layout.numbers for ask in requests), up, down, 1)


def to_all(n_sites: int, *requests: Request[Any], method: str) -> Cost:
    """A round for each of these requests, which goes to every site."""
    return sum((one_round([ask] * n_sites, method=method) for ask in requests), Cost())


def one_shot_cost(n_sites: int, k: int, d: int, *, method: str, seed: int = 0) -> Cost:
    """k(d+1) numbers a site in one round."""
    return to_all(n_sites, Summarise(k, d, 2000, seed), method=method)


def var_part_cost(n_sites: int, k: int, d: int, *, method: str) -> Cost:
    """cells(2d+1) numbers a site a round: one cell for the mean, then 1, 2, 4, ... k."""
    asks = [split_request([(0, 0, 0.0)] * (cells - 1), np.zeros(d)) for cells in (1, *cells_by_round(k))]
    return to_all(n_sites, *asks, method=method)


def lloyd_cost(n_sites: int, k: int, d: int, rounds: int, *, method: str = "lloyd") -> Cost:
    """k(d+1)+1 numbers a site in each of the rounds, and k+1 to close."""
    centers = np.zeros((k, d))
    return to_all(n_sites, Assign(centers), method=method) * rounds + to_all(n_sites, Close(centers), method=method)


def choose_k_cost(n_sites: int, ks: Sequence[int], d: int, *, method: str = "choose-k") -> Cost:
    """cells(2d+1) a round up to 4K cells, 4K(d+1) in the first two of these rounds, 16K(d+1) for halves, and
    sum of k^2+k+2 to judge, after 3d+1 twice; K is the largest number of clusters."""
    n_cells, sizes = CELLS_A_CLUSTER * max(ks), np.array(ks)
    columns = SumColumns(False, np.zeros(d))
    splits = [
        split_request([(0, 0, 0.0)] * (cells - 1), np.zeros(d), np.zeros((n_cells if i < PLACE_MOVES else 0, d)))
        for i, cells in enumerate(cells_by_round(n_cells))
    ]
    centers = np.zeros((int(sizes.sum()), d))
    rating = RateCandidates(int((sizes**2).sum()), sizes, centers, centers, centers)
    halves = SumHalves(0, np.zeros(d), np.zeros((2 * n_cells, d)))
    return to_all(n_sites, columns, columns, *splits, halves, rating, method=method)


def standard_cost(n_sites: int, d: int, *, method: str) -> Cost:
    """3d + 1 numbers a site in each of two rounds, and one round of nothing."""
    ask = SumColumns(False, np.zeros(d))
    plain = Preparation("refuse", np.zeros(d), np.zeros(d), np.ones(d)).request()
    return to_all(n_sites, ask, ask, plain, method=method)


def coreset_cost(k: int, d: int, sizes: Sequence[int], *, method: str, seed: int = 0) -> Cost:
    """M + (C + M k)(d + 1) numbers in two rounds; ``sizes`` are the points allotted to each of M sites, C in all."""
    asks = [SampleCoreset(size, k, d, seed, place) for place, size in enumerate(sizes)]
    return to_all(len(sizes), SumCost(k, d, seed), method=method) + one_round(asks, method=method)


def align_cost(n_sites: int, alignment: Alignment, *, method: str, new: bool = False) -> Cost:
    """3 numbers a site, and a tag for every row where rows have keys."""
    tags = () if alignment.tags is None else (SendTags(alignment.n_rows, new),)
    return to_all(n_sites, Attend(new), *tags, method=method)


def edge_cost(
    settings: EdgeSettings,
    pipeline: Pipeline,
    k: int,
    d: int,
    sizes: Sequence[int],
    *,
    n_sites: int,
    rounds: int,
    method: str,
    seed: int = 0,
) -> Cost:
    """Numbers, bytes and rounds of a run with these sizes, in closed form; ``sizes`` are the points of every site.

    Without a reduction of rows that have weights it is more: a weight for every row.
    """
    asks = summary_rounds(settings, pipeline, k, d, sizes, n_sites, seed)
    steps = lloyd_cost(n_sites, k, d, rounds, method=method)
    return sum((one_round(asked, method=method) for asked in asks), steps)


def compare_cost(n_sites: int, settings: CompareSettings) -> Cost:
    """k k' + 2d + 1 numbers."""
    first, second = settings.rules()
    k1, k2, none = len(first.centers), len(second.centers), np.zeros((2, len(settings.columns())))
    ask = LabelTwice(k1, k2, encode(plain(first)), encode(plain(second)), none, none)
    return to_all(n_sites, ask, method="compare")


def describe_cost(n_sites: int, names: tuple[str, ...]) -> Cost:
    """3d + 1 numbers a site, and then 200 d."""
    d, none = len(names), np.zeros(0)
    whole, ends = np.zeros((1, d)), np.zeros((1, d))
    asks = (
        SumByCluster(names, none, none, whole, ends[0]),
        CountByCluster(names, none, none, FINE, np.ones(1), whole, ends, ends),
    )
    return to_all(n_sites, *asks, method="describe")


def federated_pca_cost(n_sites: int, d: int, local_rank: int, *, solver: str, seed: int = 0) -> Cost:
    """d + 2 numbers for the mean, then t1 d + 1 (local) or d (d + 1) / 2 + 1 (sums)."""
    view = View(d, seed, np.zeros(d))
    ask = subspace_request(view, local_rank) if solver == "local" else scatter_request(view)
    return to_all(n_sites, Assign(np.zeros((1, d))), ask, method="federated-pca")


def federated_kmeans_cost(
    n_sites: int, k: int, d: int, rounds: int, settings: FederatedSettings, *, method: str = "federated-kmeans"
) -> Cost:
    """k(d+1) numbers from each of the m sampled sites a round, and k+1 from every site to close."""
    m = n_sites if settings.fraction >= 1 else max(1, int(settings.fraction * n_sites))
    ask = settings.ask(np.zeros((k, d)), 0, 0)
    return to_all(m, ask, method=method) * rounds + lloyd_cost(n_sites, k, d, 0, method=method)


def ce_pca_cost(n_sites: int, fit: CEPCAFit, settings: CEPCASettings, *, seed: int, method: str = "ce-pca") -> Cost:
    """M d_p (d_s + |Y|) + 2 M numbers and the drawn rows, d numbers each; |Y| is how many of those differ."""
    first, second = np.split(fit.embedding.landmarks, [fit.n_by_leverage])
    d, asked = first.shape[1], sketch_request(fit.embedding.kernel, settings, seed)
    spent = to_all(
        n_sites,
        asked,
        ScoreByLeverage(np.zeros((asked.t, asked.t))),
        ScoreByResidual(first),
        ProjectRows(settings.n_sketched, len(first) + len(second), seed, second),
        EmbedRows(fit.embedding.projection),
        method=method,
    )
    for step, sizes in enumerate(fit.drawn, start=1):
        spent += one_round([DrawRows(n, d, step, seed, i) for i, n in enumerate(sizes)], method=method)
    return spent


def ce_pca_kmeans_cost(
    components: CEPCAFit, fit: BaselineFit, settings: CEPCASettings, *, seed: int, method: str = "ce-pca"
) -> Cost:
    embedding = ce_pca_cost(len(fit.sizes), components, settings, seed=seed, method=method)
    k, s = fit.centers.shape
    return embedding + coreset_cost(k, s, fit.sizes, method=method, seed=seed)


def dspgd_gram_cost(n_sites: int, d: int, fit: KernelFit, *, center: bool, method: str = "dspgd") -> Cost:
    """d + 2 numbers a site for gamma; an iteration n(n+1)/2, n = r_t + D, D + 1 to center, and a round to tell."""
    assert isinstance(fit.embedding, Embedding)
    length = dspgd_sites.longest(fit.kernel, center=center)

    asks: list[Request[Any]] = [SumLengths(d), *fit.embedding.transcript]
    for step in fit.embedding.transcript[1:]:
        assert isinstance(step, dspgd_sites.Advance)
        n = len(step.vectors)
        asks.append(dspgd_sites.SendGram(step.step, length, n * (n + 1) // 2, n, step.eta, step.means))
        if center:
            asks.append(dspgd_sites.SumFeatures(step.step, length, len(step.means)))
    return to_all(n_sites, *asks, method=method)


def dspgd_dense_cost(d: int, fit: KernelFit, *, center: bool, method: str = "dspgd-dense") -> Cost:
    """d + 2 numbers a site for gamma and 3 for its rows; an iteration Q (N + M D), and D + 1 a site to center."""
    embedding = fit.embedding
    assert isinstance(embedding, dense.DenseEmbedding)
    length, parts = dspgd_sites.longest(fit.kernel, center=center), list(embedding.rows.values())
    begin, *steps = embedding.transcript

    cost = to_all(len(parts), SumLengths(d), begin, CountRows(), method=method)
    cost += one_round([dense.KeepRows(rows) for rows in parts], method=method)
    for step, q in zip(steps, embedding.n_products, strict=True):
        assert isinstance(step, dspgd_sites.Advance)
        n_features = len(step.means)
        cost += (
            one_round([dense.Project(step.step, n_features, np.zeros(len(rows))) for rows in parts], method=method)
            * q
        )
        cost += (
            one_round([dense.Expand(step.step, len(rows), np.zeros(n_features)) for rows in parts], method=method) * q
        )
        cost += to_all(len(parts), dspgd_sites.SumFeatures(step.step, length, n_features), method=method) * center
    return cost


def local_landmarks_cost(
    n_sites: int, fit: LandmarkFit, settings: LandmarkParameters, *, seed: int, method: str = "landmarks"
) -> Cost:
    """q d codes, 2 numbers a column (or in all), q counts and 1 more; 1 a start; k (r + 1) a round; k + 1 last."""
    assert fit.clusters is not None
    centers, d = fit.clusters.centers, fit.embedding.landmarks.shape[1]
    first = local_request(settings, settings.number(len(centers)), d, n_sites, seed)
    starts = np.zeros((fit.n_starts, *centers.shape))
    second = TryLandmarks(*TryLandmarks.stated(fit.embedding, "float32"), starts)
    steps = [MeanByCell("float16", centers)] * fit.clusters.n_rounds
    return to_all(n_sites, first, second, *steps, Close(centers), method=method)


def rfk_cost(n_sites: int, fit: BaselineFit, *, method: str = "rfk") -> Cost:
    """Nothing for the features; then a coreset of rows of D numbers."""
    features = fit.embedding
    assert isinstance(features, MapFeatures)
    first = to_all(n_sites, features, method=method)
    return first + coreset_cost(len(fit.centers), features.n_features, fit.sizes, method=method, seed=features.seed)


def pooled_cost(d: int, sizes: Sequence[int], *, method: str, weighted: bool = False) -> Cost:
    """3 M + N d numbers in two rounds (N (d + 1) where rows have weights): the data's own size."""
    asks = [PoolRows(size, d, size if weighted else 0) for size in sizes]
    return to_all(len(sizes), CountRows(), method=method) + one_round(asks, method=method)


def vertical_kernel_pca_cost(fit: VerticalFit, *, method: str = VERTICAL) -> Cost:
    """J D (T + 1) numbers for the eigenpairs (each site's own D); 3 a site and T for its tags to align; 2 a site for
    gamma or the trace, and 2 for ranks, where these are asked for."""
    s, n, n_sites = fit.settings, fit.alignment.n_rows, len(fit.ranks)
    cost = align_cost(n_sites, fit.alignment, method=method)
    asks: list[Request[Any]] = [s.treatment] if s.treatment is not None else []
    if s.needs_spread:
        asks.append(MeasureSpread())
    if s.tolerance is not None:
        share, most = s.tolerance * fit.trace / n_sites, min(s.local_rank or n, n)
        asks.append(FindRank(s.kernel, fit.gamma, fit.seed, n, most, share))
    last = [
        Decompose(
            s.kernel, fit.gamma, fit.seed, n, rank, rank if s.tolerance is None else found_for(n, rank), s.precision
        )
        for rank in fit.ranks.values()
    ]
    return cost + to_all(n_sites, *asks, method=method) + one_round(last, method=method)


def project_cost(fit: VerticalFit, new: Alignment, *, method: str = VERTICAL) -> Cost:
    """J T numbers a new row (rbf) or J numbers a component of it (linear), by plain sums; aligned anew."""
    n_sites = len(fit.ranks)
    cost = align_cost(n_sites, fit.alignment, method=method) + align_cost(n_sites, new, method=method, new=True)
    treatment = [fit.settings.treatment] if fit.settings.treatment is not None else []
    return cost + to_all(n_sites, *treatment, *new_row_questions(fit, new.n_rows), method=method)


def dpca_cost(
    columns: Sequence[int], *, n_rows: int, n_components: int, n_iter: int, inner: int = 12, method: str = "dpca"
) -> Cost:
    """1 number, T D in every inner step and m_j D from each site; ``columns`` are the sites' numbers of columns."""
    none = np.zeros((n_rows, n_components))
    first = to_all(len(columns), CountColumns(), method=method)
    step = to_all(len(columns), SolveCopy(1.0, none, none), method=method)
    last = one_round([SendComponents(count, none) for count in columns], method=method)
    return first + step * (n_iter * inner) + last
