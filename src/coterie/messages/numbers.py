"""Numbers as bytes: floats of 16, 32 and 64 bits, integers of 1 to 64 bits, little-endian, packed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import Array

CHUNK = 1 << 13
"""Numbers packed at a time; a multiple of 8."""

_NAME = re.compile(r"(float|uint|int)([1-9][0-9]?)")


@dataclass(frozen=True)
class Wire:
    """A type of number in a message, for example ``Wire("uint", 3)``."""

    family: str
    bits: int

    @property
    def name(self) -> str:
        return f"{self.family}{self.bits}"

    @cached_property
    def is_float(self) -> bool:
        return self.family == "float"

    @cached_property
    def byte_dtype(self) -> np.dtype[Any] | None:
        """The type in the bytes, if a number takes whole bytes."""
        letter = {"float": "f", "uint": "u", "int": "i"}[self.family]
        return np.dtype(f"<{letter}{self.bits // 8}") if self.bits in (8, 16, 32, 64) else None

    @cached_property
    def memory_dtype(self) -> np.dtype[Any]:
        """The type in memory: floats keep their width, integers have 64 bits."""
        if self.is_float:
            return np.dtype(f"<f{self.bits // 8}")
        return np.dtype("<u8") if (self.family, self.bits) == ("uint", 64) else np.dtype("<i8")

    @property
    def lowest(self) -> int:
        return -(1 << (self.bits - 1)) if self.family == "int" else 0

    @property
    def highest(self) -> int:
        return (1 << (self.bits - 1)) - 1 if self.family == "int" else (1 << self.bits) - 1

    def n_bytes(self, count: int) -> int:
        """Bytes of ``count`` numbers."""
        return (count * self.bits + 7) // 8

    def rounded(self, values: Array) -> Array:
        """``values`` as the receiver will read them; ``ValueError`` for integers that do not fit."""
        if not self.is_float:
            return self._whole(values)
        if values.dtype == self.memory_dtype:
            return values
        with np.errstate(over="ignore"):  # overflow gives infinity, which the caller refuses
            return values.astype(self.memory_dtype)

    def to_bytes(self, values: Array) -> bytes:
        """The bytes of ``values``; ``ValueError`` for integers that do not fit."""
        whole = self.rounded(values)
        if self.byte_dtype is not None:
            return whole.astype(self.byte_dtype, copy=False).tobytes()
        raw = np.ascontiguousarray(whole, "<i8").view("<u8").reshape(-1)
        return b"".join(self._packed(raw[i : i + CHUNK]) for i in range(0, len(raw), CHUNK))

    def from_bytes(self, buffer: bytes | memoryview, shape: tuple[int, ...]) -> Array:
        """The array of that shape that ``buffer`` holds; the caller has checked the length."""
        if self.byte_dtype is not None:
            values = np.frombuffer(buffer, self.byte_dtype).astype(self.memory_dtype, copy=False).reshape(shape)
            return np.require(values, requirements="A")  # some BLAS kernels crash where numbers are not aligned
        raw = self._unpacked(np.frombuffer(buffer, np.uint8), math.prod(shape))
        if self.family == "int":  # shifting up and back down repeats the sign
            return ((raw << np.uint64(64 - self.bits)).view("<i8") >> np.int64(64 - self.bits)).reshape(shape)
        return raw.view("<i8").reshape(shape)

    def _packed(self, raw: npt.NDArray[np.uint64]) -> bytes:
        """The lowest bits of numbers, packed; called by chunk, since an unpacked bit takes a byte."""
        digits = np.unpackbits(raw.view(np.uint8).reshape(-1, 8), axis=1, count=self.bits, bitorder="little")
        return np.packbits(digits, bitorder="little").tobytes()

    def _unpacked(self, buffer: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.uint64]:
        """The inverse of :meth:`_packed`."""
        raw = np.empty(count, "<u8")
        for start in range(0, count, CHUNK):  # a chunk of 8n numbers begins at a whole byte
            stop = min(start + CHUNK, count)
            part = buffer[start * self.bits // 8 : -(-stop * self.bits // 8)]
            digits = np.zeros((stop - start, 64), np.uint8)
            flat = np.unpackbits(part, count=(stop - start) * self.bits, bitorder="little")
            digits[:, : self.bits] = flat.reshape(stop - start, self.bits)
            raw[start:stop] = np.packbits(digits, bitorder="little").view("<u8")
        return raw

    def _whole(self, values: Array) -> Array:
        if values.dtype.kind not in "iub":
            rounded = np.rint(values)
            if not np.array_equal(rounded, values):  # also false for NaN
                raise ValueError(f"{self.name} holds whole numbers only")
            # Infinity is equal to itself, and floats beyond 2**63 do not fit.
            if values.size and not (np.abs(rounded.astype(np.float64)) < 2.0**63).all():
                raise ValueError(f"a number is outside {self.name}")
            values = rounded.astype("<i8")
        if values.size and (int(values.min()) < self.lowest or int(values.max()) > self.highest):
            raise ValueError(f"a number is outside {self.name}, {self.lowest} to {self.highest}")
        return values


@lru_cache(maxsize=256)
def wire(name: str) -> Wire:
    """The type of number by name: ``float16|32|64``, ``uint1`` to ``uint64``, ``int2`` to ``int64``."""
    match = _NAME.fullmatch(name)
    if match:
        family, bits = match[1], int(match[2])
        smallest = {"float": 16, "uint": 1, "int": 2}[family]
        if smallest <= bits <= 64 and (family != "float" or bits in (16, 32, 64)):
            return Wire(family, bits)
    raise ValueError(f"the type of number {name!r} is unknown; use float16|32|64, uint1..64 or int2..64")
