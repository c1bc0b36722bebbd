"""The server's part of masked sums: a layer that lowers every ``total``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from coterie.errors import InputError, QuorumLost, RosterChanged
from coterie.maths.masks import TAGS, FixedPoint, Ring, WholeNumbers, add_streams
from coterie.messages import codec
from coterie.messages.schema import Layout
from coterie.messages.verbs import Place, Present, Protocol, Question, Remain, Seen, each
from coterie.methods.method import RunResult
from coterie.methods.order import SignedOrder
from coterie.methods.shared.agreement import Agree
from coterie.methods.shared.limits import with_limits
from coterie.runtime.layers import Lowering
from coterie.runtime.outcomes import OutcomeKind, SiteOutcome
from coterie.secure.masked_sums import (
    HELLO_BYTES,
    REPORT_BYTES,
    TAG_BYTES,
    AskHello,
    AskMasked,
    Bytes,
    Context,
    Hello,
    Introduce,
    Masked,
    Reveal,
    Revealed,
    ShareKey,
    codings,
    decoded_sum,
    own_seed,
    ring_bits,
    seed_from,
    tag_mask,
    threshold,
    unpack_report,
)
from coterie.secure.replay import Proof
from coterie.secure.shamir import combine_others

T = TypeVar("T")


class MaskedSums:
    """Sums of which the server sees nothing but the sum.

    ``bits`` is the size of the ring: 64 loses nothing that matters, 32 halves the bytes. Every summed array needs a
    bound; the limits that bounds name are asked for.
    """

    starts_afresh = True

    def __init__(self, bits: int = 64) -> None:
        if not 8 <= bits <= 64:
            raise InputError(f"a ring of {bits} bits; it has 8 to 64.")
        self.bits = bits
        self._hellos: dict[str, Bytes] = {}
        self.public_seed: int | None = None
        """What all random choices were drawn from, where the sites drew it."""
        self._is_verified = False
        self._position, self._proof = 0, b""
        """How many sums were taken, and the last one as sites check it."""

    @property
    def state(self) -> bytes:
        """The position and the last sum: a resumed run goes on from there."""
        return self._position.to_bytes(8, "big") + self._proof

    @state.setter
    def state(self, state: bytes) -> None:
        self._position, self._proof = int.from_bytes(state[:8], "big"), state[8:]

    def ordered(self, signed: SignedOrder, seed: int) -> Protocol[RunResult]:
        """The protocol of an order; where a site verifies it, under the seed that the sites draw."""
        order, self._hellos = signed.read(), (yield from begun(signed))
        if not any(Hello.from_bytes(bytes(hello.astype(np.uint8))).verifies for hello in self._hellos.values()):
            self._hellos = {}
            return (yield from order.protocol(seed))
        names = tuple(sorted(self._hellos))
        introduced = Introduce(len(names), names, np.array([self._hellos[name] for name in names]))
        parts = yield from each(introduced, to=names, phase="masking")
        there = tuple(name for name in names if name in parts)
        sealed = {name: np.array([parts[giver].sealed[names.index(name)] for giver in there]) for name in there}
        asks = {name: ShareKey(there, sealed[name]) for name in there}
        seeds = yield from each(asks, to=there, phase="masking")
        drawn = {bytes(reply.seed.astype(np.uint8)) for reply in seeds.values()}
        if len(drawn) != 1:
            raise QuorumLost("the sites do not agree on a common key.")
        self._hellos = {name: self._hellos[name] for name in seeds}
        self._is_verified, self.public_seed = True, seed_from(drawn.pop())
        return (yield from _informed(order.protocol(self.public_seed), self._hellos))

    def around(self, protocol: Protocol[T]) -> Protocol[T]:
        """Where the bounds of a sum name limits that nobody stated, sites are asked for them."""
        return with_limits(protocol)

    def lower(self, question: Question) -> Lowering:
        """Masked upload, then unmasking; what holds no numbers travels as it is."""
        if not question.summed:
            return (yield replace(question, proof=self._proof))
        if isinstance(question.request, Mapping):
            raise TypeError("a sum is over answers to one request")
        layout = question.request.layout
        if not layout.numbers:
            yield replace(question, summed=False, seen=Seen.SUMMED, proof=self._proof)
            return layout.reply(*[np.zeros(item.shape) for item in layout.fields])
        ready: Sequence[str] = yield Present()
        if question.to is None or set(question.to) >= set(ready):  # dropouts will be missing from the sum
            yield Remain(frozenset(ready), is_begun=True)
        ready = yield from self._introduced()
        wanted = set(ready if question.to is None else question.to)
        roster = tuple(sorted(name for name in wanted & set(ready) if name in self._hellos))
        if not roster:
            raise QuorumLost("no site takes part in the sum.")
        if question.complete and question.to is not None and set(roster) != wanted:
            raise RosterChanged(f"{_listed(wanted - set(roster))} cannot be part of a sum that needs all of them.")
        try:
            return (yield from self._sum(question, layout, roster, is_for_all=wanted >= set(ready)))
        except RosterChanged:
            if self._is_verified:
                yield from self._broken()
            raise
        finally:
            self._position += 1

    def _broken(self) -> Lowering:
        """Let sites know that a sum which needs every site was given up."""
        _, round_, attempt = yield Place()
        left: Sequence[str] = yield Present()
        roster = tuple(sorted(set(left) & self._hellos.keys()))
        self._proof = msgspec.msgpack.encode(Proof(self._position, round_, attempt, roster, 0, is_broken=True))

    def _introduced(self) -> Lowering:
        """Make every site know every other's card, and return who is there; asked only when someone is new."""
        asked: set[str] = set(self._hellos) if self._is_verified else set()
        while True:
            ready: Sequence[str] = yield Present()
            new = [name for name in ready if name not in self._hellos and name not in asked]
            if not new or self._is_verified:
                return ready  # who was asked and did not say is in no sum
            asked |= set(new)
            try:
                hello = Question(AskHello(b"", HELLO_BYTES), tuple(new), phase="masking", is_for_all=not self._hellos)
                replies = yield hello
            except QuorumLost:
                if not self._hellos:
                    raise
                continue  # those known before do without
            self._hellos |= {name: reply.hello for name, reply in replies.items()}
            names = tuple(sorted(self._hellos))
            yield Question(Introduce(0, names, np.array([self._hellos[name] for name in names])), phase="masking")

    def _sum(self, question: Question, layout: Layout, roster: tuple[str, ...], *, is_for_all: bool) -> Lowering:
        """The sum over the whole roster; where some drop out, over those left, who are asked again."""
        asked = replace(
            question, summed=False, seen=Seen.MASKED, limits={}, is_for_all=is_for_all, quorum_of=len(roster)
        )
        while True:
            ask, coded = self._masked(question, layout, roster)
            run, round_, attempt = yield Place()
            context = Context(run, round_, attempt, codec.roster_digest(roster), codec.encode_body(ask, {}).digest)
            complete = question.complete and question.to is None
            uploads: dict[str, Masked] = yield replace(
                asked, request=ask, to=roster, complete=complete, proof=self._proof
            )
            if is_for_all:
                yield Remain(frozenset(uploads))
            left, problem = tuple(sorted(uploads)), None
            if left == roster:
                try:
                    total = yield from self._unmasked(ask, context, uploads)
                    return decoded_sum(total, layout, coded)
                except QuorumLost as lost:
                    ready: Sequence[str] = yield Present()
                    left, problem = tuple(name for name in roster if name in ready), lost
                if not left or left == roster:
                    raise problem
                if is_for_all:
                    yield Remain(frozenset(left))
            if question.complete:
                gone = {name: SiteOutcome(OutcomeKind.DROPPED) for name in roster if name not in left}
                raise RosterChanged(f"{_listed(gone)} dropped out of a sum that needs every site.", gone) from problem
            roster = left

    def _masked(
        self, question: Question, layout: Layout, roster: tuple[str, ...]
    ) -> tuple[AskMasked, Sequence[FixedPoint | WholeNumbers]]:
        """The request that carries the question's, and how its numbers are coded."""
        assert not isinstance(question.request, Mapping)
        n = len(roster)
        bits = ring_bits(question, n, self.bits)
        try:
            coded = codings(question.request, question.limits, bits, max(1, n))
        except ValueError as problem:
            raise InputError(f"{question.request.kind} cannot be masked: {problem}.") from None
        body = codec.encode_body(question.request, question.limits).data
        tag = TAG_BYTES if self._is_verified else 0
        return AskMasked(bits, layout.numbers, n, roster, body, self._position, tag), coded

    def _unmasked(self, ask: AskMasked, context: Context, uploads: Mapping[str, Masked]) -> Lowering:
        """The sum of all uploads less every site's own mask; common masks cancel."""
        total, roster = np.zeros(ask.count, np.uint64), ask.roster
        for upload in uploads.values():
            total += upload.numbers.view(np.uint64)  # wraps at 2**64, which every smaller ring divides
        tag = sum(int.from_bytes(upload.tag.astype(np.uint8).tobytes(), "little") for upload in uploads.values())
        if len(roster) == 1:
            self._prove(total, tag, ask, context)
            return total
        sealed = np.array([uploads[name].shares for name in roster], np.uint8)
        questions = {
            name: Reveal(len(roster), context.round, context.attempt, roster, sealed[:, place])
            for place, name in enumerate(roster)
        }
        needed = threshold(len(roster)) + 1
        answers: dict[str, Revealed] = yield Question(questions, roster, phase="masking", needed=needed)
        seeds = [(own_seed(secret, context), True) for secret in _own_secrets(roster, answers)]
        total = add_streams(total, seeds, ask.bits).astype(np.uint64)
        self._prove(total, tag - sum(tag_mask(seed) for seed, _ in seeds), ask, context)
        return total

    def _prove(self, total: Ring, tag: int, ask: AskMasked, context: Context) -> None:
        """Keep the sum as sites check it when they are asked next."""
        if self._is_verified:
            numbers, mark = total.astype("<u8").tobytes(), (tag % TAGS).to_bytes(TAG_BYTES, "little")
            place = (self._position, context.round, context.attempt)
            self._proof = msgspec.msgpack.encode(Proof(*place, ask.roster, ask.bits, numbers, mark))


