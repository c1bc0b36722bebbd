"""Drive a protocol: put its questions to sites, count what comes back, survive what goes wrong."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from coterie.errors import QuorumLost, RosterChanged, RunError
from coterie.maths.arithmetic import fixed_threads
from coterie.messages import codec
from coterie.messages.codec import Body, Envelope
from coterie.messages.schema import Reply, reply_type
from coterie.messages.verbs import Place, Present, Protocol, Question, Remain, Seen
from coterie.runtime.channel import Channel
from coterie.runtime.delivery import Asked, Delivery
from coterie.runtime.events import Events, Write
from coterie.runtime.journal import Journal
from coterie.runtime.layers import Below, Layer, PlainSums, ask_through
from coterie.runtime.ledger import Exchange, Ledger
from coterie.runtime.replay import Recorder
from coterie.runtime.roster import Roster
from coterie.runtime.terms import Terms
from coterie.runtime.transcript import Remembered, Transcript

T = TypeVar("T")


class Progress(NamedTuple):
    """What a run tells whoever watches it, after every exchange."""

    exchange: Exchange
    ledger: Ledger


@dataclass
class Run:
    """One run: its identity, its roster, its count of rounds."""

    channel: Channel
    method: str
    terms: Terms = field(default_factory=Terms)
    layers: tuple[Layer, ...] = (PlainSums(),)
    ledger: Ledger = field(default_factory=Ledger)
    watch: Callable[[Progress], None] | None = None
    events: Events = field(default_factory=Events)
    identity: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def __post_init__(self) -> None:
        self.round = 0
        self.attempt = 0
        """The life of this run: a layer that starts afresh after a crash must not ask under its old numbers."""
        self.roster = Roster(self.channel.sites())
        self.is_closed = False
        """Whether nobody is let in any more: sites let the roster of masked sums shrink only."""
        self.is_resuming = False
        """Whether the next question may have been answered before a crash: it is put to the same sites again."""
        self.transcript = Transcript()
        self.ledger.method, self.ledger.run = self.method, self.identity.hex()

    def drive(self, protocol: Protocol[T], recorder: Recorder | None = None) -> T:
        """Run a protocol to its end, from its journal as far as that goes; tell how it ends."""
        try:
            for layer in self.layers:
                protocol = layer.around(protocol)
            with fixed_threads():
                result = self._drive(protocol, recorder)
        except Exception as problem:
            self.events.failed(problem)
            raise
        self.events.caught_up(self.round)
        self.events.end(self.ledger)
        return result

    def _drive(self, protocol: Protocol[T], recorder: Recorder | None) -> T:
        answer: Any = None
        failure: RunError | None = None
        record_failure: Callable[[], None] | None = None
        while True:
            try:
                question = protocol.send(answer) if failure is None else protocol.throw(failure)
            except StopIteration as stop:
                result: T = stop.value
                return result
            if record_failure is not None:  # the algorithm caught it and goes on, so a replay must raise it again
                record_failure()
            answer, failure, record_failure = None, None, None
            replayed = recorder.replay(question) if recorder else None
            try:
                answer = self._ask_now(question) if replayed is None else replayed()
            except RunError as problem:  # an algorithm may catch it
                failure = problem
            if recorder and replayed is None:
                record = partial(recorder.record, question, answer, failure)
                if failure is None:
                    record()
                else:  # a failure that ends the run is not written down: resumed, the question is put again
                    record_failure = record

    def _ask_now(self, question: Question | Present) -> Any:
        """Ask, and tell of it before the journal has it: what is told may be asked again, never the reverse."""
        self.events.caught_up(self.round)
        answer = self.ask(question)
        self.events.answer(answer)
        return answer

    def ask(self, question: Question | Present) -> Any:
        """Put one question of a protocol through the layers to the sites."""
        return ask_through(self.layers, self._ask, question)

    def _ask(self, question: Below) -> Any:
        if isinstance(question, Present):
            self._admit()
            self.is_resuming = False
            names = self.roster.names
            return tuple(self.roster.choose(names, self.round, self.terms.needed(len(names))))
        if isinstance(question, Remain):
            if self.is_closed or not question.is_begun:
                self.roster.shrink(question.names, question.reason)
            return None
        if isinstance(question, Place):
            return self.identity, self.round, self.attempt
        return self.gather(question)

    def _admit(self) -> None:
        if not self.is_closed:
            self.roster.admit(self.channel.sites())

    def gather(self, question: Question) -> dict[str, Reply]:
        """One exchange: every good answer by site, in roster order; counted, and short of a quorum refused."""
        if question.summed:
            raise TypeError("a sum must be lowered by a layer before it is gathered")
        if not self.is_resuming:
            self._admit()
        self.is_resuming = False
        number, self.round = self.round, self.round + 1
        nominal = self.roster.names if question.to is None else question.to
        size = len(self.roster.names if question.is_for_all else nominal)
        needed = question.needed or self.terms.needed(size)
        asked = self._prepare(question, number, self.roster.choose(set(nominal), number, needed))
        delivery = Delivery(self.channel, asked, self.terms)
        began = time.perf_counter()
        delivery.deliver()
        seconds = time.perf_counter() - began
        for name, one in asked.items():
            self._judge(name, one, number)
        self._count(question, number, delivery, seconds)
        found = {name: one.reply for name, one in asked.items() if one.reply is not None}
        if len(found) < needed or (question.complete and len(found) < size):
            raise self._failure(number, nominal, needed, asked)
        return found

    def _prepare(self, question: Question, number: int, names: Sequence[str]) -> dict[str, Asked]:
        """What each site is sent, in roster order."""
        roster, bodies = codec.roster_digest(names), _encoded(question, names)
        asked = {}
        for name in names:
            body, tag = bodies[name], codec.site_tag(name)
            envelope = Envelope(
                codec.FORMAT_VERSION, self.identity, number, self.attempt, roster, tag, body.digest, self.method
            )
            frame = codec.encode_question(envelope, body, self.transcript.digest(name), question.seen)
            asked[name] = Asked(question.request_for(name), envelope, frame, [], question.limits)
            asked[name].recall = self.transcript.bodies(name)
        self._remember(question)
        return asked

    def _remember(self, question: Question) -> None:
        """Keep a remembered request; one for all is kept also for those who are away or join later."""
        if not isinstance(question.request, Mapping):
            if question.request.remembered:
                body = codec.encode_body(question.request, question.limits).data
                self.transcript.add(Remembered(body, question.to))
            return
        for name, request in question.request.items():
            if request.remembered:
                self.transcript.add(Remembered(codec.encode_body(request, question.limits).data, (name,)))

    def _judge(self, name: str, one: Asked, number: int) -> None:
        if one.reply is not None or one.has_declined:
            self.roster.answered(name)
        elif one.is_final:
            self.roster.leave(name, one.problem)
        else:
            self.roster.missed(name, number)

    def _count(self, question: Question, number: int, delivery: Delivery, seconds: float) -> None:
        subjects = {one.request.subject for one in delivery.asked.values()}
        replies = {reply_type(subject) for subject in subjects}
        exchange = Exchange(
            round=number,
            attempt=self.attempt,
            phase=question.phase,
            asked="+".join(sorted(subject.kind for subject in subjects)),
            answer="+".join(sorted(reply.__name__ for reply in replies)),
            content="+".join(sorted({reply.content for reply in replies})),
            seen=question.seen.name.lower(),
            sites={name: one.count() for name, one in delivery.asked.items()} | delivery.strangers,
        )
        self.ledger.record(exchange)
        self.events.exchange(exchange, seconds)
        self.is_closed |= question.seen is Seen.MASKED
        if self.watch is not None:
            self.watch(Progress(exchange, self.ledger))

    def _failure(self, number: int, nominal: Sequence[str], needed: int, asked: Mapping[str, Asked]) -> RunError:
        """What stops this exchange, with what every site did."""
        outcomes = {name: self._outcome(name, asked.get(name)) for name in nominal}
        good = sum(did == "answered" for did in outcomes.values())
        failed = "; ".join(f"{name} {did}" for name, did in outcomes.items() if did != "answered")
        away = "; ".join(f"{n} {self.roster.why_not(n)}" for n in self.roster.absent(number) if n not in outcomes)
        clauses = [failed and f"{failed}.", away and f"Not asked: {away}.", "" if nominal else "There is no site."]
        if good >= needed:
            words = [f"round {number} of {self.method} lost a site it cannot do without.", *clauses]
            return RosterChanged(" ".join(filter(None, words)), outcomes)
        words = [
            f"round {number} of {self.method}: {good} of {len(nominal)} sites answered, {needed} are needed.",
            *clauses,
        ]
        return QuorumLost(" ".join(filter(None, words)), outcomes)

    def _outcome(self, name: str, one: Asked | None) -> str:
        """What a site did, in words that continue a sentence beginning with its name."""
        if one is None:
            return self.roster.why_not(name)
        if one.reply is not None:
            return "answered"
        return one.problem if one.problem.startswith(("was ", "could ")) else f"failed: {one.problem}"


def _encoded(question: Question, names: Sequence[str]) -> dict[str, Body]:
    if isinstance(question.request, Mapping):
        return {name: codec.encode_body(question.request[name], question.limits) for name in names}
    body = codec.encode_body(question.request, question.limits)
    return dict.fromkeys(names, body)


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
    events: Write | None = None,
) -> T:
    """Run a protocol over a channel and return its result.

    ``settings`` is what, besides the protocol's own code, decides the result (seed, number of clusters, ...);
    it is kept in the journal's header and must be the same when a run is resumed. ``events`` is called with every
    event of the run, see :mod:`coterie.runtime.events`.
    """
    made = Run(
        channel,
        method,
        terms=terms or Terms(),
        layers=tuple(layers),
        ledger=ledger if ledger is not None else Ledger(),
        watch=watch,
        events=Events(events),
    )
    recorder = None if journal is None else Recorder(made, journal, settings or {})
    resumed = recorder is not None and recorder.is_resumed
    made.events.begin(made.ledger.run, method, made.roster.names, settings or {}, resumed=resumed)
    return made.drive(protocol, recorder)
