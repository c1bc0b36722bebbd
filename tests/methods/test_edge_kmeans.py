"""k-means from small summaries: what is exact, what is unbiased, what comes back from a projection."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from coterie.errors import InputError, QuorumLost
from coterie.maths.clustering import weighted_kmeans
from coterie.maths.coresets import Summary, solvable_weights
from coterie.maths.projections import Projection
from coterie.methods.edge.stages import JL, PCA, DisPCA, DisSS, Sample
from coterie.runtime.ledger import Ledger
from coterie.sites.tables import ArrayTable
from tests.federations import Cut, blobs, split_evenly, tables_of
from tests.methods.edge_runs import ROWS, cost, somewhere, summarised

# ---------------------------------------------------------------- exact


@pytest.mark.parametrize(
    "stages",
    [
        [JL(6, "orthogonal")],
        [JL(6, "orthogonal"), Sample(10_000)],
        [Sample(10_000)],
        [PCA(6), Sample(10_000)],
        [DisPCA(6), DisSS(10_000)],
        [JL(6, "orthogonal"), DisPCA(6), DisSS(10_000)],
        [],
    ],
    ids=str,
)
@pytest.mark.parametrize("n_sites", [1, 3])
def test_where_nothing_is_lost_it_is_the_problem_itself(stages, n_sites):
    """Any centers have the cost of all rows, and the solution is that of all rows."""
    made = summarised(stages, split_evenly(ROWS, n_sites), center=False)
    for seed in range(5):
        centers = somewhere(ROWS, 4, seed)
        assert made.summary.cost(made.reduce(centers)) == pytest.approx(cost(ROWS, centers), rel=1e-10)
    best = KMeans(4, n_init=10, random_state=0).fit(ROWS).inertia_
    assert made.cost == pytest.approx(best, rel=1e-10)
    assert cost(ROWS, made.centers) == pytest.approx(best, rel=1e-10)
    assert made.summary.n_rows == pytest.approx(240, rel=1e-14)


@pytest.mark.parametrize("t", [1, 2, 4])
def test_centers_inside_the_subspace_cost_what_the_summary_says(t):
    """cost(P) = cost(P~) + Delta: the third side of a right angle."""
    table = {"a": ArrayTable(ROWS)}
    made = summarised([PCA(t)], table, center=False)
    axes = np.linalg.svd(ROWS, full_matrices=False)[2][:t]
    for seed in range(10):
        inside = np.random.default_rng(seed).normal(size=(4, t)) * 5 @ axes
        assert made.summary.cost(inside) == pytest.approx(cost(ROWS, inside), rel=1e-9)
    assert made.summary.delta == pytest.approx(float(((ROWS - ROWS @ axes.T @ axes) ** 2).sum()), rel=1e-9)


@pytest.mark.parametrize("t", [2, 4])
def test_the_same_holds_over_sites_with_their_common_axes(t):
    made = summarised([DisPCA(t, 6), DisSS(10_000)], center=False)
    axes = np.linalg.svd(ROWS, full_matrices=False)[2][:t]
    for seed in range(10):
        inside = np.random.default_rng(seed).normal(size=(4, t)) * 5 @ axes
        assert made.summary.cost(made.reduce(inside)) == pytest.approx(cost(ROWS, inside), rel=1e-9)


@pytest.mark.parametrize(
    "pipeline", ["jl:3+fss", "fss+jl:3", "jl:4+fss+jl:2", "jl:3+bklw", "jl:5+dispca:4+jl:2+disss:30"]
)
def test_centers_that_come_back_are_projected_onto_those_that_were_found(pipeline):
    """pi(X) = X', the one thing the paper asks of its lift."""
    made = summarised(pipeline)
    np.testing.assert_allclose(made.reduce(made.centers), made.reduced, rtol=1e-11, atol=1e-12 * np.abs(ROWS).max())
    assert np.abs(made.reduced).max() > 1


# ---------------------------------------------------------------- unbiased


@pytest.mark.parametrize("pipeline", ["sample:40", "disss:40", "pca:6+sample:40"])
def test_weights_add_up_to_the_rows_exactly_and_costs_are_right_on_average(pipeline):
    centers = somewhere(ROWS, 4, 3)
    true, found = cost(ROWS, centers), []
    for seed in range(60):
        made = summarised(pipeline, seed=seed, center=False)
        assert made.summary.weights.sum() == pytest.approx(240, rel=1e-12)
        found.append(made.summary.cost(centers))
    assert abs(np.mean(found) - true) < 4 * np.std(found) / np.sqrt(len(found))
    assert np.std(found) < 0.2 * true


