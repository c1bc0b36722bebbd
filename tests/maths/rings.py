"""Sums in a ring, one by one."""

from __future__ import annotations

import numpy as np

from coterie.maths.masks import Ring, add_streams


def add_in_ring(one: Ring, other: Ring, bits: int, *, minus: bool = False) -> Ring:
    """The sum (or difference) of two vectors in the ring of ``2**bits``."""
    result = one - other if minus else one + other  # unsigned: wraps at 2**64, which every smaller ring divides
    return result if bits == 64 else result & np.uint64((1 << bits) - 1)


def mask_stream(key: bytes, count: int, bits: int) -> Ring:
    """``count`` uniform numbers of the ring, determined by the key."""
    return add_streams(np.zeros(count, np.uint64), [(key, False)], bits).astype(np.uint64)
