"""Private k-means: what little noise, much noise, and values that are missing come to.

Noise is from the operating system, so that no seed repeats a run; bars are where a run fails with a probability below
one in a million.
"""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import FederatedKMeans, Privacy
from coterie.errors import InputError, NoiseWarning
from coterie.sites.policy import Policy, PrivacyRules
from tests.federations import blobs

N_ROWS, RANGES = 4000, (np.full(3, -30.0), np.full(3, 30.0))
NOISE = Policy(protection="noise", privacy=PrivacyRules(100.0, 1e-6))


def rows() -> np.ndarray:
    return blobs(N_ROWS, 3, 3, seed=2)


def by_site(x: np.ndarray) -> dict[str, np.ndarray]:
    return {f"site-{i}": x[i::4] for i in range(4)}


def cost(x: np.ndarray, centers: np.ndarray) -> float:
    return float(((x[:, None] - centers) ** 2).sum(axis=2).min(axis=1).sum())


def fitted(x: np.ndarray, epsilon: float = 4.0, **options: object) -> FederatedKMeans:
    model = FederatedKMeans(3, privacy=Privacy(epsilon), random_state=0)
    return coterie.fit(model, by_site(x), ranges=RANGES, policy=NOISE, **options)


def test_the_larger_epsilon_the_nearer_the_pooled_result():
    x = rows()
    pooled = cost(x, FederatedKMeans(3, random_state=0).fit(x).cluster_centers_)
    assert cost(x, fitted(x, 50.0).cluster_centers_) < 1.01 * pooled
    assert cost(x, fitted(x, 4.0).cluster_centers_) < 1.2 * pooled


def test_the_cost_and_the_sizes_are_within_the_noise_that_is_stated():
    x = rows()
    model = fitted(x)
    spent = model.privacy_
    assert spent.size_deviation is not None
    assert spent.cost_deviation is not None
    assert abs(model.inertia_ - cost(x, model.cluster_centers_)) < 6 * spent.cost_deviation + 0.1 * model.inertia_
    nearest = ((x[:, None] - model.cluster_centers_) ** 2).sum(axis=2).argmin(axis=1)
    sizes = np.bincount(nearest, minlength=3)
    assert np.abs(model.result_.counts - sizes).max() < 6 * spent.size_deviation + 0.05 * N_ROWS


def test_what_is_missing_counts_as_the_mean_of_what_is_there_not_as_the_middle_of_the_range():
    x = rows() + 12.0  # far from the middle of the ranges
    holes = x.copy()
    holes[np.random.default_rng(0).random(len(x)) < 0.6, 1] = np.nan
    model = fitted(holes, 20.0, missing="mean")
    there = np.nanmean(holes[:, 1])
    assert model.preparation_ is not None
    assert abs(model.preparation_.fill[1] - there) < 1.0
    assert abs(model.preparation_.fill[0] - x[:, 0].mean()) < 1.0


def test_releases_divide_all_that_the_run_gives_away():
    for options in ({}, {"missing": "mean"}, {"scale": "standard"}, {"scale": "standard", "missing": "mean"}):
        spent = fitted(rows(), **options).privacy_
        assert sum(release.share for release in spent.releases) == pytest.approx(1.0)


def test_rows_that_noise_hides_end_in_a_sentence():
    with pytest.raises(
        InputError, match=r"noise hides the rows: there are .*, give or take .*; use a larger epsilon"
    ):
        fitted(rows()[:40], 0.5)


def test_clusters_that_noise_hides_come_with_a_warning():
    model = FederatedKMeans(100, privacy=Privacy(1.0), random_state=0)
    with pytest.warns(NoiseWarning, match="as large as the clusters"):
        model.fit(rows(), ranges=RANGES)
    assert model.privacy_.hides_clusters
    assert not fitted(rows()).privacy_.hides_clusters


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init": [[0.0] * 3] * 3}, "privacy does not go with init"),
        ({"max_rounds": 5, "tol": 0.1}, "privacy does not go with max_rounds, tol; leave them out"),
        ({"privacy": Privacy(1.0, tolerated=2)}, "tolerated=2 of 4 sites: two sums with the same noise"),
        ({"privacy": Privacy(1.0, tolerated=4)}, "tolerated=4 of 4 sites; at least one must be left"),
        ({"privacy": Privacy(1.0, delta=0.0)}, "delta=0.0 must be a number at least 1e-15"),
        ({"privacy": 1.0}, r"privacy=1.0 is no Privacy; write Privacy\(epsilon=1.0\)"),
    ],
)
def test_what_a_private_run_cannot_do_is_said_before_any_question(options, message):
    model = FederatedKMeans(3, **{"privacy": Privacy(1.0), **options})
    with pytest.raises(InputError, match=message):
        coterie.fit(model, by_site(rows()), ranges=RANGES, policy=NOISE)
    assert not hasattr(model, "ledger_")


def test_constant_columns_and_wide_ranges_are_no_obstacle():
    x = np.column_stack([rows(), np.full(N_ROWS, 5.0)])
    wide = (np.array([-120.0] * 3 + [5.0]), np.array([120.0] * 3 + [5.0]))
    model = FederatedKMeans(3, privacy=Privacy(20.0), random_state=0).fit(x, ranges=wide)
    pooled = cost(x, FederatedKMeans(3, random_state=0).fit(x).cluster_centers_)
    assert cost(x, model.cluster_centers_) < 1.1 * pooled
    assert model.cluster_centers_[:, 3] == pytest.approx(5.0)


def test_what_a_simulated_private_run_would_ignore_is_refused():
    x = rows()
    with pytest.raises(InputError, match="privacy does not go with sample_weight"):
        FederatedKMeans(3, privacy=Privacy(4.0)).fit(x, sample_weight=np.ones(len(x)), ranges=RANGES)
    with pytest.raises(InputError, match="ranges are for private runs here"):
        FederatedKMeans(3).fit(x, ranges=RANGES)
    with pytest.raises(InputError, match="at most 2,000, and here are 2,001; leave some out"):
        FederatedKMeans(3, privacy=Privacy(4.0)).fit(np.zeros((9, 2001)), ranges=(np.zeros(2001), np.ones(2001)))
