"""How a run begins: the order is put to the sites, they say who they are, and draw the run's common key.

The public seed of the run follows from that key, of which every site gives a part: neither the server nor an analyst
chooses it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from coterie.errors import MalformedMessage, NotOrdered, QuorumLost, Untrusted
from coterie.messages import codec
from coterie.messages.codec import Envelope
from coterie.messages.heads import HEAD_BYTES, Head, witnessed_by
from coterie.messages.identity import CARD_BYTES, SIGNATURE_BYTES, Card, check_signed
from coterie.messages.schema import Reply, Request, array
from coterie.messages.site_api import Exit, Memory, Table, carries, remembers
from coterie.messages.verbs import Protocol, Question, each, present
from coterie.methods.method import RunResult
from coterie.methods.order import Order, SignedOrder
from coterie.methods.shared.agreement import Agree, ColumnReport
from coterie.secure.certificates import compared
from coterie.secure.keys import KEY_BYTES, Bytes, Context, array_of, expanded, extracted, opened, rows_of, seal

T = TypeVar("T")

SEED_BYTES = 4
REPORT_BYTES = 6
"""Of a report on columns, besides one byte a column."""


class Hello(NamedTuple):
    """How a site begins a run: its card, its ledger's head, whether it verifies the run, what columns it holds."""

    card: Card
    head: Head
    verifies: bool
    report: bytes
    signature: bytes

    @classmethod
    def from_bytes(cls, raw: bytes) -> Hello:
        card, rest = Card.from_bytes(raw[:CARD_BYTES]), raw[CARD_BYTES:]
        if len(rest) < HEAD_BYTES + 1 + SIGNATURE_BYTES:
            raise MalformedMessage("a site's first words are cut short")
        head, rest = Head.from_bytes(rest[:HEAD_BYTES]), rest[HEAD_BYTES:]
        return cls(card, head, rest[0] != 0, rest[1:-SIGNATURE_BYTES], rest[-SIGNATURE_BYTES:])

    def to_bytes(self) -> bytes:
        return self.card.to_bytes() + self.head.to_bytes() + bytes([self.verifies]) + self.report + self.signature

    def signed(self, run: bytes, order: bytes) -> bytes:
        """The bytes that the site signs."""
        said = self.head.to_bytes() + bytes([self.verifies]) + self.report
        return b"coterie/hello/" + run + hashlib.sha256(order).digest() + said


HELLO_BYTES = CARD_BYTES + HEAD_BYTES + 1 + SIGNATURE_BYTES
"""Of a site that was not asked about columns."""
SEALED_PART_BYTES = KEY_BYTES + 16


class SiteHello(Reply, content="schema"):
    """How a site begins a run."""

    hello: Bytes = array("size", dtype="uint8", is_counted=False)
    heads: Bytes = array("witnessed", HEAD_BYTES, dtype="uint8", is_counted=False)
    """Of other sites' ledgers, as this site saw them last and as those sites signed them; zeros where it saw none."""


class AskHello(Request[SiteHello], remembered=True, doing="exchanging public keys"):
    """This is what the run is ordered to do; who are you, and do you hold the columns?"""

    order: bytes
    """As the analyst signed it."""
    size: int
    witnessed: int = 0
    """Of how many sites, those that follow this one in ``names``, it is to say what it remembers."""
    names: tuple[str, ...] = ()


class Parts(Reply, content="nothing"):
    """For every other site, one's part of the run's common key, sealed."""

    sealed: Bytes = array("share", SEALED_PART_BYTES, dtype="uint8", is_counted=False)


class Introduce(Request[Parts], remembered=True, doing="introducing the sites to each other"):
    """These are the sites, and how they began."""

    share: int
    """How many parts of a common key are asked for: as many as sites, or none where no site verifies the run."""
    names: tuple[str, ...]
    hellos: Bytes = array("n", "size", dtype="uint8")


class PublicSeed(Reply, content="nothing"):
    """What all random choices of the run are drawn from."""

    seed: Bytes = array(SEED_BYTES, dtype="uint8", is_counted=False)


class ShareKey(Request[PublicSeed], remembered=True, doing="agreeing on a common key"):
    """These are the parts that these sites sealed for you."""

    names: tuple[str, ...]
    sealed: Bytes = array("n", SEALED_PART_BYTES, dtype="uint8")


