"""The methods federated kernel k-means is compared with, against their own pooled definitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from coterie.engines.inprocess import in_process
from coterie.errors import InputError, QuorumLost
from coterie.maths import clustering
from coterie.maths.clustering import nearest
from coterie.maths.kernels import Kernel
from coterie.messages import codec
from coterie.messages.refusals import Refusal
from coterie.messages.site_api import Memory
from coterie.methods.kernel.baselines import MapFeatures, ck, keep_features, rfk, sk
from coterie.methods.kernel.ce_pca import (
    CEPCASettings,
    DrawRows,
    EmbedRows,
    ProjectRows,
    ScoreByLeverage,
    ScoreByResidual,
    SketchFeatures,
    ce_pca,
    ce_pca_kmeans,
    keep_leverage,
    keep_sketched_features,
    local_feature_sketch,
)
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.methods.shared.coresets import SampleCoreset, SumCost
from coterie.methods.shared.counts import CountRows, PoolRows
from coterie.methods.shared.lloyd import Assign, Close
from coterie.methods.shared.starts import Split
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from coterie_studies.closed_forms import ce_pca_cost, ce_pca_kmeans_cost, pooled_cost, rfk_cost
from tests.federations import Tampered, blobs, split_evenly, tables_of

POOLED = (CountRows, PoolRows)
CEPCA = (SketchFeatures, ScoreByLeverage, ScoreByResidual, DrawRows, ProjectRows, EmbedRows)
REQUESTS = (*POOLED, *CEPCA, MapFeatures, SumCost, SampleCoreset, Assign, Close, Split)
NAME = "trial"


@pytest.fixture(autouse=True)
def _trial(monkeypatch):
    monkeypatch.setitem(METHODS, NAME, Method(NAME, "", REQUESTS, "", ""))


@pytest.fixture(scope="module")
def digits():
    """300 digits with the kernel the paper would take for them."""
    rows = load_digits().data[:300] / 16
    apart = ((rows[:, None] - rows[None]) ** 2).sum()
    return rows, Kernel("rbf", len(rows) ** 2 / (2 * apart))


def labels_of(fit, rows):
    return nearest(fit.embedding.embed(rows), fit.centers)[0]


def asked(protocol, tables, ledger=None, **options):
    with in_process(tables, **options) as channel:
        return run(protocol, channel, method=NAME, ledger=ledger)


def top_eigenpairs(matrix, count):
    values, vectors = linalg.eigh(matrix)
    return values[::-1][:count], vectors[:, ::-1][:, :count]


def kernel_objective(matrix, labels):
    """f_K: the trace of K less that of its clusters' means."""
    return np.trace(matrix) - sum(
        matrix[np.ix_(labels == c, labels == c)].sum() / (labels == c).sum() for c in np.unique(labels)
    )


def subspace_gap(one, other):
    """How far two sets of columns are from spanning the same space: the norm of the projections' difference."""
    one, other = linalg.orth(one), linalg.orth(other)
    return linalg.norm(one @ one.T - other @ other.T)


def assert_cost(ledger, cost):
    for what in ("floats_up", "bytes_up", "bytes_down", "rounds"):
        assert ledger.total(what) == getattr(cost, what), what


# ---------------------------------------------------------------- CK


@pytest.mark.parametrize("large", [100, 2000])
def test_ck_is_the_direct_pooled_computation(digits, large, monkeypatch):
    """Whether its eigenpairs are found from products with the matrix or from the matrix itself."""
    monkeypatch.setattr("coterie.methods.kernel.baselines.LARGE", large)
    rows, kernel = digits
    fit = asked(ck(kernel, 10, n_components=12, n_columns=64, seed=0), split_evenly(rows, 5))
    matrix = kernel.between(rows, rows)
    values, vectors = top_eigenpairs(matrix, 12)
    np.testing.assert_allclose(fit.values, values, rtol=1e-10)
    embedded = fit.embedding.embed(rows)
    np.testing.assert_allclose(embedded @ embedded.T, vectors * values @ vectors.T, atol=1e-10)
    direct = KMeans(10, n_init=10, random_state=0).fit(vectors * np.sqrt(values))
    cost = clustering.nearest(embedded, fit.centers)[1].sum()
    assert cost <= 1.02 * direct.inertia_
    assert len(labels_of(fit, rows)) == 300


