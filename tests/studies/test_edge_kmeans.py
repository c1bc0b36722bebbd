"""The study of k-means from small summaries: its trials, its tables, and claims that turn with their numbers."""

from __future__ import annotations

import dataclasses
import pickle
import time
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from sklearn.cluster import KMeans

from coterie.estimators import EdgeKMeans
from coterie.examples.datasets import SiteData, digits
from coterie.methods.shared.lloyd import lloyd
from coterie_studies import edge_kmeans as study
from coterie_studies.edge_kmeans import make_study, uniform_sample
from coterie_studies.edge_kmeans.claims import case_points, claims, points, times
from coterie_studies.edge_kmeans.sets import (
    CASES,
    FULL,
    MEAN,
    NR,
    PAPER,
    QUICK,
    SMALL_CASES,
    Case,
    EdgeSet,
    Rare,
    Way,
    by_label,
    zero_mean,
)
from coterie_studies.folder import Finished, Scope
from coterie_studies.registry import STUDIES
from coterie_studies.study import Findings, run_study


def few_digits() -> SiteData:
    data = digits()
    return SiteData(data.rows[:300], data.columns, data.site[:300], data.truth[:300])


def one_class_a_site(seed: int) -> SiteData:
    data, n = few_digits(), 300 - seed
    return SiteData(data.rows[:n], data.columns, data.truth[:n], data.truth[:n])


ALWAYS = (Way(NR, "nr", most_seeds=1), Way("auto", "auto"), Way(MEAN, "mean", most_seeds=1))
ONE = tuple(
    Way(name, name.lower(), sizes, budget=1200 if sizes == "paper" else None)
    for sizes in ("paper", "small")
    for name in ("FSS", "JL+FSS", "FSS+JL", "JL+FSS+JL")
)
TEN = tuple(
    Way(name, pipeline, sizes, refine, budget=9000 if sizes == "paper" else None)
    for sizes in ("paper", "small")
    for name, pipeline, refine in (
        ("BKLW", "bklw", 0),
        ("JL+BKLW", "jl:32+bklw", 0),
        ("JL+BKLW, refine=1", "jl+bklw", 1),
    )
)
SMALL = EdgeSet("Small", few_digits, 2, ONE + ALWAYS, TEN + ALWAYS)
CASE = Case(
    "Few digits", "a class a site", one_class_a_site, 10,
    (Way("coreset (disSS)", "disss:40"), Way("uniform sample, pooled", "uniform:140"), Way("auto", "auto")),
)  # fmt: skip
ROWS = zero_mean(few_digits())


def cost(rows, centers):
    return float(((rows[:, None].astype(float) - centers) ** 2).sum(axis=2).min(axis=1).sum())


# ---------------------------------------------------------------- a trial


@pytest.mark.parametrize("way", [TEN[0], TEN[5], ALWAYS[1]], ids=lambda way: f"{way.name} {way.sizes}")
def test_a_trial_is_a_run_of_the_estimator_with_all_its_numbers(way):
    sites = np.empty(300, "<U9")
    for name, rows in study._shared_out(few_digits, "ten", 3).items():
        for row in rows:
            sites[(row == ROWS).all(axis=1)] = name
    made = EdgeKMeans(
        2, pipeline=way.pipeline, refine=way.refine, budget=way.budget, center=False, random_state=3
    ).fit(ROWS, sites=sites)
    found = study._measured(SMALL, "ten", way, 3)
    for what in ("floats_up", "bytes_up", "rounds"):
        assert found[what] == made.ledger_.total(what), what
    best = KMeans(2, n_init=10, random_state=0).fit(ROWS).cluster_centers_
    assert found["ratio"] == pytest.approx(cost(ROWS, made.cluster_centers_) / cost(ROWS, best), rel=1e-6)
    assert found["seconds"] > 0


def test_one_source_holds_all_rows():
    made = EdgeKMeans(2, pipeline="jl+fss", budget=1200, center=False, random_state=1).fit(ROWS)
    found = study._measured(SMALL, "one", ONE[1], 1)
    assert found["floats_up"] == made.ledger_.total("floats_up") <= 1200
    best = KMeans(2, n_init=10, random_state=0).fit(ROWS).cluster_centers_
    assert found["ratio"] == pytest.approx(made.inertia_ / cost(ROWS, best), rel=1e-5)