@remembers(AskHello)
def keep_order(table: Table, memory: Memory, ask: AskHello) -> None:
    """Keep what the run is ordered to do; the sites have to be introduced to each other after that."""
    _forget_key(memory)
    memory["order"] = ask.order


def _forget_key(memory: Memory) -> None:
    """A common key holds for one order and one introduction: what came before another one is not used with it."""
    for key in ("secrets", "group", "replay"):
        memory.pop(f"masked_sums.{key}", None)


@carries(AskHello, begins=True)
def local_hello(exit_: Exit, memory: Memory, envelope: Envelope, ask: AskHello) -> SiteHello:
    """The site's own card and, where the run has an order, whether it holds the columns; signed for this run."""
    report = b""
    if ask.order:
        order: Order = exit_.begin(envelope, ask.order)
        if order.columns:
            report = pack_report(exit_.evaluate(envelope, order.agreement(), {}))
    elif exit_.verifies:
        raise NotOrdered("the site answers only what it can check, and the run has no order")
    blank = Hello(exit_.card(), exit_.head(), exit_.verifies, report, b"")
    hello = blank._replace(signature=exit_.sign(blank.signed(envelope.run, ask.order))).to_bytes()
    if len(hello) != ask.size:
        raise MalformedMessage(f"first words have {len(hello)} bytes, not {ask.size}")
    heads = exit_.remembered(ask.names)
    if len(heads) != ask.witnessed:
        raise MalformedMessage(f"{len(heads)} heads of ledgers can be remembered, not {ask.witnessed}")
    return SiteHello(np.frombuffer(hello, np.uint8), array_of(heads, HEAD_BYTES))


def pack_report(reply: Any) -> bytes:
    """What a site says of its columns, in a fixed number of bytes: those of the columns and six more."""
    matches, *numbers, half = reply.arrays()
    limits = bytes(int(number) for number in numbers) + int(half).to_bytes(2, "big")
    return bytes(matches.astype(np.uint8)) + limits


def unpack_report(raw: bytes) -> ColumnReport:
    """The inverse of :func:`pack_report`."""
    if len(raw) < REPORT_BYTES:
        raise MalformedMessage("a report of columns is cut short")
    numbers = (raw[-6] != 0, raw[-5], raw[-4] != 0, raw[-3], int.from_bytes(raw[-2:], "big"))
    matches = np.frombuffer(raw[:-REPORT_BYTES], np.uint8).astype(np.int64)
    return ColumnReport(matches, *(np.array(int(number)) for number in numbers))


@remembers(Introduce)
def keep_keys(table: Table, memory: Memory, ask: Introduce) -> None:
    """Keep how the others began this run."""
    hellos = {name: Hello.from_bytes(raw) for name, raw in zip(ask.names, rows_of(ask.hellos), strict=True)}
    if len(hellos) != len(ask.names):
        raise MalformedMessage("a site is introduced twice")
    _forget_key(memory)
    memory["masked_sums.hellos"] = hellos


@carries(Introduce)
def local_acquaintance(exit_: Exit, memory: Memory, envelope: Envelope, ask: Introduce) -> Parts:
    """Accept the sites whose cards the authority vouches for, and give each one's part of the common key."""
    hellos: dict[str, Hello] = memory["masked_sums.hellos"]
    try:
        cards = {name: hello.card for name, hello in hellos.items()}
        exit_.meet(envelope.run, cards, {name: hello.head for name, hello in hellos.items()})
        for name, hello in hellos.items():
            check_signed(hello.card, name, hello.signature, hello.signed(envelope.run, memory.get("order", b"")))
    except Untrusted:
        memory.pop("masked_sums.hellos", None)
        raise
    if not ask.share:
        return Parts(np.zeros((0, SEALED_PART_BYTES), np.uint8))
    if ask.share != len(hellos):
        raise MalformedMessage(f"{ask.share} parts for {len(hellos)} sites")
    introduction = codec.roster_digest(ask.names)
    part = exit_.part(envelope.run + introduction)
    rows = [
        bytes(SEALED_PART_BYTES)
        if name == exit_.name
        else seal(exit_, memory, _beginning(envelope.run, ask.names), exit_.name, name, "part").encrypt(
            bytes(12), part, None
        )
        for name in ask.names
    ]
    return Parts(array_of(rows, SEALED_PART_BYTES))


def _beginning(run: bytes, names: Iterable[str]) -> Context:
    """The context of what these sites agree on before the first sum."""
    return Context(run, 0, 0, codec.roster_digest(names), bytes(16))


