"""Between a run and its journal: records what the algorithm saw and shows it again."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.errors import JournalMismatch, QuorumLost, RosterChanged, RunError
from coterie.maths import arithmetic
from coterie.messages import bodies, codec
from coterie.messages.schema import Reply
from coterie.messages.verbs import Present, Question
from coterie.runtime.journal import JOURNAL_SCHEMA, Header, Journal, Record
from coterie.runtime.outcomes import SiteOutcome
from coterie.runtime.roster import Roster, Standing

if TYPE_CHECKING:
    from coterie.runtime.run import Run

_RAISED: dict[str, type[RunError]] = {kind.__name__: kind for kind in (QuorumLost, RosterChanged)}


def _seen(question: Question | Present, kind: str, data: bytes) -> Any:
    """What the algorithm saw, or raised then."""
    if kind == "raised":
        name, message, outcomes = msgspec.msgpack.decode(data, type=tuple[str, str, dict[str, SiteOutcome]])
        raise _RAISED[name](message, outcomes)
    if kind == "present":
        return tuple(msgspec.msgpack.decode(data, type=list[str]))
    assert isinstance(question, Question)
    if kind == "sum":
        return bodies.unpack_reply(type(question.requests[""]), data)
    packed_by_site = msgspec.msgpack.decode(data, type=dict[str, bytes])
    return {
        site: bodies.unpack_reply(type(question.request_for(site)), packed) for site, packed in packed_by_site.items()
    }


class Recorder:
    """Keeps a run and its journal in step."""

    def __init__(self, run: Run, journal: Journal, settings: Mapping[str, Any]) -> None:
        self._run, self._journal = run, journal
        self.is_resumed = journal.header is not None
        header = journal.begin(
            Header(
                JOURNAL_SCHEMA,
                run.identity.hex(),
                run.method,
                _versions(),
                dict(settings),
                arithmetic.described(),
                list(run.roster.names),
            )
        )
        if self.is_resumed and header.sites:
            run.roster, run.is_resuming = Roster(header.sites), True
        run.identity = bytes.fromhex(header.run)
        if any(getattr(layer, "starts_afresh", False) for layer in run.layers):
            run.attempt = journal.life
        run.ledger.run = header.run
        self._counted = len(run.ledger.exchanges)
        self._remembered = 0

    def replay(self, question: Question | Present) -> Callable[[], Any] | None:
        """Gives (or raises) the recorded answer to this question; None where the record ends and asking begins."""
        record = self._journal.recorded()
        if record is None:
            return None
        if record.question != _digest(question):
            raise JournalMismatch(
                f"{self._journal.folder}: the run asks something else than it did before it stopped "
                f"(at round {self._run.round}); it was started with other settings, another version or elsewhere"
            )
        self._restore(record)
        return partial(_seen, question, record.kind, record.value)

    def record(self, question: Question | Present, answer: Any, failure: RunError | None) -> None:
        """Write down what the algorithm is about to see."""
        kind, value = _recorded_value(answer, failure)
        ledger = self._run.ledger
        new, self._counted = ledger.exchanges[self._counted :], len(ledger.exchanges)
        entries = self._run.transcript.entries
        kept, self._remembered = entries[self._remembered :], len(entries)
        standings = self._run.roster.standings
        layers = [layer.state for layer in self._run.layers]
        self._journal.write(Record(_digest(question), kind, value, self._run.round, new, standings, kept, layers))

    def _restore(self, record: Record) -> None:
        run = self._run
        run.round, run.is_resuming = record.next_round, True
        for layer, state in zip(run.layers, record.layers, strict=True):
            layer.state = state
        run.roster.standings = {n: Standing(s.misses, s.until, s.out) for n, s in record.standings.items()}
        for exchange in record.exchanges:
            run.ledger.record(exchange)
            run.is_closed |= exchange.seen == "masked"
        for entry in record.remembered:
            run.transcript.add(entry)
        self._counted, self._remembered = len(run.ledger.exchanges), len(run.transcript.entries)


def _recorded_value(answer: Any, failure: RunError | None) -> tuple[str, bytes]:
    encode = msgspec.msgpack.encode
    if failure is not None:
        return "raised", encode((type(failure).__name__, str(failure), failure.outcomes))
    if isinstance(answer, Reply):
        return "sum", bodies.pack_arrays(answer.arrays())
    if isinstance(answer, dict):
        return "single", encode({site: bodies.pack_arrays(reply.arrays()) for site, reply in answer.items()})
    return "present", encode(list(answer))


def _digest(question: Question | Present) -> bytes:
    """Sixteen bytes that stand for what was asked, of whom."""
    if isinstance(question, Present):
        return bytes(16)
    parts = [repr((question.to, question.summed, question.complete)).encode()]
    for site, request in question.requests.items():
        parts += [site.encode(), codec.encode_body(request, question.limits).digest]
    return hashlib.blake2b(b"|".join(parts), digest_size=16).digest()


def _versions() -> dict[str, str]:
    names = ("coterie", "numpy", "scipy", "scikit-learn")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
