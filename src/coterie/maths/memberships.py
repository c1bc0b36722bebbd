"""Sketches of sets of rows, small enough to keep for every set a site ever released, by which nearly equal sets show.

Every row falls into one of a fixed number of buckets and has a fixed odd number; a set's sketch is the sum of its
rows' numbers in each bucket, modulo 2**32. Sketches add and subtract as sets do. Two sets that differ by D rows
differ in at most D buckets, and in none only with a chance of about 2**-32: so "differs in 1 to tau-1 buckets" never
misses a difference of 1 to tau-1 rows. It also holds for a few larger differences whose rows share buckets, which is
harmless.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BUCKETS", "Memberships", "Sketch", "SketchIndex", "n_different"]

BUCKETS = 128
_SHIFT = np.uint64(64 - 7)  # 2**7 buckets
_PIECE = 1 << 20  # sums of so many 32-bit numbers are exact in float64

Sketch = npt.NDArray[np.uint32]


class Memberships:
    """Sketches of the cells a table's rows fall into, and how many rows each has."""

    def __init__(self, n_cells: int) -> None:
        self.sketches: Sketch = np.zeros((n_cells, BUCKETS), np.uint32)
        self.counts = np.zeros(n_cells, np.int64)

    def see(self, places: npt.NDArray[np.int64], cells: npt.NDArray[Any]) -> None:
        """Rows by their places in the table, and the cell of each."""
        for start in range(0, len(places), _PIECE):
            piece = slice(start, start + _PIECE)
            buckets, numbers = _drawn(places[piece])
            index = cells[piece] * BUCKETS + buckets
            summed = np.bincount(index, numbers, self.sketches.size).astype(np.uint64)
            self.sketches += summed.astype(np.uint32).reshape(self.sketches.shape)
        self.counts += np.bincount(cells, minlength=len(self.counts))


def n_different(one: Sketch, other: Sketch) -> npt.NDArray[np.int64]:
    """In how many buckets sketches differ, along the last axis."""
    counted: npt.NDArray[np.int64] = np.count_nonzero(one != other, axis=-1)
    return counted


class SketchIndex:
    """Sketches in order, found again by what is nearly equal to them.

    Two sketches that differ in fewer than ``tau`` of the buckets are equal in all buckets of at least one of ``tau``
    groups, so only those that share a group are ever compared.
    """

    def __init__(self, tau: int) -> None:
        if tau > BUCKETS // 2:
            raise ValueError(f"differences of up to {tau} rows cannot be told apart in {BUCKETS} buckets")
        self.tau = tau
        self._sketches: list[Sketch] = []
        self._groups: list[dict[bytes, list[int]]] = [{} for _ in range(max(1, min(tau, BUCKETS)))]

    def __len__(self) -> int:
        return len(self._sketches)

    def __getitem__(self, place: int) -> Sketch:
        return self._sketches[place]

    def add(self, sketch: Sketch) -> None:
        """Put one more at the end."""
        for group, key in zip(self._groups, self._keys(sketch), strict=True):
            group.setdefault(key, []).append(len(self._sketches))
        self._sketches.append(sketch)

    def find(self, sketch: Sketch) -> list[tuple[int, int]]:
        """Those that differ in fewer than ``tau`` buckets: in how many, and their places, nearest first."""
        shared = {i for group, key in zip(self._groups, self._keys(sketch), strict=True) for i in group.get(key, ())}
        if not shared:
            return []
        places = sorted(shared)
        different = n_different(sketch, np.stack([self._sketches[i] for i in places]))
        return sorted((int(n), i) for n, i in zip(different, places, strict=True) if n < max(self.tau, 1))

    def _keys(self, sketch: Sketch) -> list[bytes]:
        return [part.tobytes() for part in np.array_split(sketch, len(self._groups))]


def _drawn(places: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Each row's bucket and odd number: splitmix64 of its place."""
    mixed = places.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    numbers = (mixed & np.uint64(0xFFFFFFFF)) | np.uint64(1)
    return (mixed >> _SHIFT).astype(np.int64), numbers.astype(np.float64)
