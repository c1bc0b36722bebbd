"""Secret sharing."""

from __future__ import annotations

import contextlib
import itertools
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.secure.shamir import PRIME, lagrange_at_zero, split

from .shares import combine


@given(st.binary(min_size=16, max_size=16), st.integers(1, 30), st.data())
def test_any_threshold_of_shares_gives_the_secret(secret, n, data):
    threshold = data.draw(st.integers(1, n))
    shares = split(secret, range(1, n + 1), threshold)
    chosen = data.draw(st.permutations(list(shares)))[: data.draw(st.integers(threshold, n))]
    assert combine({p: shares[p] for p in chosen}) == secret


def test_fewer_shares_than_the_threshold_say_nothing():
    """With one share fewer, every secret is as likely as any other: a fitting last share exists for each."""
    secret = secrets.token_bytes(16)
    shares = split(secret, [1, 2, 3], 3)
    for other in (bytes(16), b"\xff" * 16, secrets.token_bytes(16)):
        weights = lagrange_at_zero([1, 2, 3])
        known = sum(w * int.from_bytes(shares[p], "little") for w, p in zip(weights[:2], (1, 2), strict=True))
        last = (int.from_bytes(other, "little") - known) * pow(weights[2], -1, PRIME) % PRIME
        assert combine({1: shares[1], 2: shares[2], 3: last.to_bytes(17, "little")}) == other


def test_shares_are_fresh_every_time():
    secret = bytes(16)
    seen = [split(secret, [1, 2, 3], 2) for _ in range(5)]
    assert all(a[1] != b[1] for a, b in itertools.combinations(seen, 2))


def test_shares_that_do_not_belong_together_are_noticed_or_give_something_else():
    one, two = split(bytes(16), [1, 2], 2), split(b"x" * 16, [1, 2], 2)
    with contextlib.suppress(ValueError):
        assert combine({1: one[1], 2: two[2]}) not in (bytes(16), b"x" * 16)


@pytest.mark.parametrize(
    ("secret", "places", "threshold"),
    [
        (b"short", [1, 2], 1),
        (bytes(16), [0, 1], 1),
        (bytes(16), [1, 1], 1),
        (bytes(16), [1, 2], 3),
        (bytes(16), [1], 0),
    ],
)
def test_impossible_sharings_are_refused(secret, places, threshold):
    with pytest.raises(ValueError):
        split(secret, places, threshold)
