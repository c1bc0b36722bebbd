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
from coterie.runtime.ledger import GOOD, SiteCount
from coterie.runtime.terms import Terms


@dataclass
class Asked:
    """One site within one exchange: what it is asked, and what has come of it so far."""

    request: Request[Any]
    envelope: Envelope
    frame: bytes
    recall: list[bytes]
    """What the site has to remember before it can answer."""
    limits: Limits
    reply: Reply | None = None
    problem: str = ""
    is_final: bool = False
    """Whether asking this site again in this run is pointless."""
    has_declined: bool = False
    """Whether the site declined this question only, and stays in the run for others."""
    may_resend: bool = False
    """Whether the same question sent again may fare better."""
    was_recalled: bool = False
    bytes_up: int = 0
    bytes_down: int = 0

    def read(self, outcome: Outcome, terms: Terms) -> None:
        """Take in what became of the question."""
        self.reply, self.is_final, self.has_declined, self.may_resend = None, False, False, False
        if outcome.status != "answered":
            self.problem = terms.words(outcome.status)
            self.may_resend = outcome.status == "lost"
            return
        layout = self.request.layout
        try:
            found = codec.decode_answer(outcome.payload, self.envelope, layout, layout.bounds(self.limits))
        except BadAnswer as problem:
            self.problem, self.may_resend = str(problem), True
            return
        if isinstance(found, Refusal):
            self.problem, self.is_final = found.sentence, found.is_final
            self.has_declined = found.is_about_the_question
            self.may_resend = found in (Refusal.MALFORMED, Refusal.FORGOT)
        else:
            self.reply, self.problem = found, ""

    @property
    def has_forgotten(self) -> bool:
        """Whether the site has to be brought up to date."""
        return self.problem == Refusal.FORGOT.sentence

    def count(self) -> SiteCount:
        """The site's line in the ledger."""
        numbers = 0 if self.reply is None else self.request.layout.numbers
        return SiteCount(self.problem or GOOD[self.was_recalled], numbers, self.bytes_up, self.bytes_down)


class Delivery:
    """Delivers the questions of one exchange within its deadline."""

    def __init__(self, channel: Channel, asked: Mapping[str, Asked], terms: Terms) -> None:
        self.asked = asked
        self.strangers: dict[str, SiteCount] = {}
        """Sites that answered without having been asked."""
        self._channel, self._terms = channel, terms
        self._ends = math.inf if terms.deadline is None else time.monotonic() + terms.deadline

    def deliver(self) -> None:
        """Send, and send again what got lost, arrived damaged, or met a site that forgot."""
        waiting = dict(self.asked)
        for _ in range(1 + self._terms.resends):
            self._ask(waiting)
            forgot = {name: one for name, one in waiting.items() if one.has_forgotten}
            if forgot:
                self._bring_up_to_date(forgot)
                self._ask(forgot)
            waiting = {name: one for name, one in waiting.items() if one.may_resend}
            if not waiting or self._left() <= 0:
                return

    def _left(self) -> float:
        return self._ends - time.monotonic()

    def _ask(self, waiting: Mapping[str, Asked]) -> None:
        for name, outcome in self._carry({name: one.frame for name, one in waiting.items()}).items():
            waiting[name].read(outcome, self._terms)

    def _bring_up_to_date(self, forgot: Mapping[str, Asked]) -> None:
        self._carry({name: codec.encode_recall(one.envelope, one.recall) for name, one in forgot.items()})
        for one in forgot.values():
            one.was_recalled = True

    def _carry(self, frames: Mapping[str, bytes]) -> dict[str, Outcome]:
        """Exchange frames and count every byte, also those of sites nobody asked."""
        left = self._left()
        found = {} if left <= 0 else dict(self._channel.exchange(frames, None if math.isinf(left) else left))
        for name in found.keys() - frames.keys():
            self.strangers[name] = SiteCount("answered without being asked", 0, len(found[name].payload), 0)
        outcomes = {name: found.get(name, Outcome("late" if left <= 0 else "lost")) for name in frames}
        for name, outcome in outcomes.items():
            one = self.asked[name]
            one.bytes_up += len(outcome.payload)
            one.bytes_down += len(frames[name]) if left > 0 else 0
        return outcomes