def test_ck_takes_a_weight_for_so_many_rows():
    rows, kernel = blobs(40, 3, 3), Kernel("rbf", 0.1)
    weights = np.random.default_rng(0).integers(0, 3, 40)
    tables = {"a": ArrayTable(rows[:25], weights=weights[:25]), "b": ArrayTable(rows[25:], weights=weights[25:])}
    weighted = asked(ck(kernel, 3, n_components=5, n_columns=3, seed=0), tables)
    repeated = np.repeat(rows, weights, axis=0)
    plain = asked(ck(kernel, 3, n_components=5, n_columns=3, seed=0), split_evenly(repeated, 2))
    np.testing.assert_allclose(weighted.values, plain.values, rtol=1e-9)
    one, other = weighted.embedding.embed(rows), plain.embedding.embed(rows)
    np.testing.assert_allclose(one @ one.T, other @ other.T, atol=1e-9)


def test_ck_of_a_kernel_of_low_rank_has_fewer_components_than_asked_for():
    kernel = Kernel("polynomial", 1.0, degree=1, coef0=0.0)
    fit = asked(ck(kernel, 2, n_components=10, n_columns=2, seed=0), split_evenly(blobs(50, 2, 2), 2))
    assert len(fit.values) == 2


@pytest.mark.parametrize("weighted", [False, True])
def test_the_cost_of_pooling_is_the_datas_own_size(weighted):
    rows, ledger = blobs(300, 4, 3), Ledger()
    options = {"weights": np.ones(300)} if weighted else {}
    whole = ArrayTable(rows, **options)
    tables = {"a": whole, "b": ArrayTable(rows[:7]), "c": ArrayTable(rows[:0])}
    fit = asked(ck(Kernel("rbf", 0.1), 3, n_components=3, n_columns=4, seed=0), tables, ledger)
    assert fit.sizes == (300, 7, 0)
    assert_cost(ledger, pooled_cost(4, fit.sizes, method=NAME, weighted=weighted))
    assert ledger.total("floats_up") == 9 + 307 * (4 + weighted)


# ---------------------------------------------------------------- SK


def test_sk_with_every_row_a_landmark_is_ck(digits):
    rows, kernel = digits
    settings = {"n_components": 12, "n_columns": 64, "seed": 0}
    exact = asked(ck(kernel, 10, **settings), split_evenly(rows, 3))
    fit = asked(sk(kernel, 10, n_landmarks=300, **settings), split_evenly(rows, 3))
    np.testing.assert_allclose(fit.values, exact.values, rtol=1e-8)
    assert subspace_gap(fit.embedding.embed(rows), exact.embedding.embed(rows)) < 1e-6


def test_sk_with_some_landmarks_is_the_best_part_of_the_nystroem_matrix(digits):
    rows, kernel = digits
    fit = asked(sk(kernel, 10, n_landmarks=60, n_components=12, n_columns=64, seed=3), split_evenly(rows, 3))
    assert len(fit.embedding.landmarks) == 60
    across = kernel.between(rows, fit.embedding.landmarks)
    middle = kernel.between(fit.embedding.landmarks, fit.embedding.landmarks)
    values, vectors = top_eigenpairs(across @ linalg.pinvh(middle) @ across.T, 12)
    np.testing.assert_allclose(fit.values, values, rtol=1e-8)
    embedded = fit.embedding.embed(rows)
    np.testing.assert_allclose(embedded @ embedded.T, vectors * values @ vectors.T, atol=1e-8)


def test_sk_costs_what_ck_costs():
    ledger = Ledger()
    protocol = sk(Kernel("rbf", 0.1), 3, n_landmarks=20, n_components=3, n_columns=4, seed=0)
    fit = asked(protocol, split_evenly(blobs(200), 4), ledger)
    assert_cost(ledger, pooled_cost(4, fit.sizes, method=NAME))


# ---------------------------------------------------------------- RFK


def test_features_stand_in_for_rows_and_keep_the_kernel_on_average():
    rows, kernel, found = blobs(20, 3, 2, spread=1.0), Kernel("rbf", 0.2), np.zeros((20, 20))
    for seed in range(50):
        memory = Memory()
        keep_features(ArrayTable(rows), memory, MapFeatures("rbf", 0.2, 3, 1.0, 400, "phase", seed))
        features = np.concatenate([block.rows for block in memory.table.blocks()])
        found += features @ features.T / 50
    np.testing.assert_allclose(found, kernel.between(rows, rows), atol=5 / np.sqrt(50 * 400))


