"""The ordered method, stepped by the server and by every site: each knows the next question before it is put.

A run that is verified asks for nothing but masked sums. Between two of them server and sites step the same protocol,
fed with the sum that every site has checked, so that a question needs no bytes but those that name it, and any other
is refused. Requests without an answer, such as how rows are prepared, are not even sent: a site's own protocol makes
them.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import msgspec
import numpy as np

from coterie.arrays import Array
from coterie.errors import BadAnswer, MalformedMessage, NotOrdered, QuestionDiffers, RosterChanged
from coterie.maths.masks import Coding
from coterie.messages import codec
from coterie.messages.bounds import Limits
from coterie.messages.codec import Body, Decoded, Envelope
from coterie.messages.numbers import wire
from coterie.messages.schema import Request, message_fields
from coterie.messages.site_api import CHECKS, Exit, Memory
from coterie.messages.verbs import Present, Question
from coterie.methods.method import RunResult
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.agreement import Agree, ColumnReport
from coterie.methods.shared.limits import with_limits
from coterie.secure.certificates import Compare, Conclude
from coterie.secure.handshake import AskHello, Introduce, ShareKey, public_seed, seed_from, unpack_report
from coterie.secure.keys import Context
from coterie.secure.masked_sums import (
    TAG_BYTES,
    AskMasked,
    Known,
    Reveal,
    codings,
    decoded_sum,
    is_signed,
    ring_bits,
    sum_tag,
)

CLOSE, NOTHING = 1e-9, 1e-12
"""Floats of a question may differ from a site's own by this share of their column, or of all: arithmetic differs."""
HANDSHAKE = (AskHello, Compare, Introduce, ShareKey)
WITHOUT_ORDER = (Agree, Conclude)