@remembers(ShareKey)
def keep_parts(table: Table, memory: Memory, ask: ShareKey) -> None:
    """Keep the sealed parts; only the exit can open them."""
    memory["masked_sums.parts"] = dict(zip(ask.names, rows_of(ask.sealed), strict=True))


@carries(ShareKey)
def local_seed(exit_: Exit, memory: Memory, envelope: Envelope, ask: ShareKey) -> PublicSeed:
    """The run's common key from all sites' parts, and the public seed that follows from it."""
    parts, hellos = memory["masked_sums.parts"], memory.get("masked_sums.hellos", {})
    if exit_.name not in parts or not parts.keys() <= hellos.keys():
        raise MalformedMessage("parts of a common key are of sites that were not introduced")
    own = exit_.part(envelope.run + codec.roster_digest(hellos))
    text = b""
    for name in sorted(parts):
        plain = own
        if name != exit_.name:
            plain = opened(
                seal(exit_, memory, _beginning(envelope.run, hellos), name, exit_.name, "part"), parts[name]
            )
        text += codec.site_tag(name) + plain
    group = extracted(text)
    said = b"".join(hellos[name].to_bytes() for name in sorted(hellos))
    exit_.pin(envelope.run, "key", hashlib.sha256(group + said).digest())
    memory["masked_sums.group"] = group
    return PublicSeed(np.frombuffer(public_seed(memory), np.uint8))


def public_seed(memory: Memory) -> bytes:
    """What all random choices of a run are drawn from: neither the server nor an analyst chooses it."""
    return expanded(memory["masked_sums.group"], b"coterie/public seed")[:SEED_BYTES]


def seed_from(raw: bytes) -> int:
    """The public seed as a number below 2**31."""
    return int.from_bytes(raw, "big") >> 1


# ---------------------------------------------------------------- the server's half


def begun(signed: SignedOrder) -> Protocol[tuple[tuple[str, ...], dict[str, Bytes]]]:
    """Put an order to the sites that are there. They, and the first words of those that accept it and whose ledgers
    are as others remember them."""
    order, there = signed.read(), (yield from present())
    columns = [*order.columns, *order.besides]
    size = HELLO_BYTES + (REPORT_BYTES + len(columns) if columns else 0)
    asked = AskHello(signed.to_bytes(), size, len(witnessed_by(there, "")), there)
    hellos = yield from each(asked, phase="algorithm" if columns else "masking")
    return there, (yield from compared(there, hellos))


def read_hellos(hellos: Mapping[str, Bytes]) -> dict[str, Hello]:
    """First words as values."""
    return {name: Hello.from_bytes(hello.astype(np.uint8).tobytes()) for name, hello in hellos.items()}


def seed_drawn(hellos: Mapping[str, Bytes]) -> Protocol[tuple[tuple[str, ...], int]]:
    """Introduce the sites to each other; those that gave a part of the common key, and the public seed from it."""
    names = tuple(sorted(hellos))
    introduced = Introduce(len(names), names, np.array([hellos[name] for name in names]))
    parts = yield from each(introduced, to=names, phase="masking")
    there = tuple(name for name in names if name in parts)
    sealed = {name: np.array([parts[giver].sealed[names.index(name)] for giver in there]) for name in there}
    asks = {name: ShareKey(there, sealed[name]) for name in there}
    seeds = yield from each(asks, to=there, phase="masking")
    drawn = {bytes(reply.seed.astype(np.uint8)) for reply in seeds.values()}
    if len(drawn) != 1:
        raise QuorumLost("the sites do not agree on a common key.")
    return there, seed_from(drawn.pop())


def ordered_plainly(signed: SignedOrder, seed: int) -> Protocol[RunResult]:
    """The protocol of an order, with sums in the clear."""
    order, (_, hellos) = signed.read(), (yield from begun(signed))
    return (yield from informed(order.protocol(seed), read_hellos(hellos) if order.columns else {}))


def informed(protocol: Protocol[T], hellos: Mapping[str, Hello]) -> Protocol[T]:
    """The protocol with what sites said of their columns at the start, which is then not asked again."""
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
            answer = {name: unpack_report(hello.report) for name, hello in hellos.items()}
            continue
        try:
            answer = yield question
        except Exception as problem:  # the protocol may handle it
            answer, resume = problem, protocol.throw