def test_what_the_centers_cost_is_counted_and_not_timed():
    tables = study._shared_out(few_digits, "ten", 0)
    fit, ledger, seconds = study._run(lloyd(np.zeros((2, 64)), max_rounds=0), tables, "lloyd")
    assert ledger.total("floats_up") == 10 * 3
    assert seconds == 0
    assert study._run(lloyd(fit.centers, max_rounds=1), tables, "lloyd")[2] > 0


def test_time_the_machine_had_for_others_is_not_the_sources():
    class Sleepy:
        members: ClassVar = {"a": SimpleNamespace(compute_seconds=0.0)}

        def exchange(self, payloads, timeout):
            time.sleep(0.2)
            self.members["a"].compute_seconds += 0.2
            return payloads

    timed = study._Timed(Sleepy())
    assert timed.exchange({"a": b""}, None) == {"a": b""}
    assert timed.seconds < 0.1


@pytest.mark.parametrize("sources", ["one", "ten"])
def test_no_reduction_is_what_the_estimator_does(sources):
    sites = None if sources == "one" else np.arange(300) % 10
    made = EdgeKMeans(2, pipeline="nr", random_state=0).fit(ROWS, sites=sites)
    found = study._measured(SMALL, sources, ALWAYS[0], 0)
    for what in ("floats_up", "bytes_up", "rounds"):
        assert found[what] == made.ledger_.total(what), what
    assert found["seconds"] == 0
    assert found["ratio"] == 1
    best = KMeans(2, n_init=10, random_state=0).fit(ROWS).cluster_centers_
    assert made.inertia_ == pytest.approx(cost(ROWS, best), rel=1e-3)


def test_the_mean_alone_costs_all_squares():
    found = study._measured(SMALL, "ten", ALWAYS[2], 0)
    best = KMeans(2, n_init=10, random_state=0).fit(ROWS).cluster_centers_
    assert found["ratio"] == pytest.approx((ROWS.astype(float) ** 2).sum() / cost(ROWS, best), rel=1e-5)
    assert found["floats_up"] == 10 * 66


def test_a_uniform_sample_is_of_rows_each_once(monkeypatch):
    drawn = []

    def solved(points, weights, k, *, seed):
        drawn.append(points)
        np.testing.assert_array_equal(weights, np.ones(75))
        return KMeans(k, n_init=10, random_state=seed).fit(points).cluster_centers_

    monkeypatch.setattr(study, "weighted_kmeans", solved)
    centers, told = uniform_sample(ROWS, 75, 3, 5)
    uniform_sample(ROWS, 75, 3, 6)
    places = [[int(np.flatnonzero((row == ROWS).all(axis=1))[0]) for row in points] for points in drawn]
    assert [len(set(some)) for some in places] == [75, 75]
    assert set(places[0]) != set(places[1])
    assert told["floats_up"] == 75 * 64
    assert cost(drawn[0], centers) == pytest.approx(KMeans(3, n_init=10, random_state=5).fit(drawn[0]).inertia_)


def test_uniform_draws_favour_no_row():
    """A few far rows are missed as often as chance has it: nothing is drawn by its distance."""
    rows = np.concatenate([np.zeros((90, 1)), np.full((10, 1), 100.0)])
    hits = [uniform_sample(rows, 20, 2, seed)[0].max() > 50 for seed in range(200)]
    assert np.mean(hits) == pytest.approx(1 - 0.095, abs=0.06)  # of 20 out of 100 none is of the 10


def test_a_case_is_judged_by_the_best_known_cost():
    data, best = study._drawn(CASE, 2)
    assert len(data.rows) == 298
    assert best <= KMeans(10, n_init=10, random_state=0).fit(data.rows).inertia_ * (1 + 1e-9)
    made = EdgeKMeans(10, pipeline="disss:40", center=False, random_state=2).fit(data.rows, sites=data.site)
    found = study._of_case(CASE, CASE.ways[0], 2)
    assert found["ratio"] == pytest.approx(cost(data.rows, made.cluster_centers_) / best)
    assert found["floats_up"] == made.ledger_.total("floats_up")
    centers, told = uniform_sample(data.rows, 140, 10, 2)
    found = study._of_case(CASE, CASE.ways[1], 2)
    assert (found["ratio"], found["floats_up"]) == (pytest.approx(cost(data.rows, centers) / best), 140 * 64)


def test_a_set_is_the_same_in_a_worker():
    """What is kept between trials is found again there: the best centers of MNIST take longer than most trials."""
    for one in (*FULL.values(), *QUICK.values(), *CASES.values()):
        assert hash(pickle.loads(pickle.dumps(one))) == hash(one)
        assert pickle.loads(pickle.dumps(one)) == one


