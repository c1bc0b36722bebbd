"""One secret from its shares, by the plain formula."""

from __future__ import annotations

from coterie.secure.shamir import PRIME, SECRET_BYTES, lagrange_at_zero


def combine(shares: dict[int, bytes]) -> bytes:
    """The secret behind enough shares; ``ValueError`` if they do not belong together."""
    weights = lagrange_at_zero(list(shares))
    total = sum(
        weight * int.from_bytes(share, "little") for weight, share in zip(weights, shares.values(), strict=True)
    )
    try:
        return (total % PRIME).to_bytes(SECRET_BYTES, "little")
    except OverflowError:
        raise ValueError("these shares do not belong together") from None