class ProvenSum(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A sum and its tag, as sites check them with the next question; or that sites dropped out of it."""

    position: int
    """How many sums the run took before."""
    round: int
    attempt: int
    roster: tuple[str, ...]
    """Empty on the wire where it is that of the question the sum goes with."""
    digest: bytes = b""
    """Of the question's bytes."""
    bits: int = 0
    numbers: bytes = b""
    """The sum in the ring."""
    tag: bytes = b""

    @property
    def is_broken(self) -> bool:
        """Whether the sum needed every site, and some dropped out: those of the roster are left."""
        return not self.tag


class Attachment(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What goes with a question of a verified run: the sums a site has not seen, and the question, if it must."""

    sums: list[ProvenSum]
    body: bytes = b""


_SUM, _ATTACHMENT = msgspec.msgpack.Decoder(ProvenSum), msgspec.msgpack.Decoder(Attachment)
encode = msgspec.msgpack.encode


class Replay:
    """The ordered protocol, at the next sum it asks for."""

    def __init__(
        self,
        order: Order,
        seed: int,
        reports: Mapping[str, ColumnReport],
        tell: Callable[[Question], None] = lambda _: None,
    ) -> None:
        """``tell`` is given every question that has no answer."""
        self.names, self._reports, self._tell = tuple(sorted(reports)), dict(reports), tell
        self.method = order.method
        self.position = 0
        """How many sums were taken."""
        self.question: Question | None = None
        """The next sum (or what no verified run can ask for); None when the method is done."""
        self.result: RunResult | None = None
        self._asks: dict[tuple[str, ...], AskMasked] = {}
        self._coded: dict[int, Sequence[Coding]] = {}
        self._protocol = with_limits(order.protocol(seed))
        self._step(None)

    def _step(self, answer: Any, problem: Exception | None = None) -> None:
        """Go to the next sum of numbers."""
        self._asks, self._coded = {}, {}
        while True:
            try:
                question = self._protocol.send(answer) if problem is None else self._protocol.throw(problem)
            except StopIteration as stop:
                self.question, self.result = None, stop.value
                return
            problem = None
            if isinstance(question, Present):
                answer = self.names
            elif isinstance(question.request, Agree):
                answer = self._reports
            elif not question.summed or not isinstance(question.request, Request):
                self.question = question  # sites refuse it
                return
            elif question.request.layout.numbers:
                self._own = question.request, question.limits
                self._put(question, codec.encode_body(question.request, question.limits))
                return
            else:
                self._tell(question)
                layout = question.request.layout
                answer = layout.reply(*[np.zeros(item.shape) for item in layout.fields])

    @property
    def request(self) -> Request[Any]:
        """The next request for a sum; ``NotOrdered`` where there is none."""
        if self.question is None:
            raise NotOrdered("the ordered method asks nothing more")
        if not self.question.summed or not isinstance(self.question.request, Request):
            raise NotOrdered("the ordered method asks for per-site results, which cannot be checked")
        return self.question.request

    def _put(self, question: Question, body: Body) -> None:
        """Go on to a question, which has these bytes."""
        self.question, self.body = question, body
        self._asks, self._coded = {}, {}

    def ask(self, roster: tuple[str, ...]) -> AskMasked:
        """The request for the next sum over these sites."""
        if roster not in self._asks:
            request, n = self.request, len(roster)
            assert self.question is not None
            bits, numbers = ring_bits(self.question, n), request.layout.numbers
            named = self.position, TAG_BYTES, request.kind, self.body.digest
            self._asks[roster] = AskMasked(bits, numbers, n, roster, b"", *named)
        return self._asks[roster]

    def known(self) -> Known | None:
        """The next question; None where the method asks for no more sums."""
        question = self.question
        if question is None or not question.summed or not isinstance(question.request, Request):
            return None
        return Known(self.position, question.request, question.limits, self.body.digest, self.coded)

    def coded(self, n_sites: int) -> Sequence[Coding]:
        """How the numbers of the next sum are coded if it is over so many sites."""
        assert self.question is not None
        if n_sites not in self._coded:
            bits = ring_bits(self.question, n_sites)
            self._coded[n_sites] = codings(self.request, self.question.limits, bits, n_sites)
        return self._coded[n_sites]

    def allows(self, roster: tuple[str, ...]) -> bool:
        """Whether the next sum may be over these sites: over all that are there, or those that the method names."""
        if self.question is None or not roster:
            return False
        wanted = set(self.names if self.question.to is None else self.question.to)
        is_whole = self.question.to is None or not self.question.complete or set(roster) == wanted
        return set(roster) <= wanted & set(self.names) and is_whole

    def may_give_up(self, left: tuple[str, ...]) -> bool:
        """Whether the next sum needs a site that is not among those left."""
        assert self.question is not None
        wanted = set(self.names if self.question.to is None else self.question.to)
        return self.question.complete and set(left) <= set(self.names) and not wanted <= set(left)

    def adopt(self, data: bytes) -> None:
        """Put the next question in the server's words, which may differ from the site's own by rounding only.

        It is compared with the site's own whatever was put before, so that steps within rounding do not add up.
        """
        request, limits = codec.decode_body(data)
        assert self.question is not None
        own, own_limits = self._own
        if request is None or not is_same(request, own) or not are_same(limits, own_limits):
            raise NotOrdered(f"the question is not what the ordered method asks now ({self.request.kind})")
        self._put(replace(self.question, request=request, limits=limits), Body(data, codec.request_digest(data)))

    def take(self, proven: ProvenSum, numbers: Array | None = None) -> None:
        """Go on with a sum that was checked, or without the sites that dropped out."""
        assert self.question is not None
        layout, is_for_all = self.request.layout, self.question.to is None
        self.position += 1
        if is_for_all or proven.is_broken:
            self.names = proven.roster
        if proven.is_broken:
            self._step(None, RosterChanged("sites dropped out of a sum that needs every site."))
            return
        total = ring_numbers(proven, layout.numbers) if numbers is None else numbers
        self._step(decoded_sum(total, layout, self.coded(len(proven.roster))))


def packed(total: Array, bits: int) -> bytes:
    """Numbers of a ring as bytes, compressed where most are zero, as marks and counts are."""
    raw = wire(f"uint{bits}").to_bytes(total)
    if 2 * np.count_nonzero(total) > len(total):  # what is full of digits costs more time than it saves bytes
        return raw
    return min(raw, zlib.compress(raw, 1), key=len)  # of the same length: as it is


def ring_numbers(proven: ProvenSum, count: int) -> Array:
    """The numbers of a sum; ``NotOrdered`` where there are not so many."""
    number, raw = wire(f"uint{proven.bits}"), proven.numbers
    size = number.n_bytes(count)
    if len(raw) < size:
        with contextlib.suppress(zlib.error):
            raw = zlib.decompressobj().decompress(raw, size + 1)
    if len(raw) != size:
        raise NotOrdered("a sum has another number of values than the ordered method asks")
    return number.from_bytes(memoryview(raw), (count,)).astype(np.uint64, copy=False)


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
        if one.shape != other.shape or not (np.abs(one - other) <= _slack(other)).all():
            return False
    return True


def are_same(limits: Limits, expected: Limits) -> bool:
    """Whether two sets of limits are equal up to rounding: those from declared ranges are computed."""
    if limits.keys() != expected.keys():
        return False
    pairs = [(np.asarray(limits[name], float), np.asarray(expected[name], float)) for name in expected]
    return all(one.shape == other.shape and (np.abs(one - other) <= _slack(other)).all() for one, other in pairs)


def _slack(expected: Array) -> Any:
    """By how much numbers may differ: a share of the largest of their column, or a smaller one of the largest."""
    if expected.dtype.kind != "f" or not expected.size:
        return 0
    sizes = np.abs(expected)
    return np.maximum(CLOSE * (sizes.max(axis=0) if sizes.ndim > 1 else sizes.max()), NOTHING * sizes.max())


def check_question(exit_: Exit, memory: Memory, envelope: Envelope, decoded: Decoded) -> None:
    """Refuse every question of a verified run that is not the next one of the ordered method."""
    request = decoded.request
    if isinstance(request, HANDSHAKE):
        return
    if "masked_sums.group" not in memory:
        if exit_.verifies and not isinstance(request, WITHOUT_ORDER):
            raise NotOrdered("the site answers only what it can check, and the run has no order")
        return
    replay = memory.cached("masked_sums.replay", lambda: _rebuilt(exit_, memory, envelope))
    if envelope.method != replay.method:
        raise NotOrdered(f"the run has an order for {replay.method}, and is asked for {envelope.method}")
    try:
        if isinstance(request, AskMasked):
            _check_sum(exit_, memory, envelope, replay, request, _read(decoded.attached))
        elif isinstance(request, Reveal):
            _check_reveal(exit_, envelope, replay, request)
        elif isinstance(request, Conclude):
            _take_all(exit_, memory, envelope, replay, _read(decoded.attached).sums, ())
        else:
            raise NotOrdered("a verified run asks for masked sums only")
    except (NotOrdered, QuestionDiffers):  # before anything was stepped
        raise
    except Exception as problem:  # what was stepped half is made anew from what was checked
        memory.pop("masked_sums.replay", None)
        if isinstance(problem, BadAnswer):  # a sum that no sites within their bounds can have sent
            raise NotOrdered(str(problem)) from None
        raise
    memory["masked_sums.known"] = replay.known()


def _read(raw: bytes) -> Attachment:
    try:
        return _ATTACHMENT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise MalformedMessage("what comes with the question cannot be read") from None


def _check_sum(
    exit_: Exit, memory: Memory, envelope: Envelope, replay: Replay, ask: AskMasked, attached: Attachment
) -> None:
    """The sums before, and that this is the next one, over sites that are there."""
    _take_all(exit_, memory, envelope, replay, attached.sums, ask.roster)
    if replay.question is not None and not replay.allows(ask.roster):
        raise NotOrdered("the sum is over other sites than the ordered method asks")
    expected = replay.ask(ask.roster)
    if envelope.request == codec.encode_body(expected, {}).digest:
        return
    wrong = [item.name for item in fields(ask) if getattr(ask, item.name) != getattr(expected, item.name)]
    if wrong != ["digest"]:
        raise NotOrdered(f"the sum is not the next one of the ordered method: {', '.join(wrong)} differ")
    if not attached.body:
        raise QuestionDiffers("the site's own question differs in its last digits")
    if codec.request_digest(attached.body) != ask.digest:
        raise MalformedMessage("the whole question is not the one that was named")
    replay.adopt(attached.body)
    exit_.note(envelope.run, "question", encode((replay.position, attached.body)))


def _check_reveal(exit_: Exit, envelope: Envelope, replay: Replay, ask: Reveal) -> None:
    """Only the sum that is asked for now is unmasked."""
    upload = exit_.answered(envelope.run, ask.round, ask.attempt)
    expected = codec.encode_body(replay.ask(ask.roster), {}).digest
    if upload is None or codec.read_envelope(upload)[1].request != expected:
        raise NotOrdered("the sum to unmask is not the one that is asked for now")


def _take_all(
    exit_: Exit, memory: Memory, envelope: Envelope, replay: Replay, sums: list[ProvenSum], roster: tuple[str, ...]
) -> None:
    """Check the sums of a run in turn."""
    for proven in sums:
        whole = proven if proven.roster else msgspec.structs.replace(proven, roster=roster)
        _take(exit_, memory, envelope, replay, whole)


def _take(exit_: Exit, memory: Memory, envelope: Envelope, replay: Replay, proven: ProvenSum) -> None:
    """Check a sum and go on with it; one that was taken before changes nothing."""
    if proven.position < replay.position:
        return
    if proven.position > replay.position or replay.question is None:
        raise NotOrdered("a sum was left out")
    numbers = None
    if not proven.is_broken:
        numbers = _checked_sum(memory["masked_sums.group"], envelope.run, replay, proven)
    elif not replay.may_give_up(proven.roster):
        raise NotOrdered("a sum was given up though no site dropped out of it")
    replay.take(proven, numbers)
    if proven.is_broken and replay.question is not None:  # there are more sums, over those left
        exit_.join(envelope.run, proven.roster)
    exit_.note(envelope.run, "sum", encode(proven))


def _checked_sum(group: bytes, run: bytes, replay: Replay, proven: ProvenSum) -> Array:
    """The numbers of a sum; ``NotOrdered`` unless it is that of what the sites of its roster sent."""
    assert replay.question is not None
    if not replay.allows(proven.roster):
        raise NotOrdered("a sum is over other sites than the ordered method asks")
    ask = replay.ask(proven.roster)
    if proven.digest != ask.digest:  # of a question in words of the server's that this site was not put
        ask = replace(ask, digest=proven.digest)
    if proven.bits != ask.bits:
        raise NotOrdered("a sum is in another ring than the ordered method asks")
    roster = codec.roster_digest(proven.roster)
    context = Context(run, proven.round, proven.attempt, roster, codec.encode_body(ask, {}).digest)
    numbers, signed = ring_numbers(proven, ask.count), is_signed(replay.coded(ask.n))
    tag = sum_tag(group, context, numbers, ask.bits, is_signed=signed, is_padded=True)
    if tag.to_bytes(TAG_BYTES, "little") != proven.tag:
        raise NotOrdered("a sum is not that of what the sites sent")
    return numbers


def _rebuilt(exit_: Exit, memory: Memory, envelope: Envelope) -> Replay:
    """The protocol where the site's ledger left it: after a restart it goes on from there.

    What the method keeps is made anew with it, and not on top of what is there.
    """
    order = SignedOrder.from_bytes(memory["order"]).read()
    memory.table = None
    for key in [key for key in memory if key != "order" and not key.startswith("masked_sums.")]:
        del memory[key]

    def tell(question: Question) -> None:
        assert isinstance(question.request, Request)
        if question.to is None or exit_.name in question.to:
            exit_.keep(envelope._replace(method=order.method), question.request)

    hellos, parts = memory["masked_sums.hellos"], memory["masked_sums.parts"]
    reports = {name: unpack_report(hellos[name].report) for name in parts}
    replay = Replay(order, seed_from(public_seed(memory)), reports, tell)
    questions = [
        msgspec.msgpack.decode(data, type=tuple[int, bytes]) for data in exit_.notes(envelope.run, "question")
    ]
    words = dict(questions)
    for data in (*exit_.notes(envelope.run, "sum"), b""):
        if replay.position in words:
            replay.adopt(words[replay.position])
        if data:
            replay.take(_SUM.decode(data))
    return replay


CHECKS.append(check_question)
