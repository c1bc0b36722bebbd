"""The server's part of masked sums: a layer that lowers every ``total``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from coterie.errors import InputError, QuorumLost, RosterChanged
from coterie.maths.masks import FixedPoint, Ring, WholeNumbers, add_streams
from coterie.messages import codec
from coterie.messages.schema import Layout, Reply
from coterie.messages.verbs import Place, Present, Protocol, Question, Remain, Seen
from coterie.methods.shared.limits import with_limits
from coterie.runtime.layers import Lowering
from coterie.runtime.outcomes import OutcomeKind, SiteOutcome
from coterie.secure.masked_sums import (
    AskCard,
    AskMasked,
    Bytes,
    Context,
    Introduce,
    Masked,
    Reveal,
    Revealed,
    codings,
    own_seed,
    threshold,
)
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
        self._cards: dict[str, Bytes] = {}

    def around(self, protocol: Protocol[T]) -> Protocol[T]:
        """Where the bounds of a sum name limits that nobody stated, sites are asked for them."""
        return with_limits(protocol)

    def lower(self, question: Question) -> Lowering:
        """Masked upload, then unmasking; what holds no numbers travels as it is."""
        if not question.summed:
            return (yield question)
        if isinstance(question.request, Mapping):
            raise TypeError("a sum is over answers to one request")
        layout = question.request.layout
        if not layout.numbers:
            yield replace(question, summed=False, seen=Seen.SUMMED)
            return layout.reply(*[np.zeros(item.shape) for item in layout.fields])
        ready: Sequence[str] = yield Present()
        if question.to is None or set(question.to) >= set(ready):  # dropouts will be missing from the sum
            yield Remain(frozenset(ready), is_begun=True)
        ready = yield from self._introduced()
        wanted = set(ready if question.to is None else question.to)
        roster = tuple(sorted(name for name in wanted & set(ready) if name in self._cards))
        if not roster:
            raise QuorumLost("no site takes part in the sum.")
        if question.complete and question.to is not None and set(roster) != wanted:
            raise RosterChanged(f"{_listed(wanted - set(roster))} cannot be part of a sum that needs all of them.")
        return (yield from self._sum(question, layout, roster, is_for_all=wanted >= set(ready)))

    def _introduced(self) -> Lowering:
        """Make every site know every other's card, and return who is there; asked only when someone is new."""
        asked: set[str] = set()
        while True:
            ready: Sequence[str] = yield Present()
            new = [name for name in ready if name not in self._cards and name not in asked]
            if not new:
                return ready  # who was asked and did not say is in no sum
            asked |= set(new)
            try:
                replies = yield Question(AskCard(), tuple(new), phase="masking", is_for_all=not self._cards)
            except QuorumLost:
                if not self._cards:
                    raise
                continue  # those known before do without
            self._cards |= {name: reply.card for name, reply in replies.items()}
            names = tuple(sorted(self._cards))
            yield Question(Introduce(names, np.array([self._cards[name] for name in names])), phase="masking")

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
            uploads: dict[str, Masked] = yield replace(asked, request=ask, to=roster, complete=complete)
            if is_for_all:
                yield Remain(frozenset(uploads))
            left, problem = tuple(sorted(uploads)), None
            if left == roster:
                try:
                    total = yield from self._unmasked(ask, context, uploads)
                    return _decoded(total, layout, coded)
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
        bits = question.request.ring or _fewest_bits(layout, n) or question.bits or self.bits
        try:
            coded = codings(question.request, question.limits, bits, max(1, n))
        except ValueError as problem:
            raise InputError(f"{question.request.kind} cannot be masked: {problem}.") from None
        body = codec.encode_body(question.request, question.limits).data
        return AskMasked(bits, layout.numbers, n, roster, body), coded

    def _unmasked(self, ask: AskMasked, context: Context, uploads: Mapping[str, Masked]) -> Lowering:
        """The sum of all uploads less every site's own mask; common masks cancel."""
        total, roster = np.zeros(ask.count, np.uint64), ask.roster
        for upload in uploads.values():
            total += upload.numbers.view(np.uint64)  # wraps at 2**64, which every smaller ring divides
        if len(roster) == 1:
            return total
        sealed = np.array([uploads[name].shares for name in roster], np.uint8)
        questions = {
            name: Reveal(len(roster), context.round, context.attempt, roster, sealed[:, place])
            for place, name in enumerate(roster)
        }
        needed = threshold(len(roster)) + 1
        answers: dict[str, Revealed] = yield Question(questions, roster, phase="masking", needed=needed)
        seeds = [(own_seed(secret, context), True) for secret in _own_secrets(roster, answers)]
        return add_streams(total, seeds, ask.bits).astype(np.uint64)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _fewest_bits(layout: Layout, n_sites: int) -> int | None:
    """The smallest ring in which whole numbers of a declared kind add up exactly; None where some are not whole."""
    if any(item.wire.is_float for item in layout.fields) or not layout.is_bounded({}):
        return None
    largest = max((np.max(high) for _, high in layout.bounds({})), default=0.0)
    return next((b for b in (8, 16, 32, 64) if ((1 << (b - 1)) - 1) // n_sites >= largest), None)


def _own_secrets(roster: Sequence[str], answers: Mapping[str, Revealed]) -> Iterable[bytes]:
    """The secrets of all sites' own masks; nobody has a share of its own, so one answer more is used."""
    places = {name: place for place, name in enumerate(roster, start=1)}
    used = list(answers)[: threshold(len(roster)) + 1]
    rows = {places[name]: answers[name].shares.astype(np.uint8).tobytes() for name in used}
    try:
        return combine_others(rows, list(places.values())).values()
    except ValueError as problem:
        raise QuorumLost(f"the sum cannot be unmasked: {problem}; a site revealed something else.") from None


def _decoded(total: Ring, layout: Layout, coded: Sequence[FixedPoint | WholeNumbers]) -> Reply:
    arrays, start = [], 0
    for item, coding in zip(layout.fields, coded, strict=True):
        arrays.append(coding.decode(total[start : start + item.size].reshape(item.shape)))
        start += item.size
    return layout.reply(*arrays)
