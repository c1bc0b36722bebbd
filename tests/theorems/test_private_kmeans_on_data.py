"""What private k-means promises of its costs, by masked sums over five sites, with integers and noise throughout.

Noise is from the operating system, so that no seed repeats a run.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from coterie_studies.privacy.claims import BARS, NEAR_LIMIT
from coterie_studies.privacy.runs import Setting, clustered
from coterie_studies.privacy.sets import FULL

K_MEANS = [bar for bar in BARS if bar.kind == "kmeans"]  # of kernel k-means: test_private_kernel_on_data.py
MANY = {"gaussians": 40, "heart": 40}
"""Seeds where one run in six has far worse clusters: the mean of ten is above the bar once in thirty times."""
SEEDS = 1000
"""The first seed: starts depend on it, noise does not."""


@cache
def runs(name: str, setting: Setting, n_seeds: int) -> dict[str, list[float]]:
    """Cost ratios to the pooled reference, and NMI, where classes are known."""
    found = [clustered(FULL[name], setting, SEEDS + seed) for seed in range(n_seeds)]
    return {what: [one[what] for one in found] for what in found[0]}


def test_digits_at_epsilon_one_are_close_to_the_pooled_clusters():
    """Of 120 runs the cost was 1.115 in the mean, with a deviation of .022, and NMI .667 with one of .029: means of
    three are more than seven of their deviations on this side of the bars."""
    found = runs("digits", Setting(), 3)
    assert np.mean(found["ratio"]) <= 1.22
    assert np.mean(found["nmi"]) >= 0.54


def test_gaussians_in_the_plane_at_epsilon_one_are_close_to_the_pooled_clusters():
    """Of 300 runs none was above 1.13; the median of three is above 1.2 only where two of them are."""
    assert np.median(runs("gaussians", Setting(), 3)["ratio"]) <= 1.2


def test_more_epsilon_and_fewer_tolerated_sites_cost_less():
    """Digits cost 1.38 where each site's noise is enough by itself, 1.115 where the sum's is, 1.03 at epsilon 4, with
    deviations of .04, .022 and .017: means of three are more than five of their deviations apart."""
    settings = Setting(tolerated=4), Setting(), Setting(4.0)
    costs = [np.mean(runs("digits", setting, 3)["ratio"]) for setting in settings]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("bar", K_MEANS, ids=lambda bar: f"{bar.name} {bar.epsilon:g} {bar.what}")
def test_costs_are_within_their_bars(bar, data_folder, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(data_folder))
    values = runs(bar.name, Setting(bar.epsilon), MANY.get(bar.name, bar.one.most_seeds))[bar.what]
    assert bar.holds(values), f"epsilon {bar.epsilon:g}: {bar.text}, not {bar.value(values):.4f}"


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", FULL)
def test_much_epsilon_is_nearly_as_good_as_rows_without_noise(name, data_folder, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(data_folder))
    noisy, plain = runs(name, Setting(100.0), FULL[name].most_seeds), runs(name, Setting(None), 3)
    assert np.mean(noisy["ratio"]) <= NEAR_LIMIT * np.mean(plain["ratio"])


@pytest.mark.slow
def test_ranges_four_times_too_wide_cost_little():
    """Of 30 runs the cost was 1.157 in the mean, with a deviation of .036."""
    assert np.mean(runs("digits", Setting(widening=4.0), 10)["ratio"]) <= 1.25
