"""Discrete Gaussian draws: exact probabilities, no floating point, sums as good as one draw."""

from __future__ import annotations

import ast
import inspect
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal, stats

from coterie.maths import discrete_gaussian
from coterie.maths.accounting import LARGEST_EPSILON, LEAST_DELTA, MOST_NUMBERS, SLACK, SMOOTHING
from coterie.maths.discrete_gaussian import (
    BITS,
    COARSE_VARIANCE,
    LARGEST_TABLE,
    LEAST_VARIANCE,
    TAILS,
    Table,
    _from_table,
    draws,
    probabilities,
    table,
)

KEY = bytes(range(32))
VARIANCES = [Fraction(16), Fraction(17), Fraction(100, 3), Fraction(1000), Fraction(65536), Fraction(LARGEST_TABLE)]


def exact_weights(variance, reach):
    """exp(-n**2 / (2 v)) for n from 0 to ``reach``, each by itself, with many more digits than the table."""
    with localcontext() as context:
        context.prec = 200
        v = Decimal(variance.numerator) / Decimal(variance.denominator)
        return [(-Decimal(n * n) / (2 * v)).exp() for n in range(reach + 1)]


@pytest.mark.parametrize("variance", VARIANCES[:4], ids=str)
def test_the_tables_probabilities_are_those_of_the_distribution_up_to_its_bits_and_tails(variance):
    known = table(variance)
    reach = -known.first
    assert reach >= TAILS * math.sqrt(variance)
    assert len(known.ends) == 2 * reach
    weights = exact_weights(variance, 2 * reach)
    steps = [b - a for a, b in pairwise((0, *known.ends, 1 << BITS))]
    with localcontext() as context:
        context.prec = 200
        total = weights[0] + 2 * sum(weights[1:])
        exact = [weights[abs(n)] / total for n in range(-reach, reach + 1)]
        off = [abs(Decimal(step) / (1 << BITS) - p) for step, p in zip(steps, exact, strict=True)]
        beyond = 1 - sum(exact)
        variation = (sum(off) + beyond) / 2
    assert max(off[:-1]) < Decimal(2) ** (2 - BITS) + beyond
    assert variation < Decimal("1e-88")
    assert 0 < beyond < Decimal("1e-88")


def test_the_variation_of_all_draws_of_a_budgets_life_is_within_the_slack_of_the_smallest_delta():
    with localcontext() as context:
        context.prec = 60
        reach = math.isqrt(TAILS**2 * LARGEST_TABLE) + 2
        of_a_draw = 2 * Decimal(-(TAILS**2) / 2).exp() / TAILS + reach * Decimal(2) ** (1 - BITS)  # tails, rounding
        n_draws = Decimal(MOST_NUMBERS) * 2 * 1000  # coarse and fine, at a thousand sites
        added = (1 + Decimal(LARGEST_EPSILON).exp()) * n_draws * of_a_draw
        assert added < Decimal(LEAST_DELTA) * Decimal(SLACK) / 100


def test_the_ratio_of_probabilities_to_rounded_continuous_noise_is_within_the_slack_of_epsilon():
    """Poisson summation: a sum of Gaussians over whole numbers differs from its integral by 2 exp(-2 pi^2 v)."""

    def off(variance):
        return 2.1 * math.exp(-2 * math.pi**2 * variance)

    of_a_number = off(SMOOTHING) + off(LEAST_VARIANCE) + 2000 * 2.1 * off(LEAST_VARIANCE / 2)  # a thousand sites
    assert 2 * of_a_number * MOST_NUMBERS < SLACK / 4


@pytest.mark.parametrize("variance", [16, Fraction(100, 3), 1000])
def test_draws_have_the_tables_probabilities(variance):
    found = draws(variance, 400_000, KEY)
    expected = probabilities(Fraction(variance)) * len(found)
    first = table(Fraction(variance)).first
    counts = np.bincount(found - first, minlength=len(expected))
    usual = expected >= 8
    counts = np.append(counts[usual], counts[~usual].sum())
    expected = np.append(expected[usual], expected[~usual].sum())
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4


def test_where_the_first_bits_of_a_uniform_number_do_not_decide_the_others_do():
    """Four ends of five intervals, two of which begin with the same 64 bits."""
    ends = tuple(int(2 * head) << (BITS - 65) for head in (5, 5.5, 9, 12))
    known = Table(-2, np.array([end >> (BITS - 64) for end in ends], np.uint64), ends)
    sure = np.array([0, 4, 6, 8, 10, 11, 13, (1 << 64) - 1], np.uint64)
    assert _from_table(known, sure, iter(())).tolist() == [-2, -2, 0, 0, 1, 1, 2, 2]
    tied = _from_table(known, np.full(4000, 5, np.uint64), (i.to_bytes(32, "big") for i in range(4000)))
    assert set(tied.tolist()) == {-1, 0}
    assert 1800 < int((tied == 0).sum()) < 2200  # half of what follows lies above the second end
    assert set(_from_table(known, np.full(50, 9, np.uint64), (bytes([i] * 32) for i in range(50))).tolist()) == {1}