def test_negative_weights_are_kept_for_costs_and_set_to_zero_for_the_solver():
    points, weights = np.array([[0.0], [1.0], [9.0], [10.0]]), np.array([5.0, -1.0, 4.0, 2.0])
    made = Summary(points, weights, 0.5)
    assert made.cost(np.array([[0.0], [9.0]])) == pytest.approx(-1 + 2 + 0.5)
    solved = solvable_weights(weights)
    assert solved.sum() == 10
    assert solved.min() == 0
    np.testing.assert_allclose(np.sort(made.centers(2, seed=0).ravel()), [0, (4 * 9 + 2 * 10) / 6])


def test_duplicated_rows_have_the_weight_of_all_of_them():
    rows = np.repeat(ROWS[:12], 20, axis=0)
    made = summarised("pca+sample:60", split_evenly(rows, 2), k=3)
    assert made.summary.n_rows == pytest.approx(240)
    assert made.cost <= 1.2 * KMeans(3, n_init=10, random_state=0).fit(rows).inertia_


def test_a_row_that_counts_twice_is_two_rows():
    counts = np.random.default_rng(2).integers(1, 4, 240).astype(float)
    made = summarised([PCA(4)], {"a": ArrayTable(ROWS, weights=counts)}, center=False)
    again = summarised([PCA(4)], {"a": ArrayTable(np.repeat(ROWS, counts.astype(int), axis=0))}, center=False)
    centers = somewhere(ROWS, 4, 1)
    assert made.summary.cost(centers) == pytest.approx(again.summary.cost(centers), rel=1e-9)
    everything = summarised([], {"a": ArrayTable(ROWS, weights=counts)})
    assert everything.summary.n_rows == counts.sum()


# ---------------------------------------------------------------- back from a projection

DIGITS = load_digits().data


def test_the_papers_lift_shortens_centers_by_what_the_projection_does_not_see():
    """cost = W + (1 - d'/d) B on average over projections, where W is within and B between clusters: X' Pi^+ is X
    projected onto a random subspace of d' of d directions. The paper's theorems need no such term."""
    centers = KMeans(10, n_init=3, random_state=0).fit(DIGITS)
    away = DIGITS - DIGITS.mean(0)
    within, between = centers.inertia_, float((away**2).sum()) - centers.inertia_
    for p in (16, 32, 48):
        costs = []
        for seed in range(30):
            one = Projection("orthogonal", 64, p, seed)
            back = one.lift(one.apply(centers.cluster_centers_ - DIGITS.mean(0)))
            own = ((away - back[centers.labels_]) ** 2).sum()
            costs.append(float(own))
        expected = 1 + (1 - p / 64) * between / within
        assert np.mean(costs) / within == pytest.approx(expected, rel=0.01)
        assert expected > 1.2


def test_one_step_of_means_mends_the_lift():
    """JL to 32 of 64 columns, 500 points, ten clusters: the mean over ten runs."""
    best = KMeans(10, n_init=10, random_state=0).fit(DIGITS).inertia_
    tables = {"a": ArrayTable(DIGITS)}
    stages = [JL(32), PCA(), Sample(500)]
    lifted_, refined, by_means = (
        np.mean([summarised(stages, tables, k=10, seed=s, **o).cost / best for s in range(10)])
        for o in ({}, {"refine": 1}, {"lift": "means"})
    )
    assert lifted_ > 1.3
    assert refined <= 1.06
    assert by_means <= 1.06


@pytest.mark.parametrize("n_sites", [1, 4])
def test_algorithm_1_takes_the_means_of_the_rows_of_each_cluster(n_sites):
    """By hand: rows projected, each to its nearest center there, and the means of the rows themselves."""
    made = summarised([JL(3), PCA(2), Sample(60)], split_evenly(ROWS, n_sites), lift="means")
    one = Projection("gaussian", 6, 3, 0)
    seen = one.apply(ROWS - ROWS.mean(0))
    labels = ((seen[:, None] - made.reduced) ** 2).sum(-1).argmin(1)
    expected = np.array([ROWS[labels == c].mean(0) for c in range(4)])
    np.testing.assert_allclose(made.centers, expected, rtol=1e-9, atol=1e-9)


def test_algorithm_3_takes_the_means_of_the_points_of_each_cluster():
    made = summarised([Sample(60), JL(3)], {"a": ArrayTable(ROWS)}, lift="means")
    points, weights = made.summary.points, solvable_weights(made.summary.weights)
    projected = Projection("gaussian", 6, 3, 100).apply(points)
    reduced = weighted_kmeans(projected, weights, 4, seed=0)
    labels = ((projected[:, None] - reduced) ** 2).sum(-1).argmin(1)
    expected = np.array([np.average(points[labels == c], 0, weights[labels == c]) for c in range(4)])
    np.testing.assert_allclose(made.centers, expected + ROWS.mean(0), rtol=1e-9, atol=1e-9)


