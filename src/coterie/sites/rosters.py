"""With whom a site was summed up in each of its runs, and with whom it still may be."""

from __future__ import annotations

import msgspec

from coterie.messages.refusals import Refusal
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.refused import Refused

ROSTER, HALF = "roster", "half"
"""Notes of a ledger: the rosters of a run, and its question to half of the sites."""


class Rosters:
    """The rosters of a site's runs, kept in its ledger."""

    def __init__(self, policy: Policy, ledger: SiteLedger) -> None:
        self._policy, self._ledger = policy, ledger

    def have_begun(self, run: bytes) -> bool:
        """Whether the site was summed up in the run."""
        return bool(self._ledger.notes(run, ROSTER))

    def join(self, run: bytes, roster: tuple[str, ...], half: bytes) -> None:
        """Agree to a sum over these sites; for one question ``half`` of a run they may be half of the sites."""
        if not half:
            self._join(run, roster, Refusal.ROSTER_FORBIDDEN)
            return
        asked, before = msgspec.msgpack.encode((half, roster)), self._ledger.notes(run, HALF)
        if not self._policy.lets_halve(roster, self._of(run)) or (before and before[0] != asked):
            raise Refused(Refusal.ROSTER_FORBIDDEN)
        if not before:
            self._ledger.note(run, HALF, asked)

    def unmask(self, run: bytes, roster: tuple[str, ...]) -> None:
        """Agree to unmask a sum over these sites."""
        halves = [msgspec.msgpack.decode(data)[1] for data in self._ledger.notes(run, HALF)]
        if list(roster) not in halves:
            self._join(run, roster, Refusal.UNMASKING_FORBIDDEN)

    def _of(self, run: bytes) -> list[list[str]]:
        return [msgspec.msgpack.decode(data) for data in self._ledger.notes(run, ROSTER)]

    def _join(self, run: bytes, roster: tuple[str, ...], otherwise: Refusal) -> None:
        before = self._of(run)
        if not self._policy.lets_join(roster, before):
            raise Refused(otherwise)
        if not before or before[-1] != list(roster):
            self._ledger.note(run, ROSTER, msgspec.msgpack.encode(roster))
