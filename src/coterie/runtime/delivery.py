"""One exchange: carry a question to sites, check what comes back, ask again what may fare better."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coterie.errors import BadAnswer
from coterie.messages import codec
from coterie.messages.bounds import Limits
from coterie.messages.codec import Envelope
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply, Request
from coterie.runtime.channel import Channel, Outcome
from coterie.runtime.ledger import SiteCount
from coterie.runtime.outcomes import OutcomeKind, SiteOutcome
from coterie.runtime.terms import Terms

_UNANSWERED = {"lost": SiteOutcome(OutcomeKind.UNREACHABLE), "refused": SiteOutcome(OutcomeKind.TURNED_AWAY)}
_ANSWERED = SiteOutcome(OutcomeKind.ANSWERED)


@dataclass
class SiteExchange:
    """One site within one exchange: what it is asked, and what has come of it so far."""

    request: Request[Any]
    envelope: Envelope
    frames: list[bytes]
    """The question; where there are two, the second is the whole one, for a site that asks for it."""
    recall: list[bytes]
    """What the site has to remember before it can answer."""
    limits: Limits
    reply: Reply | None = None
    outcome: SiteOutcome = _UNANSWERED["lost"]
    was_recalled: bool = False
    was_in_full: bool = False
    bytes_up: int = 0
    bytes_down: int = 0

    @property
    def frame(self) -> bytes:
        """What is sent."""
        return self.frames[self.was_in_full]

    def read(self, carried: Outcome, deadline: float | None) -> None:
        """Take in what became of the question."""
        self.reply = None
        if carried.status == "late":
            self.outcome = SiteOutcome(
                OutcomeKind.LATE, detail="" if deadline is None else f"deadline {deadline:g} s"
            )
        elif carried.status != "answered":
            self.outcome = _UNANSWERED[carried.status]
        else:
            self._decode(carried.payload)

    def _decode(self, payload: bytes) -> None:
        layout = self.request.layout
        try:
            answer = codec.decode_answer(payload, self.envelope, layout, layout.bounds(self.limits))
        except BadAnswer as problem:
            self.outcome = SiteOutcome(OutcomeKind.INVALID, detail=str(problem))
            return
        if isinstance(answer, Refusal):
            self.outcome = SiteOutcome(OutcomeKind.REFUSED, answer)
        else:
            self.reply = answer
            self.outcome = SiteOutcome(OutcomeKind.RECALLED) if self.was_recalled else _ANSWERED

    @property
    def is_unclear(self) -> bool:
        """Whether the site asks for the whole question, and has not got it."""
        return self.outcome.refusal is Refusal.IN_FULL and not self.was_in_full and len(self.frames) > 1

    def count(self) -> SiteCount:
        """The site's part in the record of the exchange."""
        numbers = 0 if self.reply is None else self.request.layout.numbers
        return SiteCount(self.outcome, numbers, self.bytes_up, self.bytes_down)


class Delivery:
    """Delivers the questions of one exchange within its deadline."""

    def __init__(self, channel: Channel, asked: Mapping[str, SiteExchange], terms: Terms) -> None:
        self.asked = asked
        self.strangers: dict[str, SiteCount] = {}
        """Sites that answered without having been asked."""
        self._channel, self._terms = channel, terms
        self._ends = math.inf if terms.deadline is None else time.monotonic() + terms.deadline

    def deliver(self) -> None:
        """Send, and send again what did not arrive, arrived damaged, or met a site that forgot."""
        waiting = dict(self.asked)
        for _ in range(1 + self._terms.resends):
            self._ask(waiting)
            forgot = {name: site for name, site in waiting.items() if site.outcome.refusal is Refusal.FORGOT}
            if forgot:
                self._bring_up_to_date(forgot)
                self._ask(forgot)
            unclear = {name: site for name, site in waiting.items() if site.is_unclear}
            if unclear:
                for site in unclear.values():
                    site.was_in_full = True
                self._ask(unclear)
            waiting = {name: site for name, site in waiting.items() if site.outcome.may_resend}
            if not waiting or self._left() <= 0:
                return

    def _left(self) -> float:
        return self._ends - time.monotonic()

    def _ask(self, waiting: Mapping[str, SiteExchange]) -> None:
        for name, carried in self._carry({name: site.frame for name, site in waiting.items()}).items():
            waiting[name].read(carried, self._terms.deadline)

    def _bring_up_to_date(self, forgot: Mapping[str, SiteExchange]) -> None:
        self._carry({name: codec.encode_recall(site.envelope, site.recall) for name, site in forgot.items()})
        for site in forgot.values():
            site.was_recalled = True

    def _carry(self, frames: Mapping[str, bytes]) -> dict[str, Outcome]:
        """Exchange frames and count every byte, also those of sites nobody asked."""
        left = self._left()
        carried = {} if left <= 0 else dict(self._channel.exchange(frames, None if math.isinf(left) else left))
        for name in carried.keys() - frames.keys():
            self.strangers[name] = SiteCount(SiteOutcome(OutcomeKind.UNASKED), 0, len(carried[name].payload), 0)
        outcomes = {name: carried.get(name, Outcome("late" if left <= 0 else "lost")) for name in frames}
        for name, outcome in outcomes.items():
            site = self.asked[name]
            site.bytes_up += len(outcome.payload)
            site.bytes_down += len(frames[name]) if left > 0 else 0
        return outcomes