def test_rfk_with_many_features_comes_near_ck_in_f_k(digits):
    rows, kernel = digits
    matrix = kernel.between(rows, rows)
    exact = asked(ck(kernel, 10, n_components=20, n_columns=64, seed=0), split_evenly(rows, 5))
    protocol = rfk(kernel, 10, n_features=2000, seed=1, n_points=1000)
    fit = asked(protocol, split_evenly(rows, 5))
    best, found = (kernel_objective(matrix, labels_of(made, rows)) for made in (exact, fit))
    print(f"f_K {found:.4f} to {best:.4f}")
    assert found <= 1.02 * best


@pytest.mark.parametrize("form", ["phase", "paired"])
def test_the_cost_of_rfk_equals_the_ledger(form):
    ledger = Ledger()
    protocol = rfk(Kernel("rbf", 0.1), 3, n_features=20, seed=1, n_points=50, form=form)
    fit = asked(protocol, split_evenly(blobs(200), 4), ledger)
    assert_cost(ledger, rfk_cost(4, fit, method=NAME))
    assert ledger.total("floats_up") == 4 + (50 + 4 * 3) * (20 + 1)


# ---------------------------------------------------------------- CE PCA


def low_rank_rows(n, seed=0):
    """Rows of which a cubic kernel without constant makes a matrix of rank 10."""
    return np.random.default_rng(seed).normal(size=(n, 3)), Kernel("polynomial", 1.0, degree=3, coef0=0.0)


def test_ce_pca_finds_a_low_rank_kernels_eigenpairs_without_loss():
    """Landmarks span the kernel's space of 10 dimensions and sites have few rows, so nothing is approximated."""
    rows, kernel = low_rank_rows(120)
    settings = CEPCASettings(6, n_features=60, n_embedded=40, n_sketched=50, n_landmarks=40)
    with in_process(split_evenly(rows, 3)) as channel:
        fit = run(ce_pca(kernel, settings, n_columns=3, seed=0), channel, method=NAME)
    values, vectors = top_eigenpairs(kernel.between(rows, rows), 6)
    np.testing.assert_allclose(fit.values, values, rtol=1e-7)
    embedded = fit.embedding.embed(rows)
    np.testing.assert_allclose(embedded @ embedded.T, vectors * values @ vectors.T, atol=1e-6 * values[0])


def test_sketching_many_rows_loses_little(digits):
    """The captured part of the kernel, the trace of the components' Gram, is near the best possible."""
    rows, kernel = digits
    settings = CEPCASettings(10, n_features=200, n_embedded=50, n_sketched=250, n_landmarks=150)
    fit = asked(ce_pca(kernel, settings, n_columns=64, seed=0), {"a": ArrayTable(rows), "b": ArrayTable(rows[:5])})
    both = np.concatenate([rows, rows[:5]])
    best = top_eigenpairs(kernel.between(both, both), 10)[0].sum()
    caught = (fit.embedding.embed(both) ** 2).sum()
    print(f"CE PCA: caught {caught:.4f} of {best:.4f}")
    assert 0.98 * best <= caught <= best * (1 + 1e-9)


def test_a_sketch_of_many_rows_keeps_their_products_on_average_and_a_few_rows_as_they_are():
    """Counted rows: E[S'S] = A' diag(w) A, within 5 standard errors in every entry."""
    rows, weights = blobs(80, 3, 2, spread=1.0), np.random.default_rng(0).integers(1, 4, 80)
    table, found = ArrayTable(rows, weights=weights), []
    for seed in range(400):
        memory, ask = Memory(), SketchFeatures("rbf", 0.1, 3, 1.0, 6, "phase", seed, 20, 6)
        keep_sketched_features(table, memory, ask)
        features, sketch = memory["ce-pca"].features, local_feature_sketch(table, memory, ask).sketch
        found.append(sketch.T @ sketch - features.T @ (weights[:, None] * features))
    assert (np.abs(np.mean(found, axis=0)) <= 5 * np.std(found, axis=0) / 20).all()
    few = local_feature_sketch(table, memory, replace(ask, rows=100)).sketch
    np.testing.assert_allclose(few.T @ few, features.T @ (weights[:, None] * features))


