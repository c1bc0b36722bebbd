"""The study of federated kernel k-means: its wiring on small data, and numbers that must fit together."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie.baselines import NystroemKernelKMeans
from coterie.estimators import DSPGDKernelKMeans
from coterie.examples.datasets import SiteData, digits
from coterie.methods.kernel.clusters import KernelParameters
from coterie.methods.kernel.dspgd.method import embed_by_dspgd
from coterie.methods.kernel.dspgd.protocol import DSPGDSettings
from coterie.methods.kernel.dspgd.sites import embedded
from coterie.sites.tables import ArrayTable
from coterie_studies import federated_kernel_kmeans as study
from coterie_studies.datasets import DataMissing, covtype, mnist, mushrooms
from coterie_studies.federated_kernel_kmeans import make_study
from coterie_studies.federated_kernel_kmeans.claims import claims, points
from coterie_studies.federated_kernel_kmeans.sets import FULL, QUICK, KernelSet
from coterie_studies.kernel_quality import factors, unshrunk
from coterie_studies.registry import STUDIES
from coterie_studies.study import run_study
from tests.federations import blobs
from tests.theorems.dspgd_runs import algorithm_1


def small() -> SiteData:
    """A few rows in three clumps at five sites."""
    rows = blobs(150, 4, 3, seed=1, spread=2.0)
    truth = np.array(["a", "b", "c"])[np.digitize(rows[:, 0], [-1, 1])]
    return SiteData(rows, tuple("wxyz"), np.array([f"site-{i}" for i in np.arange(150) % 5]), truth)


SMALL = KernelSet(
    "Small", small, 3, 20, 4, 40, 20, (20, 60), (8, 20), "ck", n_iter=6, n_iter_dense=4, turns=(2, 5), bound=0.4,
    has_highest=True, saves_on="rfk",
)  # fmt: skip
FIGURE_1 = dataclasses.replace(SMALL, title="Only figure 1", turns=(), bound=1e-9)


@pytest.fixture(scope="module")
def runs():
    """One run of each way of DSPGD."""
    return {way: study._dspgd(SMALL, way, 0) for way in ("cem", "gram", "dense")}


def test_numbers_by_the_ledger_are_those_of_theorem_2(runs):
    n, m, d = 150, 5, SMALL.n_features
    for t in range(1, SMALL.n_iter + 1):
        size = d + runs["cem"][f"rank.{t}"]
        assert runs["cem"][f"floats.{t}"] == m * size * runs["cem"][f"products.{t}"]
        assert runs["gram"][f"floats.{t}"] == m * size * (size + 1) / 2
    for t in range(1, SMALL.n_iter_dense + 1):
        assert runs["dense"][f"floats.{t}"] == (n + m * d) * runs["dense"][f"products.{t}"]
        assert runs["dense"][f"rank.{t}"] == runs["cem"][f"rank.{t}"]
    assert f"floats.{SMALL.n_iter + 1}" not in runs["cem"]


def test_the_curves_with_and_without_cem_are_one(runs):
    for t in range(1, SMALL.n_iter_dense + 1):
        for what in ("error", "iterate"):
            assert runs["dense"][f"{what}.{t}"] == pytest.approx(runs["cem"][f"{what}.{t}"], rel=1e-8)
    assert runs["cem"]["iterate.6"] < runs["cem"]["iterate.1"]


def test_errors_are_those_of_algorithm_1_with_matrices_of_all_rows():
    kernel, data, s = study._kernel(SMALL), small(), SMALL.n_components
    values, vectors = np.linalg.eigh(kernel.between(data.rows, data.rows))
    best = (vectors[:, -s:] * values[-s:]) @ vectors[:, -s:].T
    found = study._dspgd(SMALL, "cem", 3)
    for t in (1, 3):
        settings = DSPGDSettings(n_components=s, n_features=20, n_iter=t, rank=5)
        twin = algorithm_1(data.rows, kernel, settings, seed=3)
        kept = values > twin.threshold
        limit = (vectors[:, kept] * (values[kept] - twin.threshold)) @ vectors[:, kept].T
        assert found[f"error.{t}"] == pytest.approx(((twin.k - best) ** 2).sum() / 150**2, rel=1e-6)
        assert found[f"iterate.{t}"] == pytest.approx(((twin.z - limit) ** 2).sum() / 150**2, rel=1e-6)


def test_an_iterate_tells_what_ending_there_would_have_embedded():
    data = small()
    made = {}
    for n_iter in (3, 7):
        settings = DSPGDSettings(n_components=4, n_features=20, n_iter=n_iter, rank=5)
        fit, _ = study._run(embed_by_dspgd(KernelParameters(), settings, 4, seed=2), data.by_site(), "dspgd")
        made[n_iter] = fit.embedding
    third = list(factors(made[7], data.rows))[2]
    h, ended = unshrunk(third, made[7].threshold, 4), embedded(ArrayTable(data.rows), made[3].transcript).rows
    np.testing.assert_allclose(h, ended, atol=1e-9)


@pytest.mark.parametrize(("way", "options"), [
    ("cem", {"solver": "lanczos", "clustering": "coreset", "n_points": SMALL.n_points}),
    ("gram", {"solver": "gram", "clustering": "lloyd", "init": "cells"}),
])  # fmt: skip
def test_every_t_of_the_one_run_is_a_run_of_the_estimator(runs, way, options):
    """Clusters and what they took, to the byte."""
    data = small()
    for t in SMALL.turns:
        shared = {"n_components": 4, "n_features": 20, "max_rounds": 100, "random_state": 0}
        made = DSPGDKernelKMeans(3, n_iter=t, **shared, **options)
        made.fit(data.rows, sites=data.site)
        expected = {**study._judged(SMALL, made.labels_), **study._sent(made.ledger_)}
        assert {name: runs[way][f"{t}.{name}"] for name in expected} == pytest.approx(expected)


def test_scalable_kernel_k_means_in_blocks_costs_what_the_estimator_does():
    data = small()
    made = NystroemKernelKMeans(3, n_components=4, n_landmarks=500, random_state=0)
    made.fit(data.rows, sites=data.site)
    found = study._sk(SMALL, 0)
    assert {name: found[name] for name in study._sent(made.ledger_)} == study._sent(made.ledger_)
    assert found["cost"] == pytest.approx(study._reference(SMALL).cost(made.labels_), rel=1e-6)


def test_a_small_study_writes_everything_and_judges_the_claims(tmp_path):
    made = make_study(quick={"small": SMALL, "only-1": FIGURE_1})
    found = run_study(made, tmp_path / "run", quick=True, seeds=2)
    drawn = {path.stem for path in (tmp_path / "run" / "figures").iterdir()}
    assert drawn == {"figure-1", "figure-2", "figure-3", "figure-3-bytes", "figure-4", "figure-5"}
    tables = {path.stem for path in (tmp_path / "run" / "tables").iterdir()}
    assert tables == {"claims", "convergence", "iterations", "quality", "by-iteration"}
    told = (tmp_path / "run" / "README.md").read_text()
    assert "Smartphone" in told
    by_claim = {tuple(line.split(" | ")[1:3]): line for line in told.splitlines() if line.startswith("| 1 |")}
    assert by_claim["Only figure 1", "recover error below 1e-09/t"].endswith(
        "too much from t = 1 on | did not hold |"
    )
    assert [point.setting for point in points(found, "small", SMALL, "cem")] == ["T=2", "T=5"]
    pooled = next(points(found, "small", SMALL, "pooled"))
    assert pooled.ratio.mean == pytest.approx(1)


GOOD = [
    ("", "rows", 1e4),
    ("cem", "error", 1e-3),
    ("dense", "error", 1e-3),
    ("", "rank", 10),
    ("", "products", 10),
    ("", "floats.", 1e3),
    ("dense", "floats.", 1e6),
    ("", "nmi_geometric", 0.8),
    ("cem", "nmi_geometric", 0.9),
    ("", "floats_up", 1e3),
    ("cem", "floats_up", 100),
]
"""Numbers, by way and name, with which every claim holds."""
SPOILT = {
    "recover error below 0.4/t": [("cem", "error.6", 0.1)],
    "the curves with and without CEM nearly overlap": [("dense", "error.3", 1.02e-3)],
    "CEM saves more than 98 %": [("cem", "floats.", 3e4)],
    "Q_0 / Q_1 is about 1": [("cem", "products", 12)],
    "r_t converges": [("cem", "rank.6", 12)],
    "the largest r_t is a constant factor above s = 4": [("cem", "rank", 3)],
    "r_t is much smaller than a site's rows": [("cem", "rows", 400)],
    "NMI comparable to CK's": [("pooled", "nmi_geometric", 0.93)],
    "the highest NMI for any cost": [("ce-pca", "nmi_geometric", 0.91)],
    "60 % fewer numbers than RFK k-means at the highest NMI": [("rfk", "floats_up", 200)],
}


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    return run_study(make_study(quick={"small": SMALL}), tmp_path_factory.mktemp("run") / "run", quick=True, seeds=1)


def verdicts(found, numbers):
    """What becomes of the claims with these numbers in place of the measured ones."""
    finished = {}
    for key, one in found.finished.items():
        values = dict(one.values)
        for way, start, number in numbers:
            if f"/{way}" in key:
                values |= {name: number for name in values if name.startswith(start) or name.endswith(f".{start}")}
        finished[key] = dataclasses.replace(one, values=values)
    rows = list(claims(dataclasses.replace(found, finished=finished), "small", SMALL))
    assert len(rows) == len(SPOILT)
    return {row["the paper"]: row["verdict"] for row in rows}


def test_with_good_numbers_every_claim_is_held(trials):
    assert set(verdicts(trials, GOOD).values()) == {"held"}


@pytest.mark.parametrize("claim", SPOILT)
def test_a_claim_turns_with_its_number(trials, claim):
    found = verdicts(trials, GOOD + SPOILT[claim])
    failed = [told for told, verdict in found.items() if verdict == "did not hold"]
    assert len(failed) == 1
    assert failed[0].startswith(claim)


def test_the_papers_settings_are_in_the_full_scope():
    made = STUDIES["federated-kernel-kmeans"]
    keys = {trial.key for trial in made.trials(made.scope(False))}
    for name, n_settings in (
        ("mushrooms", 3 + 1 + 4 + 4),
        ("mnist-small", 2),
        ("mnist", 3 + 1 + 5 + 4),
        ("covtype", 13),
    ):
        assert len([key for key in keys if key.startswith(f"{name}/")]) == 5 * n_settings
    assert {"mnist/cem/T=50/seed=4", "covtype/rfk/C=5000/seed=0", "mushrooms/pooled/ck/seed=0"} <= keys
    settings = {name: (one.n_features, one.n_components) for name, one in FULL.items()}
    assert settings == {"mushrooms": (20, 6), "mnist-small": (40, 20), "mnist": (40, 20), "covtype": (40, 14)}


def test_without_a_data_folder_only_the_quick_scope_has_something_to_run(tmp_path, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "nowhere"))
    for load in (mushrooms, mnist, covtype):
        with pytest.raises(DataMissing, match="nowhere"):
            load()
    found = run_study(make_study(full={"mushrooms": FULL["mushrooms"]}), tmp_path / "run", seeds=1)
    assert len(found.skipped()) == len(found.trials)
    assert "No data set was there to run." in (tmp_path / "run" / "README.md").read_text()
    assert [one.load().rows.shape for one in QUICK.values()] == [(1797, 64), (1000, 2)]


def test_rows_are_shared_out_evenly():
    data = digits()
    assert {len(rows) for rows in data.by_site().values()} == {359, 360}
    assert (data.rows.min(), data.rows.max()) == (0, 1)


@pytest.mark.data
def test_the_stored_sets_are_as_the_paper_has_them(data_folder, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(data_folder))
    for load, shape, k in ((mushrooms, (8124, 112), 2), (mnist, (60000, 784), 10), (covtype, (581012, 54), 7)):
        data = load()
        assert data.rows.shape == shape
        assert (data.rows.min(), data.rows.max()) == (0, 1)
        assert len(np.unique(data.truth)) == k
        assert len(data.by_site()) == 5
