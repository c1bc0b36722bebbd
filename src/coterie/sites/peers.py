"""What a site knows of the others, and they of it: certified keys, and the heads of ledgers that each remembers."""

from __future__ import annotations

import base64
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from coterie.errors import LedgerBroken, Untrusted
from coterie.messages.chain import known_lines
from coterie.messages.heads import HEAD_BYTES, Head, witnessed_by
from coterie.messages.identity import Card, Identity
from coterie.sites.ledger import IDENTITY, NO_RUN, SiteLedger

MOST_HEADS = 64
"""How many heads of one other site are kept in mind."""
CONTRADICTED, HEADS, PEER, MET = "contradicted", "heads", "peer", "met"
"""Notes of a ledger: a head that it contradicts, the heads of others, the signing key of another, a run's sites."""


class Peers:
    """A site among others."""

    def __init__(self, name: str, identity: Identity | None, ledger: SiteLedger, log: logging.Logger) -> None:
        self._name, self._identity, self._ledger, self._log = name, identity, ledger, log
        with known_lines(ledger.path):
            if identity is not None:
                ledger.signed_with(identity.certificate.signing_key, identity.sign)
            self._heads = known_heads(ledger)
            self._contradictions = contradictions(ledger)
        if self._contradictions:
            log.error("%s: %s", name, self._unacknowledged())

    @property
    def identity(self) -> Identity:
        """Who the site is; ``Untrusted`` if nobody certified it."""
        if self._identity is None:
            raise Untrusted(f"{self._name} has no certificate of its federation's authority")
        return self._identity

    def check_ledger(self) -> None:
        """``LedgerBroken`` while others remember lines that the site's ledger does not hold."""
        if self._contradictions:
            raise LedgerBroken(self._unacknowledged())

    def _unacknowledged(self) -> str:
        most = max(head.lines for head in self._contradictions)
        return (
            f"another site holds a head of {most} lines that this site signed, and its ledger does not hold them: it "
            "was cut, rewritten, deleted or replaced by an older copy. The site takes part in no run until its data "
            "officer runs `coterie site acknowledge`"
        )

    def compare(self, heads: Sequence[bytes]) -> None:
        """Compare the ledger with heads that others remember; whoever made one up could not sign it."""
        for raw in heads:
            head = Head.from_bytes(raw)
            if head.is_signed_by(self.identity.certificate.signing_key) and self._ledger.contradicts(head):
                self._ledger.note(NO_RUN, CONTRADICTED, raw)
                self._contradictions.append(head)
        if self._contradictions:
            self._log.error("%s: %s", self._name, self._unacknowledged())
        self.check_ledger()

    def remembered(self, names: Sequence[str]) -> list[bytes]:
        """A head of each of the sites that follow this one in a list; zeros where none was seen.

        It is the newest or, as often, any: who hides what others remember of a ledger in some runs until it has grown
        again must hide it for ever.
        """
        seen = [self._heads.get(name, []) for name in witnessed_by(names, self._name)]
        return [
            secrets.choice((heads[-1], secrets.choice(heads))).to_bytes() if heads else bytes(HEAD_BYTES)
            for heads in seen
        ]

    def check_cards(
        self, cards: Mapping[str, Card], own: Card, heads: Mapping[str, Head], pinned: Mapping[str, bytes] | None
    ) -> None:
        """``Untrusted`` unless the authority certified all cards, they are as pinned, and each signed its head."""
        for name, card in cards.items():
            self.identity.trust.check_card(card, name)
            if name == self._name and card[1:] != own[1:]:
                raise Untrusted(f"{name} is introduced by another key than its own")
            if name != self._name and pinned is not None and pinned.get(name) != card.masking_key:
                raise Untrusted(f"the masking key of {name} is not the one that the policy pins")
        for name, head in heads.items():
            if not head.is_signed_by(cards[name].certificate.signing_key):
                raise Untrusted(f"the head of the ledger of {name} is not signed by it")

    def meet(self, run: bytes, cards: Mapping[str, Card], heads: Mapping[str, Head], *, has_begun: bool) -> None:
        """Keep who takes part in a run; ``Untrusted`` where sums have begun and someone is new."""
        keys = {name: card.certificate.signing_key + card.masking_key for name, card in cards.items()}
        first = [msgspec.msgpack.decode(data, type=dict[str, bytes]) for data in self._ledger.notes(run, MET)]
        if first and has_begun and not keys.items() <= first[-1].items():
            raise Untrusted("a run introduces its sites once, and this is another introduction")
        if not first or (keys != first[-1] and not has_begun):
            self._ledger.note(run, MET, msgspec.msgpack.encode(keys))
            self.notice(cards, heads)

    def notice(self, cards: Mapping[str, Card], heads: Mapping[str, Head]) -> None:
        """Remember the others' signing keys and newest heads; say where one is not as it was."""
        own, newer = self._name, dict[str, bytes]()
        known = dict(
            msgspec.msgpack.decode(data, type=tuple[str, bytes]) for data in self._ledger.notes(NO_RUN, PEER)
        )
        for name, card in cards.items():
            signing = card.certificate.signing_key
            if name != own and known.get(name) != signing:
                self._ledger.note(NO_RUN, PEER, msgspec.msgpack.encode((name, signing)))
                if name in known:
                    self._log.warning("%s: the signing key of %s has changed since an earlier run", own, name)
        for name, head in heads.items():
            before = self._heads[name][-1] if name in self._heads else None
            if before is not None and before.is_signed_by(cards[name].certificate.signing_key):
                if not head.follows(before):
                    if head != before:
                        self._log.warning("%s: the ledger of %s holds less than in an earlier run", own, name)
                    continue
                if head.breaks > before.breaks:
                    self._log.warning("%s: %s acknowledged a break of its ledger", own, name)
            if name != own:
                newer[name] = head.to_bytes()
        if newer:
            self._ledger.note(NO_RUN, HEADS, msgspec.msgpack.encode(newer))
            _keep(self._heads, newer)


