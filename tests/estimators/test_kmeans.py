"""Federated k-means as scikit-learn sees it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

import coterie
from coterie import FederatedKMeans
from coterie.errors import InputError
from tests.federations import blobs, central_lloyd


@parametrize_with_checks(
    [
        FederatedKMeans(n_clusters=3),
        FederatedKMeans(n_clusters=3, init="var-part"),
        FederatedKMeans(n_clusters=2, init="random", epochs=2, site_rate=0.5, server_momentum=0.5, reassign=True),
    ]
)
def test_it_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)


def test_labels_are_predictions_and_sites_do_not_change_them():
    rows = blobs(300, 4, 3, seed=2)
    sites = np.array(["a", "b", "c"])[np.random.default_rng(0).integers(0, 3, 300)]
    made = FederatedKMeans(3, init="var-part", random_state=0).fit(rows, sites=sites)
    np.testing.assert_array_equal(made.labels_, made.predict(rows))
    one = FederatedKMeans(3, init="var-part", random_state=0).fit(rows)
    np.testing.assert_allclose(made.cluster_centers_, one.cluster_centers_, rtol=1e-10)
    assert made.ledger_.sites() == ("a", "b", "c")
    assert made.ledger_.total("floats_up") == 3 * one.ledger_.total("floats_up")


def test_from_given_centers_it_is_central_lloyd_with_scikit_learns_tol():
    rows = blobs(400, 3, 4, seed=5, spread=2.0)
    sites = np.arange(400) % 7
    made = FederatedKMeans(4, init=rows[:4], tol=0, max_rounds=9).fit(rows, sites=sites)
    centers, cost, rounds = central_lloyd(rows, rows[:4], 9, 0.0)
    np.testing.assert_allclose(made.cluster_centers_, centers, rtol=1e-12, atol=1e-12)
    assert made.inertia_ == pytest.approx(cost, rel=1e-12)
    pooled = KMeans(4, init=rows[:4], n_init=1, tol=1e-2, algorithm="lloyd").fit(rows)
    loose = FederatedKMeans(4, init=rows[:4], tol=1e-2).fit(rows, sites=sites)
    np.testing.assert_allclose(loose.cluster_centers_, pooled.cluster_centers_, rtol=1e-9)
    assert loose.n_rounds_ == pooled.n_iter_


def test_the_default_is_as_good_as_pooled_kmeans_on_digits():
    rows = load_digits().data
    best = KMeans(10, n_init=10, random_state=0).fit(rows).inertia_
    made = FederatedKMeans(10, random_state=0).fit(rows, sites=np.arange(len(rows)) % 5)
    assert made.inertia_ <= 1.02 * best


def test_transform_and_score_are_scikit_learns():
    rows = blobs(100, 3, 2)
    made = FederatedKMeans(2, random_state=0).fit(rows)
    pooled = KMeans(2, init=made.cluster_centers_, n_init=1, max_iter=1).fit(rows)
    pooled.cluster_centers_ = made.cluster_centers_
    np.testing.assert_allclose(made.transform(rows), pooled.transform(rows), rtol=1e-9)
    assert made.score(rows) == pytest.approx(-made.inertia_)
    weights = np.arange(100.0)
    assert made.score(rows, sample_weight=weights) == pytest.approx(pooled.score(rows, sample_weight=weights))


def test_the_same_seed_gives_the_same_result_and_none_another_run():
    rows = blobs(200, 2, 5, spread=1.0)
    one, two = (FederatedKMeans(5, init="random", random_state=3).fit(rows) for _ in range(2))
    np.testing.assert_array_equal(one.cluster_centers_, two.cluster_centers_)
    assert one.ledger_.run != two.ledger_.run


def test_a_fitted_estimator_can_be_pickled_and_cloned():
    made = FederatedKMeans(2, random_state=0).fit(blobs(50, 2))
    again = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(again.cluster_centers_, made.cluster_centers_)
    assert again.ledger_.total("bytes_up") == made.ledger_.total("bytes_up")
    assert clone(made).get_params() == made.get_params()


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"n_clusters": 51}, "n_samples=50 should be >= n_clusters=51"),
        ({"n_clusters": 2, "tol": -1}, "tol=-1"),
        ({"n_clusters": 2, "init": np.zeros((3, 2))}, r"init has shape \(3, 2\)"),
        ({"n_clusters": 2, "init": "best"}, "init='best'"),
        ({"n_clusters": 2, "fraction": 0}, "fraction=0"),
    ],
)
def test_bad_parameters_are_named_with_what_would_do(parameters, told):
    with pytest.raises(InputError, match=told):
        FederatedKMeans(**parameters).fit(blobs(50, 2))


def test_sites_need_one_label_a_row():
    with pytest.raises(InputError, match="one label per row"):
        FederatedKMeans(2).fit(blobs(50, 2), sites=[0, 1])


def test_public_names():
    assert all(getattr(coterie, name) is not None for name in coterie.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = coterie.nonsense
