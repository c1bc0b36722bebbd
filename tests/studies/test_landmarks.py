"""The study of landmark kernel k-means: its wiring on small data, its numbers, and promises that turn with them."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest

from coterie.baselines import NystroemKernelKMeans
from coterie.estimators import DSPGDKernelPCA, FederatedKernelKMeans, FederatedKernelPCA
from coterie.examples.datasets import circles, digits
from coterie_studies import landmarks as study
from coterie_studies.federated_kernel_kmeans.sets import KernelSet
from coterie_studies.folder import Finished, Scope
from coterie_studies.landmarks import make_study
from coterie_studies.landmarks.cases import CASES, SMALL_CASES, clumps
from coterie_studies.landmarks.claims import claims, headline, points
from coterie_studies.landmarks.sets import FULL, QUICK, LandmarkSet, Promise, Way, by_label, of_paper
from coterie_studies.registry import STUDIES
from coterie_studies.study import Findings, run_study

PAPER = KernelSet("Small", partial(clumps, 600, 4, 3, 0.4), 3, 20, 4, 60, 20, (40, 60, 80), (8, 20), "ck")
SMALL = dataclasses.replace(
    of_paper(PAPER, (2, 4), None),
    promises=(Promise("local", 1.005, 5000, 4), Promise("summed", 1.01, 60_000)),
    recover=(2e-4, 14_000),
    saves=150,
)
HARD = LandmarkSet(
    "Hard", PAPER.load, 3, 4, (Way("ck", "exact", {"method": "ck"}), Way("auto", "default", is_masked=True)),
    gamma_times=3.0, yardstick=("", "ck"), why="a test",
)  # fmt: skip


def way(one: LandmarkSet, name: str, setting: str) -> Way:
    return next(some for some in one.ways if (some.name, some.setting) == (name, setting))


# ---------------------------------------------------------------- a trial


def test_a_trial_is_a_run_of_the_estimator_with_its_bytes_by_site():
    data = SMALL.load()
    made = FederatedKernelKMeans(3, landmarks="local", landmark_bits=2, max_rounds=0, random_state=4)
    made.fit(data.rows, sites=data.site)
    found = study._clustered(SMALL, way(SMALL, "local", "small"), 4)
    assert found["bytes_up"] == made.ledger_.total("bytes_up") / 5
    assert found["floats_up"] == made.ledger_.total("floats_up") / 5
    assert found["rounds"] == made.ledger_.total("rounds")
    assert found["singles"] == 10  # five sites: landmarks, and how good the starts are
    assert found["cost"] == pytest.approx(study._reference(SMALL).cost(made.labels_))
    assert 0.5 < found["nmi_geometric"] <= 1


def test_masked_sums_show_no_single_answer_and_every_row_has_a_label():
    found = study._clustered(SMALL, way(SMALL, "summed", "m=30"), 0)
    assert found["singles"] == 0
    assert found["rounds_masking"] > 3
    assert found["cost"] < 1.5 * study._pooled_in_blocks(SMALL, Way("sk", "c=1000"), 0)["cost"]


def test_scalable_kernel_k_means_in_blocks_is_what_the_estimator_does():
    data = SMALL.load()
    made = NystroemKernelKMeans(3, n_components=4, n_landmarks=600, random_state=0)
    made.fit(data.rows, sites=data.site)
    found = study._pooled_in_blocks(SMALL, Way("sk", "c=1000"), 0)
    assert found["bytes_up"] == made.ledger_.total("bytes_up") / 5
    assert found["floats_up"] == made.ledger_.total("floats_up") / 5
    assert found["rounds"] == made.ledger_.total("rounds")
    assert found["cost"] == pytest.approx(study._reference(SMALL).cost(made.labels_), rel=1e-6)


def test_only_the_iterations_of_dspgd_are_counted_as_its_own():
    for solver in ("gram", "lanczos"):
        found = study._clustered(SMALL, way(SMALL, f"dspgd-{solver}", "T=4"), 0)
        assert 0 < found["floats_iterations"] < found["floats_up"]
    gram = study._clustered(SMALL, way(SMALL, "dspgd-gram", "T=2"), 0)
    assert gram["floats_iterations"] >= 2 * 20 * 21 / 2
    assert "floats_iterations" not in study._clustered(SMALL, way(SMALL, "rfk", "C=40"), 0)


@pytest.mark.parametrize("n", range(3))
def test_the_recover_error_is_that_of_the_kernel_matrix(n):
    """As matrices of all rows have it, whichever way rows were embedded."""
    chosen, data, s = SMALL.embeddings[n], SMALL.load(), SMALL.n_components
    found = study._embedded(SMALL, chosen, 1)
    values, vectors = np.linalg.eigh(study._kernel(SMALL).between(data.rows, data.rows))
    best = (vectors[:, -s:] * values[-s:]) @ vectors[:, -s:].T
    none = (values[-s:] ** 2).sum() / 600**2
    assert 0 < found["error"] < (0.01 if chosen.name != "dspgd-gram" else 0.5) * none
    if not chosen.is_masked:
        options = dict(chosen.options)
        kind = DSPGDKernelPCA if options.pop("method", "") == "dspgd" else FederatedKernelPCA
        made = kind(s, center=False, random_state=1, **options).fit(data.rows, sites=data.site)
        h = made.transform(data.rows)
        assert found["error"] == pytest.approx(((h @ h.T - best) ** 2).sum() / 600**2, rel=1e-3)
        assert found["bytes_up"] == made.ledger_.total("bytes_up") / 5


def test_ways_find_gamma_by_themselves_unless_a_set_names_another():
    assert study._given_gamma(SMALL) is None
    average, times = study._kernel(SMALL).gamma, study._kernel(HARD).gamma
    assert study._given_gamma(HARD) == times == pytest.approx(3 * average)
    assert study._given_gamma(QUICK["circles"]) == study._kernel(QUICK["circles"]).gamma == 4
    rows = SMALL.load().rows
    squared = ((rows[:, None] - rows) ** 2).sum()
    assert average == pytest.approx(600**2 / (2 * squared))


# ---------------------------------------------------------------- the whole


def test_a_small_study_writes_everything(tmp_path):
    found = run_study(make_study({"small": SMALL, "hard": HARD}, {}), tmp_path / "run", quick=True, seeds=2)
    assert {path.stem for path in (tmp_path / "run" / "figures").iterdir()} == {"nmi", "cost"}
    tables = {path.stem for path in (tmp_path / "run" / "tables").iterdir()}
    assert tables == {"claims", "headline", "quality-small", "embeddings", "cases"}
    told = (tmp_path / "run" / "README.md").read_text()
    assert "- Hard: a test." in told
    lowest = min(points(found, "small", SMALL), key=lambda point: point.ratio.mean)
    assert f"{lowest.setting} ({lowest.ratio.mean:.4f})." in told
    assert "Ratios are to the best of CK for Hard" in told
    assert len(points(found, "small", SMALL)) == len(SMALL.ways)
    ratios = [cost / min(found.values("cost", set="small", way="sk")) for cost in found.values("cost", set="small")]
    assert points(found, "small", SMALL, "sk")[0].ratio.mean >= 1
    assert points(found, "small", SMALL, "local")[0].ratio.mean in [pytest.approx(r, rel=0.05) for r in ratios]
    late = [trial.labels["way"] for trial in found.trials][-2 * 7 :]
    assert set(late) == {"dspgd-lanczos", "rfk", "ce-pca"}


def test_without_a_data_folder_the_hard_cases_are_left(tmp_path, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "nowhere"))
    found = run_study(make_study({}, {**FULL, "hard": HARD}), tmp_path / "run", seeds=1)
    assert len(found.skipped()) == len(found.trials) - 2
    told = (tmp_path / "run" / "README.md").read_text()
    assert "What is promised" not in told
    assert "Hard: a test." in told
    assert not (tmp_path / "run" / "figures").exists()


def test_the_full_scope_is_what_is_promised_and_the_papers_settings():
    made = STUDIES["landmarks"]
    trials = {trial.key: trial for trial in made.trials(made.scope(False))}
    assert made.scope(False).seeds == 5
    assert {trial.labels["set"] for trial in trials.values()} == {*FULL, *CASES}
    assert {f"{name}/clusters/sk/c=1000/seed=4" for name in ("mushrooms", "mnist", "covtype")} <= set(trials)
    assert {f"{name}/embedding/local/m=50/seed=0" for name in ("mushrooms", "mnist", "covtype")} <= set(trials)
    assert "mushrooms/clusters/ck/exact/seed=0" in trials
    settings = {
        name: [(some.options["n_features"], some.options["n_components"], some.options["n_iter"])
               for some in one.ways if some.name == "dspgd-lanczos"]
        for name, one in FULL.items()
    }  # fmt: skip
    assert settings["mnist"] == [(40, 20, 10), (40, 20, 30)]
    assert settings["mushrooms"] == [(20, 6, 10), (20, 6, 30)]
    assert settings["covtype"] == [(40, 14, 10)]
    assert way(FULL["mnist"], "local", "default").options == {"landmarks": "local"}
    assert all(some.is_masked == (some.name == "summed") for some in FULL["mnist-by-label"].ways)


def test_the_quick_scope_needs_no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "nowhere"))
    made = STUDIES["landmarks"]
    assert {trial.labels["set"] for trial in made.trials(Scope(True, 1))} == {*QUICK, *SMALL_CASES}
    assert [len(one.load().rows) for one in (*QUICK.values(), *SMALL_CASES.values())][:2] == [1797, 1000]


# ---------------------------------------------------------------- data


def test_sorted_by_label_a_site_has_few_classes():
    data = digits()
    by = by_label(digits)
    assert {len(rows) for rows in by.by_site().values()} == {359, 360}
    assert max(len(np.unique(by.truth[by.site == name])) for name in by.by_site()) <= 3
    np.testing.assert_array_equal(by.rows, data.rows)
    assert len(np.unique(data.truth[data.site == "site-0"])) == 10


def test_clumps_are_always_the_same_and_sites_of_the_size_told():
    tiny = CASES["tiny"].load()
    sizes = [len(rows) for rows in tiny.by_site().values()]
    assert (len(sizes), min(sizes) >= 18, max(sizes) <= 63) == (1000, True, True)
    assert SMALL_CASES["wide"].load().rows.shape == (500, 2000)
    assert len(np.unique(CASES["many-100"].load().truth)) == 100
    np.testing.assert_array_equal(clumps(50, 3, 2, 0.1).rows, clumps(50, 3, 2, 0.1).rows)
    assert CASES["few-columns"].load().rows.shape == circles().rows.shape


# ---------------------------------------------------------------- promises

GOOD = {
    "clusters/sk/c=1000": {"cost": 100.0, "nmi_geometric": 0.5, "nmi_arithmetic": 0.5, "bytes_up": 1e6},
    "clusters/local/default": {"cost": 100.3, "bytes_up": 4000.0, "rounds": 4.0},
    "clusters/local/large": {"cost": 100.1, "bytes_up": 9000.0, "rounds": 7.0},
    "clusters/summed/m=50": {"cost": 100.9, "bytes_up": 50_000.0, "rounds": 20.0, "singles": 0.0},
    "clusters/dspgd-gram/T=4": {"cost": 101.0, "floats_iterations": 95_000.0, "floats_up": 90_000.0, "rounds": 40.0},
    "clusters/dspgd-lanczos/T=4": {"cost": 101.0, "floats_iterations": 99_000.0, "floats_up": 1e5, "rounds": 900.0},
    "embedding/local/m=50": {"error": 1e-4, "bytes_up": 13_000.0},
}
"""Numbers with which every promise is kept."""
SPOILT = {
    "landmarks, local: f_K ratio at most 1.005": {"clusters/local/default": {"cost": 100.6}},
    "landmarks, local: f_K ratio": {"clusters/local/default": {"rounds": 5.0}},
    "landmarks, local: f_K": {"clusters/local/default": {"bytes_up": 5001.0}},
    "landmarks, masked sums: f_K ratio at most 1.01": {"clusters/summed/m=50": {"cost": 101.1}},
    "landmarks, masked sums: f_K ratio": {"clusters/summed/m=50": {"bytes_up": 60_001.0}},
    "masked sums: no answer": {"clusters/summed/m=50": {"singles": 0.5}},
    "landmarks, local: NMI at most": {"clusters/local/default": {"nmi_geometric": 0.489}},
    "landmarks, local: NMI": {"clusters/local/default": {"nmi_arithmetic": 0.489}},
    "landmarks, masked sums: NMI": {"clusters/summed/m=50": {"nmi_arithmetic": 0.48}},
    "landmarks, local: at least 150 times": {"clusters/dspgd-gram/T=4": {"floats_iterations": 74_000.0}},
    "landmarks, local: at least": {"clusters/dspgd-gram/T=4": {"cost": 100.2}},
    "landmarks, local: recover error at most": {"embedding/local/m=50": {"error": 2.1e-4}},
    "landmarks, local: recover error": {"embedding/local/m=50": {"bytes_up": 14_001.0}},
}


def made_up(tmp_path, changed):
    """Findings of two seeds: the numbers above, changed here and there, a little apart from seed to seed."""
    kept = [some for some in SMALL.ways if f"clusters/{some.name}/{some.setting}" in GOOD]
    small = dataclasses.replace(SMALL, ways=tuple(kept), embeddings=SMALL.embeddings[:1])
    trials = make_study({"small": small}, {}).trials(Scope(True, 2))
    finished = {}
    for trial in trials:
        key = "/".join(trial.key.split("/")[1:-1])
        values = {"nmi_geometric": 0.495, "nmi_arithmetic": 0.495, "rounds": 4.0, "rounds_masking": 0.0}
        values |= {"bytes_up": 1e6, "floats_up": 1e5, "singles": 5.0, "seconds": 1.0}
        values |= GOOD[key] | changed.get(key, {})
        if trial.labels["way"] == "sk":
            values["cost"] += 7.0 * int(trial.labels["seed"])  # the best seed's is the yardstick
        elif "cost" in values:
            values["cost"] += 0.05 * (2 * int(trial.labels["seed"]) - 1)
        finished[trial.key] = Finished(trial.key, values)
    return Findings(tmp_path, Scope(True, 2), trials, finished), small


def failed(found, small):
    rows = list(claims(found, {"small": small}))
    assert len(rows) == 7
    return [row["promised"] for row in rows if row["verdict"] == "did not hold"]


def test_with_good_numbers_every_promise_is_kept(tmp_path):
    assert failed(*made_up(tmp_path, {})) == []


@pytest.mark.parametrize("promise", SPOILT)
def test_a_promise_turns_with_its_number(tmp_path, promise):
    told = failed(*made_up(tmp_path, SPOILT[promise]))
    assert len(told) == 1
    assert told[0].startswith(promise)


def test_bytes_and_rounds_are_held_against_the_cheapest_way_that_is_as_good(tmp_path):
    rows = list(headline(*reordered(made_up(tmp_path, {"clusters/dspgd-gram/T=4": {"cost": 100.2}}))))
    assert [(row["DSPGD"][:18], row["ours"]) for row in rows] == [
        ("DSPGD + CEM, Gram,", "landmarks, local, large"),
        ("DSPGD + CEM, Gram,", "landmarks, masked sums: none as good"),
        ("DSPGD + CEM, Lancz", "landmarks, local, default"),
        ("DSPGD + CEM, Lancz", "landmarks, masked sums, m=50"),
    ]
    assert [row["times fewer bytes"] for row in rows if "our rounds" in row] == ["80.0", "200.0", "16.0"]
    assert [row["times fewer rounds"] for row in rows if "our rounds" in row] == ["5.7", "225.0", "45.0"]


def reordered(made):
    found, small = made
    return found, "small", small
