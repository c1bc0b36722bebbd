"""Shamir's secret sharing (1979) of 16-byte secrets: any ``threshold`` shares give the secret, fewer nothing."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence

PRIME = (1 << 130) - 5
SECRET_BYTES, SHARE_BYTES = 16, 17


def split(secret: bytes, places: Sequence[int], threshold: int) -> dict[int, bytes]:
    """One share for each place (a number above 0); the polynomial's coefficients come from the operating system."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    if not 1 <= threshold <= len(places) or len(set(places)) < len(places) or min(places) < 1:
        raise ValueError(f"threshold {threshold} for places {list(places)}")
    highest_first = [*(secrets.randbelow(PRIME) for _ in range(threshold - 1)), int.from_bytes(secret, "little")]
    return {place: _value(highest_first, place).to_bytes(SHARE_BYTES, "little") for place in places}


def _value(highest_first: Sequence[int], place: int) -> int:
    """The polynomial's value at a place, which is small: so the remainder is taken at every eighth step only."""
    value = 0
    for start in range(0, len(highest_first), 8):
        for coefficient in highest_first[start : start + 8]:
            value = value * place + coefficient
        value %= PRIME
    return value


def lagrange_at_zero(places: Sequence[int]) -> list[int]:
    """What each place's share weighs in the secret; the same for every secret shared over these places."""
    weights = []
    for here in places:
        above = math.prod(there for there in places if there != here)
        below = math.prod(there - here for there in places if there != here)
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def combine_others(rows: Mapping[int, bytes], owners: Iterable[int]) -> dict[int, bytes]:
    """The secrets of these owners from the shares of all others, in one go.

    ``rows`` holds, by place and side by side, the shares that place got of everyone from place 1 on: of ``threshold``
    places and one more, because nobody has a share of its own secret. For owner i the polynomial f is replaced by
    f(x) (i - x) / i, of one degree more, which is f at 0 and nothing at i: so one set of weights serves all owners.
    """
    places = list(rows)
    weights = lagrange_at_zero(places)
    secret_of = {}
    for owner in owners:
        end = owner * SHARE_BYTES
        shares = [int.from_bytes(rows[place][end - SHARE_BYTES : end], "little") for place in places]
        total = sum(w * (owner - p) * share for w, p, share in zip(weights, places, shares, strict=True))
        try:
            secret_of[owner] = (total * pow(owner, -1, PRIME) % PRIME).to_bytes(SECRET_BYTES, "little")
        except OverflowError:
            raise ValueError("these shares do not belong together") from None
    return secret_of
