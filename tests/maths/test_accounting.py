"""Epsilon of Gaussian releases: in closed form, beside accountants of others, and for noise of whole numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from coterie.maths.accounting import (
    LARGEST_DELTA,
    LARGEST_EPSILON,
    LEAST_DELTA,
    LEAST_EPSILON,
    SLACK,
    SMOOTHING,
    delta_of,
    epsilon_of,
    mu_of,
    mu_squared,
    variance_for,
)

EPSILONS = st.floats(LEAST_EPSILON, LARGEST_EPSILON)
DELTAS = st.floats(math.log10(LEAST_DELTA), math.log10(LARGEST_DELTA)).map(lambda power: 10.0**power)
MUS = st.floats(-3, 1.1).map(lambda power: 10.0**power)


def divergence(mu, epsilon):
    """The hockey-stick divergence of two normal distributions, by its definition."""

    def above(x):
        return max(0.0, math.exp(-((x - mu) ** 2) / 2) - math.exp(epsilon - x * x / 2)) / math.sqrt(2 * math.pi)

    start = epsilon / mu + mu / 2
    return integrate.quad(above, start, start + 12 + mu, epsabs=0, epsrel=1e-9, limit=500)[0]


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 3.0])
def test_delta_is_the_divergence_of_two_normal_distributions(mu, epsilon):
    expected = divergence(mu, epsilon)
    if expected > 1e-30:
        assert delta_of(mu, epsilon) == pytest.approx(expected, rel=1e-6)


@given(EPSILONS, DELTAS)
def test_mu_is_the_largest_that_epsilon_and_delta_allow(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert delta_of(mu, epsilon - SLACK) <= delta * (1 - SLACK)
    assert delta_of(mu * (1 + 1e-4), epsilon) > delta


@given(EPSILONS, DELTAS)
def test_epsilon_and_mu_are_inverse_and_epsilon_is_never_below(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert epsilon - 1e-9 <= epsilon_of(mu, delta) <= epsilon + 4 * SLACK
    assert epsilon_of(mu, delta) >= SLACK


@given(MUS, MUS, DELTAS)
def test_epsilon_grows_with_mu(one, other, delta):
    assert epsilon_of(min(one, other), delta) <= epsilon_of(max(one, other), delta)


@given(MUS, DELTAS, DELTAS)
def test_epsilon_falls_as_delta_grows(mu, one, other):
    assert epsilon_of(mu, max(one, other)) <= epsilon_of(mu, min(one, other))


@given(st.floats(1e-3, 1e9), st.floats(1e-8, 100))
def test_a_variance_gives_away_no_more_than_it_was_chosen_for(sensitivity, mu2):
    variance = variance_for(sensitivity, mu2)
    assert mu_squared(sensitivity, variance) <= mu2 * (1 + 1e-11 + 1e-15 * variance / (variance - SMOOTHING))
    exact = sensitivity**2 / (variance - SMOOTHING)
    assert mu_squared(sensitivity, variance) > exact  # rounded up


def test_nothing_given_away_is_free_and_too_much_is_said():
    assert delta_of(0.0, 1.0) == epsilon_of(0.0, 1e-6) == 0.0
    assert delta_of(1e-3, 0.0) <= LARGEST_DELTA
    assert epsilon_of(1e-3, LARGEST_DELTA) == SLACK
    assert delta_of(5.0, -SLACK) > delta_of(5.0, 0.0)
    with pytest.raises(ValueError, match="no such number"):
        epsilon_of(1e6, 1e-6)


def whole_divergence(variance, shift, epsilon, sites=1):
    """The divergence of a sum of discrete Gaussian draws from itself, shifted, by its definition."""
    reach = math.ceil(14 * math.sqrt(variance))
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * variance))
    noise = one / one.sum()
    for _ in range(sites - 1):
        noise = np.convolve(noise, one / one.sum())
    before = np.concatenate([noise, np.zeros(shift)])
    after = np.concatenate([np.zeros(shift), noise])
    return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((before, after), (after, before)))


@pytest.mark.parametrize("sites", [1, 2, 5])
@pytest.mark.parametrize("shift", [1, 2, 3, 5, 8, 16])
def test_noise_of_whole_numbers_is_as_good_as_claimed_at_the_smallest_variance_of_a_site(shift, sites):
    mu = math.sqrt(mu_squared(shift, 32 * sites))
    for epsilon in np.linspace(1e-3, 6, 300):
        claimed = delta_of(mu, epsilon)
        if claimed > 1e-11:
            assert whole_divergence(32, shift, epsilon, sites) <= claimed * (1 + 1e-9)


def test_without_smoothing_the_claim_would_be_false():
    """The divergence of whole numbers exceeds that of continuous noise with the same variance."""
    mu = 3 / math.sqrt(32)
    assert any(whole_divergence(32, 3, epsilon) > 1.05 * delta_of(mu, epsilon) for epsilon in np.linspace(3, 4, 50))


def test_several_sums_at_once_are_as_good_as_claimed():
    """Two numbers of other variances, of which a row changes both: the divergence over pairs of whole numbers."""
    noise = [np.exp(-(np.arange(-90, 91) ** 2) / (2 * v)) for v in (32, 50)]
    joint = np.multiply.outer(noise[0] / noise[0].sum(), noise[1] / noise[1].sum())
    before, after = np.zeros((184, 184)), np.zeros((184, 184))
    before[:181, :181], after[2:183, 3:184] = joint, joint
    mu = math.sqrt(mu_squared(2, 32) + mu_squared(3, 50))
    for epsilon in np.linspace(1e-3, 4, 60):
        assert np.maximum(after - math.exp(epsilon) * before, 0).sum() <= delta_of(mu, epsilon) * (1 + 1e-9)


# ---------------------------------------------------------------- beside dp-accounting (coterie[privacy])

STEP = 1e-4
"""Of losses, in the accountant's discretisation."""


