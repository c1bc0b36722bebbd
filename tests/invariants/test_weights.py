"""A row of weight 3 is three rows: for every method that takes rows, at the same public seed.

What cannot hold:

- ``dspgd-dense`` refuses weights: its server multiplies with vectors that have a number for every row.
- Where a site samples rows because it holds more than a bound, the bound is on the rows it shows: repeated rows
  may be sampled where weighted ones are not. The sites here hold fewer.
- ``ce-pca`` sketches rows with random signs, and draws rows without replacement: a row that is there twice has two
  signs, and may be drawn twice. Compared where sketches hold all rows and all rows are drawn.
"""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import in_process
from coterie.errors import InputError
from coterie.maths.clustering import rough_centers, weighted_kmeans
from coterie.methods.kernel.ce_pca import CEPCASettings, ce_pca_kmeans
from coterie.methods.kernel.clusters import EmbeddedKMeans, KernelParameters, cluster_embedded
from coterie.methods.kernel.dspgd.method import embed_by_dspgd
from coterie.methods.kernel.dspgd.protocol import DSPGDSettings
from coterie.methods.kernel.landmarks.protocol import LandmarkParameters, cluster_by_landmarks, embed_by_landmarks
from coterie.methods.kmeans.federated import FederatedSettings, federated_kmeans
from coterie.methods.method import RunContext
from coterie.methods.shared.preparation import prepare, spread
from coterie.methods.shared.starts import cells_start
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.tables import ArrayTable
from tests.federations import blobs, split_evenly
from tests.invariants.cases import CASES, SOLID, Case, D, K, _baseline_numbers, _landmark_numbers

ROWS = blobs(90, D, 3, seed=21)
WEIGHTS = np.random.default_rng(3).integers(0, 4, 90).astype(float)
OWNERS = np.arange(90) * 3 // 90

FEDERATED = "federated-kmeans"


def _fit(fit):
    return [fit.centers, np.array(fit.cost), fit.counts]


def _from_cells(rows):
    found = yield from spread(D)
    start = yield from cells_start(K, D, seed=2, about=found)
    return (yield from federated_kmeans(start, FederatedSettings(max_rounds=4), seed=1))


def _in_batches(rows):
    settings = FederatedSettings(epochs=2, batch_size=7, site_rate=0.5, max_rounds=3)
    return (yield from federated_kmeans(np.eye(K, D) * 3, settings, seed=5))


def _prepared(rows):
    made = yield from prepare(D, scale="standard", missing="drop")
    return made


def _clustered_components(rows):
    settings = DSPGDSettings(n_components=3, n_features=12, n_iter=3, rank=4, solver="lanczos")
    made = yield from embed_by_dspgd(KernelParameters(), settings, D, seed=3)
    return (
        yield from cluster_embedded(made, EmbeddedKMeans(K, init="var-part", max_rounds=3, tol=0.0), RunContext(D, 1))
    )


def _summed(rows):
    settings = LandmarkParameters(landmarks="summed", n_landmarks=8)
    return (yield from cluster_by_landmarks(settings, K, RunContext(D, 3), max_rounds=2, tol=0.0))


def _landmark_components(rows):
    settings = LandmarkParameters(landmarks="local", n_landmarks=12)
    return (yield from embed_by_landmarks(settings, 3, RunContext(D, 3), center=True))


def _components(made):
    points = made.embedding.embed(np.random.default_rng(0).normal(size=(9, D)))
    return [points @ points.T, made.values]


ALL_ROWS = CEPCASettings(3, n_features=30, n_embedded=10, n_sketched=400, n_landmarks=4000)


def _more(name, method, protocol, numbers):
    return Case(name, method, protocol, numbers, lambda m, found: None)


