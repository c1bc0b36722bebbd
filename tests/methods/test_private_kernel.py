"""Private principal components, kernel k-means and kernel PCA: how they are asked for, and results on odd data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import coterie
from coterie import FederatedKernelKMeans, FederatedKernelPCA, FederatedPCA, Privacy
from coterie.errors import InputError, MalformedMessage
from coterie.estimators.models import load_model, save_model
from coterie.maths.kernels import Kernel
from coterie.maths.landmarks import LandmarkMap, feature_root
from coterie.messages.site_api import Memory
from coterie.methods.kernel.landmarks import whole_features
from coterie.methods.kernel.landmarks.whole_features import ShowFeatures, WholeFeatures, keep_features
from coterie.methods.shared.privacy import Releases
from coterie.methods.shared.private_subspace import MOST_COLUMNS, Moments, NoisyProducts, quiet_radius, usual_radius
from coterie.methods.shared.whole_rows import WIDEST, on_grid, whole_rows
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.tables import ArrayTable
from tests.federations import blobs, split_evenly

ROWS = np.clip(blobs(600, 4, 3, seed=1) / 30 + 0.5, 0, 1)
SITES = np.random.default_rng(0).integers(0, 5, len(ROWS))
KINDS = [FederatedPCA, FederatedKernelKMeans, FederatedKernelPCA]


def made(kind, privacy=None, **parameters):
    count = {"n_clusters": 3} if kind is FederatedKernelKMeans else {"n_components": 2}
    return kind(**{**count, **parameters}, privacy=privacy or Privacy(epsilon=1.0))


def unit(rows):
    return np.zeros(rows.shape[1]), np.ones(rows.shape[1])


def check_right(estimator, rows):
    """What a fitted estimator says is finite, and the same twice."""
    assert np.isfinite(estimator.transform(rows)).all()
    assert sum(release.share for release in estimator.privacy_.releases) == pytest.approx(1.0)
    if isinstance(estimator, FederatedPCA):
        np.testing.assert_allclose(estimator.components_ @ estimator.components_.T, np.eye(2), atol=1e-9)
        assert (estimator.explained_variance_ >= 0).all()
        assert estimator.explained_variance_ratio_.sum() <= 1 + 1e-9
    elif isinstance(estimator, FederatedKernelKMeans):
        assert (estimator.labels_ == estimator.predict(rows)).all()
        assert estimator.cluster_centers_.shape == (3, estimator.n_components_)
        assert estimator.inertia_ >= 0
    else:
        assert estimator.transform(rows).shape == (len(rows), estimator.n_components_)


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulated_run_says_what_it_promised(kind):
    estimator = made(kind, Privacy(epsilon=2.0, delta=1e-5, tolerated=1)).fit(ROWS, sites=SITES, ranges=unit(ROWS))
    check_right(estimator, ROWS)
    spent = estimator.privacy_
    assert (spent.epsilon, spent.delta, spent.tolerated, spent.sites) == (2.0, 1e-5, 1, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_masked_and_verified_run_under_a_budget(kind, tmp_path):
    policy = Policy(protection="noise", privacy=PrivacyRules(epsilon=50.0))
    tables = split_evenly(ROWS, 3)
    estimator = made(kind, Privacy(epsilon=40.0), random_state=0)
    coterie.fit(estimator, tables, policy=policy, ranges=unit(ROWS), scale="standard")
    seen = {one.seen for one in estimator.ledger_.exchanges if ".Sum" in one.asked}
    assert seen == {"masked"}
    assert estimator.certificate_ is not None
    raw = pd.DataFrame(ROWS[:50], columns=estimator.feature_names_in_)
    again = load_model(save_model(estimator, tmp_path / "model.json"))
    assert (again.transform(raw) == estimator.transform(raw)).all()


def test_a_private_run_of_pca_finds_the_components():
    rng = np.random.default_rng(0)
    rows = np.clip(0.5 + rng.normal(size=(40_000, 6)) * [0.01, 0.12, 0.01, 0.01, 0.08, 0.01], 0, 1)
    for center, most in ((True, 1), (False, 0)):  # less no mean, the first axis points to the rows
        estimator = made(FederatedPCA, Privacy(4.0), center=center).fit(
            rows, sites=np.arange(40_000) % 5, ranges=unit(rows)
        )
        assert np.abs(estimator.components_[1 - most]).argmax() == 1 or not most
        exact = FederatedPCA(2, center=center).fit(rows)
        assert np.abs((estimator.components_ * exact.components_).sum(axis=1)).min() > 0.99
        np.testing.assert_allclose(estimator.explained_variance_, exact.explained_variance_, rtol=0.1)
        np.testing.assert_allclose(estimator.mean_, exact.mean_, atol=0.01)


# ---------------------------------------------------------------- refused before any question

PARTS = [
    ({"kernel": "polynomial"}, "kernel whose values are at most 1"),
    ({"landmarks": "summed"}, "does not go with landmarks"),
    ({"landmarks": ROWS[:9], "tol": 0.5}, "does not go with tol, landmarks"),
    ({"n_landmarks": MOST_COLUMNS + 1}, "pairs of landmarks, at most 2,000"),
]


@pytest.mark.parametrize(("parameters", "said"), PARTS)
def test_what_cannot_be_private_is_one_sentence_before_any_question(parameters, said):
    with pytest.raises(InputError, match=said) as problem:
        made(FederatedKernelKMeans, **parameters).fit(ROWS, sites=SITES, ranges=unit(ROWS))
    assert str(problem.value).count(". ") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_columns_are_refused(kind):
    rows = np.zeros((30, MOST_COLUMNS + 1))
    with pytest.raises(InputError, match="pairs of columns, at most 2,000, and here are 2,001"):
        made(kind).fit(rows, ranges=unit(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_ranges_are_needed_and_must_have_a_width(kind):
    with pytest.raises(InputError, match="privacy needs ranges"):
        made(kind).fit(ROWS, sites=SITES)
    with pytest.raises(InputError, match="ranges have no width in any column"):
        made(kind).fit(ROWS, sites=SITES, ranges=(np.ones(4), np.ones(4)))


def test_more_components_than_columns_are_refused_and_of_features_there_are_as_many_as_there_are():
    with pytest.raises(InputError, match="n_components=5 of 4 columns"):
        made(FederatedPCA, n_components=5).fit(ROWS, ranges=unit(ROWS))
    with pytest.raises(InputError, match="solver"):
        made(FederatedPCA, solver="local").fit(ROWS, ranges=unit(ROWS))
    many = made(FederatedKernelPCA, Privacy(epsilon=50.0), n_components=500, n_landmarks=12)
    many.fit(ROWS, sites=SITES, ranges=unit(ROWS))
    assert 1 <= many.n_components_ <= 12
    check_right(many, ROWS)


# ---------------------------------------------------------------- odd data

CONSTANT = np.where(np.arange(4) == 2, 0.25, ROWS)
ODD = {
    "a constant column": CONSTANT,
    "equal rows": np.full((200, 4), 0.3),
    "thirty rows": ROWS[:30],
    "two rows far apart": np.concatenate([np.zeros((15, 4)), np.ones((15, 4))]),
    "one column": ROWS[:, :1],
}


@pytest.mark.filterwarnings("ignore::coterie.errors.NoiseWarning")  # equal rows have no clusters to see in the noise
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("kind", KINDS)
def test_odd_data_end_in_a_right_result_or_in_a_sentence(kind, name, epsilon):
    rows = ODD[name]
    if kind is FederatedPCA and rows.shape[1] == 1:
        pytest.skip("there are not two components of one column")
    fitted = fit_or_sentence(made(kind, Privacy(epsilon=epsilon), random_state=0), rows)
    if isinstance(fitted, str):
        assert "noise hides the rows" in fitted
        assert len(rows) < 50 or epsilon < 100
    else:
        check_right(fitted, rows)


def fit_or_sentence(estimator, rows):
    try:
        return estimator.fit(rows, sites=np.arange(len(rows)) % 5, ranges=unit(rows))
    except InputError as problem:
        return str(problem)


@pytest.mark.parametrize("parameters", [{"gamma": 1e-12}, {"gamma": 1e12}, {"n_landmarks": 1}, {"n_clusters": 1}])
def test_odd_parameters_end_in_a_right_result(parameters):
    private = made(FederatedKernelKMeans, Privacy(epsilon=5.0), **parameters)
    estimator = private.fit(ROWS, sites=SITES, ranges=unit(ROWS))
    assert (estimator.labels_ == estimator.predict(ROWS)).all()


# ---------------------------------------------------------------- features as whole numbers


def shown(kernel="rbf", d=4, m=20, fine=2 / WIDEST):
    """A question for features, and the map that it stands for, on landmarks that lie on the grid."""
    rng, grid = np.random.default_rng(3), 1 / WIDEST
    origin = np.full(d, 0.5)
    points = origin + grid * on_grid(rng.uniform(0, 1, (m, d)), origin, grid)
    one = Kernel(kernel, 2.0)
    map_ = LandmarkMap.of(one, points, feature_root(one, points, row_bytes=4))
    shift = map_.own_features().mean(axis=0)
    ask = ShowFeatures(kernel, 2.0, grid, fine, origin, points, map_.projection, shift)
    return ask, LandmarkMap(one, points, map_.projection, shift)


def features(ask, rows):
    memory = Memory()
    keep_features(ArrayTable(rows), memory, ask)
    return np.concatenate([*whole_rows(memory).pieces()])


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_whole_features_are_those_of_the_model(kernel):
    ask, map_ = shown(kernel)
    np.testing.assert_allclose(features(ask, ROWS) * ask.fine, map_.embed(ROWS), atol=2e-3)
    lengths = np.linalg.norm(features(ask, ROWS) * ask.fine + map_.shift, axis=1)
    assert lengths.max() <= 1.001
    assert lengths.min() > 0.3  # and are no zeros


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_a_rows_features_are_the_same_bits_whatever_rows_stand_beside_it(kernel):
    ask, _ = shown(kernel)
    odd = np.array([[np.nan] * 4, [np.inf] * 4, [-np.inf, 0, 1, np.nan], [1e300] * 4, [5e-324] * 4])
    rows = np.concatenate([odd, np.random.default_rng(0).uniform(-1, 2, (150, 4)), odd])
    with np.errstate(all="ignore"):
        together = features(ask, rows)
        assert all((features(ask, rows[i : i + 1])[0] == together[i]).all() for i in range(len(rows)))
    assert (np.abs(together) <= WIDEST).all()


def test_features_are_exact_before_they_are_rounded(monkeypatch):
    """Rounding would nearly always hide that a product came out another way beside other rows."""
    monkeypatch.setattr(whole_features, "whole", lambda values, grid: values)
    view = WholeFeatures(ArrayTable(ROWS), shown(m=60)[0])
    together = view.rounded(ROWS)
    for step in (1, 2, 7):
        parts = [view.rounded(ROWS[i : i + step]) for i in range(0, len(ROWS), step)]
        assert np.concatenate(parts).tobytes() == together.tobytes()


IMPOSSIBLE = [
    {"kernel": "polynomial"}, {"gamma": -1.0}, {"gamma": 1e308, "grid": 1e10}, {"grid": 0.0}, {"fine": -1.0},
    {"origin": np.zeros(3), "landmarks": np.zeros((20, 3))},
    {"landmarks": np.zeros((0, 4)), "projection": np.zeros((0, 20))},
]  # fmt: skip


@pytest.mark.parametrize("values", IMPOSSIBLE)
def test_impossible_features_are_refused_whatever_the_rows(values):
    ask = replace(shown()[0], **values)
    for rows in (ROWS, ROWS[:0]):
        with pytest.raises(MalformedMessage):
            keep_features(ArrayTable(rows), Memory(), ask)


def test_projections_too_long_for_exact_products_are_refused_and_others_are_exact():
    ask, _ = shown()
    with pytest.raises(MalformedMessage, match="too long"):
        keep_features(ArrayTable(ROWS), Memory(), replace(ask, projection=ask.projection * 1e30))
    tiny = features(replace(ask, projection=ask.projection * 1e-250), ROWS)
    assert (tiny == tiny[0]).all()  # no more than the shift


def test_wide_views_whose_products_would_not_be_exact_are_refused():
    wide = 1 << 19
    ask = ShowFeatures("rbf", 1.0, 0.1, 0.1, np.zeros(4), ROWS[:1], np.zeros((1, wide)), np.zeros(wide))
    with pytest.raises(MalformedMessage, match="too long for exact products"):
        keep_features(ArrayTable(ROWS), Memory(), ask)


# ---------------------------------------------------------------- products


def test_eigenvalues_are_what_they_were_before_noise():
    rng = np.random.default_rng(0)
    true = np.diag(np.append([900.0, 500.0], np.zeros(98)))
    noise = rng.normal(size=(100, 100)) * 20 / np.sqrt(2)
    products = NoisyProducts(true + np.triu(noise) + np.triu(noise, 1).T, 20.0)
    assert np.linalg.eigvalsh(products.matrix)[-3] <= 1.1 * products.edge
    np.testing.assert_allclose(products.components(2).values, [900.0, 500.0], rtol=0.04)
    assert np.linalg.eigvalsh(products.matrix)[-2] > 1.09 * 500  # which noise alone would make of it


def test_rows_count_from_farther_out_the_less_noise_there_is():
    moments = Moments(10_000.0, np.zeros(10), 1.0)
    radii = [
        quiet_radius(moments, 1.0, Releases(Privacy(epsilon=epsilon), 5), 0.9, 6.0) for epsilon in (0.1, 3.0, 100.0)
    ]
    assert radii[0] == usual_radius(1.0, 10) < radii[1] < radii[2] == 6.0
