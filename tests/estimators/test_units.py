"""Differential privacy of people: all rows of one together, in simulation and over sites."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import coterie
from coterie import FederatedKMeans, FederatedPCA, Privacy
from coterie.errors import InputError
from coterie.maths.accounting import SMOOTHING, epsilon_of, mu_of
from coterie.methods.shared.preparation import PreparationOptions
from coterie.methods.shared.privacy import DELTA
from coterie.methods.shared.private_sums import SumRows
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.tables import open_table
from coterie.sites.views import noise
from tests.attacks.private_runs import recorded_run
from tests.federations import blobs

RANGES = (np.full(3, -20.0), np.full(3, 20.0))
ROWS, PEOPLE = blobs(6000, 3), np.arange(6000) % 1000
OWNERS = np.arange(6000) // 2000
FRAMES = {
    f"site-{i}": pd.DataFrame(ROWS[i == OWNERS], columns=list("abc")).assign(patient=PEOPLE[i == OWNERS])
    for i in range(3)
}


def people(most: int = 1, epsilon: float = 20.0) -> FederatedKMeans:
    return FederatedKMeans(2, privacy=Privacy(epsilon, unit="patient", rows_per_unit=most), random_state=0)


def noisy(**rules) -> Policy:
    return Policy(protection="noise", privacy=PrivacyRules(100.0, **rules))


@pytest.fixture
def no_noise(monkeypatch):
    monkeypatch.setattr(noise, "draws", lambda variance, count, key: np.zeros(count, np.int64))


@pytest.mark.parametrize(("most", "held"), [(1, 3000), (2, 6000), (5, 6000)])
@pytest.mark.usefixtures("no_noise")
def test_so_many_rows_of_each_person_at_each_site_are_counted(most, held):
    """A thousand people at three sites, twice at each."""
    simulated = people(most).fit(ROWS, sites=OWNERS, ranges=RANGES, units=PEOPLE)
    fitted = coterie.fit(people(most), FRAMES, policy=noisy(), ranges=RANGES)
    for one in (simulated, fitted):
        assert one.counts_.sum() == held
        assert (one.privacy_.unit, one.privacy_.rows_per_unit) == ("patient", most)
    assert len(simulated.labels_) == len(ROWS)  # every row has a cluster


@pytest.mark.usefixtures("no_noise")
def test_people_without_a_name_count_once_each():
    names = np.where(PEOPLE < 500, None, PEOPLE.astype(object))
    fitted = people().fit(ROWS, sites=OWNERS, ranges=RANGES, units=names)
    assert fitted.counts_.sum() == 3000 + 1500


@pytest.mark.usefixtures("no_noise")
def test_components_of_so_many_rows_of_each_person():
    privacy = Privacy(20.0, unit="patient")
    fitted = FederatedPCA(2, privacy=privacy).fit(ROWS, sites=OWNERS, ranges=RANGES, units=PEOPLE)
    first = np.concatenate([np.unique(PEOPLE[i == OWNERS], return_index=True)[1] + 2000 * i for i in range(3)])
    same = FederatedPCA(2, privacy=Privacy(20.0)).fit(ROWS[first], sites=OWNERS[first], ranges=RANGES)
    assert fitted.components_ == pytest.approx(same.components_, abs=1e-3)


def charged(fitted) -> set[float]:
    return {round(one.statement.epsilon, 2) for one in fitted.certificate_.statements.values()}


def test_noise_is_made_for_all_rows_of_one_person_and_sites_charge_for_them():
    """The noise is five times as large as for rows, and what it costs is the same."""
    for most in (1, 5):
        fitted = coterie.fit(people(most, 1.0), FRAMES, policy=noisy(unit="patient", rows_per_unit=9), ranges=RANGES)
        assert charged(fitted) == {1.0}
    mu = mu_of(1.0, DELTA)
    mu, rows = mu_of(1.0, DELTA), FederatedKMeans(2, privacy=Privacy(1.0))
    for asked, policy, factor in (
        (people(1, 1.0), noisy(), 2),
        (rows, noisy(unit="patient"), 1),
        (rows, noisy(unit="patient", rows_per_unit=3), 3),
    ):
        fitted = coterie.fit(asked, FRAMES, policy=policy, ranges=RANGES)
        (spent,) = charged(fitted)
        assert spent == pytest.approx(epsilon_of(factor * mu, DELTA), abs=0.02)


def test_noise_grows_with_the_rows_that_count():
    options, variances = PreparationOptions(ranges=RANGES), {}
    for most in (1, 10):
        asked = recorded_run(people(most), ROWS, options)
        variances[most] = next(one.variances - SMOOTHING for one in asked if isinstance(one, SumRows))
    assert variances[10] == pytest.approx(100 * variances[1], rel=1e-6)


def test_what_is_wrong_is_said_before_any_question():
    asked = []
    opened = {name: open_table(frame, ignore=["patient"]) for name, frame in FRAMES.items()}
    for tables, estimator, policy, match in (
        (opened, people(), noisy(), "unit='patient': the table of site-0 was opened without that column"),
        (FRAMES, FederatedKMeans(2, privacy=Privacy(unit="person")), noisy(), "site-0: there is no column 'person'"),
        (opened, FederatedKMeans(2, privacy=Privacy()), noisy(unit="patient"), "was opened without that column"),
    ):
        with pytest.raises(InputError, match=match):
            coterie.fit(estimator, tables, policy=policy, ranges=RANGES, events=asked.append)
    assert not asked
    for estimator, options, match in (
        (people(), {}, "unit='patient' needs units, one label a row"),
        (people(), {"units": PEOPLE[1:]}, "needs units, one label a row"),
        (FederatedKMeans(2, privacy=Privacy()), {"units": PEOPLE}, "units say whose row it is; name what they are"),
        (FederatedKMeans(2), {"units": PEOPLE}, "units say whose row it is"),
        (FederatedKMeans(2, privacy=Privacy()), {"sample_weight": np.ones(6000)}, "does not go with sample_weight"),
    ):
        with pytest.raises(InputError, match=match):
            estimator.fit(ROWS, ranges=RANGES, **options)
    for privacy in ({"rows_per_unit": 2}, {"unit": "patient", "rows_per_unit": 0}, {"unit": ""}):
        with pytest.raises(InputError, match="unit"):
            FederatedKMeans(2, privacy=Privacy(**privacy)).fit(ROWS, ranges=RANGES, units=PEOPLE)


def test_a_site_of_its_own_rules_takes_no_part_where_too_little_is_left():
    policy = Policy(protection="noise", privacy=PrivacyRules(2.0, unit="patient", rows_per_unit=4))
    with pytest.raises(InputError, match="at most 4 count"):
        coterie.fit(FederatedKMeans(2, privacy=Privacy(1.0)), FRAMES, policy=policy, ranges=RANGES)