def begun(signed: SignedOrder) -> Protocol[dict[str, Bytes]]:
    """Put an order to the sites; the first words of those that accept it."""
    columns = signed.read().columns
    ask = AskHello(signed.to_bytes(), HELLO_BYTES + (REPORT_BYTES + len(columns) if columns else 0))
    hellos = yield from each(ask)
    return {name: reply.hello for name, reply in hellos.items()}


def ordered_plainly(signed: SignedOrder, seed: int) -> Protocol[RunResult]:
    """The protocol of an order, with sums in the clear."""
    hellos, order = (yield from begun(signed)), signed.read()
    return (yield from _informed(order.protocol(seed), hellos if order.columns else {}))


def _informed(protocol: Protocol[T], hellos: Mapping[str, Bytes]) -> Protocol[T]:
    """The protocol with what sites said of their columns at the start, which is then not asked again."""
    reports = {
        name: unpack_report(Hello.from_bytes(bytes(hello.astype(np.uint8))).report) for name, hello in hellos.items()
    }
    resume: Callable[[Any], Any] = protocol.send
    answer: Any = None
    while True:
        try:
            question = resume(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        resume = protocol.send
        if isinstance(question, Question) and isinstance(question.request, Agree):
            answer = reports
            continue
        try:
            answer = yield question
        except Exception as problem:  # the protocol may handle it
            answer, resume = problem, protocol.throw


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _own_secrets(roster: Sequence[str], answers: Mapping[str, Revealed]) -> Iterable[bytes]:
    """The secrets of all sites' own masks; nobody has a share of its own, so one answer more is used."""
    places = {name: place for place, name in enumerate(roster, start=1)}
    used = list(answers)[: threshold(len(roster)) + 1]
    rows = {places[name]: answers[name].shares.astype(np.uint8).tobytes() for name in used}
    try:
        return combine_others(rows, list(places.values())).values()
    except ValueError as problem:
        raise QuorumLost(f"the sum cannot be unmasked: {problem}; a site revealed something else.") from None