# ---------------------------------------------------------------- data


def test_rows_have_zero_mean_and_are_shared_out_anew_for_every_seed():
    rows = study._loaded(digits)
    assert rows.dtype == np.float32
    assert np.abs(rows).max() <= 1
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-6)
    assert study._shared_out(digits, "one", 0)["all"] is rows
    first, second = (dict(study._shared_out(digits, "ten", seed)) for seed in (0, 1))
    assert {len(part) for part in first.values()} == {179, 180}
    together = np.concatenate(list(first.values()))
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(rows, axis=0))
    assert not np.array_equal(first["source-0"][:100], second["source-0"][:100])


@pytest.mark.parametrize("d", [2, 10])
def test_rare_clusters_are_rare_and_far_and_may_be_apart(d):
    mixed, apart = Rare(d)(4), Rare(d, is_apart=True)(4)
    np.testing.assert_array_equal(mixed.rows, apart.rows)
    assert [(mixed.truth == str(i)).sum() for i in range(3)] == [5000, 20, 10]
    means = [mixed.rows[mixed.truth == str(i)].mean(axis=0) for i in range(3)]
    assert np.linalg.norm(means[1] - means[0]) == pytest.approx(40, abs=1.5)
    assert np.linalg.norm(means[2] - means[1]) == pytest.approx(40 * np.sqrt(2), abs=2)
    assert {len(rows) for rows in mixed.by_site().values()} == {1006}
    held = {name: set(apart.truth[apart.site == name]) for name in apart.by_site()}
    assert held == {"site-0": {"0"}, "site-1": {"0"}, "site-2": {"0"}, "site-3": {"1"}, "site-4": {"2"}}
    assert not np.array_equal(mixed.rows, Rare(d)(5).rows)
    labels = KMeans(3, init=np.array(means), n_init=1).fit(mixed.rows).labels_
    assert sorted(np.bincount(labels)) == [10, 20, 5000]  # the best three centers are one a cluster


def test_sorted_by_label_a_site_has_few_digits():
    data = by_label(0)
    assert {len(rows) for rows in data.by_site().values()} == {179, 180}
    assert max(len(np.unique(data.truth[data.site == name])) for name in data.by_site()) <= 3
    np.testing.assert_array_equal(data.rows, by_label(1).rows)


# ---------------------------------------------------------------- the whole


def test_a_small_study_writes_everything(tmp_path):
    found = run_study(make_study(({"small": SMALL}, {"case": CASE}), ({}, {})), tmp_path / "run", quick=True, seeds=2)
    tables = {path.stem for path in (tmp_path / "run" / "tables").iterdir()}
    assert tables == {"claims", "claims-beyond", "small-one", "small-ten", "cases"}
    figures = {path.stem for path in (tmp_path / "run" / "figures").iterdir()}
    assert figures == {"figure-1-small", "figure-3-small", "cost-by-scalars", "cases-k10"}
    told = (tmp_path / "run" / "README.md").read_text()
    mean = found.values("ratio", set="small", way=MEAN)[0]
    assert f"One center, the mean of all rows, has a normalized cost of {mean:.4f}." in told
    assert "Skipped: the NeurIPS word counts" in told
    by = {(p.way.name, p.way.sizes): p for p in points(found, "small", SMALL, "ten")}
    ratios = found.values("ratio", set="small", sources="ten", way="BKLW", sizes="small")
    assert len(ratios) == 2
    assert by["BKLW", "small"].ratio.mean == pytest.approx(np.mean(ratios))
    assert by["BKLW", "small"].gain.mean == pytest.approx((mean - np.mean(ratios)) / (mean - 1))
    assert (by[MEAN, ""].gain.mean, by[NR, ""].gain.mean) == (pytest.approx(0), 1)
    assert f"| small | BKLW | {by['BKLW', 'small'].floats_up} |" in told
    shares = {p.way.name: p.share for p in case_points(found, "case", CASE)}
    costs = found.values("ratio", set="case", way="auto")
    assert len(costs) == 4  # two runs a seed
    assert shares["auto"] == np.mean([cost <= 1.05 for cost in costs])


