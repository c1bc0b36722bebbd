"""A server of which the code alone was changed: it carries a run, and before each question puts its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coterie.maths.kernels import Kernel
from coterie.messages import codec
from coterie.messages.codec import Body, Decoded, Form
from coterie.messages.heads import Head
from coterie.messages.identity import Authority, Identity
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Request
from coterie.messages.verbs import Seen
from coterie.methods.kernel.dspgd.sites import BeginKernel, SendGram
from coterie.methods.order import SignedOrder
from coterie.methods.shared.limits import ReportMagnitude
from coterie.methods.shared.lloyd import Assign
from coterie.methods.shared.preparation import SumColumns
from coterie.methods.shared.prepared import Prepare
from coterie.runtime.channel import Channel, Outcome
from coterie.secure.handshake import HELLO_BYTES, AskHello, Hello, Introduce, ShareKey
from coterie.secure.masked_sums import AskMasked, Reveal
from coterie.secure.replay import Attachment, encode

LIMITS = {"rows": 10_000.0, "box": 1000.0}
CODES = {
    Refusal.NOT_ORDERED,
    Refusal.UNTRUSTED,
    Refusal.UNKNOWN_QUESTION,
    Refusal.MALFORMED,
    Refusal.SINGLE_ANSWER_FORBIDDEN,
    Refusal.ROSTER_FORBIDDEN,
    Refusal.IN_FULL,
    Refusal.FORGOT,
}
"""How a site may refuse what was not ordered: each says why."""


class Own(NamedTuple):
    """A question of the server's own, to one site."""

    what: str
    request: Request[Any] | list[Request[Any]]
    """A list is a recall."""
    limits: Mapping[str, float] = {}
    method: str = ""
    attached: bytes = b""