def test_ce_pca_takes_a_weight_for_so_many_rows():
    rows, kernel = low_rank_rows(60)
    weights = np.random.default_rng(0).integers(1, 3, 60)
    tables = {"a": ArrayTable(rows[:25], weights=weights[:25]), "b": ArrayTable(rows[25:], weights=weights[25:])}
    fit = asked(ce_pca(kernel, CEPCASettings(5, n_landmarks=40), n_columns=3, seed=0), tables)
    repeated = np.repeat(rows, weights, axis=0)
    np.testing.assert_allclose(fit.values, top_eigenpairs(kernel.between(repeated, repeated), 5)[0], rtol=1e-7)


def test_leverage_scores_without_sketches_are_those_of_the_pooled_features():
    rows = blobs(90, 3, 3)
    ask = SketchFeatures("rbf", 0.1, 3, 1.0, 20, "phase", 1, 100, 20)
    memory, table = Memory(), ArrayTable(rows)
    keep_sketched_features(table, memory, ask)
    features = memory["ce-pca"].features
    factor = linalg.qr(features, mode="r")[0][:20]
    keep_leverage(table, memory, ScoreByLeverage(linalg.inv(factor)))
    basis = linalg.orth(features)
    np.testing.assert_allclose(memory["ce-pca"].scores, (basis**2).sum(axis=1), rtol=1e-8)


def test_rows_that_stand_alone_are_found_by_residual_or_leverage():
    """Twenty rows far from all others span most of the kernel's space; a uniform draw would miss most of them."""
    rng = np.random.default_rng(0)
    alone = rng.normal(size=(20, 5)) * 60
    rows = np.concatenate([rng.normal(size=(1000, 5)) * 0.05, alone])
    settings = CEPCASettings(5, n_features=200, n_embedded=50, n_sketched=100, n_landmarks=60)
    fit = asked(ce_pca(Kernel("rbf", 0.1), settings, n_columns=5, seed=0), split_evenly(rows, 4))
    found = {tuple(row) for row in fit.embedding.landmarks}
    assert sum(tuple(row) in found for row in alone) >= 19


def test_sites_without_rows_and_equal_rows_are_no_trouble():
    rows = np.concatenate([np.full((30, 2), 0.1), np.full((30, 2), 3.0)])
    tables = tables_of(rows, np.repeat([0, 2], 30), 3)
    settings = CEPCASettings(4, n_features=30, n_landmarks=20)
    made, fit = asked(ce_pca_kmeans(Kernel("rbf", 1.0), 2, settings, n_columns=2, n_points=10, seed=0), tables)
    assert len(made.embedding.landmarks) == 2
    assert len(set(labels_of(fit, rows)[:30])) == len(set(labels_of(fit, rows)[30:])) == 1
    assert labels_of(fit, rows)[0] != labels_of(fit, rows)[-1]


def test_no_rows_at_all_is_said():
    tables = {"a": ArrayTable(np.empty((0, 2)))}
    kernel = Kernel("rbf", 1.0)
    with pytest.raises(InputError, match="0 rows"):
        asked(ce_pca(kernel, CEPCASettings(2), n_columns=2, seed=0), tables)
    with pytest.raises(InputError, match="0 rows"):
        asked(ck(kernel, 2, n_components=2, n_columns=2, seed=0), tables)


def test_ce_pca_with_kmeans_comes_near_ck_in_f_k(digits):
    rows, kernel = digits
    matrix = kernel.between(rows, rows)
    exact = asked(ck(kernel, 10, n_components=12, n_columns=64, seed=0), split_evenly(rows, 5))
    settings = CEPCASettings(12, n_landmarks=100)
    protocol = ce_pca_kmeans(kernel, 10, settings, n_columns=64, n_points=200, seed=0)
    fit = asked(protocol, split_evenly(rows, 5))[1]
    best, found = (kernel_objective(matrix, labels_of(made, rows)) for made in (exact, fit))
    print(f"CE PCA: f_K {found:.4f} to {best:.4f}")
    assert found <= 1.05 * best


