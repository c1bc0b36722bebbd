"""Shamir's secret sharing (1979) of 16-byte secrets: any ``threshold`` shares give the secret, fewer nothing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

__all__ = ["SECRET_BYTES", "SHARE_BYTES", "combine", "lagrange_at_zero", "split"]

PRIME = (1 << 130) - 5
SECRET_BYTES, SHARE_BYTES = 16, 17


def split(secret: bytes, places: Sequence[int], threshold: int) -> dict[int, bytes]:
    """One share for each place (a number above 0); the polynomial's coefficients come from the operating system."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    if not 1 <= threshold <= len(places) or len(set(places)) < len(places) or min(places) < 1:
        raise ValueError(f"threshold {threshold} for places {list(places)}")
    coefficients = [int.from_bytes(secret, "little"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    shares = {}
    for place in places:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * place + coefficient) % PRIME
        shares[place] = value.to_bytes(SHARE_BYTES, "little")
    return shares


def lagrange_at_zero(places: Sequence[int]) -> list[int]:
    """What each place's share weighs in the secret; the same for every secret shared over these places."""
    weights = []
    for here in places:
        above, below = 1, 1
        for there in places:
            if there != here:
                above = above * there % PRIME
                below = below * (there - here) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def combine(shares: Mapping[int, bytes], weights: Sequence[int] | None = None) -> bytes:
    """The secret behind enough shares; ``ValueError`` where they do not belong together."""
    places = list(shares)
    found = weights if weights is not None else lagrange_at_zero(places)
    total = sum(w * int.from_bytes(shares[p], "little") for w, p in zip(found, places, strict=True)) % PRIME
    try:
        return total.to_bytes(SECRET_BYTES, "little")
    except OverflowError:
        raise ValueError("these shares do not belong together") from None
