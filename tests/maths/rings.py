"""Sums in a ring, one by one."""

from __future__ import annotations

import numpy as np

from coterie.maths.masks import Ring


def add_in_ring(one: Ring, other: Ring, bits: int, *, minus: bool = False) -> Ring:
    """The sum (or difference) of two vectors in the ring of ``2**bits``."""
    result = one - other if minus else one + other  # unsigned: wraps at 2**64, which every smaller ring divides
    return result if bits == 64 else result & np.uint64((1 << bits) - 1)