@pytest.mark.parametrize("n_features", [20, 80])
def test_the_cost_of_ce_pca_equals_the_ledger(n_features):
    rows, ledger = blobs(200), Ledger()
    settings = CEPCASettings(4, n_features=n_features, n_sketched=30, n_landmarks=25)
    protocol = ce_pca_kmeans(Kernel("rbf", 0.1), 3, settings, n_columns=4, n_points=40, seed=2)
    made, fit = asked(protocol, split_evenly(rows, 4), ledger)
    assert_cost(ledger, ce_pca_kmeans_cost(made, fit, settings, seed=2, method=NAME))
    t, points = min(50, n_features), len(made.embedding.landmarks)
    s = len(made.values)
    expected = 4 * 30 * (t + points) + 2 * 4 + 25 * 4 + 4 + (40 + 4 * 3) * (s + 1)
    assert ledger.total("floats_up") == expected


def test_a_kernel_the_first_rows_span_needs_no_second_draw():
    rows, kernel = low_rank_rows(60)
    ledger, settings = Ledger(), CEPCASettings(4, n_features=60, n_landmarks=40)
    fit = asked(ce_pca(kernel, settings, n_columns=3, seed=0), split_evenly(rows, 3), ledger)
    assert len(fit.drawn) == 1
    assert_cost(ledger, ce_pca_cost(3, fit, settings, seed=0, method=NAME))


# ---------------------------------------------------------------- what sites keep


@pytest.mark.parametrize("which", ["rfk", "ce-pca"])
def test_sites_that_restart_all_the_time_give_the_same_result(which):
    kernel, rows = Kernel("rbf", 0.1), blobs(200)
    settings = CEPCASettings(4, n_features=60, n_sketched=30, n_landmarks=25)

    def protocol():
        if which == "rfk":
            return (yield from rfk(kernel, 3, n_features=20, seed=1, n_points=50))
        return (yield from ce_pca_kmeans(kernel, 3, settings, n_columns=4, n_points=40, seed=2))[1]

    def forget(name, question, frame):
        if (codec.read_envelope(question)[0], codec.read_envelope(frame)[0]) == (
            codec.Form.QUESTION,
            codec.Form.ANSWER,
        ):
            channel.members[name]._memories._runs.clear()
        return frame

    with in_process(split_evenly(rows, 3)) as channel:
        steady = run(protocol(), channel, method=NAME)
    with in_process(split_evenly(rows, 3)) as channel:
        restarted = run(protocol(), Tampered(channel, forget), method=NAME)
    np.testing.assert_array_equal(steady.centers, restarted.centers)


def test_prepared_rows_stay_prepared_and_embedded_ones_are_embedded_anew():
    """A second embedding within a run starts from the rows as they were before the first."""
    rows = blobs(50, 3, 2)
    ask = SketchFeatures("rbf", 0.1, 3, 1.0, 20, "phase", 1, 60, 20)
    plain, again = Memory(), Memory()
    prepared = again.table = ArrayTable(rows)
    keep_sketched_features(prepared, plain, ask)
    keep_features(again.table, again, MapFeatures("rbf", 0.1, 3, 1.0, 10, "phase", 0))
    keep_sketched_features(again.table, again, ask)
    assert again.table is prepared
    np.testing.assert_array_equal(plain["ce-pca"].features, again["ce-pca"].features)


# ---------------------------------------------------------------- policies


@pytest.mark.parametrize("request_", [PoolRows, DrawRows, SketchFeatures, ProjectRows, SampleCoreset])
def test_what_discloses_rows_is_refused_unless_a_policy_says_otherwise(request_):
    for policy in (Policy(), Policy(per_site_results="averages")):
        refusals = (Refusal.SINGLE_ANSWER_FORBIDDEN, Refusal.ROWS_FORBIDDEN)
        assert policy.objection(NAME, request_) in refusals
        assert policy.objection(NAME, request_, is_masked=True) is Refusal.ROWS_FORBIDDEN


def test_default_policies_stop_every_run_that_pools_or_draws_rows():
    kernel, tables = Kernel("rbf", 0.1), split_evenly(blobs(90), 3)
    protocols = (
        ck(kernel, 3, n_components=3, n_columns=4, seed=0),
        ce_pca(kernel, CEPCASettings(3), n_columns=4, seed=0),
        rfk(kernel, 3, n_features=10, seed=0),
    )
    for protocol in protocols:
        with pytest.raises(QuorumLost):
            asked(protocol, tables, policy=Policy())
