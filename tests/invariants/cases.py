"""One case a registered method: how to run it small, what pooling would give, what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.decomposition import KernelPCA

from coterie.maths.clustering import weighted_kmeans
from coterie.maths.features import draw_features
from coterie.maths.kernels import Kernel
from coterie.messages.verbs import Protocol
from coterie.methods.analysis.choose_k import ChooseKSettings
from coterie.methods.analysis.compare import ClusterRule, CompareSettings
from coterie.methods.analysis.describe import METHOD as DESCRIBE
from coterie.methods.analysis.describe import QUANTILES, DescribeSettings
from coterie.methods.edge.auto import auto_kmeans
from coterie.methods.edge.pca import PCASettings
from coterie.methods.edge.pipelines import edge_kmeans
from coterie.methods.edge.questions import EdgeSettings
from coterie.methods.edge.stages import read_pipeline
from coterie.methods.kernel.baselines import ck, rfk, sk
from coterie.methods.kernel.ce_pca import CEPCASettings, ce_pca_kmeans
from coterie.methods.kernel.clusters import KernelParameters
from coterie.methods.kernel.dspgd.method import embed_by_dspgd
from coterie.methods.kernel.dspgd.protocol import DSPGDSettings
from coterie.methods.kernel.dspgd.sites import embedded
from coterie.methods.kernel.landmarks.protocol import LandmarkParameters, cluster_by_landmarks
from coterie.methods.kmeans.federated import FederatedSettings, Reassignment, federated_kmeans
from coterie.methods.method import Method, RunContext
from coterie.methods.registry import METHODS
from coterie.methods.shared.agreement import Agree, agree
from coterie.methods.shared.alignment import Alignment, row_tags
from coterie.methods.shared.lloyd import lloyd
from coterie.methods.shared.plain import plain
from coterie.methods.shared.preparation import SumColumns, prepare, spread
from coterie.methods.shared.prepared import Preparation, Spread
from coterie.methods.shared.restarts import chosen_start
from coterie.methods.shared.starts import one_shot, split_request, var_part
from coterie.methods.vertical.dpca import dpca
from coterie.methods.vertical.kernel_pca import VerticalSettings, project, vertical_kernel_pca
from coterie.sites.tables import ArrayTable, PairedTable
from coterie_studies.closed_forms import (
    Cost,
    ce_pca_kmeans_cost,
    choose_k_cost,
    compare_cost,
    describe_cost,
    dpca_cost,
    dspgd_dense_cost,
    dspgd_gram_cost,
    edge_cost,
    federated_kmeans_cost,
    federated_pca_cost,
    lloyd_cost,
    local_landmarks_cost,
    one_round,
    one_shot_cost,
    pooled_cost,
    project_cost,
    rfk_cost,
    standard_cost,
    var_part_cost,
    vertical_kernel_pca_cost,
)
from tests.federations import Rows, central_lloyd, split_evenly
from tests.plugins import plain_numbers, pooled, small_settings

K, D = 3, 4
FED = "federated-kmeans"


@dataclass(frozen=True)
class Case:
    """A protocol on small data."""

    name: str
    method: str
    protocol: Callable[[Rows], Protocol[Any]]
    numbers: Callable[[Any], list[Rows]]
    """The result as arrays that can be compared."""
    cost: Callable[[int, Any], Cost] | None
    """Closed form from the number of sites and the result (for rounds that were not known before)."""
    pooled: Callable[[Rows], list[Rows]] | None = None
    """What the pooled rows would give; None where the split of the rows is part of the problem."""
    tolerance: float = 1e-10
    samples_sites: bool = False
    """Whether the roster itself decides who is asked when."""
    split: Callable[[Rows, int], dict[str, Any]] = split_evenly
    """How the rows are shared out; some need columns shared out instead."""
    fewest_sites: int = 1
    discloses_rows: bool = False
    """Whether rows, or features of rows, leave as they are: policies refuse that by default."""


def _prepared_kmeans(rows: Rows) -> Protocol[Any]:
    yield from agree(ArrayTable(rows).columns)
    made = yield from prepare(D, scale="standard")
    start = yield from var_part(K, D, about=Spread(float(len(rows)), np.zeros(D), np.ones(D)))
    return made, (yield from lloyd(start, max_rounds=5, tol=0.0))


def _prepared_pooled(rows: Rows) -> list[Rows]:
    from tests.methods.test_seeding import central_var_part

    scaled = (rows - rows.mean(0)) / rows.std(0)
    centers, cost, _ = central_lloyd(scaled, central_var_part(scaled, K), 5, 0.0)
    return [rows.mean(0), rows.std(0), centers, np.array(cost)]


def _first_split_cost(n_sites: int, method: str) -> Cost:
    """What is saved where the mean is known before cells are split."""
    first = split_request([], np.zeros(D))
    assert (first.layout.numbers, first.layout.n_bytes) == (2 * D + 1, 8 * (2 * D + 1))
    return one_round([first] * n_sites, method=method)


def _prepared_cost(n_sites: int, result: Any) -> Cost:
    names = tuple(f"x{i}" for i in range(D))
    # Agreement: a 2-bit mark a column, a bit, 2 bits, a bit, a byte and two more for what a site allows: 7 bytes.
    ask = Agree(D, names, ("number",) * D)
    assert (ask.layout.numbers, ask.layout.n_bytes) == (D + 5, 7)
    asked = one_round([ask] * n_sites, method="lloyd")
    saved = var_part_cost(n_sites, K, D, method="lloyd") + _first_split_cost(n_sites, "lloyd") * -1
    return asked + standard_cost(n_sites, D, method="lloyd") + saved + lloyd_cost(n_sites, K, D, result[1].n_rounds)


def _one_shot(rows: Rows) -> Protocol[Any]:
    start = yield from one_shot(K, D, seed=3)
    return (yield from lloyd(start, max_rounds=0))


SETTINGS = FederatedSettings(fraction=0.6, epochs=2, batch_size=16, server_momentum=0.5, site_rate=0.5, max_rounds=6)


def _sampled(rows: Rows) -> Protocol[Any]:
    """Every knob of federated k-means turned; which rows a site holds matters, so nothing pooled compares."""
    box = Reassignment(np.full(D, -9.0), np.full(D, 9.0), share=0.2, patience=2)
    return (yield from federated_kmeans(np.eye(K, D) * 3, SETTINGS, seed=5, reassignment=box))


def _best_start(rows: Rows) -> Protocol[Any]:
    found = yield from spread(D)
    start = yield from chosen_start("auto", "auto", K, found, seed=1)
    return (yield from lloyd(start, max_rounds=50, tol=1e-9))


def _best_start_pooled(rows: Rows) -> list[Rows]:
    from sklearn.cluster import KMeans

    fit = KMeans(K, n_init=20, tol=0.0, random_state=0).fit(rows)
    return [np.sort(fit.cluster_centers_, axis=0), np.array(fit.inertia_)]


def _found_start(rows: Rows) -> Protocol[Any]:
    found = yield from spread(D)
    start = yield from chosen_start("var-part", 1, K, found, seed=1)
    return (yield from federated_kmeans(start, FederatedSettings(max_rounds=5), tol=0.0))


def _found_start_cost(m: int, fit: Any) -> Cost:
    ask = SumColumns(False, np.zeros(D))
    assert (ask.layout.numbers, ask.layout.n_bytes) == (3 * D + 1, 8 * (3 * D + 1))
    first = one_round([ask] * m, method=FED) * 2
    start = var_part_cost(m, K, D, method=FED) + _first_split_cost(m, FED) * -1
    return first + start + federated_kmeans_cost(m, K, D, fit.n_rounds, FederatedSettings())


def _found_start_pooled(rows: Rows) -> list[Rows]:
    from tests.methods.test_seeding import central_var_part

    return [np.asarray(x) for x in central_lloyd(rows, central_var_part(rows, K), 5, 0.0)[:2]]


KERNEL = KernelParameters(gamma=0.02)
DSPGD = DSPGDSettings(n_components=3, n_features=12, n_iter=4, rank=4, solver="gram", center=True)


def _kernel_components(rows: Rows) -> Protocol[Any]:
    return (yield from embed_by_dspgd(KERNEL, DSPGD, D, seed=3))


def _kernel_numbers(made: Any) -> list[Rows]:
    """Eigenvalues, and the embedding of fixed points up to the signs of its components."""
    points = np.random.default_rng(0).normal(size=(9, D))
    embedding = embedded(ArrayTable(points), made.embedding.transcript).rows
    return [made.embedding.values, embedding @ embedding.T]


def _kernel_pooled(rows: Rows) -> list[Rows]:
    """Algorithm 1 with N x N matrices, as it is written, on rows and the fixed points together."""
    points = np.random.default_rng(0).normal(size=(9, D))
    both = np.concatenate([rows, points])
    b = np.zeros((len(both), 0))
    threshold = None
    for t in range(1, DSPGD.n_iter + 1):
        eta = 1 / t
        a = draw_features(Kernel("rbf", 0.02), 12, D, 3, t)(both)
        w = np.concatenate([np.sqrt(eta / 12) * (a - a[: len(rows)].mean(0)), np.sqrt(1 - eta) * b], axis=1)
        own = w[: len(rows)]
        values, u = np.linalg.eigh(own @ own.T)
        values, u = values[::-1], u[:, ::-1]
        threshold = values[3] if threshold is None else threshold
        kept = values > eta * threshold
        v = own.T @ u[:, kept] / np.sqrt(values[kept])
        last = t == DSPGD.n_iter
        scaled = values[kept] + ((1 - eta) * threshold if last else -eta * threshold)
        b = (w @ v) * np.sqrt(scaled / values[kept])
    h = b[len(rows) :, :3]
    return [scaled[:3], h @ h.T]


SOLID = Kernel("rbf", 0.02)
CEPCA = CEPCASettings(3, n_features=30, n_embedded=10, n_sketched=40, n_landmarks=30)


def _baseline_numbers(fit: Any) -> list[Rows]:
    """How far fixed points are from each other in the embedding, and the centers from the points."""
    points = fit.embedding.embed(np.random.default_rng(0).normal(size=(9, D)))
    return [points @ points.T, np.sort(((points[:, None] - fit.centers) ** 2).sum(-1), axis=1)]


def _pooled_kernel_kmeans(rows: Rows) -> list[Rows]:
    """Exact kernel k-means as it is written down, from an N x N matrix."""
    points = np.random.default_rng(0).normal(size=(9, D))
    values, vectors = np.linalg.eigh(SOLID.between(rows, rows))
    values, vectors = values[::-1][:3], vectors[:, ::-1][:, :3]
    centers = weighted_kmeans(vectors * np.sqrt(values), np.ones(len(rows)), K, seed=2)
    embedded_points = SOLID.between(points, rows) @ (vectors / np.sqrt(values))
    squared = ((embedded_points[:, None] - centers) ** 2).sum(-1)
    return [embedded_points @ embedded_points.T, np.sort(squared, axis=1)]


CHOICE = ChooseKSettings(max_clusters=4)
LOCAL = LandmarkParameters(gamma=0.02, landmarks="local", n_landmarks=12)


def _landmark_numbers(made: Any) -> list[Rows]:
    points = made.embedding.embed(np.random.default_rng(0).normal(size=(9, D)))
    return [points @ points.T, np.array(made.clusters.cost)]


BASELINES = [
    Case(
        "kernel k-means of pooled rows",
        "ck",
        lambda rows: ck(SOLID, K, n_components=3, n_columns=D, seed=2),
        _baseline_numbers,
        lambda m, fit: pooled_cost(D, fit.sizes, method="ck"),
        _pooled_kernel_kmeans,
        tolerance=1e-6,
        samples_sites=True,  # it needs every row
        discloses_rows=True,
    ),
    Case(
        "Nystroem kernel k-means of pooled rows",
        "sk",
        lambda rows: sk(SOLID, K, n_landmarks=20, n_components=3, n_columns=D, seed=2),
        _baseline_numbers,
        lambda m, fit: pooled_cost(D, fit.sizes, method="sk"),
        tolerance=1e-6,
        discloses_rows=True,
        samples_sites=True,  # which rows are landmarks depends on who is there
    ),
    Case(
        "k-means of random features",
        "rfk",
        lambda rows: rfk(SOLID, K, n_features=8, n_points=30, seed=2),
        _baseline_numbers,
        lambda m, fit: rfk_cost(m, fit),
        samples_sites=True,
        discloses_rows=True,
    ),
    Case(
        "kernel components from a few rows",
        "ce-pca",
        lambda rows: ce_pca_kmeans(SOLID, K, CEPCA, n_columns=D, n_points=30, seed=2),
        lambda both: _baseline_numbers(both[1]),
        lambda m, both: ce_pca_kmeans_cost(*both, CEPCA, seed=2),
        tolerance=1e-6,
        samples_sites=True,
        discloses_rows=True,
    ),
]

# ---------------------------------------------------------------- small summaries


def _sorted_centers(fit: Any) -> list[Rows]:
    return [fit.centers[np.lexsort(fit.centers.T)], np.array(fit.cost)]


def _pooled_kmeans(rows: Rows) -> list[Rows]:
    centers = weighted_kmeans(rows, np.ones(len(rows)), K, seed=2)
    squared = ((rows[:, None] - centers) ** 2).sum(-1)
    return [centers[np.lexsort(centers.T)], np.array(squared.min(1).sum())]


def _edge(pipeline: str, method: str, *, pooled: Any = None, discloses_rows: bool = True, **options: Any) -> Case:
    settings = EdgeSettings(pipeline=read_pipeline(pipeline), **options)
    return Case(
        f"k-means by {pipeline}, {options or 'as the paper has it'}",
        method,
        lambda rows: edge_kmeans(settings, K, D, seed=2),
        _sorted_centers,
        lambda m, fit: edge_cost(
            settings, fit.pipeline, K, D, fit.sizes, n_sites=m, rounds=fit.n_rounds,
            method=method, seed=2,
        ),
        pooled,
        tolerance=1e-7,
        samples_sites=True,  # how many points a site is asked for, and where it draws, depends on who is there
        discloses_rows=discloses_rows,
    )  # fmt: skip


def _axes_numbers(fit: Any) -> list[Rows]:
    return [
        fit.mean,
        fit.axes.values,
        (fit.axes.vectors * fit.axes.values) @ fit.axes.vectors.T,
        np.array(fit.squares),
    ]


def _pooled_axes(rows: Rows) -> list[Rows]:
    away = rows - rows.mean(0)
    _, sizes, axes = np.linalg.svd(away, full_matrices=False)
    kept = (axes[:2].T * sizes[:2] ** 2) @ axes[:2]
    return [rows.mean(0), sizes[:2] ** 2, kept, np.array((away**2).sum())]


EDGE = [
    _edge("nr", "nr", pooled=_pooled_kmeans),
    _edge("pca:2+sample:40", "fss"),
    _edge("jl:3+pca:2+sample:40", "jl+fss", refine=1),
    _edge("jl:3+pca:2+sample:40", "jl+fss", lift="means"),
    _edge("pca:2+sample:40+jl:3", "fss+jl"),
    _edge("pca:3+sample:40+jl:2", "fss+jl", lift="means"),
    _edge("jl:3+pca:2+sample:40+jl:2", "jl+fss+jl", center=False),
    _edge("dispca:2+disss:40", "bklw"),
    _edge("bklw", "bklw", accuracy=0.5),
    _edge("jl+fss", "jl+fss", accuracy=2.0),
    _edge("jl:3+dispca:2+disss:40", "jl+bklw", refine=2),
    _edge("jl:3+centers", "edge-kmeans", discloses_rows=False),
    _edge("jl:4+dispca:3+jl:3+sample:30", "edge-kmeans"),
    _edge("dispca:4", "edge-kmeans", pooled=_pooled_kmeans),
    Case(
        "each site's own centers, and steps of Lloyd",
        "edge-kmeans",
        lambda rows: auto_kmeans(EdgeSettings(), K, RunContext(D, 2)),
        _sorted_centers,
        lambda m, fit: (
            one_shot_cost(m, K, D, method="edge-kmeans", seed=2)
            + lloyd_cost(m, K, D, fit.n_rounds, method="edge-kmeans")
        ),
    ),
    *(
        Case(
            f"principal components, {solver}",
            "federated-pca",
            lambda rows, solver=solver: PCASettings(2, local_rank=D, solver=solver).protocol(RunContext(D, 2)),
            _axes_numbers,
            lambda m, fit, solver=solver: federated_pca_cost(m, D, D, solver=solver, seed=2),
            _pooled_axes,
            tolerance=1e-8,
        )
        for solver in ("local", "sums")
    ),
]


def _described(rows: Rows) -> list[Rows]:
    """Moments as they are written down; quantiles as one site has them, near those of the values."""
    quantiles = pooled(DESCRIBE, DescribeSettings(), rows, 3).quantiles
    true = np.quantile(rows, QUANTILES, axis=0).T
    assert (np.abs(quantiles - true) < 0.05 * rows.std(0)[:, None] + 0.3).all()  # 90 rows are far from each other
    return [np.full(D, len(rows)), rows.mean(0), rows.std(0), quantiles]


DESCRIBING = Case(
    "what columns hold",
    "describe",
    lambda rows: DescribeSettings().protocol(RunContext(D, 3)),
    lambda made: [made.present, made.means, made.deviations, made.quantiles],
    lambda m, made: describe_cost(m, made.columns),
    _described,
    tolerance=1e-9,
)

NAMES = [f"x{i}" for i in range(D)]
COMPARED = CompareSettings(
    first=plain(ClusterRule(NAMES, None, None, np.eye(K, D) * 3)),
    second=plain(
        ClusterRule(
            NAMES[::-1][:2],
            Preparation("mean", np.zeros(2), np.array([1.0, 2.0]), np.array([2.0, 0.5])),
            None,
            np.array([[1.0, 0.0], [-1.0, 3.0], [0.0, -2.0], [4.0, 4.0]]),
        )
    ),
)


def _labelled_twice(rows: Rows) -> list[Rows]:
    """The pairs of labels and the costs of pooled rows, as they are written down."""
    prepared = (rows[:, ::-1][:, :2] - [1.0, 2.0]) / [2.0, 0.5]
    first, second = (np.asarray(rule.centers) for rule in COMPARED.rules())
    near = ((rows[:, None] - first) ** 2).sum(-1)
    close = ((prepared[:, None] - second) ** 2).sum(-1)
    table = np.zeros((len(first), len(second)))
    np.add.at(table, (near.argmin(1), close.argmin(1)), 1)
    return [table, np.zeros(()), np.array([near.min(1).sum(), close.min(1).sum()])]


COMPARING = Case(
    "two models on the same rows",
    "compare",
    lambda rows: COMPARED.protocol(RunContext(D, 3)),
    lambda made: [made.rows, np.array(made.unlabelled), np.array(made.costs)],
    lambda m, made: compare_cost(m, COMPARED),
    _labelled_twice,
    tolerance=1e-9,
)

# ---------------------------------------------------------------- columns split


MIX = np.random.default_rng(5).normal(size=(D, 9)) / 3
NEW = np.random.default_rng(6).normal(size=(11, D)) @ MIX


def _by_columns(rows: Rows, n_sites: int) -> dict[str, Any]:
    """The rows in nine columns, shared out to the sites; new rows with them."""
    wide = rows @ MIX
    return {
        f"site-{m}": PairedTable(ArrayTable(wide[:, m::n_sites]), ArrayTable(NEW[:, m::n_sites]))
        for m in range(n_sites)
    }


def _by_key(rows: Rows, n_sites: int) -> dict[str, Any]:
    """The same, rows in another order at every site."""
    made, names, later = {}, np.array([f"p{i}" for i in range(len(rows))]), np.array([f"q{i}" for i in range(11)])
    for m, (site, pair) in enumerate(_by_columns(rows, n_sites).items()):
        turn, turned = np.random.default_rng(m).permutation(len(rows)), np.random.default_rng(m).permutation(11)
        table = ArrayTable(pair._table._rows[turn], keys=names[turn])
        made[site] = PairedTable(table, ArrayTable(pair.new._rows[turned], keys=later[turned]))
    return made


def _vertical(kernel: str, **options: Any) -> Callable[[Rows], Protocol[Any]]:
    settings = VerticalSettings(3, kernel=kernel, gamma=0.05, **options)

    def protocol(rows: Rows) -> Protocol[Any]:
        fit = yield from vertical_kernel_pca(settings, seed=4)
        return fit, (yield from project(fit))

    return protocol


def _vertical_numbers(both: Any) -> list[Rows]:
    fit, (components, tags) = both
    order, own = slice(None), slice(None)
    if tags is not None:  # back to where the rows were
        order = np.argsort(tags)[np.argsort(np.argsort(row_tags([f"q{i}" for i in range(11)], bytes(32))))]
        n = len(fit.embedding)
        own = np.argsort(np.argsort(row_tags([f"p{i}" for i in range(n)], bytes(32))))
    made, embedding = components[order], fit.embedding[own]
    return [fit.pairs.values, embedding @ embedding.T, made @ made.T]


def _vertical_cost(n_sites: int, both: Any) -> Cost:
    fit, (components, tags) = both
    return vertical_kernel_pca_cost(fit) + project_cost(fit, Alignment(len(components), tags))


def _pooled_components(kernel: str) -> Callable[[Rows], list[Rows]]:
    def pooled(rows: Rows) -> list[Rows]:
        made = KernelPCA(3, kernel=kernel, gamma=0.05).fit(rows @ MIX)
        own, new = made.eigenvectors_ * np.sqrt(made.eigenvalues_), made.transform(NEW)
        return [made.eigenvalues_, own @ own.T, new @ new.T]

    return pooled


def _vertical_case(name: str, kernel: str, pooled: bool, split: Any = _by_columns, **options: Any) -> Case:
    return Case(
        f"kernel components of columns, {name}",
        "vertical-kernel-pca",
        _vertical(kernel, **options),
        _vertical_numbers,
        _vertical_cost,
        _pooled_components(kernel) if pooled else None,
        tolerance=1e-7,
        samples_sites=True,  # without a site there are other columns
        discloses_rows=True,
        split=split,
    )


def _dpca_cost(n_sites: int, fit: Any) -> Cost:
    columns = [len(range(m, 9, n_sites)) for m in range(n_sites)]
    return dpca_cost(columns, n_rows=90, n_components=2, n_iter=3, inner=4)


VERTICAL = [
    _vertical_case("rbf, all pairs", "rbf", True, local_rank=90),
    _vertical_case("rbf, few pairs", "rbf", False, local_rank=6, center=False, scale="standard"),
    _vertical_case("rbf, by key", "rbf", True, _by_key, local_rank=90),
    _vertical_case("rbf, as many pairs as it takes", "rbf", False, tolerance=0.01, missing="mean"),
    _vertical_case("linear", "linear", True, local_rank=9),
    _vertical_case("linear, by key, as many pairs as it takes", "linear", False, _by_key, tolerance=0.05),
    Case(
        "principal components of columns by neighbours",
        "dpca",
        lambda rows: dpca(2, n_rows=90, neighbours=3, n_iter=3, inner=4, seed=1),
        lambda fit: [fit.stacked @ fit.stacked.T],
        _dpca_cost,
        tolerance=1e-7,
        samples_sites=True,
        discloses_rows=True,
        fewest_sites=3,
        split=lambda rows, n_sites: {name: pair._table for name, pair in _by_columns(rows, n_sites).items()},
    ),
]

CASES = [
    *BASELINES,
    *EDGE,
    *VERTICAL,
    DESCRIBING,
    COMPARING,
    Case(
        "landmark kernel k-means from local centers",
        "landmarks",
        lambda rows: cluster_by_landmarks(LOCAL, K, RunContext(D, 3), max_rounds=2, tol=0.0),
        _landmark_numbers,
        lambda m, made: local_landmarks_cost(m, made, LOCAL, seed=3),
        tolerance=2e-3,  # means travel in float16, which a hand that drives the protocol does not round to
        samples_sites=True,  # a site's centers are those of its own rows
    ),
    Case(
        "kernel components by DSPGD",
        "dspgd",
        _kernel_components,
        _kernel_numbers,
        lambda m, made: dspgd_gram_cost(m, D, made, center=True),
        _kernel_pooled,
        tolerance=1e-8,
        samples_sites=True,  # an iteration begun again without a site draws other features
    ),
    Case(
        "kernel components by DSPGD without its mechanism",
        "dspgd-dense",
        lambda rows: embed_by_dspgd(KERNEL, replace(DSPGD, cem=False, solver="lanczos"), D, seed=3),
        _kernel_numbers,
        lambda m, made: dspgd_dense_cost(D, made, center=True),
        _kernel_pooled,
        tolerance=1e-8,
        samples_sites=True,
        discloses_rows=True,
    ),
    Case(
        "federated k-means, sampled and momentous",
        FED,
        _sampled,
        lambda fit: [fit.centers, np.array(fit.cost)],
        lambda m, fit: federated_kmeans_cost(m, K, D, fit.n_rounds, SETTINGS),
        samples_sites=True,
    ),
    Case(
        "federated k-means as Lloyd",
        FED,
        _found_start,
        lambda fit: [fit.centers, np.array(fit.cost)],
        _found_start_cost,
        _found_start_pooled,
    ),
    Case(
        "several starts and lloyd from the best",
        "lloyd",
        _best_start,
        lambda fit: [np.sort(fit.centers, axis=0), np.array(fit.cost)],
        None,  # what is sent depends on how soon solutions become the same
        _best_start_pooled,
        tolerance=1e-6,
    ),
    Case(
        "lloyd from given centers",
        "lloyd",
        lambda rows: lloyd(np.eye(K, D) * 3, max_rounds=6, tol=0.0),
        lambda fit: [fit.centers, np.array(fit.cost)],
        lambda m, fit: lloyd_cost(m, K, D, fit.n_rounds),
        lambda rows: [np.asarray(x) for x in central_lloyd(rows, np.eye(K, D) * 3, 6, 0.0)[:2]],
    ),
    Case(
        "agreement, scaling, var-part and lloyd",
        "lloyd",
        _prepared_kmeans,
        lambda both: [both[0].shift, both[0].scale, both[1].centers, np.array(both[1].cost)],
        _prepared_cost,
        _prepared_pooled,
    ),
    Case(
        "one-shot",
        "one-shot",
        _one_shot,
        lambda fit: [fit.centers, np.array(fit.cost)],
        lambda m, fit: one_shot_cost(m, K, D, method="one-shot") + lloyd_cost(m, K, D, 0, method="one-shot"),
    ),
    Case(
        "numbers of clusters",
        "choose-k",
        lambda rows: CHOICE.protocol(RunContext(D, 3)),
        plain_numbers,
        lambda m, choice: choose_k_cost(m, CHOICE.ks, D),
        lambda rows: plain_numbers(pooled(METHODS["choose-k"], CHOICE, rows, 3)),
        tolerance=1e-9,
    ),
]


def _registered(method: Method) -> Case:
    """A method of another package, as its plug-in object describes it."""
    settings = small_settings(method, K)
    return Case(
        f"{method.name} as registered",
        method.name,
        lambda rows: settings.protocol(RunContext(D, 3)),
        plain_numbers,
        None,
        lambda rows: plain_numbers(pooled(method, settings, rows, 3)),
        tolerance=1e-8,
        discloses_rows=method.sends_rows,
    )


CASES += [_registered(METHODS[name]) for name in METHODS.keys() - {case.method for case in CASES}]