def test_tails_are_reached_as_often_as_they_should_be():
    found = np.abs(draws(64, 2_000_000, KEY))
    for deviations in (3, 4, 4.5):
        reach = math.ceil(8 * deviations)
        expected = len(found) * 2 * probabilities(Fraction(64))[-table(Fraction(64)).first + reach :].sum()
        assert abs(int((found >= reach).sum()) - expected) < 5 * math.sqrt(expected)


@given(st.integers(LARGEST_TABLE + 1, 1 << 44))
def test_both_of_two_draws_are_wide_enough_for_their_sum_to_be_as_good_as_one(variance):
    seen = []

    def spied(v, count, keys, known=discrete_gaussian._draws):
        seen.append(v)
        return known(v, count, keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discrete_gaussian, "_draws", spied)
        patch.setattr(discrete_gaussian, "table", lambda v: table(Fraction(16)))
        draws(variance, 1, KEY)
    whole, coarse, fine = seen[:3]
    unit = math.isqrt(int((whole - fine) / coarse))
    assert unit**2 * coarse + fine == whole == variance
    assert LEAST_VARIANCE <= coarse <= LARGEST_TABLE
    assert fine * coarse / whole >= 15.9  # of the coarse draw, given the sum: what Poisson summation needs
    assert fine / unit**2 >= 16


def test_a_sum_of_two_draws_has_the_probabilities_of_one():
    """The exact convolution of both parts, for a variance small enough for one table to compare with."""
    unit, fine, coarse = 4, Fraction(256), Fraction(300)
    wide = probabilities(coarse)
    spread = np.zeros((len(wide) - 1) * unit + 1)
    spread[::unit] = wide
    found = signal.convolve(spread, probabilities(fine), method="direct")
    one = probabilities(fine + unit**2 * coarse)
    away = (len(found) - len(one)) // 2
    np.testing.assert_allclose(found[away : away + len(one)], one, rtol=1e-9, atol=1e-25)


@pytest.mark.parametrize("variance", [LARGEST_TABLE + 1, 10**7, 10**12])
def test_draws_of_two_stages_are_of_their_variance_and_take_every_remainder(variance):
    found = draws(variance, 200_000, KEY)
    assert abs(found.mean()) < 5 * math.sqrt(variance / len(found))
    assert abs((found.astype(float) ** 2).mean() / variance - 1) < 5 * math.sqrt(2 / len(found))
    assert stats.kstest(found / math.sqrt(variance), "norm").pvalue > 1e-4
    unit = 1 << (variance // COARSE_VARIANCE).bit_length() // 2  # divides that of the coarse draw
    assert stats.chisquare(np.bincount(found % unit, minlength=unit)).pvalue > 1e-4


def test_a_sum_over_sites_has_the_probabilities_of_one_draw():
    alone = probabilities(Fraction(16))
    found = alone
    for sites in range(2, 6):
        found = signal.convolve(found, alone, method="direct")
        one = probabilities(Fraction(16 * sites))
        away = (len(found) - len(one)) // 2
        np.testing.assert_allclose(found[away : away + len(one)], one, rtol=1e-9, atol=1e-25)


@settings(max_examples=30)
@given(st.fractions(LEAST_VARIANCE, 1 << 40), st.integers(0, 50), st.binary(min_size=32, max_size=32))
def test_draws_are_integers_and_the_same_key_gives_the_same(variance, count, key):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discrete_gaussian, "table", lambda v: table(Fraction(16)))
        found = draws(variance, count, key)
        assert found.dtype == np.int64
        assert found.shape == (count,)
        np.testing.assert_array_equal(found, draws(variance, count, key))
        if count > 20:
            assert (found != draws(variance, count, bytes(32) if key != bytes(32) else bytes([1]) * 32)).any()


def test_no_array_of_floats_is_made_on_the_path_of_a_draw():
    """Every array that a draw makes holds integers; and its code has no literal, function or type of floats."""
    kinds, float_names = set(), {"float", "float64", "float32", "random", "normal", "sqrt", "log", "exp", "rint"}
    made = {
        name: getattr(np, name) for name in ("array", "asarray", "zeros", "searchsorted", "minimum", "flatnonzero")
    }

    def noted(function):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            kinds.update(part.dtype.kind for part in (result, *args) if isinstance(part, np.ndarray | np.generic))
            return result

        return call

    table.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        for name, function in made.items():
            patch.setattr(np, name, noted(function))
        for variance in (20, LARGEST_TABLE * 5):
            assert draws(variance, 1000, KEY).dtype == np.int64
    assert kinds <= {"i", "u", "b"}
    for function in (draws, discrete_gaussian._draws, _from_table, discrete_gaussian._words):
        for node in ast.walk(ast.parse(inspect.getsource(function))):
            assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
            assert not isinstance(node, ast.Attribute) or node.attr not in float_names
            if isinstance(node, ast.Div):  # of fractions alone: a variance by a whole number
                assert function is discrete_gaussian._draws


def test_a_variance_too_small_for_sums_is_refused():
    with pytest.raises(ValueError, match="variance of 15"):
        draws(15, 10, KEY)