def test_times_are_ratios_within_a_run(tmp_path):
    found = made_up(tmp_path, {"one/JL+FSS/small": {"seconds": 3.0}, "one/FSS/small": {"seconds": 4.0}})
    jl, auto = (
        next(w for w in GIVEN.one if (w.name, w.sizes) == pair) for pair in (("JL+FSS", "small"), ("auto", ""))
    )
    assert list(times(found, "given", "one", jl, "small")) == [pytest.approx(3 / 4), pytest.approx(6 / 8)]
    assert list(times(found, "given", "one", auto, "paper")) == [1, 1]


def test_without_a_data_folder_the_cases_are_left(tmp_path, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "nowhere"))
    found = run_study(make_study(({}, {}), (FULL, {"case": CASE})), tmp_path / "run", seeds=1)
    assert len(found.skipped()) == len(found.trials) - 2 * len(CASE.ways)
    told = (tmp_path / "run" / "README.md").read_text()
    assert "The paper's data was not there to run" in told
    assert "mnist.npz: there is no such file; set COTERIE_DATA to a folder that holds it." in told
    assert {path.stem for path in (tmp_path / "run" / "tables").iterdir()} == {"claims", "cases"}


def test_the_full_scope_is_the_papers_setting():
    made = STUDIES["edge-kmeans"]
    trials = {trial.key: trial for trial in made.trials(made.scope(False))}
    assert made.scope(False).seeds == 10
    assert {trial.labels["set"] for trial in trials.values()} == {*FULL, *CASES}
    k2, k10 = FULL["mnist-k2"], FULL["mnist-k10"]
    assert (k2.n_clusters, k10.n_clusters) == (2, 10)
    budgets = {way.name: way.budget for way in k2.one + k2.ten if way.sizes == "paper" and not way.refine}
    assert {name: count for name, count in budgets.items() if "columns" not in name} == {
        name: count for name, count in PAPER.items() if name != NR
    }
    projected = {way.name: way.pipeline for way in k2.ten if way.sizes == "paper" and "JL" in way.name}
    assert projected["JL+BKLW"] == projected["JL+BKLW, refine=1"] == "jl:588+bklw"  # 20,365,463 / 27,152,484 of 784
    assert projected["JL+BKLW, half the columns"] == "jl:392+bklw"
    small = [way for way in k2.one + k2.ten if way.sizes == "small"]
    assert all(way.budget is None and ":" not in way.pipeline for way in small)
    for way, sources in (("FSS+JL/paper", "one"), ("FSS/small", "one"), ("BKLW/paper", "ten"), ("auto/-", "ten")):
        assert f"mnist-k2/{sources}/{way}/seed=9" in trials
    assert "mnist-k10/one/JL+FSS/paper/seed=2" in trials
    assert "mnist-k10/ten/BKLW/paper/seed=1" not in trials
    assert "rare-10-apart/coreset (disSS)/seed=19" in trials
    assert {f"by-label/{way.name}/seed=0" for way in CASES["by-label"].ways} <= set(trials)


def test_the_quick_scope_needs_no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "nowhere"))
    made = STUDIES["edge-kmeans"]
    assert {trial.labels["set"] for trial in made.trials(Scope(True, 1))} == {*QUICK, *SMALL_CASES}
    assert [len(one.load().rows) for one in QUICK.values()] == [1797, 1797]
    assert [len(case.draw(0).rows) for case in SMALL_CASES.values()] == [5030, 5030, 1797]


# ---------------------------------------------------------------- claims