@dataclass
class Changed:
    """A channel with a changed server at its end.

    Its questions go out under the run, round, attempt and roster of those they come before: a site that refuses one
    has not answered that round yet.
    """

    inner: Channel
    seed: int = 0
    report: Path | None = None
    """Where it is written what became of the questions."""
    only: str = ""
    """The one kind of question that is asked, under rounds of its own, so that it may be answered: a control."""
    times: int = 1
    answered: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    by_what: dict[str, Counter[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._sent: dict[str, list[Request[Any]]] = {}
        """What each site was asked to remember."""
        self._n_put, self._newest = 0, -1

    def sites(self) -> Sequence[str]:
        return self.inner.sites()

    def exchange(self, payloads: Mapping[str, bytes], timeout: float | None) -> Mapping[str, Outcome]:
        """The server's own questions, then the run's."""
        questions = {
            name: codec.decode_question(frame)
            for name, frame in payloads.items()
            if codec.read_envelope(frame)[0] is Form.QUESTION
        }
        number = next((one.envelope.round for one in questions.values()), -1)
        if number > self._newest:  # not where a question is sent again
            self._newest = number
            for asked in zip(*(self._wanted(name, one) for name, one in questions.items()), strict=True):
                self._put(dict(zip(questions, asked, strict=True)), questions, timeout)
            for name, one in questions.items():
                if one.request is not None and one.request.remembered:
                    self._sent.setdefault(name, []).append(one.request)
            self._write()
        return self.inner.exchange(payloads, timeout)

    def _wanted(self, name: str, honest: Decoded) -> list[Own]:
        """The questions before this one."""
        own = [one for _ in range(self.times) for one in self._own(name, honest)]
        return [one for one in own if self.only in ("", one.what)]

    def _put(self, asked: Mapping[str, Own], around: Mapping[str, Decoded], timeout: float | None) -> None:
        frames: dict[str, bytes] = {}
        self._n_put += 1
        for name, own in asked.items():
            envelope = around[name].envelope
            if isinstance(own.request, list):
                frames[name] = codec.encode_recall(envelope, [codec.encode_body(r, {}).data for r in own.request])
                continue
            body = _body(own.request, own.limits)
            envelope = envelope._replace(request=body.digest, method=own.method or envelope.method)
            if self.only:
                envelope = envelope._replace(round=envelope.round + self._n_put)
            transcript = around[name].transcript
            frames[name] = codec.encode_question(envelope, body, transcript, Seen.SUMMED, own.attached)
        for name, outcome in self.inner.exchange(frames, timeout).items():
            form, _, start = codec.read_envelope(outcome.payload)
            what = asked[name].what
            if form is Form.REFUSAL:
                code = Refusal(outcome.payload[start]).name
                self.refused[code] += 1
            elif isinstance(asked[name].request, list):  # nothing but its end leaves
                code = "RECALLED"
            else:
                code = "ANSWERED"
                self.answered[what] += 1
            self.by_what.setdefault(what, Counter())[code] += 1

    def _write(self) -> None:
        if self.report is not None:
            found = {"answered": self.answered, "refused": self.refused, "by_what": self.by_what}
            self.report.write_text(json.dumps(found))

    # ---------------------------------------------------------------- what it asks

    def _own(self, name: str, honest: Decoded) -> Iterator[Own]:
        sent = self._sent.get(name, [])
        order = next((one for one in [*sent, honest.request] if isinstance(one, AskHello)), None)
        d = len(SignedOrder.from_bytes(order.order).read().columns) if order is not None else 2
        yield from self._chosen(d)
        if isinstance(honest.request, Introduce):
            for own in _forged(name, honest.request, honest.envelope.run, sent):
                yield from (own, Own("as it was", list(sent)))
        if isinstance(honest.request, ShareKey):
            for own in _other_parts(honest.request):
                yield from (own, Own("as it was", list(sent)))
        if isinstance(honest.request, AskMasked):
            yield from self._masked(honest, d)
            yield from self._again(sent)
        if isinstance(honest.request, Reveal):
            yield Own("unmasking an older sum", replace(honest.request, round=max(0, honest.request.round - 2)))

    def _cells(self, d: int) -> Assign:
        """Two cells on both sides of a hyperplane."""
        direction, cut = self._rng.normal(size=d), self._rng.normal()
        step = direction / (direction @ direction)
        return Assign(np.array([(cut - 1) * step, (cut + 1) * step]))

    def _chosen(self, d: int) -> Iterator[Own]:
        """Plain questions; also under a method that may ask them."""
        zeros, ones = np.zeros(d), np.ones(d)
        kernel = BeginKernel(*BeginKernel.stated(Kernel("rbf", 0.05), 4, "phase", 7), "float64")
        yield Own("cells", self._cells(d), LIMITS)
        yield Own("cells under another method", self._cells(d), LIMITS, "one-shot")
        yield Own("column sums of complete rows", SumColumns(True, zeros), LIMITS)
        yield Own("magnitudes", ReportMagnitude(d, self._rng.normal(size=d)))
        yield Own("another preparation", Prepare("drop", True, zeros, zeros, ones, *np.zeros((2, 0))))
        yield Own("another kernel", kernel, {}, "dspgd")
        yield Own("a Gram matrix", SendGram(1, 4.0, 10, 4, 1.0, np.zeros(4)), LIMITS, "dspgd")

    def _masked(self, honest: Decoded, d: int) -> Iterator[Own]:
        """Masked questions: as the run asks them, with other contents and all sums that sites want to see."""
        ask, cells = honest.request, self._cells(d)
        assert isinstance(ask, AskMasked)
        sums = msgspec.msgpack.decode(honest.attached, type=Attachment).sums if honest.attached else []
        body, count = codec.encode_body(cells, LIMITS), cells.layout.numbers
        bare, whole = encode(Attachment(sums)), encode(Attachment(sums, body.data))
        other = replace(ask, bits=64, count=count, known=Assign.kind, digest=body.digest)
        carried = AskMasked(64, count, ask.n, ask.roster, body.data)
        if sums:  # before a site is shown what it goes on with
            last = sums[-1]
            bit = msgspec.structs.replace(last, numbers=bytes([last.numbers[0] ^ 1]) + last.numbers[1:])
            yield Own("a sum with another bit", ask, {}, "", encode(Attachment([*sums[:-1], bit])))
            yield Own("a sum left out", ask, {}, "", encode(Attachment(sums[:-1])))
        yield Own("masked cells", carried, {}, "", bare)
        yield Own(
            "masked cells in the place of a sum", replace(carried, position=ask.position, tag_bytes=16), {}, "", bare
        )
        yield Own("masked cells by name", other, {}, "", bare)
        yield Own("masked cells in full", other, {}, "", whole)
        yield Own("masked cells under another method", carried, {}, "one-shot", bare)
        yield Own("an earlier sum", replace(ask, position=ask.position - 1), {}, "", bare)
        yield Own("a later sum", replace(ask, position=ask.position + 1), {}, "", bare)
        yield Own("no tag", replace(ask, tag_bytes=0), {}, "", bare)
        yield Own("a larger ring", replace(ask, bits=32 if ask.bits == 64 else 64), {}, "", bare)
        stranger = ("evil", *ask.roster)
        yield Own("a stranger in the roster", replace(ask, roster=stranger, n=len(stranger)), {}, "", bare)

    def _again(self, sent: Sequence[Request[Any]]) -> Iterator[Own]:
        """The beginning once more, and recalls of what was never asked; then as it was."""
        right = list(sent)
        d = len(SignedOrder.from_bytes(next(one for one in sent if isinstance(one, AskHello)).order).read().columns)
        prepare = Prepare("drop", False, np.zeros(d), np.ones(d), np.ones(d), *np.zeros((2, 0)))
        yield Own("an empty order", AskHello(b"", HELLO_BYTES))
        yield Own("as it was", right)
        yield Own("told of a preparation", [prepare])
        yield Own("told of a preparation later", [*right, prepare])
        yield Own("told of no key", right[:-1])
        yield Own("cells, told of no key", self._cells(d), LIMITS)
        yield Own("as it was", right)


def _body(request: Request[Any], limits: Mapping[str, float]) -> Body:
    return codec.encode_body(request, dict(limits))


def _forged(name: str, genuine: Introduce, run: bytes, sent: Sequence[Request[Any]]) -> Iterator[Own]:
    """Introductions of sites of the server's own making."""
    order = next(one.order for one in sent if isinstance(one, AskHello))
    raws = dict(zip(genuine.names, genuine.hellos.astype(np.uint8), strict=True))
    mine, report = Authority(bytes(range(32))), Hello.from_bytes(next(iter(raws.values())).tobytes()).report
    other = next(one for one in genuine.names if one != name)

    def made(who: str, authority: Authority | None) -> Any:
        own = Identity.certified_by(authority or mine, who, bytes(range(32)))
        head = Head(bytes(16), 0, 1, bytes(32))
        blank = Hello(own.card(bytes(range(32))), head._replace(signature=own.sign(head.signed())), True, report, b"")
        if authority is None:  # signed by no one
            card = blank.card._replace(certificate=blank.card.certificate._replace(signature=bytes(64)))
            blank = blank._replace(card=card)
        hello = blank._replace(signature=own.sign(blank.signed(run, order)))
        return np.frombuffer(hello.to_bytes(), np.uint8)

    def introduced(what: str, hellos: Mapping[str, Any], *extra: tuple[str, Any]) -> Own:
        pairs = [*sorted(hellos.items()), *extra]
        names, rows = zip(*pairs, strict=True)
        return Own(what, Introduce(len(names), tuple(names), np.array(rows)))

    yield introduced("a key by another authority", {**raws, other: made(other, mine)})
    yield introduced("a key by no one", {**raws, other: made(other, None)})
    yield introduced("an invented site", {**raws, "evil": made("evil", mine)})
    yield introduced(
        "only sites of its own", {name: raws[name], "evil": made("evil", mine), "ivil": made("ivil", mine)}
    )
    yield introduced("the same name twice", raws, (other, made(other, mine)))
    yield introduced("a key in another's name", {**raws, other: raws[name]})
    changed = raws[other].copy()
    changed[-70] ^= 1  # the report, or the head before it
    yield introduced("other first words", {**raws, other: changed})


def _other_parts(genuine: ShareKey) -> Iterator[Own]:
    """Parts of the key that were changed, or are not for this site."""
    changed = genuine.sealed.copy()
    changed[:, 0] ^= 1
    yield Own("changed parts", replace(genuine, sealed=changed))
    yield Own("swapped parts", replace(genuine, sealed=genuine.sealed[::-1].copy()))
    yield Own("parts of a stranger", replace(genuine, names=("evil", *genuine.names[1:])))


def checked(found: Mapping[str, Any], *, least: int) -> None:
    """Nothing was answered, and what was refused is refused for what it is."""
    assert dict(found["answered"]) == {}, found
    assert sum(found["refused"].values()) >= least, found
    assert set(found["refused"]) <= {code.name for code in CODES}, found
