"""A site that runs the ordered method itself, on sums it has checked, and answers nothing but its next question."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from coterie.errors import BadAnswer, CoterieError, MalformedMessage, NotOrdered, RosterChanged
from coterie.messages import codec
from coterie.messages.bounds import Limits
from coterie.messages.codec import Decoded, Envelope
from coterie.messages.schema import Request, message_fields
from coterie.messages.site_api import CHECKS, Exit, Memory
from coterie.messages.verbs import Present, Question
from coterie.methods.order import Order
from coterie.methods.shared.agreement import Agree, ColumnReport
from coterie.methods.shared.limits import with_limits
from coterie.secure.masked_sums import (
    TAG_BYTES,
    AskHello,
    AskMasked,
    Context,
    Introduce,
    Reveal,
    ShareKey,
    codings,
    decoded_sum,
    is_signed,
    public_seed,
    ring_bits,
    seed_from,
    sum_tag,
    unpack_report,
)

CLOSE = 1e-9
"""Floats of a question may differ from the site's own by this share of the largest: arithmetic differs by machine."""
HANDSHAKE = (AskHello, Introduce, ShareKey)


class Proof(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A sum and its tag, as the question after it shows them to the sites; or that sites dropped out of it."""

    position: int
    round: int
    attempt: int
    roster: tuple[str, ...]
    bits: int
    numbers: bytes = b""
    """The sum in the ring, 8 bytes a number."""
    tag: bytes = b""
    is_broken: bool = False
    """Whether the sum needed every site, and some dropped out: those of the roster are left."""


_PROOF = msgspec.msgpack.Decoder(Proof)


class Replay:
    """The ordered protocol, one question ahead of the server."""

    def __init__(self, order: Order, seed: int, reports: dict[str, ColumnReport]) -> None:
        self.names, self._reports = tuple(sorted(reports)), reports
        self.position = 0
        """How many sums were taken."""
        self.question: Question | None = None
        """What is asked next; None when the method is done."""
        self._protocol = with_limits(order.protocol(seed))
        self._go_on(None)

    def _go_on(self, answer: Any, problem: Exception | None = None) -> None:
        """Step to the next question that sites are asked."""
        while True:
            try:
                question = self._protocol.send(answer) if problem is None else self._protocol.throw(problem)
            except StopIteration:
                self.question = None
                return
            except CoterieError as ended:
                raise NotOrdered(f"the ordered method ends here: {ended}") from None
            problem = None
            if isinstance(question, Present):
                answer = self.names
            elif isinstance(question.request, Agree):
                answer = self._reports
            elif not question.summed or not isinstance(question.request, Request):
                raise NotOrdered("the ordered method asks for per-site results, which cannot be verified")
            else:
                self.question = question
                return

    @property
    def request(self) -> Request[Any]:
        """The next request."""
        if self.question is None:
            raise NotOrdered("the ordered method asks nothing more")
        assert isinstance(self.question.request, Request)
        return self.question.request

    @property
    def is_sum(self) -> bool:
        """Whether the next question is for numbers; others only tell sites something."""
        return self.request.layout.numbers > 0

    def told(self) -> None:
        """The next question was put, and has no answer but that it arrived."""
        self._go_on(self.request.layout.reply(*[np.zeros(item.shape) for item in self.request.layout.fields]))

    def take(self, proof: Proof) -> None:
        """Go on with a sum that was checked, or without the sites that dropped out."""
        assert self.question is not None
        layout, everyone = self.request.layout, self.question.to is None
        self.position += 1
        if proof.is_broken:
            self.names = proof.roster
            self._go_on(None, RosterChanged("sites dropped out"))
            return
        coded = codings(self.request, self.question.limits, proof.bits, len(proof.roster))
        if everyone:
            self.names = proof.roster
        try:
            decoded = decoded_sum(np.frombuffer(proof.numbers, np.uint64), layout, coded)
        except BadAnswer as problem:
            raise NotOrdered(str(problem)) from None
        self._go_on(decoded)

    def expect(self, request: Request[Any], limits: Limits) -> None:
        """``NotOrdered`` unless this is the next question."""
        assert self.question is not None
        if dict(limits) != dict(self.question.limits) or not is_same(request, self.request):
            raise NotOrdered(f"{request.kind} is not what the ordered method asks now ({self.request.kind})")


def is_same(request: Request[Any], expected: Request[Any]) -> bool:
    """Whether two requests are equal, floats up to rounding."""
    if type(request) is not type(expected):
        return False
    for item in message_fields(type(expected)):
        one, other = getattr(request, item.name), getattr(expected, item.name)
        if item.array is None and not isinstance(other, float):
            if one != other:
                return False
            continue
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape:
            return False
        if one.size and np.abs(one - other).max() > (CLOSE * np.abs(other).max() if other.dtype.kind == "f" else 0):
            return False
    return True


def check_question(exit_: Exit, memory: Memory, envelope: Envelope, decoded: Decoded) -> None:
    """Refuse every question of a verified run that is not the next one of the ordered method."""
    request = decoded.request
    if isinstance(request, HANDSHAKE):
        return
    if "masked_sums.group" not in memory:
        if exit_.verifies and not isinstance(request, Agree):
            raise NotOrdered("the site answers only what it can check, and the run has no order")
        return
    replay = memory.cached("replay", lambda: _rebuilt(exit_, memory, envelope))
    if decoded.proof:
        _take(exit_, memory, envelope, replay, _read(decoded.proof))
    if isinstance(request, Reveal):
        _check_reveal(exit_, envelope, replay, request)
        return
    while (not isinstance(request, AskMasked) and not replay.is_sum) or _is_known(memory, replay):
        if _is_known(memory, replay):
            replay.told()
            continue
        assert request is not None
        replay.expect(request, decoded.limits)
        if request.remembered:  # it will be the last of the requests that the memory is built from
            memory["replay.used"] = len(getattr(memory, "requests", [])) + 1
        replay.told()
        return
    if not isinstance(request, AskMasked) or not request.tag_bytes:
        raise NotOrdered("a sum of a verified run is masked and has a tag")
    _check_sum(exit_, envelope, replay, request)


def _is_known(memory: Memory, replay: Replay) -> bool:
    """Whether the site was brought up to date with the next question, which is then not put again."""
    if replay.question is None or replay.is_sum or not replay.request.remembered:
        return False
    before: list[Request[Any]] = getattr(memory, "requests", [])
    used = memory.setdefault("replay.used", 0)
    for place in range(used, len(before)):
        if is_same(before[place], replay.request):
            memory["replay.used"] = place + 1
            return True
    return False


def _check_sum(exit_: Exit, envelope: Envelope, replay: Replay, ask: AskMasked) -> None:
    """The next sum: over sites that are there, in the ring that follows, at the place it has."""
    request, limits = codec.decode_body(ask.body)
    if request is None or not replay.is_sum or ask.position != replay.position:
        raise NotOrdered("the sum is not the next one of the ordered method")
    replay.expect(request, limits)
    assert replay.question is not None
    wanted = replay.names if replay.question.to is None else replay.question.to
    if not set(ask.roster) <= set(wanted) & set(replay.names):
        raise NotOrdered("the sum is over other sites than the ordered method asks")
    if ask.bits != ring_bits(replay.question, len(ask.roster)):
        raise NotOrdered("the sum is in another ring than the ordered method's")
    exit_.note(envelope.run, "upload", msgspec.msgpack.encode((ask.position, Context.of(envelope))))


def _check_reveal(exit_: Exit, envelope: Envelope, replay: Replay, ask: Reveal) -> None:
    """Only the sum that is asked for now is unmasked."""
    if _upload(exit_, envelope.run, replay.position, ask.round, ask.attempt) is None:
        raise NotOrdered("the sum to unmask is not the one that is asked for now")


def _upload(exit_: Exit, run: bytes, position: int, round_: int, attempt: int) -> Context | None:
    """The context of this site's upload to a sum; None if there was none."""
    for data in reversed(exit_.notes(run, "upload")):
        place, context = msgspec.msgpack.decode(data, type=tuple[int, Context])
        if place < position:
            return None
        if (place, context.round, context.attempt) == (position, round_, attempt):
            return context
    return None


def _read(raw: bytes) -> Proof:
    try:
        return _PROOF.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise MalformedMessage("the last sum cannot be read") from None


def _take(exit_: Exit, memory: Memory, envelope: Envelope, replay: Replay, proof: Proof) -> None:
    """Check the last sum and go on with it; one that was taken before changes nothing."""
    if proof.position < replay.position:
        return
    while replay.question is not None and not replay.is_sum and _is_known(memory, replay):
        replay.told()
    if proof.position > replay.position or replay.question is None or not replay.is_sum:
        raise NotOrdered("a question was left out")
    if replay.request.of_half and exit_.name not in (replay.question.to or ()):
        pass  # of the other half: nothing that is asked here depends on it
    elif proof.is_broken:
        if not replay.question.complete or not set(proof.roster) < set(replay.names):
            raise NotOrdered("a sum is left out though no site dropped out of it")
    else:
        _check_tag(exit_, memory, envelope, replay, proof)
    exit_.note(envelope.run, "sum", msgspec.msgpack.encode(proof))
    replay.take(proof)


def _check_tag(exit_: Exit, memory: Memory, envelope: Envelope, replay: Replay, proof: Proof) -> None:
    """``NotOrdered`` unless the sum is that of the sites' uploads."""
    assert replay.question is not None
    context = _upload(exit_, envelope.run, proof.position, proof.round, proof.attempt)
    if context is None:
        raise NotOrdered("a sum is shown that this site is no part of")
    n, layout = len(proof.roster), replay.request.layout
    if context.roster != codec.roster_digest(proof.roster) or proof.bits != ring_bits(replay.question, n):
        raise NotOrdered("a sum is shown over other sites or in another ring")
    if len(proof.numbers) != 8 * layout.numbers:
        raise NotOrdered("a sum is shown with another number of values")
    coded = codings(replay.request, replay.question.limits, proof.bits, n)
    numbers, group = np.frombuffer(proof.numbers, np.uint64), memory["masked_sums.group"]
    tag = sum_tag(group, context, numbers, proof.bits, is_signed=is_signed(coded), is_padded=True)
    if tag.to_bytes(TAG_BYTES, "little") != proof.tag:
        raise NotOrdered("a sum is not that of what the sites sent")


def _rebuilt(exit_: Exit, memory: Memory, envelope: Envelope) -> Replay:
    """The protocol where the site's ledger left it: after a restart it goes on from there."""
    reports = {
        name: unpack_report(hello.report)
        for name, hello in memory["masked_sums.hellos"].items()
        if name in memory["masked_sums.parts"]
    }
    replay = Replay(Order.from_bytes(memory["order"]), seed_from(public_seed(memory)), reports)
    for data in exit_.notes(envelope.run, "sum"):
        while not replay.is_sum:  # it was put before the sum that follows
            _is_known(memory, replay)
            replay.told()
        replay.take(_PROOF.decode(data))
    return replay


CHECKS.append(check_question)