GIVEN = dataclasses.replace(FULL["mnist-k2"], title="Given")
GOOD = {
    "one/NR": {"ratio": 1.0, "floats_up": 47e6},
    "one/FSS": {"ratio": 1.04, "floats_up": 4e5},
    "one/JL+FSS": {"ratio": 1.05, "floats_up": 1.8e5, "seconds": 0.5},
    "one/FSS+JL": {"ratio": 1.05, "floats_up": 1.8e5, "seconds": 1.1},
    "one/JL+FSS+JL": {"ratio": 1.05, "floats_up": 1.8e5, "seconds": 0.5},
    "one/JL+FSS, refine=1": {"ratio": 1.05},
    "ten/BKLW": {"ratio": 1.01, "floats_up": 27e6},
    "ten/JL+BKLW": {"ratio": 1.02, "floats_up": 20e6, "seconds": 0.7},
    "ten/JL+BKLW, refine=1": {"ratio": 1.02},
    "ten/auto": {"ratio": 1.0009, "floats_up": 39_000.0},
    f"one/{MEAN}": {"ratio": 1.07},
    f"ten/{MEAN}": {"ratio": 1.07},
    "case/auto": {"ratio": 1.04},
    "case/coreset (disSS)": {"ratio": 1.04},
    "case/uniform sample, pooled": {"ratio": 1.06},
}
"""Numbers with which every claim holds."""
SPOILT = {
    "JL+FSS, FSS+JL, JL+FSS+JL: 99 % fewer": {"one/NR": {"floats_up": 1.7e7}},
    "JL+FSS, FSS+JL, JL+FSS+JL: a similar": {"one/FSS": {"ratio": 1.02}, "one/JL+FSS, refine=1": {"ratio": 1.04}},
    "JL+FSS, FSS+JL, JL+FSS+JL: significantly": {"one/FSS": {"floats_up": 3.5e5}},
    "JL first takes less time": {"one/JL+FSS+JL": {"seconds": 1.01}},
    "JL+FSS takes less time than FSS+JL": {"one/FSS+JL": {"seconds": 0.4}},
    "JL+FSS+JL: a cost comparable": {
        "one/JL+FSS": {"ratio": 1.029},
        "one/FSS+JL": {"ratio": 1.029},
        f"one/{MEAN}": {"ratio": 1.04},
        f"ten/{MEAN}": {"ratio": 1.04},
    },
    "JL+BKLW: a cost comparable": {"ten/JL+BKLW": {"ratio": 1.04}},
    "JL+BKLW: substantially fewer": {"ten/JL+BKLW": {"floats_up": 22e6}},
    "JL+BKLW: substantially less": {"ten/JL+BKLW": {"seconds": 0.85}},
    "the mean alone does as well": {"one/FSS+JL": {"ratio": 1.04}, "one/JL+FSS": {"ratio": 1.04}},
    "one step of Lloyd (refine=1) makes JL+FSS": {"one/JL+FSS, refine=1": {"ratio": 1.07}},
    "one step of Lloyd (refine=1) makes JL+BKLW": {"ten/JL+BKLW, refine=1": {"ratio": 1.04}},
    "auto, ten sources": {"ten/auto": {"floats_up": 40_001.0}},
    "auto, ten": {"ten/auto": {"ratio": 1.0011}},
    "auto is often": {"case/auto": {"ratio": 1.051}},
    "a coreset is within": {"case/coreset (disSS)": {"ratio": 1.06}},
}


def made_up(tmp_path, changed):
    """Findings of two seeds: the numbers above, changed here and there; the second run took twice the time."""
    trials = make_study(({"given": GIVEN}, {"case": CASE}), ({}, {})).trials(Scope(True, 2))
    finished = {}
    for trial in trials:
        labels = trial.labels
        key = f"{labels.get('sources', 'case')}/{labels['way']}"
        values = {"ratio": 1.0, "floats_up": 1e5, "rounds": 3.0, "seconds": 1.0}
        values |= GOOD.get(key, {}) | changed.get(key, {}) | changed.get(f"{key}/{labels.get('sizes')}", {})
        values["seconds"] *= 1 + int(labels["seed"])
        finished[trial.key] = Finished(trial.key, values)
    return Findings(tmp_path, Scope(True, 2), trials, finished)


def failed(found):
    rows = list(claims(found, {"given": GIVEN}, {"case": CASE}))
    assert len(rows) == 2 * 9 + 1 + 4 + 1 + 2
    return {row["claim"] for row in rows if row["verdict"] == "did not hold"}


def test_with_good_numbers_every_claim_holds(tmp_path):
    assert failed(made_up(tmp_path, {})) == set()


@pytest.mark.parametrize("claim", SPOILT)
def test_a_claim_turns_with_its_number(tmp_path, claim):
    told = failed(made_up(tmp_path, SPOILT[claim]))
    assert len(told) == 1
    assert told.pop().startswith(claim)


def test_with_ten_clusters_the_mean_alone_must_be_far(tmp_path):
    ten = dataclasses.replace(GIVEN, n_clusters=10)
    told = "the cost tells a clustering from none: the mean alone is more than 16 % above the best"
    for mean, verdict in ((1.2, "held"), (1.15, "did not hold")):
        found = made_up(tmp_path, {f"one/{MEAN}": {"ratio": mean}, f"ten/{MEAN}": {"ratio": mean}})
        rows = list(claims(found, {"given": ten}, {}))
        assert [row["verdict"] for row in rows if row["claim"] == told] == [verdict]