MORE = [
    _more("k-means from cells", FEDERATED, _from_cells, _fit),
    _more("k-means in mini-batches", FEDERATED, _in_batches, _fit),
    _more("scaling", "lloyd", _prepared, lambda made: [made.shift, made.scale]),
    _more("clusters of components by Lanczos", "dspgd", _clustered_components, _fit),
    _more("landmarks by sums", "landmarks", _summed, _landmark_numbers),
    _more("components by landmarks", "landmarks", _landmark_components, _components),
    _more(
        "kernel components from all rows",
        "ce-pca",
        lambda rows: ce_pca_kmeans(SOLID, K, ALL_ROWS, n_columns=D, n_points=30, seed=2),
        lambda both: _baseline_numbers(both[1]),
    ),
]
REFUSED = "dspgd-dense"
SAMPLED = "kernel components from a few rows"
COMPARED = [
    *(case for case in CASES if case.split is split_evenly and case.method != REFUSED and case.name != SAMPLED),
    *MORE,
]
ROUNDED = {"kernel components from all rows": 1e-6}
"""A Cholesky factor of a matrix of many nearly equal rows, with jitter."""


def weighted():
    tables = {}
    for m in range(3):
        own = m == OWNERS
        tables[f"site-{m}"] = ArrayTable(ROWS[own], weights=WEIGHTS[own], name=f"site-{m}")
    return tables


def repeated():
    times = WEIGHTS.astype(int)
    return {f"site-{m}": ArrayTable(np.repeat(ROWS, times * (m == OWNERS), axis=0)) for m in range(3)}


def result(case, tables, **options):
    with in_process(tables) as channel:
        return case.numbers(run(case.protocol(ROWS), channel, method=case.method, **options))


@pytest.mark.parametrize("case", COMPARED, ids=lambda case: case.name)
def test_a_row_of_weight_three_is_three_rows(case):
    tolerance = ROUNDED.get(case.name, 1e-9)
    for one, other in zip(result(case, weighted()), result(case, repeated()), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * max(1.0, np.abs(other).max()))


def test_weights_matter():
    """The control: without them every case finds something else."""
    for case in COMPARED:
        plain = result(case, split_evenly(ROWS, 3))
        assert any(
            a.shape != b.shape or not np.allclose(a, b, rtol=1e-6)
            for a, b in zip(result(case, weighted()), plain, strict=True)
        ), case.name


def test_what_needs_rows_as_such_says_so():
    case = next(case for case in CASES if case.method == REFUSED)
    with pytest.raises(InputError, match="use dspgd, which takes weights"):
        result(case, weighted())


@pytest.mark.parametrize("scale", [1e-3, 0.3, 1e3])
def test_weights_need_not_be_whole_numbers_nor_add_up_to_the_rows(scale):
    """Lengths of marks and limits hold for weights of any size, masked."""
    tables = {
        name: ArrayTable(table._rows, weights=scale * table._weights, name=name) for name, table in weighted().items()
    }

    centers, cost, counts = result(MORE[0], tables, layers=[MaskedSums()])
    exact = result(MORE[0], weighted())
    np.testing.assert_allclose(centers, exact[0], rtol=1e-6)
    np.testing.assert_allclose(cost, scale * exact[1], rtol=1e-6)
    np.testing.assert_allclose(counts, scale * exact[2], rtol=1e-6)


@pytest.mark.parametrize("solve", [weighted_kmeans, rough_centers])
def test_a_solver_stops_where_it_would_with_repeated_points(solve):
    """scikit-learn's tolerance is a share of the variance of the points, whatever they count."""
    rng = np.random.default_rng(5)
    points = rng.normal(size=(300, 2)) * np.where(np.arange(300) < 250, 0.2, 9.0)[:, None]
    times = np.where(np.arange(300) < 250, 40, 1)
    for seed in range(5):
        one = solve(points, times.astype(float), 12, seed=seed)
        other = solve(np.repeat(points, times, axis=0), np.ones(times.sum()), 12, seed=seed)
        np.testing.assert_allclose(one, other, atol=1e-5)
