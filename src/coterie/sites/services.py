"""What masked sums, verification and certificates need of a site, besides answers."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping, Sequence

from coterie.errors import NotOrdered
from coterie.messages.codec import Envelope
from coterie.messages.heads import Head
from coterie.messages.identity import Card, Identity
from coterie.sites.ledger import Key, SiteLedger
from coterie.sites.orders import Orders
from coterie.sites.peers import Peers
from coterie.sites.policy import Policy, Protection
from coterie.sites.rosters import Rosters

CONCLUDED = "concluded"
"""The note that a private run is over: what it spent was stated."""


class Services:
    """A site's identity, ledger and rosters; nothing here sees a row."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        ledger: SiteLedger,
        orders: Orders,
        log: logging.Logger,
        identity: Identity | None,
        seed: int | None,
    ) -> None:
        self.name, self.policy, self.ledger, self._orders, self._log = name, policy, ledger, orders, log
        self.peers = Peers(name, identity, ledger, log)
        self.masking_key = ledger.secret()
        self._seed = seed
        self._rosters = Rosters(policy, ledger)

    def card(self) -> Card:
        """The site's own card."""
        return self.peers.identity.card(self.masking_key)

    def head(self) -> Head:
        """The head of the site's ledger as it is now."""
        return self.ledger.head()

    def remembered(self, names: Sequence[str]) -> list[bytes]:
        """The heads of some of these sites' ledgers, as this site saw them last."""
        return self.peers.remembered(names)

    def compare(self, heads: Sequence[bytes]) -> None:
        """Compare the site's ledger with what others remember of it."""
        self.peers.compare(heads)

    def counts(self, run: bytes) -> tuple[int, int, int]:
        """How many questions of a run were answered and refused, and how many bytes left."""
        return self.ledger.counts(run)

    def sign(self, data: bytes) -> bytes:
        return self.peers.identity.sign(data)

    def protection(self, envelope: Envelope) -> int:
        """How many rows a group that the run sees has at least; 0 where it sees rows, or noisy sums of rows."""
        return self.policy.min_group if self._protection(envelope) == "groups" else 0

    def spent(self, envelope: Envelope) -> tuple[float, float, int, bool]:
        """Epsilon and delta of what the run has spent, 0 where no noise protects rows; how often the budget was begun
        anew before, and whether it bounds all that leaves of the table."""
        if self._protection(envelope) != "noise":
            return 0.0, 0.0, 0, False
        return *self._orders.budget.spent_by(envelope.run), self.policy.bounds_table

    def forget_noise(self, run: bytes) -> None:
        """Delete the secret of the run's noise; what was answered is not answered anew."""
        if self._orders.is_private(run):
            self.pin(run, CONCLUDED, b"")
        self.ledger.forget_noise_key(run)

    @property
    def verifies(self) -> bool:
        """Whether only questions of an ordered method are answered."""
        return self.policy.verifies

    def part(self, context: bytes) -> bytes:
        """From the site's own key; where one owner plays all sites, from the seed that was chosen."""
        if self._seed is not None:
            return hmac.digest(self._seed.to_bytes(8, "big"), self.name.encode(), "sha256")
        return hmac.digest(self.masking_key, b"coterie/part/" + context, "sha256")

    def pin(self, run: bytes, what: str, data: bytes) -> None:
        """Once a run; it is kept with the ledger."""
        before = self.ledger.notes(run, what)
        if before and before[0] != data:
            raise NotOrdered(f"the run had another {what} before")
        if not before:
            self.ledger.note(run, what, data)

    def note(self, run: bytes, what: str, data: bytes) -> None:
        """Keep something about a run over restarts."""
        self.ledger.note(run, what, data)

    def notes(self, run: bytes, what: str) -> list[bytes]:
        """What was kept."""
        return self.ledger.notes(run, what)

    def meet(self, run: bytes, cards: Mapping[str, Card], heads: Mapping[str, Head] | None = None) -> None:
        """Accept the sites of a run: all certified, as pinned by the policy, and none that is new once sums began."""
        pinned = self.policy.peers
        self.peers.check_cards(cards, self.card(), heads or {}, pinned)
        self.peers.meet(run, cards, heads or {}, has_begun=self._rosters.have_begun(run))

    def join(self, run: bytes, roster: tuple[str, ...], half: bytes = b"") -> None:
        """Agree to be summed up with these sites, where the policy allows it after the rosters before; for one
        question ``half`` of a run with half of them."""
        self._rosters.join(run, roster, half)

    def unmask(self, run: bytes, roster: tuple[str, ...]) -> None:
        """Agree to unmask a sum over these sites, unless a smaller roster was asked for since."""
        self._rosters.unmask(run, roster)

    def answered(self, run: bytes, round: int, attempt: int) -> bytes | None:
        """The bytes of an answer this site gave earlier in the run."""
        stored = self.ledger.stored(Key(run, round, attempt))
        return None if stored is None else stored[1]

    def once(self, run: bytes, what: str) -> bool:
        """Whether this is the first time in the run that ``what`` is done; remembered over restarts."""
        return self.ledger.once(run, what)

    def _protection(self, envelope: Envelope) -> Protection:
        """How rows are protected in a run: by noise where its order is private."""
        of_method = self.policy.protection_of(envelope.method)
        return "noise" if of_method != "none" and self._orders.is_private(envelope.run) else of_method