@pytest.fixture(scope="module")
def pld():
    return pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="needs coterie[privacy]")


@pytest.mark.parametrize("delta", [1e-5, 1e-6, 1e-9])
@pytest.mark.parametrize("mus", [[0.25], [0.1] * 6, [0.05, 0.1, 0.2, 0.4], [1.0], [0.5, 2.0]])
def test_epsilon_of_releases_is_that_of_an_accountant_of_privacy_losses(pld, mus, delta):
    composed = {}
    for pessimistic in (True, False):
        losses = [
            pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=STEP, pessimistic_estimate=pessimistic)
            for mu in mus
        ]
        whole = losses[0]
        for other in losses[1:]:
            whole = whole.compose(other)
        composed[pessimistic] = whole.get_epsilon_for_delta(delta)
    ours = epsilon_of(math.sqrt(sum(mu * mu for mu in mus)), delta)
    assert ours >= composed[False] - len(mus) * STEP
    assert ours <= composed[True] + len(mus) * STEP
    assert ours == pytest.approx(composed[True], rel=0.01)


@pytest.mark.parametrize(("variance", "sensitivity"), [(32, 1), (32, 2), (50, 3), (400, 5)])
def test_epsilon_is_not_below_that_of_an_accountant_of_whole_numbers_noise(pld, variance, sensitivity):
    losses = pld.from_discrete_gaussian_mechanism(
        math.sqrt(variance), sensitivity=sensitivity, value_discretization_interval=STEP, pessimistic_estimate=False
    )
    for delta in (1e-3, 1e-6, 1e-9):
        theirs = losses.self_compose(4).get_epsilon_for_delta(delta)
        ours = epsilon_of(2 * math.sqrt(mu_squared(sensitivity, variance)), delta)
        assert theirs - 4 * STEP <= ours <= theirs * (1.01 + SMOOTHING / variance) + 4 * STEP


def test_delta_is_exact_to_a_tenth_of_the_slack(pld):
    mpmath = pytest.importorskip("mpmath")  # comes with the accountant
    with mpmath.workdps(60):
        for epsilon in np.geomspace(LEAST_EPSILON, LARGEST_EPSILON, 25):
            for delta in (1e-15, 1e-9, 1e-6, 1e-2):
                mu = mu_of(float(epsilon), delta)
                e, m = mpmath.mpf(float(epsilon)), mpmath.mpf(mu)
                exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
                assert abs(delta_of(mu, float(epsilon)) / exact - 1) < SLACK / 10
                assert exact * (1 + SLACK / 10) <= delta
