"""What a site's rules hold every answer of a run against: sets of rows, rosters and Grams released before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from coterie.errors import Guarded
from coterie.messages.codec import encode_body
from coterie.messages.schema import Request
from coterie.sites.cell_guard import CellGuard, Notes, allows
from coterie.sites.ledger import MAX_RUNS
from coterie.sites.policy import MAX_MIN_COUNT, Policy

__all__ = ["Guards"]

MOST_LIMITS = 8
"""Units before and after centering, the run's own, and some to spare."""


class Guards:
    """What a site holds every run against: the sets of rows, the rosters and the Grams it released before."""

    def __init__(self, policy: Policy, notes: Notes) -> None:
        self._policy, self._notes = policy, notes
        self._cells: OrderedDict[bytes, CellGuard] = OrderedDict()

    def of(self, run: bytes, view: bytes, roster: bytes, columns: float = 0.0) -> CellGuard | None:
        """The guard of one answer; None where the policy asks for none.

        ``columns`` is how many there are in an embedding of the rows for each column the site holds.
        """
        if self._policy.min_count <= 1:
            return None
        smallest = self._smallest(run, view, columns)
        if run not in self._cells or self._cells[run].min_count != smallest:
            self._cells[run] = CellGuard(run, smallest, self._notes)
        self._cells.move_to_end(run)
        if len(self._cells) > MAX_RUNS:  # all of it is in the notes and is read again
            self._cells.popitem(last=False)
        guard = self._cells[run]
        guard.view, guard.roster = view, b"" if self._policy.rosters == "any" else roster
        guard.has_news = None
        return guard

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
        """Write down whether the masked answer just computed told of anything for the first time."""
        guard = self._cells.get(run)
        if guard is not None and self._policy.rosters != "any":
            self._notes.note(run, f"upload {upload[0]} {upload[1]}", bytes([guard.has_news is not False]))

    def lets_unmask(self, run: bytes, upload: tuple[int, int], survivors: tuple[str, ...], lost: bool) -> bool:
        """Whether an upload may be summed up with those left: a roster it may join, and, where some were lost since,
        not with sets alone that were summed up with them before."""
        had_news = self._notes.notes(run, f"upload {upload[0]} {upload[1]}")
        return self.join(run, survivors) and not (lost and bytes([False]) in had_news)

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
        """Whether an upload made again is unmasked with the whole roster only: see :meth:`lets_unmask`."""
        return bool(roster) and self._policy.min_count > 1 and self._policy.rosters != "any"
