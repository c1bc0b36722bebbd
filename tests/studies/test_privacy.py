"""The study of differential privacy: trials, tables, what peers do, and claims that turn with their numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans

from coterie.maths.accounting import mu_of
from coterie_studies.folder import Finished, Scope
from coterie_studies.privacy.claims import BARS, PEER_TITLES, claims, measured_elsewhere
from coterie_studies.privacy.figures import write_findings
from coterie_studies.privacy.peers import PEERS, fast_lloyd, su_lloyd
from coterie_studies.privacy.runs import Setting, clustered, component_variance, measured
from coterie_studies.privacy.sets import FULL, KERNEL, QUICK, captured, complete, judged
from coterie_studies.registry import STUDIES
from coterie_studies.study import Findings, Trial, run_study

STUDY = STUDIES["privacy"]
DIGITS = QUICK["digits"]
FEW = replace(DIGITS, load=lambda: tuple(part[:300] if len(part) > 64 else part for part in DIGITS.load()))


# ---------------------------------------------------------------- one trial


def test_the_pooled_clusters_cost_what_the_reference_does():
    pooled = KMeans(10, n_init=10, random_state=0).fit(complete(DIGITS)).cluster_centers_
    found = judged(DIGITS, pooled)
    assert found["ratio"] == pytest.approx(1)
    assert 0.7 < found["nmi"] < 1
    assert judged(DIGITS, pooled[:9])["ratio"] > 1.02


def test_the_best_axes_capture_everything_and_others_less():
    rows = complete(DIGITS)
    axes = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2]
    assert captured(DIGITS, axes[:5]) == pytest.approx(1)
    assert captured(DIGITS, axes[1:6]) < 0.95
    assert captured(DIGITS, 2 * axes[:5]) == pytest.approx(1)


def test_without_noise_a_run_is_as_good_as_pooled():
    assert clustered(DIGITS, Setting(epsilon=None), 0)["ratio"] <= 1.03
    assert component_variance(DIGITS, Setting(epsilon=None), 0)["captured"] == pytest.approx(1, abs=1e-3)


def test_a_run_whose_rows_noise_hides_has_no_numbers():
    found = measured(clustered, FEW, Setting(epsilon=0.01), 0)
    assert all(map(math.isnan, found.values()))


# ---------------------------------------------------------------- peers

CORNERS = np.repeat(np.array([[0.1, 0.1], [0.1, 0.9], [0.9, 0.1], [0.9, 0.9]]), 5000, axis=0)


@pytest.mark.parametrize("peer", [su_lloyd, fast_lloyd])
def test_peers_find_corners_from_some_start_where_noise_is_small(peer):
    costs = []
    for seed in range(8):
        centers = peer(CORNERS, 4, 50.0, 1e-6, seed)
        assert ((centers >= 0) & (centers <= 1)).all()
        costs.append(((CORNERS[:, None] - centers) ** 2).sum(axis=2).min(axis=1).mean())
    assert min(costs) < 1e-3


def test_noise_of_dp_lloyd_is_that_of_its_epsilon():
    """All rows in the middle of the box: a center is the noise of its sum over their number. Each of seven rounds
    gives 1 / unit of epsilon to a coordinate."""
    n, d, epsilon = 20_000, 20, 1.0
    centers = np.concatenate([su_lloyd(np.full((n, d), 0.5), 1, epsilon, 0.0, seed) for seed in range(40)])
    unit = np.abs(2 * centers - 1).mean() * n  # the mean absolute deviation of Laplace noise is its scale
    counting = np.cbrt(4 * d * 0.225**2)
    assert 7 * (d + counting) / unit == pytest.approx(epsilon, rel=0.15)


def test_noise_of_fastlloyd_is_that_of_its_mu():
    """The same; in each of seven rounds sums and counts divide mu by the root of the dimensions."""
    n, d, epsilon, delta = 20_000, 20, 1.0, 1e-6
    centers = np.concatenate([fast_lloyd(np.full((n, d), 0.5), 1, epsilon, delta, seed) for seed in range(40)])
    deviation = np.std(2 * centers - 1) * n
    share = np.sqrt(4 * d) / (1 + np.sqrt(4 * d))
    radius = 0.8 * np.sqrt(d)
    assert 7 * (radius / deviation) ** 2 == pytest.approx(share * mu_of(epsilon, delta) ** 2, rel=0.2)


def test_what_was_measured_elsewhere_is_the_better_of_two_ways():
    for name, one in FULL.items():
        ratios = measured_elsewhere(name, "ratio")
        assert len(ratios) == one.most_seeds
        assert min(ratios) > 1
    assert np.mean(measured_elsewhere("digits", "ratio")) == pytest.approx(1.4601, abs=1e-4)
    assert np.mean(measured_elsewhere("mnist", "ratio")) == pytest.approx(1.1392, abs=1e-4)
    assert measured_elsewhere("pjm", "nmi") == []
    assert measured_elsewhere("rings", "ratio") == []


# ---------------------------------------------------------------- all of them


def test_the_quick_form_runs_and_its_tables_have_their_rows(tmp_path):
    found = run_study(STUDY, tmp_path / "run", quick=True, seeds=1)
    assert {key.split("/")[2] for key in found.skipped()} <= {"diffprivlib"}
    tables = {path.stem: path.read_text().splitlines() for path in (tmp_path / "run" / "tables").glob("*.csv")}
    here = 2 * sum(not any(peer in key for key in found.skipped()) for peer in PEERS)
    assert {name: len(lines) - 1 for name, lines in tables.items()} == {
        "claims": 6, "cost": 2, "nmi": 2, "sites": 3, "peers": 2 + here + 2, "kernel": 1, "kernel-nmi": 1, "pca": 1,
    }  # fmt: skip
    assert (tmp_path / "run" / "figures" / "cost.png").stat().st_size > 10_000
    assert "epsilon 0.5" in tables["cost"][0]
    assert "epsilon 4" in tables["cost"][0]


def as_if(folder, change=lambda trial: {}) -> Findings:
    """The full study as if measured: peers at 1.5, all else as good as pooled, unless it is changed."""
    trials = list(STUDY.trials(Scope(False, 10)))

    def values(trial: Trial) -> dict[str, float]:
        good = {"ratio": 1.5 if trial.labels["kind"] == "peer" else 1.0, "nmi": 1.0, "captured": 1.0}
        return good | change(trial)

    return Findings(folder, Scope(False, 10), trials, {one.key: Finished(one.key, values(one)) for one in trials})


def lost(found: Findings) -> list[tuple[str, str]]:
    return [(row["data"], row["promised"]) for row in claims(found) if row["verdict"] != "held"]


def test_the_full_form_has_all_sets_seeds_and_bars(tmp_path):
    found = as_if(tmp_path)
    assert len(found.select(kind="kmeans", set="mnist")) == 5 * 5
    assert len(found.select(kind="kmeans", set="digits")) == 5 * 10
    assert {one.labels["set"] for one in found.trials if one.labels["kind"] == "kmeans"} == set(FULL)
    assert {one.labels["set"] for one in found.trials if one.labels["kind"] == "kernel"} == set(KERNEL)
    made = list(claims(found))
    assert len(made) == len(BARS) + 2 * len(FULL)
    assert not lost(found)


@pytest.mark.parametrize("bar", BARS, ids=lambda bar: f"{bar.name} {bar.epsilon:g} {bar.text}")
def test_a_bar_turns_with_its_number(tmp_path, bar):
    where = {"kind": bar.kind, "set": bar.name, "epsilon": bar.epsilon}

    def change(by):
        return lambda trial: {bar.what: bar.limit + by} if where.items() <= trial.labels.items() else {}

    by = -0.001 if bar.what == "nmi" else 0.001
    assert lost(as_if(tmp_path, change(by))) == [(bar.one.title, f"epsilon {bar.epsilon:g}: {bar.text}")]
    assert not lost(as_if(tmp_path, change(-by)))


def test_the_median_decides_where_the_bar_says_so(tmp_path):
    def change(trial):
        return {"ratio": 9.0} if trial.key in ("kmeans/heart/1.0/seed=0", "kmeans/pjm/1.0/seed=0") else {}

    assert [data for data, promised in lost(as_if(tmp_path, change)) if "every peer" not in promised] == [
        FULL["pjm"].title
    ]


def test_a_better_peer_and_a_costly_limit_are_said(tmp_path):
    better = lost(as_if(tmp_path, lambda one: {"ratio": 0.9} if one.labels.get("peer") == "su-lloyd" else {}))
    assert better == [(one.title, "epsilon 1: mean k-means cost below that of every peer") for one in FULL.values()]
    costly = lost(as_if(tmp_path, lambda one: {"ratio": 1.04} if one.key.startswith("limit/pjm/100") else {}))
    assert costly == [(FULL["pjm"].title, "epsilon 100: k-means cost at most 1.03 times that without noise")]


def test_tables_say_how_many_runs_noise_left(tmp_path):
    def change(trial):
        some = trial.key in ("kmeans/digits/0.1/seed=0", "kmeans/digits/0.1/seed=1")
        return {"ratio": math.nan, "nmi": math.nan} if some or trial.key.startswith("kmeans/heart/0.1/") else {}

    found = as_if(tmp_path, change)
    text = write_findings(found)
    assert "| Digits | 1 (8 of 10 runs) |" in text
    assert "| Heart disease | noise hides the rows |" in text
    assert not lost(found)
    for title in PEER_TITLES.values():
        assert f"| Covtype | {title} |" in text
    assert "| 50 | 49 | of each site enough by itself |" in text
    assert "| 0.1 | 1e-6 | of the data |" in text
    assert "| 1 | N^-1.1 | 4 times as wide |" in text
