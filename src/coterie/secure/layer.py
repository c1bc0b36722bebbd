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
    SEALED_BYTES,
    AskKey,
    AskMasked,
    Context,
    Introduce,
    Masked,
    Reveal,
    Revealed,
    codings,
    fewest_survivors,
    own_seed,
    rows_of,
    threshold,
)
from coterie.secure.shamir import combine_others

T = TypeVar("T")

FEWEST_ASKED_AGAIN = 3
"""Sites who are asked again, masked for each other alone, where too many of the others dropped out."""


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
        self._keys: dict[str, bytes] = {}

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
        roster = tuple(sorted(name for name in wanted & set(ready) if name in self._keys))
        if not roster:
            raise QuorumLost("no site takes part in the sum.")
        if question.complete and question.to is not None and set(roster) != wanted:
            raise RosterChanged(f"{_listed(wanted - set(roster))} cannot be part of a sum that needs all of them.")
        return (yield from self._sum(question, layout, roster, is_for_all=wanted >= set(ready)))

    def _introduced(self) -> Lowering:
        """Make every site know every other's key, and return who is there; asked only when someone is new."""
        asked: set[str] = set()
        while True:
            ready: Sequence[str] = yield Present()
            new = [name for name in ready if name not in self._keys and name not in asked]
            if not new:
                return ready  # who was asked and did not say is in no sum
            asked |= set(new)
            try:
                replies = yield Question(AskKey(), tuple(new), phase="masking", is_for_all=not self._keys)
            except QuorumLost:
                if not self._keys:
                    raise
                continue  # those known before do without
            self._keys |= {name: bytes(reply.key.astype(np.uint8)) for name, reply in replies.items()}
            names = tuple(sorted(self._keys))
            keys = np.array([list(self._keys[name]) for name in names])
            yield Question(Introduce(names, keys), phase="masking")

    def _sum(self, question: Question, layout: Layout, roster: tuple[str, ...], *, is_for_all: bool) -> Lowering:
        ask, coded = self._masked(question, layout, roster)
        run, round_, attempt = yield Place()
        context = Context(run, round_, attempt, codec.roster_digest(roster), codec.encode_body(ask, {}).digest)
        uploads: dict[str, Masked] = yield replace(
            question,
            request=ask,
            to=roster,
            summed=False,
            seen=Seen.MASKED,
            limits={},
            complete=question.complete and question.to is None,
            is_for_all=is_for_all,
        )
        if is_for_all:
            yield Remain(frozenset(uploads))
        if _are_enough(question, roster, uploads, is_for_all=is_for_all):
            total = np.zeros(layout.numbers, np.uint64)
            for upload in uploads.values():
                total += upload.numbers.view(np.uint64)  # wraps at 2**64, which every smaller ring divides
            try:
                total = (yield from self._unmasked(total, ask, context, uploads)) if len(roster) > 1 else total
                return _decoded(total, layout, coded)
            except QuorumLost as problem:
                left = yield from _left(question, uploads, problem, is_for_all=is_for_all)
        else:
            left = tuple(sorted(uploads))
        return (yield from self._sum(question, layout, left, is_for_all=is_for_all))

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

    def _unmasked(self, total: Ring, ask: AskMasked, context: Context, uploads: Mapping[str, Masked]) -> Lowering:
        """Take off the survivors' own masks and the common masks with those who dropped out."""
        roster = ask.roster
        survived = np.array([name in uploads for name in roster], np.int64)
        nothing = np.zeros((len(roster), SEALED_BYTES), np.uint8)
        sealed = np.array([uploads[name].shares if name in uploads else nothing for name in roster], np.uint8)
        questions = {
            name: Reveal(len(roster), context.round, context.attempt, roster, survived, sealed[:, place])
            for place, name in enumerate(roster)
            if name in uploads
        }
        needed = len(uploads) if len(uploads) < len(roster) else threshold(len(roster)) + 1
        answers: dict[str, Revealed] = yield Question(questions, tuple(questions), phase="masking", needed=needed)
        seeds = [(own_seed(secret, context), True) for secret in _own_secrets(roster, uploads, answers)]
        gone = [name for name in roster if name not in uploads]
        for name in uploads if gone else ():
            common = rows_of(answers[name].seeds)
            seeds += [(seed, name < other) for other, seed in zip(gone, common, strict=True)]
        return add_streams(total, seeds, ask.bits).astype(np.uint64)


def _are_enough(
    question: Question, roster: tuple[str, ...], uploads: Mapping[str, Masked], *, is_for_all: bool
) -> bool:
    """Whether the sum can be unmasked; False where those who uploaded are asked again, masked for each other."""
    n, fewest = len(roster), fewest_survivors(len(roster))
    gone = {name: SiteOutcome(OutcomeKind.DROPPED) for name in roster if name not in uploads}
    if question.complete and gone:
        raise RosterChanged(f"{_listed(gone)} dropped out of a sum that needs all of {n} sites.", gone)
    if len(uploads) >= fewest:
        return True
    if len(uploads) >= FEWEST_ASKED_AGAIN and is_for_all:  # a quorum is of all, or of those asked first
        return False  # what they sent stays hidden
    raise QuorumLost(
        f"{len(uploads)} of {n} sites sent their part; fewer than {fewest} hide nothing. "
        f"{_listed(gone)} dropped out.",
        gone,
    )


def _left(question: Question, uploads: Mapping[str, Masked], problem: QuorumLost, *, is_for_all: bool) -> Lowering:
    """Those who are asked again where too few helped to unmask a sum, or why nobody is."""
    ready: Sequence[str] = yield Present()
    left = tuple(sorted(uploads.keys() & set(ready)))
    if not FEWEST_ASKED_AGAIN <= len(left) < len(uploads):
        raise problem
    if question.complete:
        raise RosterChanged(f"{_listed(uploads.keys() - set(left))} did not help to unmask a sum.") from None
    if not is_for_all:
        raise problem
    yield Remain(frozenset(left))
    return left


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _fewest_bits(layout: Layout, n_sites: int) -> int | None:
    """The smallest ring in which whole numbers of a declared kind add up exactly; None where some are not whole."""
    if any(item.wire.is_float for item in layout.fields) or not layout.is_bounded({}):
        return None
    largest = max((np.max(high) for _, high in layout.bounds({})), default=0.0)
    return next((b for b in (8, 16, 32, 64) if ((1 << (b - 1)) - 1) // n_sites >= largest), None)


def _own_secrets(
    roster: Sequence[str], uploads: Mapping[str, Masked], answers: Mapping[str, Revealed]
) -> Iterable[bytes]:
    """The secrets of the survivors' own masks; nobody has a share of its own, so one answer more is used."""
    places = {name: place for place, name in enumerate(roster, start=1)}
    used = list(answers)[: threshold(len(roster)) + 1]
    rows = {places[name]: answers[name].shares.astype(np.uint8).tobytes() for name in used}
    try:
        return combine_others(rows, [places[name] for name in uploads]).values()
    except ValueError as problem:
        raise QuorumLost(f"the sum cannot be unmasked: {problem}; a site revealed something else.") from None


def _decoded(total: Ring, layout: Layout, coded: Sequence[FixedPoint | WholeNumbers]) -> Reply:
    arrays, start = [], 0
    for item, coding in zip(layout.fields, coded, strict=True):
        arrays.append(coding.decode(total[start : start + item.size].reshape(item.shape)))
        start += item.size
    return layout.reply(*arrays)
