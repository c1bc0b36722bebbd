"""Fixed-point numbers in a ring, and the streams that mask them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.arrays import Array, Floats, Integers

Ring = npt.NDArray[np.uint64]
Narrow = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class FixedPoint:
    """Numbers of magnitude at most ``bound`` as integers of a ring of ``2**bits`` in which ``n_sites`` of them add up
    without wrapping.

    A sum is exact to half a step per site, since every number is rounded once. An array of bounds is for the
    positions of the last axis.
    """

    bits: int
    bound: float | Floats
    n_sites: int

    def __post_init__(self) -> None:
        if not 8 <= self.bits <= 64:
            raise ValueError(f"a ring of {self.bits} bits is not supported; use 8 to 64 bits")
        if not self._is_plain and not np.all(np.isfinite(self.bound) & (np.asarray(self.bound) > 0)):
            raise ValueError(f"the bound {np.max(self.bound)} is not a finite number above 0")
        if self.largest < 1:
            raise ValueError(f"a ring of {self.bits} bits is too small for {self.n_sites} sites")

    @property
    def largest(self) -> int:
        """The largest integer of one site, so that the sum stays below half the ring."""
        return ((1 << (self.bits - 1)) - 1) // self.n_sites

    @property
    def _is_plain(self) -> bool:
        """Whether the bound is one finite number above 0."""
        return isinstance(self.bound, float) and 0 < self.bound < math.inf

    @cached_property
    def scale(self) -> float | Floats:
        """Ring integers per unit: a power of two, so that scaling is exact."""
        limit = float(min(self.largest, 1 << 62))
        if int(limit) > self.largest:  # rounded up
            limit = math.nextafter(limit, 0.0)
        digits, exponent = math.frexp(limit)
        if isinstance(self.bound, float):
            own, power = math.frexp(self.bound)
            return math.ldexp(1.0, min(1000, max(-1000, exponent - power - (own > digits))))
        fractions, powers = np.frexp(np.asarray(self.bound, float))
        return np.asarray(np.ldexp(1.0, np.clip(exponent - powers - (fractions > digits), -1000, 1000)))

    def encode(self, values: Array) -> Ring:
        """The ring integers of ``values``; ``ValueError`` if a value is not finite or beyond the bound."""
        numbers = np.asarray(values, np.float64)
        is_one = isinstance(self.bound, float) or np.ndim(self.bound) == 0
        shares, most = (numbers, self.bound) if is_one else (numbers / self.bound, 1.0)
        largest = float(max(-shares.min(), shares.max())) if numbers.size else 0.0  # NaN if a number is NaN
        if not math.isfinite(largest):
            raise ValueError("a number is not finite")
        if largest > most * (1 + 1e-9):
            raise ValueError("a number is outside the declared bound")
        within = numbers if largest <= most else np.clip(numbers, -self.bound, self.bound)
        whole = np.rint(within * self.scale).astype(np.int64).view(np.uint64)
        return whole if self.bits == 64 else whole & np.uint64((1 << self.bits) - 1)

    def decode(self, total: Ring) -> Floats:
        """The sum in ring integers as floats."""
        sums = _signed(total, self.bits).astype(np.float64)
        sums /= self.scale
        return sums

    @cached_property
    def most(self) -> float | Floats:
        """What ``n_sites`` numbers within the bound add up to at most."""
        most = self.n_sites * np.rint(self.bound * self.scale) / self.scale * (1 + 1e-15)
        return float(most) if isinstance(self.bound, float) else most

    def can_sum_to(self, sums: Floats) -> bool:
        """Whether ``n_sites`` numbers within the bound add up to these at all."""
        if isinstance(self.most, float):
            return bool(-self.most <= sums.min(initial=0.0) and sums.max(initial=0.0) <= self.most)
        return bool((np.abs(sums) <= self.most).all())


@dataclass(frozen=True)
class WholeNumbers:
    """Nonnegative integers whose sum over all sites is below ``2**bits``."""

    bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 32:
            raise ValueError(f"a ring of {self.bits} bits is not supported for small integers; use 1 to 32 bits")

    def encode(self, values: Array) -> Ring:
        """The numbers; ``ValueError`` if one is not in the ring."""
        numbers = np.asarray(values, np.float64)
        if not ((numbers >= 0) & (numbers < 1 << self.bits) & (numbers == np.rint(numbers))).all():
            raise ValueError("a number is not in the ring")
        return numbers.astype(np.uint64)

    def decode(self, total: Ring) -> Floats:
        return (total & np.uint64((1 << self.bits) - 1)).astype(np.float64)


@dataclass(frozen=True)
class SignedNumbers:
    """Integers whose sum over all sites is at least ``-2**(bits - 1)`` and below ``2**(bits - 1)``."""

    bits: int

    def __post_init__(self) -> None:
        if not 8 <= self.bits <= 64:
            raise ValueError(f"a ring of {self.bits} bits is not supported for integers; use 8 to 64 bits")

    def encode(self, values: Array) -> Ring:
        """The numbers in the ring."""
        whole = np.asarray(values, np.int64).view(np.uint64)
        return whole if self.bits == 64 else whole & np.uint64((1 << self.bits) - 1)

    def decode(self, total: Ring) -> Floats:
        """The sum, exact below 2**53."""
        return _signed(total, self.bits).astype(np.float64)


def _signed(numbers: Ring, bits: int) -> Integers:
    """Numbers of a ring as integers, those of its upper half below 0."""
    if bits == 64:
        return numbers.view(np.int64)
    unused = 64 - bits
    return (numbers << np.uint64(unused)).view(np.int64) >> np.int64(unused)


Coding: TypeAlias = FixedPoint | WholeNumbers | SignedNumbers
"""How numbers stand in a ring."""


def add_streams(total: Ring, keys: Iterable[tuple[bytes, bool]], bits: int) -> Narrow:
    """``total`` plus the streams of these keys (minus if the flag is True), in the ring of ``2**bits``.

    A stream is AES-256 in counter mode. Keys are used once, so the counter starts at zero. The result has the
    narrowest type that holds the ring.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    width = 1 if bits <= 8 else 2 if bits <= 16 else 4 if bits <= 32 else 8
    result = total.astype(f"<u{width}")
    zeros = bytes(result.nbytes)
    stream = bytearray(result.nbytes + 16)  # one buffer, since fresh pages cost more than AES
    numbers, start = np.frombuffer(stream, result.dtype, len(result)), modes.CTR(bytes(16))
    for key, minus in keys:
        Cipher(algorithms.AES(key), start).encryptor().update_into(zeros, stream)
        (np.subtract if minus else np.add)(result, numbers, out=result)
    return result if bits == 8 * width else result & result.dtype.type((1 << bits) - 1)


