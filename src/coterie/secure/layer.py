"""The server's part of masked sums: a layer that lowers every ``total``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec
import numpy as np
from msgspec import structs

from coterie.errors import InputError, QuorumLost, RosterChanged, RunError
from coterie.maths.masks import TAGS, Coding, Ring, add_streams
from coterie.maths.thresholds import threshold
from coterie.messages import codec
from coterie.messages.schema import Layout
from coterie.messages.verbs import Place, Present, Protocol, Question, Remain, Seen
from coterie.methods.method import RunResult
from coterie.methods.order import SignedOrder
from coterie.methods.shared.limits import with_limits
from coterie.runtime.layers import Lowering
from coterie.runtime.outcomes import OutcomeKind, SiteOutcome
from coterie.secure.handshake import (
    HELLO_BYTES,
    AskHello,
    Introduce,
    begun,
    informed,
    read_hellos,
    seed_drawn,
    unpack_report,
)
from coterie.secure.keys import Bytes, Context, own_seed
from coterie.secure.masked_sums import (
    TAG_BYTES,
    AskMasked,
    Masked,
    Reveal,
    Revealed,
    codings,
    decoded_sum,
    ring_bits,
    tag_mask,
)
from coterie.secure.replay import Attachment, ProvenSum, Replay, encode, packed
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
        self._began: tuple[str, ...] = ()
        """The sites that an order was put to."""
        self._hellos: dict[str, Bytes] = {}
        self.public_seed: int | None = None
        """What all random choices were drawn from, where the sites drew it."""
        self._replay: Replay | None = None
        """The ordered method, where sites verify it."""
        self._sums: list[ProvenSum] = []
        """All sums of a verified run."""

    @property
    def state(self) -> bytes:
        """The last sum: a resumed run has them all again."""
        return encode(self._sums[-1]) if self._sums else b""

    @state.setter
    def state(self, state: bytes) -> None:
        if state and (proven := msgspec.msgpack.decode(state, type=ProvenSum)).position == len(self._sums):
            self._sums.append(proven)

    def ordered(self, signed: SignedOrder, seed: int) -> Protocol[RunResult]:
        """The protocol of an order; where a site verifies it, under the seed that the sites draw."""
        order = signed.read()
        self._began, introduced_as = yield from begun(signed)
        hellos = read_hellos(introduced_as)
        if not any(hello.verifies for hello in hellos.values()):
            return (yield from informed(order.protocol(seed), hellos))
        there, self.public_seed = yield from seed_drawn(introduced_as)
        self._hellos = {name: introduced_as[name] for name in there}
        reports = {name: unpack_report(hellos[name].report) for name in there}
        replay = self._replay = Replay(order, self.public_seed, reports, self._tell)
        while replay.question is not None:
            try:
                yield replay.question
                _ = replay.request  # per-site results that sites gave all the same are not used
            except RunError:  # of a sum that was given up: the method goes on with those left, or ends so
                if len(self._sums) == replay.position:
                    raise
            replay.take(self._sums[replay.position])
        assert replay.result is not None
        return replay.result

    def _tell(self, question: Question) -> None:
        """Take note of a question of a verified run that has no answer: each site's own replay applies it."""

    def around(self, protocol: Protocol[T]) -> Protocol[T]:
        """Where the bounds of a sum name limits that nobody stated, sites are asked for them."""
        return with_limits(protocol)

    def lower(self, question: Question) -> Lowering:
        """Masked upload, then unmasking; what holds no numbers travels as it is."""
        if not question.summed:
            asked = self._hellos if self._replay is not None else ()
            return (yield replace(question, attached=self._attached(tuple(asked), ())[0]))
        if isinstance(question.request, Mapping):
            raise TypeError("a sum is over answers to one request")
        layout = question.request.layout
        if not layout.numbers:
            yield replace(question, summed=False, seen=Seen.SUMMED)
            return layout.reply(*[np.zeros(item.shape) for item in layout.fields])
        if self._replay is not None:  # nobody joins a verified run
            yield Remain(frozenset(self._began), is_whole=True)
        ready: Sequence[str] = yield Present()
        if question.to is None or set(question.to) >= set(ready):  # dropouts will be missing from the sum
            yield Remain(frozenset(ready), is_begun=True)
        ready = yield from self._introduced()
        wanted = set(ready if question.to is None else question.to)
        roster = tuple(sorted(name for name in wanted & set(ready) if name in self._hellos))
        if not roster:
            raise QuorumLost("no site takes part in the sum.")
        try:
            if question.complete and question.to is not None and set(roster) != wanted:
                gone = _listed(wanted - set(roster))
                raise RosterChanged(f"{gone} cannot be part of a sum that needs all of them.")
            return (yield from self._sum(question, layout, roster, is_for_all=wanted >= set(ready)))
        except RunError as problem:
            is_silent = all(outcome.refusal is None for outcome in problem.outcomes.values())
            may_miss = isinstance(problem, RosterChanged) or (question.request.of_half and is_silent)
            if self._replay is not None and may_miss:
                yield from self._give_up(problem)
            raise

    def _give_up(self, problem: RunError) -> Lowering:
        """Let sites know that a sum which needs every site was given up, and who goes on."""
        _, round_, attempt = yield Place()
        ready: Sequence[str] = yield Present()
        gone = {name for name, outcome in problem.outcomes.items() if not outcome.is_good}
        left = (set(ready) & self._hellos.keys()) - gone
        yield Remain(frozenset(left))
        self._sums.append(ProvenSum(len(self._sums), round_, attempt, tuple(sorted(left))))

    def _introduced(self) -> Lowering:
        """Make every site know every other's card, and return who is there; asked only when someone is new."""
        asked: set[str] = set()
        while True:
            ready: Sequence[str] = yield Present()
            new = [name for name in ready if name not in self._hellos and name not in asked]
            if not new or self._replay is not None:
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
            attached, in_full = self._attached(roster, roster)
            uploads: dict[str, Masked] = yield replace(
                asked, request=ask, to=roster, complete=complete, attached=attached, in_full=in_full
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
    ) -> tuple[AskMasked, Sequence[Coding]]:
        """The request that carries the question's, and how its numbers are coded."""
        assert not isinstance(question.request, Mapping)
        n = len(roster)
        try:
            if self._replay is not None:
                return self._replay.ask(roster), self._replay.coded(n)
            bits = ring_bits(question, n, self.bits)
            coded = codings(question.request, question.limits, bits, n)
        except ValueError as problem:
            raise InputError(f"{question.request.kind} cannot be masked: {problem}.") from None
        body = codec.encode_body(question.request, question.limits).data
        return AskMasked(bits, layout.numbers, n, roster, body), coded

    def _attached(self, names: tuple[str, ...], roster: tuple[str, ...]) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """To each site the sums it has not seen; and the same with the question over this roster in full."""
        if self._replay is None:
            return {}, {}
        sums = [structs.replace(proven, roster=()) if proven.roster == roster else proven for proven in self._sums]
        known = {name: proven.position for proven in self._sums if not proven.is_broken for name in proven.roster}
        body = self._replay.body.data if roster else b""
        encoded = {
            start: (encode(Attachment(sums[start:])), encode(Attachment(sums[start:], body)))
            for start in {known.get(name, 0) for name in names}
        }
        pairs = {name: encoded[known.get(name, 0)] for name in names}
        return {name: short for name, (short, _) in pairs.items()}, {name: full for name, (_, full) in pairs.items()}

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
        seeds = self._own_seeds(roster, answers, context)
        total = add_streams(total, seeds, ask.bits).astype(np.uint64)
        self._prove(total, tag - sum(tag_mask(seed) for seed, _ in seeds), ask, context)
        return total

    def _own_seeds(
        self, roster: Sequence[str], answers: Mapping[str, Revealed], context: Context
    ) -> list[tuple[bytes, bool]]:
        """What the sites' own masks are drawn from, to be taken off."""
        return [(own_seed(secret, context), True) for secret in _own_secrets(roster, answers)]

    def _prove(self, total: Ring, tag: int, ask: AskMasked, context: Context) -> None:
        """Keep the sum as sites check it when they are asked next."""
        if self._replay is not None:
            place = (len(self._sums), context.round, context.attempt, ask.roster, ask.digest, ask.bits)
            mark = (tag % TAGS).to_bytes(TAG_BYTES, "little")
            self._sums.append(ProvenSum(*place, packed(total & _highest(ask.bits), ask.bits), mark))


def _highest(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)


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
