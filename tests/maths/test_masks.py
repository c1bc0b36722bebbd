"""Fixed-point numbers in a ring."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.maths.masks import EXACT, TAGS, FixedPoint, inner_product
from tests.maths.rings import add_in_ring, mask_stream

BITS = st.integers(8, 64)


@given(BITS, st.integers(1, 100), st.floats(1e-6, 1e9), st.integers(0, 2**32))
def test_a_sum_is_right_to_within_the_stated_error_and_never_wraps(bits, n_sites, bound, seed):
    if ((1 << (bits - 1)) - 1) // n_sites < 1:
        with pytest.raises(ValueError, match="too small"):
            FixedPoint(bits, bound, n_sites)
        return
    coding = FixedPoint(bits, bound, n_sites)
    rng = np.random.default_rng(seed)
    values = rng.uniform(-bound, bound, size=(n_sites, 5))
    values[:, 0], values[:, 1] = bound, -bound  # everyone at the edge at once
    total = np.zeros(5, np.uint64)
    for row in values:
        total = add_in_ring(total, coding.encode(row), bits)
    error, slack = 0.5 * n_sites / coding.scale, 1e-12 * bound * n_sites
    np.testing.assert_allclose(coding.decode(total), values.sum(0), atol=error + slack, rtol=0)


@pytest.mark.parametrize("bits", [8, 32, 52, 53, 54, 63, 64])
@pytest.mark.parametrize("n_sites", [2, 3, 4, 8, 16])
def test_a_sum_of_numbers_that_are_all_at_a_bound_of_a_power_of_two_does_not_wrap(bits, n_sites):
    """As where four sites hold 16 rows each: a power of two times a power of two is just beyond the ring."""
    coding = FixedPoint(bits, 16.0, n_sites)
    assert np.rint(coding.bound * coding.scale) <= coding.largest
    total = np.zeros(1, np.uint64)
    for _ in range(n_sites):
        total = add_in_ring(total, coding.encode(np.array([16.0])), bits)
    assert coding.decode(total)[0] == 16.0 * n_sites


@given(BITS, st.integers(0, 2**32))
def test_masks_cancel_bit_for_bit(bits, seed):
    key = np.random.default_rng(seed).bytes(32)
    values = np.random.default_rng(seed).integers(0, 2**63, 17, dtype=np.uint64) & np.uint64((1 << bits) - 1)
    mask = mask_stream(key, 17, bits)
    masked = add_in_ring(values, mask, bits)
    np.testing.assert_array_equal(add_in_ring(masked, mask, bits, minus=True), values)
    assert masked.max() < 2**bits or bits == 64


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 10.1, -11.0])
def test_what_does_not_fit_is_refused_and_never_wrapped(bad):
    with pytest.raises(ValueError, match=r"not finite|outside"):
        FixedPoint(32, 10.0, 5).encode(np.array([1.0, bad]))


@pytest.mark.parametrize(
    ("bits", "bound", "n"), [(7, 1.0, 2), (65, 1.0, 2), (32, 0.0, 2), (32, np.inf, 2), (8, 1.0, 200)]
)
def test_impossible_rings_are_refused(bits, bound, n):
    with pytest.raises(ValueError):
        FixedPoint(bits, bound, n)


def test_streams_are_uniform_and_differ_by_key():
    one, two = mask_stream(b"a" * 32, 100_000, 8), mask_stream(b"b" * 32, 100_000, 8)
    assert not np.array_equal(one, two)
    counts = np.bincount(one.astype(int), minlength=256)
    assert ((counts - 100_000 / 256) ** 2 / (100_000 / 256)).sum() < 350  # chi-square, 255 degrees of freedom
    np.testing.assert_array_equal(mask_stream(b"a" * 32, 10, 64), mask_stream(b"a" * 32, 20, 64)[:10])


@given(BITS, st.integers(2, 20), st.floats(1e-6, 1e9), st.integers(0, 2**32))
def test_a_sum_is_possible_up_to_what_all_sites_can_send_and_not_further(bits, n_sites, bound, seed):
    if ((1 << (bits - 1)) - 1) // n_sites < 1:
        return
    coding, ring = FixedPoint(bits, bound, n_sites), (1 << bits) - 1
    most = n_sites * int(np.rint(bound * float(coding.scale)))
    for edge in (most, -most):
        found = coding.decode(np.array([edge & ring], np.uint64))
        np.testing.assert_allclose(found, edge / float(coding.scale), rtol=1e-14)
        assert coding.can_sum_to(found)
    beyond = most + max(1, most >> 40)
    if beyond < 1 << (bits - 1):
        for number in (beyond, -beyond):
            assert not coding.can_sum_to(coding.decode(np.array([0, number & ring], np.uint64)))


@pytest.mark.parametrize("n", [1, 5, EXACT + 3])
@pytest.mark.parametrize(("bits", "is_signed"), [(64, True), (64, False), (19, True), (8, False)])
def test_an_inner_product_is_that_of_whole_numbers(n, bits, is_signed):
    numbers = np.random.default_rng(n).integers(0, (1 << bits) - 1, n, np.uint64, endpoint=True)
    numbers[-1] = (1 << bits) - 1
    key = bytes(range(32))
    factors = [int(r) for r in mask_stream(key, n, 64)]
    whole = [int(x) - (1 << bits) * (is_signed and int(x) >> (bits - 1)) for x in numbers]
    expected = sum(r * x for r, x in zip(factors, whole, strict=True)) % TAGS
    assert inner_product(numbers, key, bits, is_signed=is_signed) == expected
