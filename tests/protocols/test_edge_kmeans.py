"""k-means from small summaries: what is exact, what is unbiased, what comes back from a projection."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import InputError, QuorumLost
from coterie.maths.clustering import weighted_kmeans
from coterie.maths.coresets import solvable_weights
from coterie.maths.projections import Projection
from coterie.maths.summaries import Summary
from coterie.messages.schema import reply_type
from coterie.protocols.edge_auto import auto_kmeans
from coterie.protocols.edge_kmeans import EdgeSettings, edge_kmeans
from coterie.protocols.edge_sites import SendSummary
from coterie.protocols.edge_stages import JL, PCA, Centers, DisPCA, DisSS, Sample, accurate, read_pipeline, sized
from coterie.protocols.limits import within
from coterie.protocols.methods import METHODS
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from tests.federations import Cut, blobs, split_evenly, tables_of

ROWS = blobs(240, 6, 4, seed=5)
SIMULATED = Policy.simulation()


def cost(rows, centers, weights=None):
    squared = ((rows[:, None] - centers) ** 2).sum(-1).min(1)
    return float(squared.sum() if weights is None else squared @ weights)


def summarised(pipeline, tables=None, *, k=4, seed=0, ledger=None, policy=None, **options):
    """A run of a pipeline, given as words or stages."""
    tables = split_evenly(ROWS, 3) if tables is None else tables
    settings = EdgeSettings(read_pipeline(pipeline), **options)
    columns = len(next(iter(tables.values())).columns)
    with threadpool_limits(1), in_process(tables, policy=policy) as channel:
        return run(edge_kmeans(settings, k, columns, seed=seed), channel, method="edge-kmeans", ledger=ledger)


def somewhere(rows, k, seed):
    """Centers anywhere near rows."""
    rng = np.random.default_rng(seed)
    return rng.normal(rows.mean(0), 2 * rows.std(0), (k, rows.shape[1]))


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


# ---------------------------------------------------------------- pipelines


def test_the_papers_names():
    for name in ("nr", "fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw", "centers"):
        assert read_pipeline(name).name == name
    assert read_pipeline("JL:32 + PCA:10 + sample:500").stages == (JL(32), PCA(10), Sample(500))
    assert read_pipeline([JL(4, "sparse"), DisPCA(3, 4), DisSS(50)]).name == "jl+bklw"


WORDS = ("jl", "pca", "sample", "dispca", "disss", "centers")


@pytest.mark.parametrize("words", [w for n in (1, 2, 3) for w in product(WORDS, repeat=n)], ids="+".join)
def test_every_order_of_stages_runs_or_is_refused_before_anyone_is_asked(words):
    text = "+".join(words)
    ways = [i for i, word in enumerate(words) if word in ("sample", "disss", "centers")]
    shared = [i for i, word in enumerate(words) if word in ("jl", "dispca")]
    own = [i for i, word in enumerate(words) if word == "pca"]
    once_more = words[-2:] == ("sample", "jl")
    in_order = all(i < min([*ways, *own], default=9) for i in shared if not (once_more and i == len(words) - 1))
    sensible = len(ways) <= 1 and len(own) <= 1 and in_order and all(i < min(ways, default=9) for i in own)
    if not sensible or (own and ways and words[ways[0]] != "sample"):
        with pytest.raises(InputError, match=r"cannot come there|coordinates no other site has"):
            read_pipeline(text)
        return
    pipeline = read_pipeline(text)
    assert [type(s).__name__.lower() for s in pipeline.stages] == list(words)
    made = summarised(text, k=3)
    assert np.isfinite(made.centers).all()
    assert made.cost == pytest.approx(cost(ROWS, made.centers), rel=1e-9)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("jl+fs", "there is no stage 'fs'"),
        ("fss:10", "one for each stage"),
        ("jl:x", "write sizes as"),
        ("sample+pca", "before there are fewer points"),
        ("disss+jl", "only a sample is projected once more"),
        ("sample+sample", "done once"),
        ("pca+disss", "use dispca"),
        ([JL(0)], "at least 1"),
        ([JL(3, "fast")], "gaussian, sparse, orthogonal"),
        (["jl"], "is no stage"),
        ([Sample(2.5)], "whole number"),
        ([JL(7)], "at most 6 are possible"),
        ([PCA(7), Sample()], "at most 6"),
    ],
)
def test_what_makes_no_sense_is_said(given, told):
    with pytest.raises(InputError, match=told):
        summarised(given)


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize("pipeline", ["fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw", "jl+centers"])
@pytest.mark.parametrize("refine", [0, 2])
@pytest.mark.parametrize("n_sites", [1, 4])
def test_no_more_numbers_leave_than_the_budget_and_most_of_it_is_used(pipeline, refine, n_sites):
    rows = blobs(400, 30, 4, seed=1)
    for budget in (3_000, 12_000):
        ledger = Ledger()
        made = summarised(pipeline, split_evenly(rows, n_sites), budget=budget, refine=refine, ledger=ledger)
        assert ledger.total("floats_up") <= budget
        if "centers" not in pipeline:
            assert ledger.total("floats_up") > 0.6 * budget
        assert made.pipeline.name == pipeline


def test_too_small_a_budget_says_how_large_it_must_be():
    with pytest.raises(InputError, match=r"sends at least (\d+)") as problem:
        summarised("jl+fss", budget=20)
    least = int(str(problem.value).split("at least ")[1].rstrip("."))
    ledger = Ledger()
    summarised("jl+fss", budget=least, ledger=ledger)
    assert ledger.total("floats_up") <= least
    with pytest.raises(InputError, match="sends every row"):
        summarised("nr", budget=10_000)
    with pytest.raises(InputError, match="give one of them"):
        summarised("jl+fss", budget=10_000, accuracy=0.5)


def test_sizes_of_the_theorems():
    """By hand for FSS: (1 + e)/(1 - e) = 1.5 at e = 0.2; t = k + ceil(4k/e^2) - 1; k^3 log^2 k log(10)/e^4 points."""
    found = accurate(read_pipeline("fss"), 2, 10_000, 1e9, 1, 0.5)
    assert found.pca == PCA(2 + 200 - 1)
    assert found.points == Sample(int(np.ceil(8 * 1 * np.log(10) / 0.2**4)))
    jl = accurate(read_pipeline("jl+fss"), 2, 100_000, 1000.0, 1, 1.0)
    below = np.linspace(0, 0.5, 1_000_001)
    e = below[(1 + below) ** 5 / (1 - below) <= 2].max()
    assert jl.common[0].n_columns == pytest.approx(4 * np.log(1000 * 2 / 0.1) / (e**2 / 2 - e**3 / 3), rel=0.01)
    capped = accurate(read_pipeline("jl+bklw"), 3, 20, 500.0, 4, 0.1)
    assert capped.stages == (JL(20, "orthogonal"), DisPCA(20, 20), DisSS(500))
    assert accurate(read_pipeline("fss"), 3, 20, 500.0, 4, 1e-12).stages == (PCA(20), Sample(2000))
    for accuracy in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(InputError, match="above 0"):
            EdgeSettings(read_pipeline("fss"), accuracy=accuracy)
    with pytest.raises(InputError, match="the theorems are about"):
        EdgeSettings(read_pipeline("sample"), accuracy=0.5)


@pytest.mark.parametrize("pipeline", ["fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw"])
def test_an_accuracy_that_takes_everything_is_exact(pipeline):
    """Also where one site holds nearly all rows, and columns are few: a square Gaussian matrix would distort rows."""
    rows = blobs(200, 2, 4, seed=3)
    best = KMeans(4, n_init=20, random_state=0).fit(rows).inertia_
    owners = np.minimum(np.arange(200), 9)
    for seed in range(5):
        made = summarised(pipeline, tables_of(rows, owners, 10), seed=seed, accuracy=1e-3)
        assert made.cost <= 1.001 * best


@pytest.mark.parametrize("pipeline", ["fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw"])
def test_a_theorem_holds_with_its_sizes(pipeline):
    """Loose, as theorems are; that sizes matter is for the tests above."""
    made = summarised(pipeline, accuracy=1.0, lift="means")
    assert made.cost <= 2 * KMeans(4, n_init=10, random_state=0).fit(ROWS).inertia_


def test_default_sizes_grow_with_the_clusters_and_stop_at_the_columns():
    small, large = (sized(read_pipeline("jl+fss"), k, 1000) for k in (2, 20))
    assert small.stages == (JL(56), PCA(28), Sample(200))
    assert large.stages == (JL(126), PCA(63), Sample(1000))
    assert sized(read_pipeline("jl+bklw"), 2, 5).stages == (JL(5, "orthogonal"), DisPCA(5, 5), DisSS(200))


# ---------------------------------------------------------------- small and odd sites


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


# ---------------------------------------------------------------- what sites allow


def test_every_pipeline_that_sends_rows_is_refused_by_default_and_says_so():
    assert reply_type(SendSummary).content == "rows"
    for name in ("nr", "fss", "jl+fss", "fss+jl", "jl+fss+jl", "bklw", "jl+bklw"):
        assert "row" in METHODS[name].discloses
        assert "rows" in METHODS[name].single_answers
        for policy in (Policy(min_roster=1), Policy(single_answers="averages", min_roster=1, gram_rows=0)):
            with pytest.raises(QuorumLost), in_process(split_evenly(ROWS, 3), policy=policy) as channel:
                run(edge_kmeans(EdgeSettings(read_pipeline(name)), 4, 6, seed=0), channel, method=name)


@pytest.mark.parametrize("allowed", ["none", "averages"])
def test_auto_takes_what_sites_allow_and_sees_no_more(allowed):
    policy, ledger = Policy(single_answers=allowed), Ledger()
    limits = {"rows": 256.0, "box": 64.0}
    with in_process(split_evenly(ROWS, 4), policy=policy) as channel:
        made = run(
            within(limits, auto_kmeans(4, 6, seed=0)), channel, method="edge-kmeans", layers=[MaskedSums()],
            ledger=ledger,
        )  # fmt: skip
    best = KMeans(4, n_init=10, random_state=0).fit(ROWS).inertia_
    assert cost(ROWS, made.centers) <= 1.02 * best
    singles = {e.asked for e in ledger.exchanges if e.seen == "single" and e.phase == "algorithm"}
    assert singles == {"seeding.Summarise"}  # asked in both cases, and refused in one
    assert (ledger.total("floats_up") > 4 * 4 * 7 + 2 * 4 * 29) == (allowed == "none")


@pytest.mark.parametrize("budget", [200, 400, 2_000, 5_000])
@pytest.mark.parametrize("allowed", ["none", "averages"])
def test_auto_keeps_to_its_budget(budget, allowed):
    policy, ledger = Policy(single_answers=allowed, min_roster=1, min_count=1), Ledger()
    with in_process(split_evenly(ROWS, 4), policy=policy) as channel:
        protocol = within({"rows": 256.0, "box": 64.0}, auto_kmeans(4, 6, seed=0, budget=budget))
        try:
            run(protocol, channel, method="edge-kmeans", ledger=ledger, layers=[MaskedSums()])
        except (InputError, QuorumLost):
            assert allowed == "none"
            assert budget <= 400
    assert ledger.total("floats_up") <= budget


def test_auto_keeps_to_its_budget_where_a_start_was_tried_in_vain():
    """Too few own centers; one site of four that does not let its averages be seen; cells that do not double."""
    rows = blobs(48, 5, 4)
    few = {f"s{i}": ArrayTable(rows[i::4]) for i in range(4)}
    for budget in (600, 728, 1000, 1500, 2200):
        ledger = Ledger()
        with in_process(few) as channel:
            try:
                run(
                    auto_kmeans(6, 5, seed=0, budget=budget, min_count=5),
                    channel,
                    method="edge-kmeans",
                    ledger=ledger,
                )
            except InputError as problem:
                told = str(problem)
            assert ledger.total("floats_up") <= budget
    powers = {f"s{i}": ArrayTable(4.0 ** np.arange(i, 48, 4)[:, None] * [1.0, 0.5]) for i in range(4)}
    closed = {"s0": Policy(min_roster=1, min_count=1), **dict.fromkeys(["s1", "s2", "s3"], SIMULATED)}
    for budget in (300, 500, 616, 900):
        ledger = Ledger()
        with in_process(powers, policy=closed) as channel:
            try:
                run(auto_kmeans(4, 2, seed=0, budget=budget), channel, method="edge-kmeans", ledger=ledger)
            except (InputError, QuorumLost) as problem:
                told = str(problem)
            assert ledger.total("floats_up") <= budget
    assert told


def test_a_site_that_drops_out_in_mid_run_is_left_out():
    tables = split_evenly(ROWS, 4)
    for when in range(6):
        schedule = Schedule([Fault("site-3", "drop", frozenset(range(when, 20)))])
        with in_process(tables, schedule=schedule) as channel:
            made = run(
                edge_kmeans(EdgeSettings(read_pipeline("jl:3+bklw"), refine=2), 4, 6, seed=0),
                channel, method="jl+bklw", terms=Terms(quorum=0.5, resends=0),
            )  # fmt: skip
        assert made.counts.sum() == 180


def test_own_centers_hold_no_row_and_stand_for_enough():
    policy = Policy(single_answers="averages", min_roster=1)
    made = summarised("jl:3+centers", split_evenly(ROWS, 3), policy=policy)
    assert made.summary.weights.min() >= 5
    assert made.pipeline.points == Centers(4)


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


@pytest.mark.parametrize(
    ("pipeline", "left_out"),
    [  # 1 + accuracy = 2: the polynomials of section IV-C
        ("fss", lambda e: (1 + e) - 2 * (1 - e)),
        ("jl+fss", lambda e: (1 + e) ** 5 - 2 * (1 - e)),
        ("fss+jl", lambda e: (1 + e) ** 5 - 2 * (1 - e)),
        ("jl+fss+jl", lambda e: (1 + e) ** 9 - 2 * (1 - e)),
        ("bklw", lambda e: (1 + e) ** 2 - 2 * (1 - e) ** 2),
        ("jl+bklw", lambda e: (1 + e) ** 6 - 2 * (1 - e) ** 2),
    ],
)
def test_stages_get_the_accuracy_of_section_iv_c(pipeline, left_out):
    fine = np.linspace(1e-4, 0.4, 4_000_001)
    e = fine[np.abs(left_out(fine)).argmin()]
    found = accurate(read_pipeline(pipeline), 5, 1 << 30, 1e6, 3, 1.0)
    axes = found.pca or next(stage for stage in found.common if isinstance(stage, DisPCA))
    assert axes.n_components == pytest.approx(5 + 4 * 5 / e**2 - 1, abs=1.01)
