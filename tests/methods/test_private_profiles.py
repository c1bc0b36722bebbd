"""Private profiles of clusters: near the truth by what they say of their noise, within a stated share of the run.

Noise is from the operating system, so that no seed repeats a run; bars are where a run fails with a probability below
one in a million.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import coterie
from coterie import FederatedKernelKMeans, FederatedKMeans, FederatedPCA, Privacy
from coterie.errors import InputError
from coterie.messages.contributions import PrivateRequest
from coterie.methods.shared.cluster_profiles import Profile
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.private_profiles import BINS, SHARE
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.views import noise
from tests.attacks.private_runs import HIGH, LOW, recorded_run
from tests.federations import blobs

NAMES = ["x", "y", "age", "sex=f"]
RANGES = ([-5.0, -8.0, 0.0, 0.0], [25.0, 20.0, 120.0, 1.0])
WIDTHS = np.subtract(RANGES[1], RANGES[0])
POLICY = Policy(protection="noise", privacy=PrivacyRules(100.0, 1e-6))
KINDS = [FederatedKMeans, FederatedKernelKMeans]


def frame(n: int = 6000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, n)
    made = pd.DataFrame(
        {
            "x": rng.normal(kind * 8, 3).clip(-5, 25),
            "y": rng.normal(kind % 2 * 10, 4).clip(-8, 20),
            "age": rng.normal(40 + kind * 10, 8).clip(0, 120),
            "sex=f": (rng.random(n) < 0.2 + 0.3 * kind).astype(float),
        }
    )
    made.loc[rng.random(n) < 0.05 + 0.1 * kind, "age"] = np.nan
    return made


def by_site(whole: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {f"s{i}": whole.iloc[i::4] for i in range(4)}


def fitted(
    kind: type, whole: pd.DataFrame, epsilon: float = 8.0, seed: int = 0, **options: object
) -> FederatedKMeans:
    model = kind(3, privacy=Privacy(epsilon), random_state=seed)
    given = {"policy": POLICY, "ranges": RANGES, "profile": ["age", "sex=f"], **options}
    return coterie.fit(model, by_site(whole), **given)


def truth(model: FederatedKMeans, whole: pd.DataFrame) -> pd.core.groupby.DataFrameGroupBy:
    return whole.groupby(model.predict(whole[["x", "y"]]))


@pytest.fixture
def silent(monkeypatch):
    """Sites that make no noise."""
    monkeypatch.setattr(noise, "draws", lambda variance, count, key: np.zeros(count, np.int64))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_as_near_as_it_says(kind):
    whole = frame()
    model = fitted(kind, whole)
    found, true = model.profiles_, truth(model, whole)
    of_rows, of_means = found.noise
    assert list(found.columns) == NAMES
    assert np.abs(found.rows - true.size()).max() < 6 * of_rows
    assert (np.abs(found.means - true.mean()) < 6 * of_means + 1e-3 * WIDTHS).all(axis=None)
    assert (of_means < 0.02 * WIDTHS).all()
    assert (np.abs(found.deviations - true.std())[["x", "y", "age"]] < 0.1 * WIDTHS[:3]).all(axis=None)
    assert (np.abs(found.missing - (true.size().to_numpy()[:, None] - true.count())) < 12 * of_rows).all(axis=None)
    quartiles = np.stack([true.quantile(level).to_numpy() for level in (0.25, 0.5, 0.75)], axis=-1)
    assert (np.abs(found.quartiles - quartiles)[:, :3] < 1.5 * WIDTHS[:3, None] / BINS).all()
    assert np.isnan(found.quartiles[:, 3]).all()
    assert found.is_share.tolist() == [False, False, False, True]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("silent")
def test_without_its_noise_it_is_the_profile_of_the_models_own_labels(kind):
    """Every row is in the cluster that the model predicts; what is left is rounding to whole numbers."""
    whole = frame(600)
    model = fitted(kind, whole)
    found, true = model.profiles_, truth(model, whole)
    assert found.rows.tolist() == true.size().tolist()
    assert (np.abs(found.present - true.count()) < 1e-6 * len(whole)).all(axis=None)
    assert (np.abs(found.means - true.mean()) < 1e-3 * WIDTHS).all(axis=None)
    assert (np.abs(found.deviations - true.std(ddof=0)) < 1e-2 * WIDTHS).all(axis=None)


@pytest.mark.usefixtures("silent")
def test_rows_that_a_run_leaves_out_are_in_no_profile():
    whole = frame(600)
    whole.loc[whole.index % 7 == 0, "x"] = np.nan
    model = fitted(FederatedKMeans, whole, missing="drop")
    found, kept = model.profiles_, whole.dropna(subset=["x"])
    true = truth(model, kept)
    assert found.rows.sum() == len(kept)
    assert (np.abs(found.means - true.mean()) < 1e-3 * WIDTHS).all(axis=None)


@pytest.mark.usefixtures("silent")
def test_a_verified_run_is_the_plain_one_at_the_same_public_seed():
    whole, off = frame(300), replace(POLICY, verification="off")
    verified = fitted(FederatedKMeans, whole)
    plain = fitted(FederatedKMeans, whole, seed=verified.public_seed_, policy=off)
    assert "secure.ShareKey" in {exchange.asked for exchange in verified.ledger_.exchanges}
    for name in ("rows", "present", "means", "deviations", "quartiles"):
        np.testing.assert_array_equal(getattr(verified.profiles_, name), getattr(plain.profiles_, name))


def test_one_cluster_is_all_rows():
    whole = frame(2000)
    model = coterie.fit(
        FederatedKMeans(1, privacy=Privacy(8.0)),
        by_site(whole),
        policy=POLICY,
        ranges=RANGES,
        profile=["age", "sex=f"],
    )
    (means,), (of_means,) = model.profiles_.means, model.profiles_.noise[1]
    assert (np.abs(means - whole.mean()) < 6 * of_means + 1e-3 * WIDTHS).all()


# ---------------------------------------------------------------- budget


@pytest.mark.parametrize("kind", KINDS)
def test_it_takes_the_stated_share_and_leaves_the_rest_to_the_method(kind):
    privacy = Privacy(epsilon=0.5)
    given = {"ranges": (np.full(4, LOW), np.full(4, HIGH)), "scale": "standard"}
    spent = []
    for profile in (False, True):
        asked = recorded_run(kind(3, privacy=privacy), blobs(3000, 4), PreparationOptions(**given, profile=profile))
        costs = [one.mu_squared / privacy.mu_squared for one in asked if isinstance(one, PrivateRequest)]
        spent.append(costs)
    alone, with_profile = spent
    assert sum(alone) == pytest.approx(1, rel=0.01)
    assert sum(with_profile) <= 1
    assert sum(with_profile[-3:]) == pytest.approx(SHARE, rel=0.01)
    assert sum(with_profile[:-3]) == pytest.approx(1 - SHARE, rel=0.01)
    assert np.allclose(np.divide(with_profile[:3], alone[:3]), 1 - SHARE, rtol=0.01)


def test_a_site_is_charged_what_was_ordered_and_no_more():
    whole = frame(600)
    model = fitted(FederatedKMeans, whole, policy=replace(POLICY, privacy=PrivacyRules(8.0, 1e-6)))
    shares = {release.what: release.share for release in model.privacy_.releases}
    profile = ("missing values", "means and deviations of columns", "counts of values")
    assert sum(shares[what] for what in profile) == pytest.approx(SHARE)
    assert sum(shares.values()) == pytest.approx(1)


# ---------------------------------------------------------------- what it does not say, what is refused


def a_profile(means: list[list[float]], of_means: float) -> Profile:
    k, p = np.shape(means)
    there, columns = np.full((k, p), 100.0), tuple(f"x{i}" for i in range(p))
    none, noise = np.full((k, p, 3), np.nan), (1.0, np.full((k, p), of_means))
    return Profile(
        columns, np.full(k, 100.0), there, np.array(means), np.ones((k, p)), none, np.zeros(p, bool), False, noise
    )


def test_what_may_be_noise_distinguishes_nothing():
    means = [[0.0, 1.0], [4.0, 0.0]]
    assert a_profile(means, 0.1).distinguishing(0) == [0, 1]
    assert a_profile(means, 0.9).distinguishing(0) == [0]
    assert a_profile(means, 1.1).distinguishing(0) == []


@pytest.mark.usefixtures("silent")
def test_quartiles_that_would_be_noise_are_left_out():
    found = fitted(FederatedKMeans, frame(600), epsilon=1.0).profiles_
    assert np.isnan(found.quartiles).all()
    assert np.isfinite(found.means).all()


def test_columns_without_a_range_are_named_before_any_question():
    two = ([-5.0, -8.0, 0.0], [25.0, 20.0, 120.0])
    with pytest.raises(InputError, match="described by, and sex=f has none"):
        fitted(FederatedKMeans, frame(300), ranges=two)
    with pytest.raises(InputError, match="age, sex=f have none"):
        fitted(FederatedKMeans, frame(300), ranges=(two[0][:2], two[1][:2]))
    with pytest.raises(InputError, match="about clusters"):
        model = FederatedPCA(1, privacy=Privacy(8.0))
        coterie.fit(model, by_site(frame(300)), policy=POLICY, ranges=RANGES, profile=True)
