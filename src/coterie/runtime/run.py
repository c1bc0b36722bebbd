"""Drive a protocol: put its questions to sites, check and count what comes back, survive what goes wrong."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from coterie.errors import BadAnswer, QuorumLost, RosterChanged, RunError
from coterie.messages import codec
from coterie.messages.codec import Body, Envelope
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Reply, Request
from coterie.messages.verbs import Present, Protocol, Question
from coterie.runtime.channel import Channel, Outcome
from coterie.runtime.journal import Journal
from coterie.runtime.layers import Layer, PlainSums, ask_through
from coterie.runtime.ledger import Exchange, Ledger, SiteCount
from coterie.runtime.replay import Recorder, Replayed
from coterie.runtime.roster import Roster

__all__ = ["Progress", "Run", "Terms", "run"]

T = TypeVar("T")


@dataclass(frozen=True)
class Terms:
    """When a run waits, asks again and gives up."""

    deadline: float | None = None
    """Seconds one exchange may take; None waits for ever."""
    quorum: float = 1.0
    """The share of the sites asked (of all sites, where all are asked) that must answer."""
    resends: int = 2
    """How often a question is sent again within its deadline when its answer got lost or arrived damaged."""

    def __post_init__(self) -> None:
        if not 0 < self.quorum <= 1:
            raise ValueError(f"quorum={self.quorum} is a share of the sites, above 0 and at most 1")
        if self.deadline is not None and not self.deadline > 0:
            raise ValueError(f"deadline={self.deadline} seconds; it must be above 0")
        if self.resends < 0:
            raise ValueError(f"resends={self.resends}; it cannot be negative")


class Progress(NamedTuple):
    """What a run tells whoever watches it, after every exchange."""

    exchange: Exchange
    ledger: Ledger


@dataclass
class _Asked:
    """One site within one exchange."""

    request: Request[Any]
    body: Body
    envelope: Envelope
    transcript: list[bytes]
    frame: bytes = b""
    reply: Reply | None = None
    problem: str = ""
    is_final: bool = False
    bytes_up: int = 0
    bytes_down: int = 0
    recalls: int = 0


@dataclass
class Run:
    """One run: its identity, its roster, its count of rounds."""

    channel: Channel
    method: str
    terms: Terms = field(default_factory=Terms)
    layers: tuple[Layer, ...] = (PlainSums(),)
    ledger: Ledger = field(default_factory=Ledger)
    identity: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    watch: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        self.round = 0
        self.roster = Roster(self.channel.sites())
        self.ledger.method, self.ledger.run = self.method, self.identity.hex()
        self._transcripts: dict[str, list[bytes]] = {}
        self._digests: dict[str, bytes] = {}

    # ------------------------------------------------------------ driving

    def drive(self, protocol: Protocol[T], journal: Journal | None = None, settings: Any = None) -> T:
        """Run a protocol to its end, from its journal as far as that goes."""
        recorder = Recorder(self, journal, settings or {}) if journal is not None else None
        answer: Any = None
        failure: RunError | None = None
        while True:
            try:
                question = protocol.send(answer) if failure is None else protocol.throw(failure)
            except StopIteration as stop:
                result: T = stop.value
                return result
            answer, failure = None, None
            replayed = recorder.replay(question) if recorder else None
            try:
                answer = replayed.value() if isinstance(replayed, Replayed) else self.ask(question)
            except RunError as problem:  # an algorithm may catch it
                failure = problem
            if recorder and replayed is None:
                recorder.record(question, answer, failure)

    def ask(self, question: Question | Present) -> Any:
        """Put one question of a protocol through the layers to the sites."""
        if isinstance(question, Present):
            self.roster.admit(self.channel.sites())
            return self.roster.ready(self.round)
        return ask_through(self.layers, self.gather, question)

    # ------------------------------------------------------------ asking

    def gather(self, question: Question) -> dict[str, Reply]:
        """One exchange: every good answer by site, in roster order; counted, and short of a quorum refused."""
        if question.summed:
            raise TypeError("a sum must be lowered by a layer before it is gathered")
        self.roster.admit(self.channel.sites())
        number, self.round = self.round, self.round + 1
        nominal = self.roster.names if question.to is None else question.to
        outcomes = {n: "is not a site of this run" for n in nominal if n not in self.roster.standings}
        wanted, ready = set(nominal), self.roster.ready(number)
        for name in wanted.difference(ready, outcomes):
            outcomes[name] = self.roster.why_not(name)
        asked = self._prepare(question, number, [name for name in ready if name in wanted])
        self._deliver(asked, question)
        for name, one in asked.items():
            outcomes[name] = one.problem or "answered"
            self._judge(name, one, number)
        self._count(question, number, asked)
        found = {name: one.reply for name, one in asked.items() if one.reply is not None}
        self._check_quorum(question, number, nominal, found, outcomes)
        return found

    def _prepare(self, question: Question, number: int, names: Sequence[str]) -> dict[str, _Asked]:
        roster, bodies, asked = codec.roster_digest(names), {}, {}
        for name in names:
            request = question.request_for(name)
            if id(request) not in bodies:
                bodies[id(request)] = codec.encode_body(request, question.limits)
            body = bodies[id(request)]
            envelope = Envelope(
                codec.FORMAT_VERSION,
                self.identity,
                number,
                0,
                roster,
                codec.site_tag(name),
                body.digest,
                self.method,
            )
            transcript = self._transcripts.setdefault(name, [])
            digest = self._digests.get(name, codec.NO_TRANSCRIPT)
            one = _Asked(request, body, envelope, list(transcript))
            one.frame = codec.encode_question(envelope, body, digest, question.seen)
            asked[name] = one
            self.remember(name, request, body)
        return asked

    def remember(self, name: str, request: Request[Any], body: Body) -> None:
        """Keep a remembered request, to bring the site up to date should it forget."""
        if request.remembered:
            self._transcripts.setdefault(name, []).append(body.data)
            before = self._digests.get(name, codec.NO_TRANSCRIPT)
            self._digests[name] = codec.extend_transcript(before, body.data)

    def _deliver(self, asked: dict[str, _Asked], question: Question) -> None:
        """Send, and send again what got lost, arrived damaged or met a site that forgot, within the deadline."""
        limit = self.terms.deadline
        ends = math.inf if limit is None else time.monotonic() + limit
        waiting = dict(asked)
        for _ in range(1 + self.terms.resends):
            left = ends - time.monotonic()
            if not waiting or left <= 0:
                return
            self._exchange(waiting, {n: one.frame for n, one in waiting.items()}, left, question)
            forgot = {n: one for n, one in waiting.items() if one.problem == Refusal.FORGOT.sentence}
            if forgot:
                self._recall(forgot, ends - time.monotonic(), question)
            waiting = {n: one for n, one in waiting.items() if one.reply is None and _may_resend(one)}

    def _exchange(
        self, waiting: Mapping[str, _Asked], frames: Mapping[str, bytes], left: float, question: Question
    ) -> None:
        outcomes = self.channel.exchange(frames, None if math.isinf(left) else left)
        for name, one in waiting.items():
            outcome = outcomes.get(name, Outcome("lost"))
            one.bytes_down += len(frames[name])
            one.bytes_up += len(outcome.payload)
            self._read(one, outcome, question)

    def _read(self, one: _Asked, outcome: Outcome, question: Question) -> None:
        one.reply, one.is_final = None, False
        if outcome.status != "answered":
            limit = self.terms.deadline
            words = {
                "late": "was late" + (f" (deadline {limit:g} s)" if limit is not None else ""),
                "lost": "could not be reached",
                "refused": "was refused by the engine",
            }
            one.problem = words[outcome.status]
            return
        layout = one.request.layout
        try:
            found = codec.decode_answer(outcome.payload, one.envelope, layout, layout.bounds(question.limits))
        except BadAnswer as problem:
            one.problem = str(problem)
            return
        if isinstance(found, Refusal):
            one.problem, one.is_final = found.sentence, found.is_final
        else:
            one.reply, one.problem = found, ""

    def _recall(self, forgot: Mapping[str, _Asked], left: float, question: Question) -> None:
        """Bring sites up to date, then ask them again."""
        if left <= 0:
            return
        frames = {n: codec.encode_recall(one.envelope, one.transcript) for n, one in forgot.items()}
        outcomes = self.channel.exchange(frames, None if math.isinf(left) else left)
        ready = {}
        for name, one in forgot.items():
            payload = outcomes.get(name, Outcome("lost")).payload
            one.bytes_down += len(frames[name])
            one.bytes_up += len(payload)
            one.recalls += 1
            if payload:
                ready[name] = one
        self._exchange(ready, {n: one.frame for n, one in ready.items()}, left, question)

    # ------------------------------------------------------------ judging and counting

    def _judge(self, name: str, one: _Asked, number: int) -> None:
        if one.reply is not None:
            self.roster.answered(name)
        elif one.is_final:
            self.roster.leave(name, one.problem)
        else:
            self.roster.missed(name, number)

    def _count(self, question: Question, number: int, asked: Mapping[str, _Asked]) -> None:
        kinds = {type(one.request) for one in asked.values()}
        replies = {one.request.layout.reply for one in asked.values()}
        exchange = Exchange(
            round=number,
            attempt=0,
            phase=question.phase,
            asked="+".join(sorted(kind.kind for kind in kinds)),
            answer="+".join(sorted(reply.__name__ for reply in replies)),
            content="+".join(sorted({reply.content for reply in replies})),
            seen=question.seen.name.lower(),
            sites={
                name: SiteCount(
                    one.problem or ("answered" if not one.recalls else "answered after being brought up to date"),
                    one.request.layout.numbers if one.reply is not None else 0,
                    one.bytes_up,
                    one.bytes_down,
                )
                for name, one in asked.items()
            },
        )
        self.ledger.record(exchange)
        if self.watch is not None:
            self.watch(Progress(exchange, self.ledger))

    def _check_quorum(
        self,
        question: Question,
        number: int,
        nominal: Sequence[str],
        found: Mapping[str, Reply],
        outcomes: Mapping[str, str],
    ) -> None:
        needed = max(1, math.ceil(self.terms.quorum * len(nominal) - 1e-9))
        if len(found) >= needed and not (question.complete and len(found) < len(nominal)):
            return
        others = "; ".join(f"{name} {did}" for name, did in outcomes.items() if did != "answered")
        if len(found) < needed:
            raise QuorumLost(
                f"round {number} of {self.method}: {len(found)} of {len(nominal)} sites answered, "
                f"{needed} are needed. {others or 'No site takes part'}.",
                outcomes,
            )
        raise RosterChanged(f"round {number} of {self.method} lost a site it cannot do without. {others}.", outcomes)


def _may_resend(one: _Asked) -> bool:
    """Whether the same question sent again may fare better: it got lost or damaged on the way, there or back."""
    return one.problem in ("could not be reached", Refusal.MALFORMED.sentence, Refusal.FORGOT.sentence) or (
        one.problem.startswith("its ")
    )


def run(
    protocol: Protocol[T],
    channel: Channel,
    *,
    method: str,
    terms: Terms | None = None,
    layers: Sequence[Layer] = (PlainSums(),),
    ledger: Ledger | None = None,
    journal: Journal | None = None,
    settings: Mapping[str, Any] | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> T:
    """Run a protocol over a channel and return its result.

    ``settings`` is what, besides the protocol's own code, decides the result (seed, number of clusters, ...);
    it is kept in the journal's header and must be the same when a run is resumed.
    """
    made = Run(
        channel,
        method,
        terms=terms or Terms(),
        layers=tuple(layers),
        ledger=ledger if ledger is not None else Ledger(),
        watch=watch,
    )
    return made.drive(protocol, journal, dict(settings or {}))
