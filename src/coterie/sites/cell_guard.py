"""Sets of rows a site releases something about, held against every set it released before in the same run.

Sums over cells reveal rows where a cell has few of them, or where two cells, released one after the other, differ by
few. Both are one rule: a set of rows that differs by 1 to tau-1 rows from a set already known is never released; what
is known is sent in its stead. The empty set (zeros) and the set of all rows are always known. The same is asked of
what the released cells leave over of all rows, since anyone can subtract.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.errors import Guarded
from coterie.maths.memberships import BUCKETS, Memberships, Sketch, SketchIndex
from coterie.messages.site_part import Block, CellMoments

__all__ = ["CellGuard", "Notes", "allows"]

Floats = npt.NDArray[np.float64]

NOTHING: Sketch = np.zeros(BUCKETS, np.uint32)
EMPTY, WHOLE, FRESH = -2, -1, -3
"""What is sent for a cell: nothing, all rows, itself; from 0 up an earlier release."""


class Notes(Protocol):
    """Where a guard keeps what it must not forget."""

    def note(self, run: bytes, what: str, data: bytes) -> None:
        """Keep ``data``."""
        ...

    def notes(self, run: bytes, what: str) -> Sequence[bytes]:
        """Everything kept under ``what``, in order."""
        ...


def allows(notes: Notes, run: bytes, what: str, key: bytes, most: int) -> bool:
    """Whether ``what`` happens with at most ``most`` different keys in a run, this one included; written down."""
    digest = hashlib.sha256(key).digest()[:16]
    before = notes.notes(run, what)
    if digest in before:
        return True
    if len(before) >= most:
        return False
    notes.note(run, what, digest)
    return True


class _Known(NamedTuple):
    """A set of rows that was released, and its moments as the run saw rows then."""

    sketch: Sketch
    view: bytes
    roster: bytes
    number: float
    mean: Floats
    within: Floats


class CellGuard:
    """The sets of rows one run was told about.

    ``view`` names how the run sees the site's rows now: what was released under another view is still known, but its
    numbers mean something else.
    """

    def __init__(self, run: bytes, min_count: int, notes: Notes) -> None:
        self.min_count = min_count
        self.view = b""
        self.roster = b""
        """The digest of the sites this answer is summed up with; empty where it is seen by itself."""
        self._run, self._notes = run, notes
        self._known: list[_Known] = []
        self._sets, self._totals, self._rests = (SketchIndex(min_count) for _ in range(3))
        self._rests.add(NOTHING)
        for data in notes.notes(run, "cells"):
            self._take_in(*_unpacked(data))

    def cells(self, n_cells: int) -> _WatchedCells:
        """Watch a partition of the rows into so many cells."""
        return _WatchedCells(self, n_cells)

    def allows(self, what: str, key: bytes, most: int) -> bool:
        """Whether ``what`` has been done with at most ``most`` different keys in this run, this one included."""
        return allows(self._notes, self._run, what, key, most)

    def decide(self, seen: Memberships, moments: CellMoments) -> CellMoments:
        """What is sent for each cell; written down before it is."""
        whole = self._checked_whole(seen)
        if seen.counts.sum() < self.min_count:
            return CellMoments(*[np.zeros_like(part) for part in moments])
        chosen = [self._choose(sketch, whole, moments.within.ndim) for sketch in seen.sketches]
        sent = self._with_a_safe_rest(chosen, seen, whole)
        if self._tells_only_of_the_roster(sent, seen):
            raise Guarded(
                "the same sets of rows were summed up with other sites before; the difference is a site's own"
            )
        self._remember(sent, seen, whole, moments)
        return self._answer(sent, moments)

    def _tells_only_of_the_roster(self, sent: Sequence[int], seen: Memberships) -> bool:
        """Whether every set sent left before in a sum with other sites (and not by itself, where nothing is new)."""
        filled = [
            (cell, code) for cell, code in enumerate(sent) if code >= 0 or (code == FRESH and seen.counts[cell])
        ]
        before = [code if code >= 0 else self._kept(seen.sketches[cell]) for cell, code in filled]
        return bool(before) and all(p is not None and self._known[p].roster not in (b"", self.roster) for p in before)

    def decide_whole(self, seen: Memberships) -> bool:
        """Whether sums over all these rows may leave."""
        whole = self._checked_whole(seen)
        if seen.counts.sum() < self.min_count:
            return False
        self._write_down([], whole, NOTHING)
        return True

    def _checked_whole(self, seen: Memberships) -> Sketch:
        """The set of all rows, once it is found not to differ by a few from what was all rows before."""
        whole: Sketch = seen.sketches.sum(axis=0, dtype=np.uint32)
        if _is_near(self._totals, whole):
            raise Guarded("these rows differ by too few from those summed up before in the run")
        return whole

    def _choose(self, sketch: Sketch, whole: Sketch, within_axes: int) -> int:
        """The cell itself, or the known set it nearly equals."""
        near = [(n, place) for n, place in self._sets.find(sketch) if n > 0]
        always = [
            (int(np.count_nonzero(sketch != other)), code) for other, code in ((NOTHING, EMPTY), (whole, WHOLE))
        ]
        always = [(n, code) for n, code in always if 0 < n < self.min_count]
        if not near and not always:
            return FRESH
        usable = [(n, place) for n, place in near if self._fits(self._known[place], within_axes)]
        return min(usable + always, default=(0, EMPTY))[1]

    def _fits(self, known: _Known, within_axes: int) -> bool:
        """Whether an earlier release can be sent now: same view, and squares by column where they are asked for."""
        return known.view == self.view and known.within.ndim >= within_axes - 1

    def _with_a_safe_rest(self, chosen: list[int], seen: Memberships, whole: Sketch) -> list[int]:
        """The same, one more cell withheld where what is left over would be too few rows."""
        rest = self._rest(chosen, seen, whole)
        if not _is_near(self._rests, rest):
            return chosen
        fresh = sorted((i for i, c in enumerate(chosen) if c == FRESH), key=lambda i: int(seen.counts[i]))
        for cell in fresh:
            if not _is_near(self._rests, rest + seen.sketches[cell]):
                return [EMPTY if i == cell else c for i, c in enumerate(chosen)]
        return [EMPTY] * len(chosen)

    def _rest(self, sent: Sequence[int], seen: Memberships, whole: Sketch) -> Sketch:
        """All rows less those sent, as a signed set: a row sent twice counts -1."""
        rest = whole.copy()
        for cell, code in enumerate(sent):
            rest -= self._sketch(code, cell, seen, whole)
        return rest

    def _sketch(self, code: int, cell: int, seen: Memberships, whole: Sketch) -> Sketch:
        if code == EMPTY:
            return NOTHING
        own: Sketch = seen.sketches[cell]
        return own if code == FRESH else whole if code == WHOLE else self._known[code].sketch

    def _answer(self, sent: Sequence[int], moments: CellMoments) -> CellMoments:
        counts, means, within = (part.copy() for part in moments)
        for cell, code in enumerate(sent):
            if code == EMPTY:
                counts[cell], means[cell], within[cell] = 0.0, 0.0, 0.0
            elif code == WHOLE:
                counts[cell], means[cell], within[cell] = _all_rows(moments)
            elif code >= 0:
                known = self._known[code]
                counts[cell], means[cell] = known.number, known.mean
                within[cell] = known.within.sum() if within.ndim == 1 else known.within
        return CellMoments(counts, means, within)

    def _remember(self, sent: Sequence[int], seen: Memberships, whole: Sketch, moments: CellMoments) -> None:
        """Write down the sets sent for the first time."""
        rest = self._rest(sent, seen, whole)
        new = [
            self._known_from(i, seen, moments)
            for i, code in enumerate(sent)
            if code == FRESH and seen.counts[i] and self._kept(seen.sketches[i]) is None
        ]
        self._write_down(new, whole, rest)

    def _known_from(self, cell: int, seen: Memberships, moments: CellMoments) -> _Known:
        number, mean, within = (part[cell] for part in moments)
        return _Known(seen.sketches[cell], self.view, self.roster, float(number), mean, np.asarray(within))

    def _write_down(self, new: list[_Known], whole: Sketch, rest: Sketch) -> None:
        totals = [] if _holds(self._totals, whole) else [whole]
        rests = [] if _holds(self._rests, rest) else [rest]
        if new or totals or rests:
            self._notes.note(self._run, "cells", _packed(new, totals, rests))
            self._take_in(new, totals, rests)

    def _kept(self, sketch: Sketch) -> int | None:
        """Where this very set is among the known ones."""
        places = [place for n, place in self._sets.find(sketch) if n == 0 and self._known[place].view == self.view]
        return places[0] if places else None

    def _take_in(self, known: list[_Known], totals: list[Sketch], rests: list[Sketch]) -> None:
        self._known += known
        for index, new in ((self._sets, [k.sketch for k in known]), (self._totals, totals), (self._rests, rests)):
            for sketch in new:
                index.add(sketch)


def _is_near(index: SketchIndex, sketch: Sketch) -> bool:
    """Whether something there differs, but by too few rows."""
    return any(n > 0 for n, _ in index.find(sketch))


def _holds(index: SketchIndex, sketch: Sketch) -> bool:
    return any(n == 0 for n, _ in index.find(sketch))


class _WatchedCells:
    """One partition on its way out."""

    def __init__(self, guard: CellGuard, n_cells: int) -> None:
        self._guard, self._seen, self._next = guard, Memberships(n_cells), 0

    def see(self, block: Block, cells: npt.NDArray[Any]) -> None:
        """The next rows, and the cell each is in; rows of weight 0 are in none."""
        places = block.places
        if places is None:
            places = np.arange(self._next, self._next + len(block.rows))
        self._next += len(block.rows)
        if block.weights is not None:
            counted = block.weights > 0
            places, cells = places[counted], cells[counted]
        self._seen.see(places, cells)

    def release(self, moments: CellMoments) -> CellMoments:
        """What may leave of the cells' moments."""
        return self._guard.decide(self._seen, moments)

    def release_whole(self) -> bool:
        """Whether sums over all these rows together may leave."""
        return self._guard.decide_whole(self._seen)


