"""What Gaussian releases give away together: epsilon and delta of their sum, in closed form.

A release with sensitivity s and noise of variance v has parameter mu = s / sqrt(v); releases one after the other,
each chosen in view of those before, have the root of the sum of mu**2 (Dong, Roth & Su 2022; Smith & Thakurta 2022).
Noise is discrete and a sum over sites; docs/privacy-proofs.md shows that it is as good as continuous noise whose
variance is smaller by :data:`SMOOTHING`, up to :data:`SLACK`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import log_ndtr

SMOOTHING = 3.0
"""Variance, in ring units, by which noise of whole numbers is worth less than continuous noise."""
SLACK = 1e-8
"""What is taken off epsilon, and this share of delta, for all that rounding and tables may add."""
MOST_NUMBERS = 10**16
"""Noisy numbers of one table for which the slack suffices, over the life of its budget."""
ROUNDING = 1e-12
"""By what share a squared length, a charge or a sum of charges may be off in double precision."""
LEAST_EPSILON, LARGEST_EPSILON = 1e-3, 100.0
LEAST_DELTA, LARGEST_DELTA = 1e-15, 0.1


def delta_of(mu: float, epsilon: float) -> float:
    """The smallest delta for an epsilon (Balle & Wang 2018, theorem 8)."""
    if mu <= 0:
        return 0.0
    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(-math.exp(first) * math.expm1(min(0.0, second - first)))


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon for a delta, with what discrete noise adds; never below the true one."""
    if mu <= 0:
        return 0.0
    least = delta * (1 - SLACK)
    if delta_of(mu, 0.0) <= least:
        return SLACK
    return _bisected(lambda epsilon: delta_of(mu, epsilon) <= least, 0.0, 1.0)[1] + SLACK


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu that an epsilon and a delta allow."""
    return _bisected(lambda mu: delta_of(mu, epsilon - SLACK) > delta * (1 - SLACK), 0.0, 1.0)[0]


def _bisected(is_reached: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Two neighbors, of which the second is the first number that reaches it."""
    while not is_reached(high):
        low, high = high, 2 * high
        if high > 1e9:
            raise ValueError("there is no such number")
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return low, high
        low, high = (low, middle) if is_reached(middle) else (middle, high)


def mu_squared(sensitivity: float, variance: float) -> float:
    """What a release gives away, of noise with this variance in all; rounded up."""
    return sensitivity**2 / (variance - SMOOTHING) * (1 + ROUNDING)


def variance_for(sensitivity: float, mu2: float) -> float:
    """The variance of all noise with which a release gives away so much."""
    return sensitivity**2 / mu2 * (1 + ROUNDING) + SMOOTHING
