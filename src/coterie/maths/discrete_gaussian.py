"""Discrete Gaussian noise: whole numbers n with probability proportional to exp(-n**2 / (2 v)).

A draw compares uniform random bits with a table of cumulative probabilities, computed with more digits than the bits
that are compared, so that no number of floating point is in the path. For a large variance v two draws of smaller
variances are combined; docs/privacy-proofs.md bounds by how much such a sum, and a sum over sites, differs from the
distribution. Canonne, Kamath & Steinke (2020), "The discrete Gaussian for differential privacy".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.arrays import Integers
from coterie.maths.masks import Ring, add_streams

LEAST_VARIANCE = 16
"""The smallest variance of a draw: sums of such draws are as good as one draw of the variances' sum."""
LARGEST_TABLE = 1 << 18
"""The largest variance that has a table; beyond it two draws are combined."""
COARSE_VARIANCE = 1 << 16
"""At most so much variance has the coarse one of two draws."""
TAILS = 20
"""A table goes so many deviations to either side: exp(-200) lies beyond."""
BITS, DIGITS = 320, 120
"""Bits that are compared with a table, and digits it is computed with."""


class Table(NamedTuple):
    """The probabilities of all whole numbers up to the first, the second, ...: their first 64 bits, and all bits."""

    first: int
    """The smallest number."""
    heads: Ring
    ends: tuple[int, ...]


@lru_cache(maxsize=64)
def table(variance: Fraction) -> Table:
    """The table for a variance; the last number takes what rounding leaves."""
    numbers = range(1, math.isqrt(math.ceil(TAILS**2 * variance)) + 2)
    with localcontext() as context:
        context.prec = DIGITS
        step = (-Decimal(variance.denominator) / Decimal(variance.numerator)).exp()  # of successive ratios
        ratio, weight, weights = step.sqrt(), Decimal(1), list[Decimal]()
        for _ in numbers:
            weight, ratio = weight * ratio, ratio * step
            weights.append(weight)
        total = 1 + 2 * sum(weights)
        unit, reached, ends = Decimal(1 << BITS) / total, Decimal(0), list[int]()
        for one in (*reversed(weights), Decimal(1), *weights[:-1]):
            reached += one
            ends.append(min(int(reached * unit), (1 << BITS) - 1))
    heads = np.array([end >> (BITS - 64) for end in ends], np.uint64)
    return Table(-len(weights), heads, tuple(ends))


def draws(variance: int | Fraction, count: int, key: bytes) -> Integers:
    """So many independent draws, from the random stream of a key that is used for nothing else."""
    return _draws(Fraction(variance), count, _keys(key))


def _draws(variance: Fraction, count: int, keys: Iterator[bytes]) -> Integers:
    if variance < LEAST_VARIANCE:
        raise ValueError(f"a variance of {float(variance):g}; it must be at least {LEAST_VARIANCE}")
    if variance <= LARGEST_TABLE:
        return _from_table(table(variance), _words(count, next(keys)), keys)
    unit = 1 << max(0, (math.ceil(variance / COARSE_VARIANCE).bit_length() + 1) // 2)
    fine = Fraction(LEAST_VARIANCE * unit**2)
    coarse = _draws((variance - fine) / unit**2, count, keys)
    return _draws(fine, count, keys) + unit * coarse


def _from_table(known: Table, heads: Ring, keys: Iterator[bytes]) -> Integers:
    """For each uniform number the place it has in the table; where 64 bits do not decide, all bits do."""
    places = np.searchsorted(known.heads, heads, "left")
    inside = np.minimum(places, len(known.heads) - 1)
    for i in np.flatnonzero(known.heads[inside] == heads):
        rest = _words(BITS // 64 - 1, next(keys))
        whole = int.from_bytes(b"".join(int(word).to_bytes(8, "big") for word in (heads[i], *rest)), "big")
        places[i] = sum(end <= whole for end in known.ends)
    return np.asarray(np.minimum(places, 2 * -known.first) + known.first, np.int64)


def _words(count: int, key: bytes) -> Ring:
    """So many random numbers of 64 bits."""
    return np.asarray(add_streams(np.zeros(count, np.uint64), [(key, False)], 64))


def _keys(key: bytes) -> Iterator[bytes]:
    """Keys from a key, each for one stream."""
    from cryptography.hazmat.primitives import hashes, hmac

    for number in range(1 << 62):
        made = hmac.HMAC(key, hashes.SHA256())
        made.update(b"coterie/noise" + number.to_bytes(8, "big"))
        yield made.finalize()


def probabilities(variance: Fraction) -> npt.NDArray[np.float64]:
    """Of the numbers of a table, from the smallest up: what a draw has by construction."""
    ends = table(variance).ends
    starts = (0, *ends[:-1])
    shares = [(end - start) / (1 << BITS) for start, end in zip(starts, ends, strict=True)]
    return np.array([*shares, 1 - ends[-1] / (1 << BITS)])
