"""Sets of rows a site releases something about, held against every set it released before in the same run.

Sums over cells reveal rows where a cell has few of them, or where two cells, released one after the other, differ by
few. Both are one rule: a set of rows that differs by 1 to tau-1 rows from a set already known is never released; what
is known is sent in its stead. The empty set (zeros) and the set of all rows are always known. The same is asked of
what the released cells leave over of all rows, since anyone can subtract. Cells, all rows in use and what is left
over are held against each other, whatever was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.errors import Guarded
from coterie.maths.memberships import BUCKETS, Memberships, Sketch, SketchIndex, n_different
from coterie.messages.site_part import Block, CellMoments
from coterie.sites.notes import Notes, allows
from coterie.sites.told import ALONE, Group, Told, named

__all__ = ["CellGuard"]

Floats = npt.NDArray[np.float64]

NOTHING: Sketch = np.zeros(BUCKETS, np.uint32)
EMPTY, WHOLE, FRESH = 0, -1, -2
"""What is sent for a cell: itself, all rows, or a known set; the first known set is the empty one."""


class _Known(NamedTuple):
    """A set of rows something was released about; its moments as the run saw rows then, where they were sent."""

    sketch: Sketch
    view: bytes
    moments: tuple[float, Floats, Floats] | None = None
    """Number of rows, mean and squares within."""


class CellGuard:
    """The sets of rows one run was told about: cells, all rows in use, and what the cells left over of them.

    ``view`` names how the run sees the site's rows now: what was released under another view is still known, but its
    numbers mean something else. ``roster`` is the digest of the sites an answer is summed up with;
    empty where it is seen by itself, None where it does not matter with whom.
    """

    def __init__(self, run: bytes, min_count: int, notes: Notes, told: Told) -> None:
        self.min_count = min_count
        self.view = b""
        self.roster: bytes | None = ALONE
        self.telling: list[Group] = []
        """What the answer at hand tells."""
        self._run, self._notes, self._told = run, notes, told
        self._known: list[_Known] = []
        self._index = SketchIndex(min_count)
        self._take_in([_Known(NOTHING, b"")])
        for data in notes.notes(run, "cells"):
            self._take_in(_unpacked(data))

    def cells(self, n_cells: int, seen_as: bytes = b"") -> _WatchedCells:
        """Watch a partition of the rows into so many cells; ``seen_as`` names what is summed up, if not the rows."""
        return _WatchedCells(self, n_cells, seen_as)

    def allows(self, what: str, key: bytes, most: int) -> bool:
        """Whether ``what`` has been done with at most ``most`` different keys in this run, this one included."""
        return allows(self._notes, self._run, what, key, most)

    def tells(self, what: str, key: bytes, most: int) -> bool:
        """The same of what is told of rows as they are seen now, each with one set of sites only."""
        if not self.allows(what, self.view + key, most):
            return False
        self.tell([b"once " + what.encode() + b" " + self.view + key])
        return True

    def tell(self, group: Group) -> None:
        """Say what the answer at hand tells; :class:`Repeats` where all of it left before with other sites."""
        if self.roster is None:
            return
        names = [named(one) for one in group]
        if self.roster == ALONE:  # the site lets it be seen by itself
            self._told.write_down([names], ALONE)
            return
        self._told.check([names], self.roster)
        self.telling.append(names)

    def decide(self, seen: Memberships, moments: CellMoments, seen_as: bytes = b"") -> CellMoments:
        """What is sent for each cell; written down before it is."""
        view = self.view + seen_as
        if seen.counts.sum() < self.min_count:
            return CellMoments(*[np.zeros_like(part) for part in moments])
        whole = self._checked_whole(seen)
        chosen = [self._choose(sketch, whole, view, moments.within.ndim) for sketch in seen.sketches]
        sent = self._with_a_safe_rest(chosen, seen, whole)
        sketches = [self._sketch(code, cell, seen, whole) for cell, code in enumerate(sent)]
        self._tell_sets([sketch for sketch in sketches if sketch.any()])
        answer = self._answer(sent, moments)
        told = [
            _Known(sketch, view, _moments_of(answer, cell)) for cell, sketch in enumerate(sketches) if sketch.any()
        ]
        rest = self._rest(sent, seen, whole)
        self._write_down([*told, _Known(whole, view), _Known(rest, view)])
        return answer

    def decide_whole(self, seen: Memberships, beside: bytes | None = None) -> bool:
        """Whether sums over all these rows may leave; ``beside`` names what else they tell."""
        if seen.counts.sum() < self.min_count:
            return False
        whole = self._checked_whole(seen)
        self._tell_sets([whole], *([] if beside is None else [beside]))
        self._write_down([_Known(whole, self.view)])
        return True

    def _checked_whole(self, seen: Memberships) -> Sketch:
        """The set of all rows in use, once it is found not to differ by a few from a set known before."""
        whole: Sketch = seen.sketches.sum(axis=0, dtype=np.uint32)
        if self._is_near(whole):
            raise Guarded("these rows differ by too few from those summed up before in the run")
        return whole

    def _tell_sets(self, sketches: Sequence[Sketch], *beside: bytes) -> None:
        """Sums over these sets are told; at least one of them must not have left with other sites alone."""
        self.tell([*[b"set " + sketch.tobytes() for sketch in sketches], *beside])

    def _is_near(self, sketch: Sketch) -> bool:
        """Whether a known set differs, but by too few rows."""
        return any(n > 0 for n, _ in self._index.find(sketch))

    def _choose(self, sketch: Sketch, whole: Sketch, view: bytes, within_axes: int) -> int:
        """The cell itself, or the known set it nearly equals."""
        near = [(n, place) for n, place in self._index.find(sketch) if n > 0]
        apart = int(n_different(sketch, whole))
        if not near and not 0 < apart < self.min_count:
            return FRESH
        usable = [(n, place) for n, place in near if place == EMPTY or _fits(self._known[place], view, within_axes)]
        if 0 < apart < self.min_count:
            usable.append((apart, WHOLE))
        return min(usable, default=(0, EMPTY))[1]

    def _with_a_safe_rest(self, chosen: list[int], seen: Memberships, whole: Sketch) -> list[int]:
        """The same, one or the smallest few more withheld where what is left over would be nearly a known set."""
        if not self._is_near(self._rest(chosen, seen, whole)):
            return chosen
        fresh = sorted((i for i, c in enumerate(chosen) if c == FRESH), key=lambda i: int(seen.counts[i]))
        groups = [{cell} for cell in fresh] + [set(fresh[:n]) for n in range(2, len(fresh))]
        for group in groups:
            fewer = [EMPTY if i in group else c for i, c in enumerate(chosen)]
            if not self._is_near(self._rest(fewer, seen, whole)):
                return fewer
        return [EMPTY] * len(chosen)

    def _rest(self, sent: Sequence[int], seen: Memberships, whole: Sketch) -> Sketch:
        """All rows less those sent, as a signed set: a row sent twice counts -1."""
        rest = whole.copy()
        for cell, code in enumerate(sent):
            rest -= self._sketch(code, cell, seen, whole)
        return rest

    def _sketch(self, code: int, cell: int, seen: Memberships, whole: Sketch) -> Sketch:
        own: Sketch = seen.sketches[cell]
        return own if code == FRESH else whole if code == WHOLE else self._known[code].sketch

    def _answer(self, sent: Sequence[int], moments: CellMoments) -> CellMoments:
        counts, means, within = (part.copy() for part in moments)
        for cell, code in enumerate(sent):
            if code == FRESH:
                continue
            known = _all_rows(moments) if code == WHOLE else self._known[code].moments or (0.0, 0.0, np.zeros(()))
            counts[cell], means[cell] = known[0], known[1]
            within[cell] = known[2].sum() if within.ndim == 1 else known[2]
        return CellMoments(counts, means, within)

    def _write_down(self, told: list[_Known]) -> None:
        """Keep what was told for the first time, or for the first time so."""
        new = [known for known in told if not self._is_kept(known)]
        if new:
            self._notes.note(self._run, "cells", _packed(new))
            self._take_in(new)

    def _is_kept(self, known: _Known) -> bool:
        same = [self._known[place] for n, place in self._index.find(known.sketch) if n == 0]
        return any(k.view == known.view and (known.moments is None or k.moments is not None) for k in same)

    def _take_in(self, known: list[_Known]) -> None:
        self._known += known
        for one in known:
            self._index.add(one.sketch)


class _WatchedCells:
    """One partition on its way out."""

    def __init__(self, guard: CellGuard, n_cells: int, seen_as: bytes) -> None:
        self._guard, self._seen, self._next, self._seen_as = guard, Memberships(n_cells), 0, seen_as

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
        return self._guard.decide(self._seen, moments, self._seen_as)

    def release_whole(self, beside: bytes | None = None) -> bool:
        """Whether sums over all these rows together may leave."""
        return self._guard.decide_whole(self._seen, beside)


def _fits(known: _Known, view: bytes, within_axes: int) -> bool:
    """Whether an earlier release can be sent now: same view, and squares by column where they are asked for."""
    return known.view == view and known.moments is not None and known.moments[2].ndim >= within_axes - 1


def _moments_of(moments: CellMoments, cell: int) -> tuple[float, Floats, Floats]:
    return float(moments.counts[cell]), moments.means[cell].copy(), np.array(moments.within[cell])


def _all_rows(moments: CellMoments) -> tuple[float, Floats, Floats]:
    """The moments of all cells together."""
    count = moments.counts.sum()
    mean = moments.counts @ moments.means / max(count, 1e-300)
    apart = moments.counts[:, None] * (moments.means - mean) ** 2
    within = moments.within.sum(axis=0) + (apart.sum(axis=0) if moments.within.ndim == 2 else apart.sum())
    return float(count), mean, np.asarray(within)


def _packed(known: list[_Known]) -> bytes:
    sets = []
    for one in known:
        packed = None
        if one.moments is not None:
            number, mean, within = one.moments
            packed = [number, mean.tobytes(), within.ndim, within.tobytes()]
        sets.append([one.sketch.tobytes(), one.view, packed])
    return msgspec.msgpack.encode(sets)


def _unpacked(data: bytes) -> list[_Known]:
    known = []
    for sketch, view, packed in msgspec.msgpack.decode(data):
        moments = None
        if packed is not None:
            number, mean, axes, within = packed
            squares = np.frombuffer(within)
            moments = (number, np.frombuffer(mean), squares if axes else np.asarray(squares[0]))
        known.append(_Known(np.frombuffer(sketch, np.uint32), view, moments))
    return known
