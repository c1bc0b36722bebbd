"""With whom what a run was told of a site's rows was summed up.

The sum of something over some sites, less the sum of the same over all of them but one, is that one's own. So a site
remembers with whom each thing left, from the moment it helps to unmask the sum: a sum that nobody unmasks tells
nothing, and one that was unmasked without this site's help took the help of others, who remember it. To take the mask
off a sum over n sites, ``threshold(n)`` others must each have revealed their share of the mask of the site left out
later; every one of them is part of the smaller sum, too, and refuses there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from coterie.errors import Repeats
from coterie.sites.notes import Notes

__all__ = ["Group", "Told", "named"]

Group = Sequence[bytes]
"""Names of what leaves together: at least one of them must be new, or have left with the same sites."""

ALONE = b""
"""The roster of what the server sees by itself."""


def named(what: bytes) -> bytes:
    """A short name for one thing told: a set of rows and what is summed up over it, say."""
    return hashlib.blake2b(what, digest_size=16).digest()


class Told:
    """What one run was told, by name, and the rosters it was told with; read from the site's notes and kept there."""

    def __init__(self, run: bytes, notes: Notes) -> None:
        self._run, self._notes = run, notes
        self._rosters: dict[bytes, set[bytes]] = {}
        for data in notes.notes(run, "told"):
            roster, names = msgspec.msgpack.decode(data, type=tuple[bytes, list[bytes]])
            self._take_in(roster, names)

    def check(self, groups: Iterable[Group], roster: bytes) -> None:
        """Raise :class:`Repeats` where all of a group left before with other sites, and not with these."""
        for group in groups:
            if group and all(self._left_elsewhere(name, roster) for name in group):
                raise Repeats("the same was summed up with other sites before; the difference is one site's")

    def write_down(self, groups: Iterable[Group], roster: bytes) -> None:
        """It leaves, summed up with these sites."""
        names = {name for group in groups for name in group}
        new = sorted(name for name in names if roster not in self._rosters.get(name, ()))
        if new:
            self._notes.note(self._run, "told", msgspec.msgpack.encode((roster, new)))
            self._take_in(roster, new)

    def _left_elsewhere(self, name: bytes, roster: bytes) -> bool:
        rosters = self._rosters.get(name, set())
        return bool(rosters) and not rosters & {ALONE, roster}

    def _take_in(self, roster: bytes, names: Iterable[bytes]) -> None:
        for name in names:
            self._rosters.setdefault(name, set()).add(roster)