def test_an_offset_of_all_rows_changes_nothing_where_the_mean_is_subtracted():
    far = {"a": ArrayTable(ROWS + 1e4)}
    made, moved = summarised("jl:3+fss", {"a": ArrayTable(ROWS)}), summarised("jl:3+fss", far)
    np.testing.assert_allclose(moved.centers - 1e4, made.centers, atol=1e-6)
    assert summarised("jl:3+fss", far, center=False).cost > 100 * moved.cost


@pytest.mark.parametrize("pipeline", ["jl:5+jl:3", "jl:5+jl:4+dispca:3", "dispca:5+jl:4", "jl:4"])
def test_sites_see_rows_as_the_server_thinks_they_do(pipeline):
    """All rows come, reduced; the fit reduces them itself in the same way."""
    made = summarised(pipeline)
    seen, own = made.summary.points, made.reduce(ROWS)
    order, own_order = np.lexsort(np.round(seen, 6).T), np.lexsort(np.round(own, 6).T)
    np.testing.assert_allclose(seen[order], own[own_order], atol=1e-9 * np.abs(own).max())


def test_what_common_axes_leave_and_what_own_axes_leave_adds_up():
    made = summarised("dispca:4+pca:2", {"a": ArrayTable(ROWS)})
    away = ROWS - ROWS.mean(0)
    values = np.linalg.svd(away, compute_uv=False) ** 2
    assert made.summary.delta == pytest.approx(values[2:].sum(), rel=1e-9)


# ---------------------------------------------------------------- small and odd sites


@pytest.mark.parametrize("stages", [[PCA(3), Sample(120)], [JL(20), PCA(3), Sample(120)]], ids=str)
def test_a_site_without_rows_answers_where_others_send_a_basis_of_their_own(stages):
    """Thirty columns: coordinates and a basis are less than points."""
    rows, ledger = blobs(240, 30, 4, seed=2), Ledger()
    made = summarised(stages, tables_of(rows, np.arange(240) % 3, 4), refine=2, ledger=ledger)
    d = made.reduced.shape[1]
    assert ledger.total("floats_up") == 4 * (32 + (30 + 4) * 4 + 3 * d + 1 + 2 * (4 * 31 + 1) + 5)
    assert made.counts.sum() == 240
    assert made.cost <= 1.3 * KMeans(4, n_init=10, random_state=0).fit(rows).inertia_


@pytest.mark.parametrize(
    "pipeline", ["nr", "fss", "jl:3+fss", "fss+jl:3", "jl:4+fss+jl:2", "bklw", "jl:3+bklw", "centers"]
)
class TestOddSites:
    def test_a_site_without_rows_changes_nothing_but_its_share(self, pipeline):
        made = summarised(pipeline, tables_of(ROWS, np.arange(240) % 3, 4), refine=2)
        assert made.counts.sum() == 240
        assert made.cost <= 1.3 * KMeans(4, n_init=10, random_state=0).fit(ROWS).inertia_

    def test_all_rows_equal(self, pipeline):
        rows = np.full((30, 6), 3.0)
        made = summarised(pipeline, split_evenly(rows, 3), k=2 if pipeline != "centers" else 1)
        np.testing.assert_allclose(made.centers, 3.0, atol=1e-9)
        assert made.cost == pytest.approx(0, abs=1e-15)

    def test_one_cluster_is_the_mean(self, pipeline):
        made = summarised(pipeline, k=1, refine=1)
        np.testing.assert_allclose(made.centers, ROWS.mean(0)[None], atol=1e-9)

    def test_as_many_clusters_as_rows(self, pipeline):
        rows = ROWS[:12]
        if pipeline == "centers":
            with pytest.raises(InputError, match="6 centers of their own for 12 clusters"):
                summarised(pipeline, split_evenly(rows, 3), k=12)
            return
        made = summarised(pipeline, split_evenly(rows, 3), k=12, lift="means")
        if "jl" not in pipeline:
            assert made.cost == pytest.approx(0, abs=1e-9)
        assert made.counts.sum() == 12

    def test_fewer_rows_than_points(self, pipeline):
        made = summarised(pipeline, split_evenly(ROWS[:30], 3), k=3, refine=3)
        assert made.summary.n_rows == pytest.approx(30)

    def test_no_rows_at_all_is_said(self, pipeline):
        with pytest.raises((InputError, QuorumLost), match=r"0 rows|own for 4 clusters"):
            summarised(pipeline, {"a": ArrayTable(np.zeros((0, 6))), "b": ArrayTable(np.zeros((0, 6)))})

    def test_blocks_do_not_matter(self, pipeline):
        made = summarised(pipeline, split_evenly(ROWS, 3))
        cut = summarised(pipeline, {f"site-{m}": Cut(ROWS[80 * m : 80 * m + 80]) for m in range(3)})
        np.testing.assert_allclose(made.centers, cut.centers, rtol=1e-7, atol=1e-7)
