"""What a site's rules hold every answer of a run against: sets of rows, rosters and Grams released before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from coterie.errors import Guarded
from coterie.messages.codec import encode_body, roster_digest
from coterie.messages.schema import Request
from coterie.sites.cell_guard import CellGuard
from coterie.sites.ledger import MAX_RUNS
from coterie.sites.notes import Notes, allows
from coterie.sites.policy import MAX_MIN_COUNT, Policy
from coterie.sites.told import Group, Told

__all__ = ["Guards"]

MOST_LIMITS = 8
"""Units before and after centering, the run's own, and some to spare."""


class Guards:
    """What a site holds every run against: the sets of rows, the rosters and the Grams it released before."""

    def __init__(self, policy: Policy, notes: Notes) -> None:
        self._policy, self._notes = policy, notes
        self._cells: OrderedDict[bytes, tuple[CellGuard, Told]] = OrderedDict()

    def of(self, run: bytes, view: bytes, roster: bytes, columns: float = 0.0) -> CellGuard | None:
        """The guard of one answer; None where the policy asks for none.

        ``columns`` is how many there are in an embedding of the rows for each column the site holds.
        """
        if self._policy.min_count <= 1:
            return None
        guard, _ = self._kept(run, self._smallest(run, view, columns))
        guard.view = view
        guard.roster = roster if self._watches_rosters else None
        guard.telling = []
        return guard

    def _kept(self, run: bytes, smallest: int) -> tuple[CellGuard, Told]:
        """What is known of a run, its sets of rows held against each other by so many at least."""
        if run not in self._cells or self._cells[run][0].min_count < smallest:
            told = self._cells[run][1] if run in self._cells else Told(run, self._notes)
            self._cells[run] = CellGuard(run, smallest, self._notes, told), told
        self._cells.move_to_end(run)
        if len(self._cells) > MAX_RUNS:  # all of it is in the notes and is read again
            self._cells.popitem(last=False)
        return self._cells[run]

    def _smallest(self, run: bytes, view: bytes, columns: float) -> int:
        """The fewest rows a set may hold: more of them than sums and squares of its embedded columns could tell.

        Rows of d columns are d unknowns each; sums and squares of s columns that are not linear in them are 2 s
        equations. Embeddings of one run add up.
        """
        seen = dict(msgspec.msgpack.decode(data) for data in self._notes.notes(run, "embedding"))
        if columns and view not in seen:
            self._notes.note(run, "embedding", msgspec.msgpack.encode((view, columns)))
            seen[view] = columns
        smallest = max(self._policy.min_count, 1 + int(2 * sum(seen.values())))
        if smallest > MAX_MIN_COUNT:
            raise Guarded(
                f"rows were embedded in {sum(seen.values()):g} columns for each they have: sums over sets of fewer "
                f"than {smallest} would tell of them, more than are watched ({MAX_MIN_COUNT})"
            )
        return smallest

    def join(self, run: bytes, roster: tuple[str, ...]) -> bool:
        """Whether the site may be summed up with these sites now; written down."""
        before = [msgspec.msgpack.decode(data) for data in self._notes.notes(run, "roster")]
        if not self._policy.lets_join(roster, before):
            return False
        if not before or before[-1] != list(roster):
            self._notes.note(run, "roster", msgspec.msgpack.encode(roster))
        return True

    def note_upload(self, run: bytes, upload: tuple[int, int]) -> None:
        """Write down what the masked answer just computed tells, once it is unmasked."""
        if self._watches_rosters and self._cells[run][0].telling:
            told = msgspec.msgpack.encode(self._cells[run][0].telling)
            self._notes.note(run, f"upload {upload[0]} {upload[1]}", told)

    def lets_unmask(self, run: bytes, upload: tuple[int, int], survivors: tuple[str, ...]) -> bool:
        """Whether an upload may be summed up with those left, a roster it may join; written down.

        :class:`Repeats` where what it tells was summed up with others before.
        """
        if not self._watches_rosters:
            return self.join(run, survivors)
        _, told = self._kept(run, self._policy.min_count)
        groups: list[Group] = []
        for data in self._notes.notes(run, f"upload {upload[0]} {upload[1]}"):
            groups += msgspec.msgpack.decode(data, type=list[list[bytes]])
        roster = roster_digest(survivors)
        told.check(groups, roster)
        if not self.join(run, survivors):
            return False
        told.write_down(groups, roster)
        return True

    def check_limits(self, run: bytes, limits: Mapping[str, float]) -> None:
        """Accept a few different declared limits a run: refusals at many would measure what is behind masks."""
        told = repr(sorted(limits.items())).encode()
        if self._policy.min_count > 1 and limits and not allows(self._notes, run, "limits", told, MOST_LIMITS):
            raise Guarded("too many different limits were declared in this run")

    def charge(
        self,
        run: bytes,
        request: Request[Any],
        own_rows: int,
        limits: Mapping[str, float],
        roster: bytes = b"",
        view: bytes = b"",
    ) -> None:
        """Count a Gram, or part of one; :class:`Guarded` where the run would have seen too many for its rows.

        The same masked for the same ``roster`` again (the server was killed in between) tells nothing new, where rows
        are seen as they were: ``view`` is what the run made the site remember.
        """
        layout, size = request.layout, request.gram_rows
        if layout.reply.content != "grams" or not self._policy.gram_rows or not own_rows:
            return
        if size is None:
            size = sum(item.size / item.shape[-1] for item in layout.fields if item.shape and item.shape[-1])
        key = roster + view + encode_body(request, {}).digest
        if self._lets_repeat(roster) and key in self._notes.notes(run, "charged"):
            return
        spent = [float(msgspec.msgpack.decode(data)) for data in self._notes.notes(run, "grams")]
        if not self._policy.lets_release_grams(sum(spent) + size, own_rows, limits.get("all_rows")):
            raise Guarded(
                f"{sum(spent) + size:g} rows of products would have left in this run, too many for its rows"
            )
        self._notes.note(run, "grams", msgspec.msgpack.encode(size))
        if self._lets_repeat(roster):
            self._notes.note(run, "charged", key)

    def _lets_repeat(self, roster: bytes) -> bool:
        """Whether what is masked again is told once: see :meth:`lets_unmask`."""
        return bool(roster) and self._watches_rosters

    @property
    def _watches_rosters(self) -> bool:
        return self._policy.min_count > 1 and self._policy.rosters != "any"