TAGS = 1 << 128
"""Tags are integers modulo this."""


def inner_product(numbers: Ring, key: bytes, bits: int, *, is_signed: bool) -> int:
    """<r, x> modulo 2**128: x the numbers of a ring as integers, r numbers of 64 bits from the key's stream."""
    whole = _signed(numbers, bits).view(np.uint64) if is_signed else numbers & np.uint64((1 << bits) - 1)
    factors = _factors(key, len(numbers))
    starts = range(0, len(numbers), EXACT)
    return sum(_product(whole[i : i + EXACT], factors[i : i + EXACT], is_signed=is_signed) for i in starts) % TAGS


@lru_cache(maxsize=2)  # a site needs them for its own numbers, and again for the sum
def _factors(key: bytes, count: int) -> Floats:
    """The numbers that a key stands for, each as four of 16 bits, the lowest first."""
    return _quarters(np.asarray(add_streams(np.zeros(count, np.uint64), [(key, False)], 64)))


def _quarters(whole: Ring) -> Floats:
    return whole.astype("<u8", copy=False).view("<u2").reshape(-1, 4).astype(np.float64)


EXACT = 1 << 20
"""So many products of 32 bits add up to less than 2**53, in any order: BLAS finds the exact sum."""


def _product(whole: Ring, factors: Floats, *, is_signed: bool) -> int:
    """The exact sum of products, from 16 bits of the one times 16 bits of the other."""
    quarters = _quarters(whole)
    if is_signed:  # the highest quarter has the sign
        quarters[:, 3] -= (quarters[:, 3] >= 1 << 15) * float(1 << 16)
    total = 0
    for row in reversed((quarters.T @ factors).tolist()):
        a, b, c, d = map(int, row)
        total = (total << 16) + a + (b << 16) + (c << 32) + (d << 48)
    return total
