"""Quantiles from bins: within a tenth of a deviation of those of the values, whatever these are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.maths.quantiles import CLOSE, QUARTILES, bins_for, from_bins, spans

LEVELS = [QUARTILES, (0.5,), (0.05, 0.5, 0.95)]
ODD = {
    "two far values": np.array([0.0] * 3 + [1e6]),
    "all in the tails": np.array([-1.0] * 50 + [1.0] * 50),
    "a quarter far out": np.array([0.0] * 75 + [1.0] * 25),
    "hardly a quarter": np.array([0.0] * 74 + [1.0] * 26),
    "long tail": np.random.default_rng(0).pareto(1.1, 4000),
    "whole numbers": np.random.default_rng(1).poisson(1.3, 900).astype(float),
    "normal": np.random.default_rng(2).normal(5, 1e-3, 5000),
}


def counted(values, levels):
    """Counts of values in the bins of their own span, and its ends."""
    below, above = spans(levels)
    first, last = values.mean() - below * values.std(), values.mean() + above * values.std()
    places = np.floor((values - first) / ((last - first) / bins_for(levels)))
    counts = np.bincount(np.clip(places, 0, bins_for(levels) - 1).astype(int), minlength=bins_for(levels))
    return counts.astype(float), np.array(first), np.array(last)


def largest_error(values, levels):
    """In deviations of the values."""
    return np.abs(from_bins(*counted(values, levels), levels) - np.quantile(values, levels)).max() / values.std()


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("name", ODD)
def test_quantiles_are_within_a_tenth_of_a_deviation(name, levels):
    assert largest_error(ODD[name], levels) <= CLOSE * (1 + 1e-6)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=60).filter(lambda values: len(set(values)) > 1))
def test_the_same_for_any_values(values):
    assert largest_error(np.array(values, float), QUARTILES) <= CLOSE * (1 + 1e-6)


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=40), st.sampled_from((0.05, 0.25, 0.5, 0.75, 0.9)))
def test_every_quantile_lies_in_its_span(values, level):
    """Cantelli's inequality, of any distribution."""
    values = np.array(values, float)
    below, above = spans((level,))
    quantile = np.quantile(values, level, method="inverted_cdf")
    rounding = 1e-9 * np.abs(values).max()
    assert values.mean() - below * values.std() - rounding <= quantile
    assert quantile <= values.mean() + above * values.std() + rounding


def test_spans_are_as_narrow_as_can_be():
    """A quarter of the values far out: the upper quartile jumps from one end of its span to the other."""
    tight = np.array([0.0] * 750_001 + [1.0] * 249_999)
    (below, _), deviation = spans((0.75,)), tight.std()
    assert np.quantile(tight, 0.75) == 0
    assert tight.mean() - below * deviation == pytest.approx(0, abs=1e-5)


def test_far_from_the_middle_of_a_bin_quantiles_are_not_within_a_tenth():
    """What keeps them near it is needed: evenly spread in its bin, this quartile would be too far from its values."""
    levels, bins = QUARTILES, bins_for(QUARTILES)
    counts, first, last = np.zeros(bins), np.array(-spans(levels)[0]), np.array(spans(levels)[1])
    counts[5], counts[-3] = 26, 74
    (quartile, *_), width = from_bins(counts, first, last, levels), (last - first) / bins
    lower_end = first + 5 * width
    even = lower_end + 24.75 / 26 * width
    assert even - lower_end > CLOSE >= quartile - lower_end


def test_means_of_normal_values_give_the_quartiles_of_the_values():
    rng = np.random.default_rng(3)
    means = rng.normal(size=20_000)
    values = np.repeat(means, 5) + 0.7 * rng.normal(size=100_000)
    counts, first, last = counted(means, QUARTILES)
    shown = from_bins(counts, first, last, QUARTILES)
    moved = from_bins(counts, first, last, QUARTILES, np.array(0.7))
    truth = np.quantile(values, QUARTILES)
    assert np.abs(moved - truth).max() < 0.02
    assert np.abs(shown - truth).max() > 0.1


def test_nothing_counted_has_no_quantile():
    assert np.isnan(from_bins(np.zeros(8), np.array(0.0), np.array(1.0), QUARTILES)).all()
