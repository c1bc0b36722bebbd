"""The server's part of masked sums: a layer that lowers every ``total``."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from coterie.errors import InputError, QuorumLost
from coterie.maths.masks import Ring, add_in_ring
from coterie.messages import codec
from coterie.messages.schema import Layout, Reply
from coterie.messages.verbs import Place, Present, Question, Seen
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
    mask_of,
    own_mask,
    threshold,
)
from coterie.secure.shamir import combine, lagrange_at_zero

__all__ = ["MaskedSums"]

Lowering = Generator[Question | Present | Place, Any, Any]


class MaskedSums:
    """Sums of which the server sees nothing but the sum.

    ``bits`` is the size of the ring: 64 loses nothing that matters, 32 halves the bytes. Every summed array needs a
    declared bound, so a run declares its limits (``rows``, ``box``) first.
    """

    starts_afresh = True

    def __init__(self, bits: int = 64) -> None:
        if not 8 <= bits <= 64:
            raise InputError(f"a ring of {bits} bits; it has 8 to 64.")
        self.bits = bits
        self._keys: dict[str, bytes] = {}

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
        roster: tuple[str, ...] = ()
        while not roster or any(name not in self._keys for name in roster):
            ready: Sequence[str] = yield Present()
            roster = tuple(sorted(name for name in ready if question.to is None or name in question.to))
            if not roster:
                raise QuorumLost("no site takes part in the sum.")
            yield from self._introduced(ready)
        return (yield from self._sum(question, layout, roster))

    def _introduced(self, present: Sequence[str]) -> Lowering:
        """Make every site know every other's key; asked only when someone is new."""
        new = [name for name in present if name not in self._keys]
        if not new:
            return
        found = yield Question(AskKey(), tuple(new), phase="masking")
        self._keys |= {name: bytes(reply.key.astype(np.uint8)) for name, reply in found.items()}
        names = tuple(sorted(self._keys))
        keys = np.array([list(self._keys[name]) for name in names])
        yield Question(Introduce(names, keys), phase="masking")

    def _sum(self, question: Question, layout: Layout, roster: tuple[str, ...]) -> Lowering:
        assert not isinstance(question.request, Mapping)
        body = codec.encode_body(question.request, question.limits).data
        n = len(roster)
        try:
            coded = codings(layout, question.limits, self.bits, max(1, n))
        except ValueError as problem:
            raise InputError(
                f"{question.request.kind} cannot be masked: {problem}; declare the run's limits (rows, box)."
            ) from None
        ask = AskMasked(self.bits, layout.numbers, n, roster, body)
        run, round_, attempt = yield Place()
        digest = codec.encode_body(ask, {}).digest
        context = Context(run, round_, attempt, codec.roster_digest(roster), digest)
        found: dict[str, Masked] = yield replace(
            question, request=ask, to=roster, summed=False, seen=Seen.MASKED, limits={}, complete=False
        )
        if question.complete and len(found) < n:
            raise QuorumLost(f"{n - len(found)} of {n} sites dropped out of a sum that needs all of them.")
        if len(found) < fewest_survivors(n):
            raise QuorumLost(
                f"{len(found)} of {n} sites sent their part; fewer than {fewest_survivors(n)} hide nothing."
            )
        total = np.zeros(layout.numbers, np.uint64)
        for one in found.values():
            total = add_in_ring(total, one.numbers.astype(np.uint64), self.bits)
        if n > 1:
            total = yield from self._unmasked(total, ask, context, found)
        return _decoded(total, layout, coded)

    def _unmasked(self, total: Ring, ask: AskMasked, context: Context, found: Mapping[str, Masked]) -> Lowering:
        """Take off the survivors' own masks and the common masks with those who dropped out."""
        roster = ask.roster
        survived = np.array([name in found for name in roster], np.int64)
        questions = {}
        for place, name in enumerate(roster):
            if name in found:
                sealed = np.array(
                    [found[p].shares[place] if p in found else np.zeros(SEALED_BYTES) for p in roster], np.uint8
                )
                questions[name] = Reveal(len(roster), context.round, context.attempt, roster, survived, sealed)
        dropped = len(roster) - len(found)
        needed = len(found) if dropped else threshold(len(roster)) + 1
        answers: dict[str, Revealed] = yield Question(questions, tuple(questions), phase="masking", needed=needed)
        places = {name: i for i, name in enumerate(roster)}
        for name in found:
            secret = _own_secret(places[name], answers, places, threshold(len(roster)))
            total = add_in_ring(total, own_mask(secret, context, ask.count, self.bits), self.bits, minus=True)
        for gone in (name for name in roster if name not in found):
            for name in found:
                seed = bytes(answers[name].seeds[places[gone]].astype(np.uint8))
                mask = mask_of(seed, ask.count, self.bits)
                total = add_in_ring(total, mask, self.bits, minus=name < gone)
        return total


def _own_secret(place: int, answers: Mapping[str, Revealed], places: Mapping[str, int], needed: int) -> bytes:
    """The secret of one site's own mask from the others' shares of it."""
    shares = {
        places[name] + 1: bytes(reply.shares[place].astype(np.uint8))
        for name, reply in answers.items()
        if places[name] != place
    }
    chosen = dict(list(shares.items())[:needed])
    return combine(chosen, lagrange_at_zero(list(chosen)))


def _decoded(total: Ring, layout: Layout, coded: Sequence[Any]) -> Reply:
    arrays, start = [], 0
    for item, coding in zip(layout.fields, coded, strict=True):
        arrays.append(coding.decode(total[start : start + item.size]).reshape(item.shape))
        start += item.size
    return layout.reply(*arrays)