def known_heads(ledger: SiteLedger) -> dict[str, list[Head]]:
    """The heads of others that a ledger holds, the newest last."""
    heads: dict[str, list[Head]] = {}
    for data in ledger.notes(NO_RUN, HEADS):
        _keep(heads, msgspec.msgpack.decode(data, type=dict[str, bytes]))
    return heads


def _keep(heads: dict[str, list[Head]], newer: Mapping[str, bytes]) -> None:
    """Add newer heads; those of before an acknowledged break are forgotten, and some where there are many."""
    for name, raw in newer.items():
        head = Head.from_bytes(raw)
        kept = [one for one in heads.get(name, []) if one.breaks == head.breaks]
        if len(kept) == MOST_HEADS:
            del kept[secrets.randbelow(MOST_HEADS)]
        heads[name] = [*kept, head]


def contradictions(ledger: SiteLedger) -> list[Head]:
    """The heads that a ledger contradicts, and nobody has acknowledged that."""
    found = [Head.from_bytes(data) for data in ledger.notes(NO_RUN, CONTRADICTED)]
    return [head for head in found if head.breaks >= ledger.breaks]


def breaks_in(lines: Sequence[Mapping[str, Any]]) -> tuple[int, bool]:
    """From the lines of a ledger's file: how many breaks were acknowledged, and whether others contradict it now."""
    kept: dict[str, list[bytes]] = {IDENTITY: [], CONTRADICTED: []}
    for line in lines:
        if line["event"] == "note" and line["what"] in kept:
            kept[line["what"]].append(base64.b64decode(line["data"]))
    breaks = msgspec.msgpack.decode(kept[IDENTITY][-1], type=tuple[bytes, int])[1] if kept[IDENTITY] else 0
    return breaks, any(Head.from_bytes(data).breaks >= breaks for data in kept[CONTRADICTED])


def acknowledge(ledger: SiteLedger) -> int:
    """Go on with a ledger that others contradict: it begins anew, and every later head says so; how many breaks."""
    breaks = max([ledger.breaks, *[head.breaks for head in contradictions(ledger)]]) + 1
    ledger.begin_anew(breaks)
    return breaks