def _all_rows(moments: CellMoments) -> tuple[float, Floats, Any]:
    """The moments of all cells together."""
    count = moments.counts.sum()
    mean = moments.counts @ moments.means / max(count, 1e-300)
    apart = moments.counts[:, None] * (moments.means - mean) ** 2
    within = moments.within.sum(axis=0) + (apart.sum(axis=0) if moments.within.ndim == 2 else apart.sum())
    return count, mean, within


def _packed(known: list[_Known], totals: list[Sketch], rests: list[Sketch]) -> bytes:
    sets = [
        [k.sketch.tobytes(), k.view, k.roster, k.number, k.mean.tobytes(), k.within.ndim, k.within.tobytes()]
        for k in known
    ]
    return msgspec.msgpack.encode([sets, [t.tobytes() for t in totals], [r.tobytes() for r in rests]])


def _unpacked(data: bytes) -> tuple[list[_Known], list[Sketch], list[Sketch]]:
    sets, totals, rests = msgspec.msgpack.decode(data)
    known = []
    for sketch, view, roster, number, mean, axes, within in sets:
        numbers = np.frombuffer(within)
        spread = numbers if axes else np.asarray(numbers[0])
        known.append(_Known(np.frombuffer(sketch, np.uint32), view, roster, number, np.frombuffer(mean), spread))
    return known, [np.frombuffer(t, np.uint32) for t in totals], [np.frombuffer(r, np.uint32) for r in rests]
