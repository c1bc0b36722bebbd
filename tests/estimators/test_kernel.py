"""Kernel principal components and kernel k-means as scikit-learn estimators."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, make_circles
from sklearn.decomposition import KernelPCA
from sklearn.metrics import normalized_mutual_info_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import coterie
from coterie import (
    DSPGDKernelKMeans,
    DSPGDKernelPCA,
    FederatedKernelKMeans,
    FederatedKernelPCA,
    load_model,
    save_model,
)
from coterie.errors import InputError, QuorumLost
from coterie.estimators.registry import make_estimator
from coterie.runtime.outcomes import OutcomeKind
from coterie.sites.policy import Policy
from tests.federations import blobs

DIGITS = load_digits().data[:400] / 16
SITES = np.arange(len(DIGITS)) % 4


@parametrize_with_checks(
    [
        FederatedKernelPCA(),
        FederatedKernelKMeans(n_clusters=3),
        DSPGDKernelPCA(n_features=8, n_iter=3),
        DSPGDKernelKMeans(n_clusters=3, n_features=8, n_iter=3),
    ]
)
def test_estimators_keep_scikit_learns_contract(estimator, check):
    check(estimator)


def test_components_are_kernel_pcas_the_closer_the_more_iterations():
    def off(n_iter):
        made = DSPGDKernelPCA(4, n_features=60, n_iter=n_iter, random_state=0).fit(DIGITS, sites=SITES)
        exact = KernelPCA(4, kernel="rbf", gamma=made.gamma_).fit_transform(DIGITS)
        found = made.transform(DIGITS)
        return np.linalg.norm(found @ found.T - exact @ exact.T) / np.linalg.norm(exact @ exact.T)

    far, near = off(3), off(60)
    assert near < 0.15
    assert near < far / 2


def test_how_rows_are_split_does_not_matter():
    one = DSPGDKernelPCA(3, n_iter=5, random_state=1).fit(DIGITS)
    many = DSPGDKernelPCA(3, n_iter=5, random_state=1).fit(DIGITS, sites=SITES)
    np.testing.assert_allclose(many.eigenvalues_, one.eigenvalues_, rtol=1e-10)
    a, b = one.transform(DIGITS), many.transform(DIGITS)
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-9)


def test_circles_are_told_apart():
    rows, truth = make_circles(600, factor=0.3, noise=0.05, random_state=0)
    for seed in range(2):
        made = DSPGDKernelKMeans(2, gamma=4.0, n_components=2, n_features=20, n_iter=50, random_state=seed)
        labels = made.fit_predict(rows, sites=np.arange(600) % 5)
        assert normalized_mutual_info_score(truth, labels) == 1.0


@pytest.mark.parametrize(
    "parameters",
    [
        {"solver": "gram"},
        {"solver": "lanczos"},
        {"kernel": "laplacian"},
        {"kernel": "polynomial", "gamma": 0.02, "solver": "gram"},
        {"kernel": "polynomial", "gamma": 0.5, "solver": "lanczos"},
        {"cem": False, "kernel": "polynomial", "gamma": 0.02},
    ],
    ids=str,
)
def test_masked_over_tables_is_plain(parameters):
    tables = {f"s{i}": pd.DataFrame(DIGITS[i == SITES]) for i in range(4)}
    plain, masked = (
        coterie.fit(
            DSPGDKernelKMeans(4, n_features=16, n_iter=4, init="cells", random_state=0, **parameters),
            tables,
            sums=sums,
            policy=Policy.simulation(),
        )
        for sums in ("plain", "masked")
    )
    np.testing.assert_allclose(masked.eigenvalues_, plain.eigenvalues_, rtol=1e-8)
    assert masked.inertia_ == pytest.approx(plain.inertia_, rel=1e-7)


def test_a_polynomial_kernels_masked_centered_components_are_plain():
    """Nobody knows how long its features are: sites mark that, anew for every draw."""
    tables = {f"s{i}": DIGITS[i == SITES] for i in range(4)}
    for way in ({"solver": "gram"}, {"cem": False}):
        made = [
            coterie.fit(
                DSPGDKernelPCA(3, kernel="polynomial", gamma=0.3, n_features=16, n_iter=4, random_state=0, **way),
                tables,
                sums=sums,
                policy=Policy.simulation(),
            )
            for sums in ("plain", "masked")
        ]
        np.testing.assert_allclose(made[1].eigenvalues_, made[0].eigenvalues_, rtol=1e-7)


def test_without_cem_the_same_comes_out_and_a_default_policy_refuses(tmp_path):
    parameters = {"n_clusters": 4, "n_features": 16, "n_iter": 4, "random_state": 0, "init": "var-part"}
    dense = DSPGDKernelKMeans(cem=False, **parameters).fit(DIGITS, sites=SITES)
    with_cem = DSPGDKernelKMeans(**parameters).fit(DIGITS, sites=SITES)
    assert dense.ledger_.method == "dspgd-dense"
    assert dense.ledger_.total("floats_up") > 3 * with_cem.ledger_.total("floats_up")
    np.testing.assert_allclose(dense.eigenvalues_, with_cem.eigenvalues_, rtol=1e-9)
    assert dense.inertia_ == pytest.approx(with_cem.inertia_, rel=1e-9)
    np.testing.assert_array_equal(dense.labels_, dense.predict(DIGITS))
    again = load_model(save_model(dense, tmp_path / "dense.json"))
    np.testing.assert_array_equal(
        again.predict(pd.DataFrame(DIGITS, columns=[f"x{i}" for i in range(64)])), dense.labels_
    )
    with pytest.raises(InputError, match="sends rows, projected or not"):
        coterie.fit(DSPGDKernelKMeans(cem=False), {f"s{i}": DIGITS[i == SITES] for i in range(4)})


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_a_saved_model_embeds_and_labels_identically(tmp_path, scale):
    rows = blobs(200, 3, 3, seed=6) * [1, 10, 100] + 5
    tables = {f"s{i}": part for i, part in enumerate(np.array_split(rows, 4))}
    options = {"scale": scale, "policy": Policy.simulation(), "sums": "plain"}
    clusters = coterie.fit(DSPGDKernelKMeans(3, n_iter=5, random_state=0), tables, **options)
    again = load_model(save_model(clusters, tmp_path / "clusters.json"))
    np.testing.assert_array_equal(
        again.predict(pd.DataFrame(rows, columns=["x0", "x1", "x2"])),
        clusters.predict(pd.DataFrame(rows, columns=["x0", "x1", "x2"])),
    )
    components = coterie.fit(DSPGDKernelPCA(2, n_iter=5, random_state=0), tables, **options)
    same = load_model(save_model(components, tmp_path / "components.json"))
    frame = pd.DataFrame(rows, columns=["x0", "x1", "x2"])
    np.testing.assert_array_equal(same.transform(frame), components.transform(frame))
    np.testing.assert_array_equal(same.eigenvalues_, components.eigenvalues_)


@pytest.mark.parametrize("method", ["rfk", "ck", "sk", "ce-pca"])
def test_baselines_cluster_label_and_are_kept_and_are_refused_by_default(method, tmp_path):
    tables = {f"s{i}": DIGITS[i == SITES] for i in range(4)}
    made = make_estimator(method, {"n_clusters": 4, "n_components": 6, "random_state": 0})
    with pytest.raises(InputError, match="sends rows, projected or not"):
        coterie.fit(make_estimator(method, {"n_clusters": 4, "random_state": 0}), tables)
    fitted = coterie.fit(made, tables, policy=Policy.simulation(), sums="plain")
    frame = pd.DataFrame(DIGITS, columns=[f"x{i}" for i in range(64)])
    labels = fitted.predict(frame)
    assert np.bincount(labels, minlength=4).tolist() == fitted.counts_.tolist()
    again = load_model(save_model(fitted, tmp_path / "model.json"))
    np.testing.assert_array_equal(again.predict(frame), labels)


def test_a_coreset_of_embedded_rows_clusters_nearly_as_well_as_sums():
    sums, points = (
        DSPGDKernelKMeans(5, n_features=60, n_iter=10, clustering=way, n_points=150, random_state=0)
        .fit(DIGITS, sites=SITES)
        .inertia_
        for way in ("lloyd", "coreset")
    )
    assert points <= 1.1 * sums


def test_new_rows_are_embedded_as_the_sites_embedded_theirs():
    made = DSPGDKernelKMeans(4, n_iter=6, random_state=0).fit(DIGITS, sites=SITES)
    np.testing.assert_array_equal(made.predict(DIGITS[:7]), made.labels_[:7])


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"gamma": 0.0}, "gamma=0.0 must be a number above 0"),
        ({"gamma": -1.0}, "gamma=-1.0"),
        ({"kernel": "sigmoid"}, "kernel='sigmoid'; it is"),
        ({"n_features": 8}, r"n_features=8 random features cannot give the 12-th eigenvalue"),
        ({"solver": "qr"}, "solver='qr'"),
        ({"step": "t"}, "step='t'"),
        ({"n_iter": 0}, "n_iter=0"),
        ({"threshold": -1.0}, "threshold=-1.0"),
        ({"features": "paired", "n_features": 41}, "must be even"),
    ],
)
def test_what_cannot_be_is_said(parameters, told):
    with pytest.raises((InputError, QuorumLost), match=told):
        DSPGDKernelKMeans(10, random_state=0, **parameters).fit(DIGITS, sites=SITES)


def test_odd_sites_work():
    rows = np.concatenate([DIGITS[:60], np.tile(DIGITS[0], (1, 1))])
    rows[:, 5] = 3.0  # a constant column
    lonely = np.where(np.arange(len(rows)) < 3, np.arange(len(rows)), 9)  # three sites of one row
    made = DSPGDKernelKMeans(3, n_iter=4, random_state=0).fit(rows, sites=lonely)
    assert set(made.labels_) == {0, 1, 2}
    asked = DSPGDKernelPCA(50, n_features=60, n_iter=3, random_state=0).fit(rows)
    assert asked.n_components_ < 60
    assert asked.transform(rows).shape == (61, asked.n_components_)
    with pytest.raises(InputError, match="all rows are equal"):
        DSPGDKernelPCA(1).fit(np.ones((9, 2)))


@pytest.mark.parametrize("kernel", ["laplacian", "polynomial"])
def test_other_kernels_find_their_components(kernel):
    made = DSPGDKernelPCA(
        3, kernel=kernel, gamma=0.02, degree=2, n_features=200, n_iter=80, center=False, random_state=0
    ).fit(DIGITS, sites=SITES)
    from coterie.maths.kernels import Kernel

    exact = np.linalg.eigvalsh(Kernel(kernel, 0.02, 2).between(DIGITS, DIGITS))[::-1][:3]
    np.testing.assert_allclose(made.eigenvalues_[0], exact[0], rtol=0.05)


# ---------------------------------------------------------------- landmarks, the default


def test_landmarks_tell_circles_apart():
    for seed in range(5):
        rows, truth = make_circles(600, factor=0.3, noise=0.05, random_state=seed)
        made = FederatedKernelKMeans(2, gamma=4.0, random_state=seed).fit(rows, sites=np.arange(600) % 5)
        assert made.ledger_.method == "landmarks"
        assert normalized_mutual_info_score(truth, made.labels_) == 1.0


@pytest.mark.parametrize("scale", ["none", "standard", "minmax"])
@pytest.mark.parametrize("way", ["local", "summed"])
def test_a_saved_model_of_landmarks_labels_and_embeds_identically_and_holds_no_row(tmp_path, scale, way):
    rows = blobs(200, 3, 3, seed=6) * [1, 10, 100] + 5
    tables = {f"s{i}": part for i, part in enumerate(np.array_split(rows, 4))}
    ranges = (rows.min(0), rows.max(0)) if scale == "minmax" else None
    options = {"scale": scale, "policy": Policy(per_site_results="averages"), "ranges": ranges}
    frame = pd.DataFrame(rows, columns=["x0", "x1", "x2"])
    clusters = coterie.fit(FederatedKernelKMeans(3, landmarks=way, random_state=0), tables, **options)
    again = load_model(save_model(clusters, tmp_path / "clusters.json"))
    np.testing.assert_array_equal(again.predict(frame), clusters.predict(frame))
    components = coterie.fit(FederatedKernelPCA(2, landmarks=way, random_state=0), tables, **options)
    same = load_model(save_model(components, tmp_path / "components.json"))
    np.testing.assert_array_equal(same.transform(frame), components.transform(frame))
    prepared = clusters.preparation_.undo(again.embedding_.landmarks)
    assert (np.abs(prepared[:, None] - rows).max(-1) > 1e-9).all()


def test_the_components_of_landmarks_are_those_of_kernel_pca():
    made = FederatedKernelPCA(4, random_state=0).fit(DIGITS, sites=SITES)
    exact = KernelPCA(4, kernel="rbf", gamma=made.gamma_).fit_transform(DIGITS)
    found = made.transform(DIGITS)
    assert np.linalg.norm(found @ found.T - exact @ exact.T) < 0.15 * np.linalg.norm(exact @ exact.T)
    np.testing.assert_allclose(found.mean(0), 0.0, atol=1e-6)


def test_clusters_within_so_many_components_of_landmarks():
    made = FederatedKernelKMeans(4, n_components=3, max_rounds=20, random_state=0).fit(DIGITS, sites=SITES)
    assert made.cluster_centers_.shape == (4, 3)
    assert made.counts_.sum() == 400
    np.testing.assert_array_equal(made.predict(DIGITS), made.labels_)


def test_with_a_default_policy_no_single_answer_is_seen():
    tables = {f"s{i}": DIGITS[i == SITES] for i in range(4)}
    made = coterie.fit(FederatedKernelKMeans(4, random_state=0), tables)
    seen = {e.seen for e in made.ledger_.exchanges if e.phase == "algorithm" and e.asked != "shared.Agree"}
    answered = [
        e for e in made.ledger_.exchanges if all(s.outcome.kind is OutcomeKind.ANSWERED for s in e.sites.values())
    ]
    assert "kernel.SendLandmarks" not in {e.asked for e in answered}
    assert "masked" in seen


def test_landmarks_known_beforehand_serve_sites_of_the_default_policy():
    tables = {f"s{i}": DIGITS[i == SITES] for i in range(4)}
    given = DIGITS[:40] + 0.01
    made = coterie.fit(FederatedKernelKMeans(4, landmarks=given, random_state=0), tables)
    plain = FederatedKernelKMeans(4, landmarks=given, random_state=0).fit(DIGITS, sites=SITES)
    assert made.gamma_ == pytest.approx(plain.gamma_, rel=2e-3)  # of the values that groups show
    assert made.counts_.sum() == pytest.approx(len(DIGITS))


def test_the_largest_seed_is_a_seed():
    assert FederatedKernelKMeans(3, random_state=2**32 - 1).fit(DIGITS, sites=SITES).counts_.sum() == 400


def test_a_value_range_the_wrong_way_round_is_an_error():
    with pytest.raises(InputError, match=r"must be \(smallest, largest\)"):
        FederatedKernelKMeans(2, value_range=(1.0, -1.0)).fit(np.random.default_rng(0).normal(size=(40, 3)))
