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
from coterie.messages.codec import Envelope
from coterie.messages.schema import Reply, reply_type
from coterie.messages.verbs import Place, Present, Protocol, Question, Remain, Seen
from coterie.runtime.channel import Channel
from coterie.runtime.delivery import Delivery, SiteExchange
from coterie.runtime.events import Events, Write
from coterie.runtime.journal import Journal
from coterie.runtime.layers import Below, Layer, PlainSums, ask_through
from coterie.runtime.ledger import Exchange, Ledger
from coterie.runtime.outcomes import OutcomeKind, SiteOutcome
from coterie.runtime.replay import Recorder
from coterie.runtime.roster import Roster
from coterie.runtime.terms import Terms
from coterie.runtime.transcript import Remembered, Transcript

T = TypeVar("T")


class Progress(NamedTuple):
    """What a watcher of a run is given after every exchange."""

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
        self.in_full: set[str] = set()
        """Sites that asked for a whole question: they get those to come whole."""
        self.ledger.method, self.ledger.run = self.method, self.identity.hex()

    def drive(self, protocol: Protocol[T], recorder: Recorder | None = None) -> T:
        """Run a protocol to its end, from its journal as far as that goes; report how it ends."""
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
        """Ask, and report it before the journal has it: what was reported may be asked again, never the reverse."""
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
            if question.is_whole:
                self.is_closed = True
                self.roster.keep(question.names)
            elif self.is_closed or not question.is_begun:
                self.roster.shrink(question.names)
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
        needed = question.needed or self.terms.needed(size if question.is_for_all else question.quorum_of or size)
        asked = self._prepare(question, number, self.roster.choose(set(nominal), number, needed))
        delivery = Delivery(self.channel, asked, self.terms)
        began = time.perf_counter()
        delivery.deliver()
        exchange = _exchange(question, number, self.attempt, delivery, time.perf_counter() - began)
        for name, site in asked.items():
            self.roster.judge(name, site.outcome, number)
            if site.was_in_full:
                self.in_full.add(name)
        self.ledger.record(exchange)  # the one place where it is recorded: the journal takes it from the ledger
        self.events.exchange(exchange)
        self.is_closed |= question.seen is Seen.MASKED
        if self.watch is not None:
            self.watch(Progress(exchange, self.ledger))
        replies = {name: site.reply for name, site in asked.items() if site.reply is not None}
        if len(replies) < needed or (question.complete and len(replies) < size):
            raise self._failure(number, nominal, needed, asked)
        return replies

    def _prepare(self, question: Question, number: int, names: Sequence[str]) -> dict[str, SiteExchange]:
        """What each site is sent, in roster order; a remembered request is kept for those who need it later."""
        roster = codec.roster_digest(names)
        bodies = {name: codec.encode_body(request, question.limits) for name, request in question.requests.items()}
        asked = {}
        for name in names:
            body, tag = bodies.get("") or bodies[name], codec.site_tag(name)
            envelope = Envelope(
                codec.FORMAT_VERSION, self.identity, number, self.attempt, roster, tag, body.digest, self.method
            )
            short, full = question.attached.get(name, b""), question.in_full.get(name)
            frames = [
                codec.encode_question(envelope, body, self.transcript.digest(name), question.seen, attached)
                for attached in ([short] if full is None else [full] if name in self.in_full else [short, full])
            ]
            recall = self.transcript.bodies(name)
            asked[name] = SiteExchange(question.request_for(name), envelope, frames, recall, question.limits)
        for name, request in question.requests.items():  # one for all is kept also for those who join later
            if request.remembered:
                self.transcript.add(Remembered(bodies[name].data, (name,) if name else question.to))
        return asked

    def _failure(
        self, number: int, nominal: Sequence[str], needed: int, asked: Mapping[str, SiteExchange]
    ) -> RunError:
        """What stops this exchange, with what every site did."""
        why_not = self.roster.why_not
        outcomes = {name: asked[name].outcome if name in asked else why_not(name) for name in nominal}
        n_good = sum(outcome.is_good for outcome in outcomes.values())
        failed = _failures(outcomes)
        absent = "; ".join(f"{name} {why_not(name)}" for name in self.roster.absent(number) if name not in outcomes)
        kind: type[RunError] = RosterChanged if n_good >= needed else QuorumLost
        clauses = [
            f"round {number} of {self.method} needs every site, and a site dropped out."
            if kind is RosterChanged
            else f"round {number} of {self.method}: {n_good} of {len(nominal)} sites answered, {needed} are needed.",
            failed and f"{failed}.",
            absent and f"Not asked: {absent}.",
            "" if nominal else "There is no site.",
        ]
        return kind(" ".join(filter(None, clauses)), outcomes)


def _exchange(question: Question, number: int, attempt: int, delivery: Delivery, seconds: float) -> Exchange:
    """The record of one exchange."""
    subjects = {site.request.subject for site in delivery.asked.values()}
    replies = {reply_type(subject) for subject in subjects}
    return Exchange(
        round=number,
        attempt=attempt,
        phase=question.phase,
        asked="+".join(sorted(subject.kind for subject in subjects)),
        answer="+".join(sorted(reply.__name__ for reply in replies)),
        content="+".join(sorted({reply.content for reply in replies})),
        seen=question.seen.name.lower(),
        sites={name: site.count() for name, site in delivery.asked.items()} | delivery.strangers,
        seconds=seconds,
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
    events: Write | None = None,
    identity: bytes | None = None,
) -> T:
    """Run a protocol over a channel and return its result.

    ``settings`` is what, besides the protocol's own code, decides the result (seed, number of clusters, ...);
    it is kept in the journal's header and must be the same when a run is resumed. ``events`` is called with every
    event of the run, see :mod:`coterie.runtime.events`. ``identity`` is that of the run; a new one if none is given.
    """
    driven = Run(
        channel,
        method,
        terms=terms or Terms(),
        layers=tuple(layers),
        ledger=ledger if ledger is not None else Ledger(),
        watch=watch,
        events=Events(events),
        identity=identity or secrets.token_bytes(16),
    )
    recorder = None if journal is None else Recorder(driven, journal, settings or {})
    resumed = recorder is not None and recorder.is_resumed
    driven.events.begin(driven.ledger.run, method, driven.roster.names, settings or {}, resumed=resumed)
    return driven.drive(protocol, recorder)


def _failures(outcomes: Mapping[str, SiteOutcome]) -> str:
    """What became of the sites that did not answer; the same refusal is said once."""
    names: dict[object, list[str]] = {}
    for name, outcome in outcomes.items():
        if not outcome.is_good:
            names.setdefault(outcome if outcome.kind is OutcomeKind.REFUSED else name, []).append(name)
    return "; ".join(f"{', '.join(same)} {outcomes[same[0]]}" for same in names.values())
