"""Masked sums after Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning".

A site adds to its numbers, coded as integers of a ring, one mask for every other site of the roster (with opposite
signs at the two ends, so that they cancel) and one of its own. All masks of a round are streams of keys used once:
they bind the run, the round, the attempt, the roster and the request. Where the whole roster has uploaded, sites
reveal for that round their shares of each other's own masks (any ``threshold`` of them give one). Where it has not,
nothing is revealed, and those left are asked again, masked for each other alone. Common masks are never revealed, so
the only sum that can be unmasked is the one over the roster that every site of it was asked about.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from coterie.errors import BadAnswer, MalformedMessage, Untrusted
from coterie.maths.masks import TAGS, FixedPoint, Narrow, Ring, WholeNumbers, add_streams, inner_product
from coterie.messages import codec
from coterie.messages.codec import Envelope
from coterie.messages.identity import CARD_BYTES, SIGNATURE_BYTES, Card, check_signed
from coterie.messages.schema import Layout, Reply, Request, array
from coterie.messages.site_api import Exit, Memory, Table, carries, remembers
from coterie.messages.verbs import Question
from coterie.methods.order import Order
from coterie.methods.shared.agreement import ColumnReport
from coterie.secure.shamir import SECRET_BYTES, SHARE_BYTES, split

Bytes = npt.NDArray[np.uint8]

SEALED_BYTES = SHARE_BYTES + 16
KEY_BYTES = 32
TAG_BYTES = 16
SEED_BYTES = 4
REPORT_BYTES = 8
"""Of a report on columns, besides one byte a column."""


def threshold(n_sites: int) -> int:
    """How many of the other sites' shares give a site's own mask: two thirds, and more than half of all."""
    return max(2 * n_sites // 3, n_sites // 2 + 1) if n_sites > 2 else n_sites - 1


class Hello(NamedTuple):
    """How a site begins a run: its card, whether it verifies the run, what columns it holds; signed."""

    card: Card
    verifies: bool
    report: bytes
    signature: bytes

    @classmethod
    def from_bytes(cls, raw: bytes) -> Hello:
        card, rest = Card.from_bytes(raw[:CARD_BYTES]), raw[CARD_BYTES:]
        if len(rest) < 1 + SIGNATURE_BYTES:
            raise MalformedMessage("a site's first words are cut short")
        return cls(card, rest[0] != 0, rest[1:-SIGNATURE_BYTES], rest[-SIGNATURE_BYTES:])

    def to_bytes(self) -> bytes:
        return self.card.to_bytes() + bytes([self.verifies]) + self.report + self.signature

    def signed(self, run: bytes, order: bytes) -> bytes:
        """The bytes that the site signs."""
        return b"coterie/hello/" + run + hashlib.sha256(order).digest() + bytes([self.verifies]) + self.report


HELLO_BYTES = CARD_BYTES + 1 + SIGNATURE_BYTES
"""Of a site that was not asked about columns."""
SEALED_PART_BYTES = KEY_BYTES + 16


class SiteHello(Reply, content="schema"):
    """How a site begins a run."""

    hello: Bytes = array("size", dtype="uint8", is_counted=False)


class AskHello(Request[SiteHello], remembered=True, doing="exchanging public keys"):
    """This is what the run is ordered to do; who are you, and do you hold the columns?"""

    order: bytes
    size: int


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


class Masked(Reply, content="sums"):
    """Masked numbers, and for every other site of the roster its sealed share of the secret of one's own mask."""

    numbers: Narrow = array("count", dtype="uint{bits}")
    shares: Bytes = array("n", SEALED_BYTES, dtype="uint8", is_counted=False)
    tag: Bytes = array("tag_bytes", dtype="uint8", is_counted=False)


class AskMasked(Request[Masked], doing="summing masked answers"):
    """Answer the request in ``body``, masked for this roster."""

    bits: int
    count: int
    n: int
    roster: tuple[str, ...]
    body: bytes
    position: int = 0
    """How many sums the run has asked for before."""
    tag_bytes: int = 0
    """16 where sites check the sum, else 0."""

    @property
    def subject(self) -> type[Request[Any]]:
        """The request carried, where it is one known here."""
        return codec.kind_of(self.body) or type(self)


class Revealed(Reply, content="nothing"):
    """By place in the roster, the share of the site's own mask; none of one's own."""

    shares: Bytes = array("n", SHARE_BYTES, dtype="uint8", is_counted=False)


class Reveal(Request[Revealed], doing="unmasking the sum"):
    """Unmask the sum of an earlier round, in which the whole roster uploaded; these are the shares sealed for you."""

    n: int
    round: int
    attempt: int
    roster: tuple[str, ...]
    sealed: Bytes = array("n", SEALED_BYTES, dtype="uint8")


class Context(NamedTuple):
    """What every key of a round binds."""

    run: bytes
    round: int
    attempt: int
    roster: bytes
    request: bytes

    @classmethod
    def of(cls, envelope: Envelope) -> Context:
        """The context of an upload."""
        return cls(envelope.run, envelope.round, envelope.attempt, envelope.roster, envelope.request)

    def info(self, purpose: str, *names: str) -> bytes:
        """The bytes a key is derived for."""
        return _round_info(self, purpose) + b"".join(map(codec.site_tag, names))


@lru_cache(maxsize=64)  # a site asks for the same some hundred times a round
def _round_info(context: Context, purpose: str) -> bytes:
    numbers = context.round.to_bytes(4, "little") + context.attempt.to_bytes(2, "little")
    return b"coterie/" + purpose.encode() + b"/" + context.run + numbers + context.roster + context.request


def _common_secret(exit_: Exit, memory: Memory, peer: str) -> bytes:
    """The Diffie-Hellman secret with another site, computed once a run and kept as HKDF's first step leaves it."""
    kept: dict[str, bytes] = memory.setdefault("masked_sums.secrets", {})
    if peer not in kept:
        mine = memory.cached("masked_sums.mine", lambda: X25519PrivateKey.from_private_bytes(exit_.masking_key))
        secret = mine.exchange(X25519PublicKey.from_public_bytes(memory["masked_sums.hellos"][peer].card.masking_key))
        kept[peer] = _extracted(secret)
    return kept[peer]


def _extracted(secret: bytes) -> bytes:
    """HKDF's first step (RFC 5869, SHA-256, no salt), once a secret."""
    return hmac.digest(bytes(KEY_BYTES), secret, "sha256")


def _expanded(extracted: bytes, info: bytes) -> bytes:
    """HKDF's second step, once a key: as long as the hash, so one block."""
    return hmac.digest(extracted, info + b"\x01", "sha256")


def _common_seed(exit_: Exit, memory: Memory, context: Context, peer: str) -> bytes:
    """The key of this round's common mask with another site: the same at both ends."""
    return _expanded(_common_secret(exit_, memory, peer), context.info("mask", *sorted((exit_.name, peer))))


def _seal(
    exit_: Exit, memory: Memory, context: Context, giver: str, taker: str, what: str = "share"
) -> ChaCha20Poly1305:
    """The cipher for the one share that ``giver`` sends ``taker`` in this round; one of them is this site."""
    peer = taker if giver == exit_.name else giver
    return ChaCha20Poly1305(_expanded(_common_secret(exit_, memory, peer), context.info(what, giver, taker)))


def own_seed(secret: bytes, context: Context) -> bytes:
    """The key of a site's own mask from its secret."""
    return _expanded(_extracted(secret), context.info("own"))


def ring_bits(question: Question, n_sites: int, default: int = 64) -> int:
    """The size of the ring in which the answers to a question add up."""
    request = question.request
    assert isinstance(request, Request)
    return request.ring or _fewest_bits(request.layout, n_sites) or question.bits or default


def _fewest_bits(layout: Layout, n_sites: int) -> int | None:
    """The smallest ring in which whole numbers of a declared kind add up exactly; None where some are not whole."""
    if any(item.wire.is_float for item in layout.fields) or not layout.is_bounded({}):
        return None
    largest = max((np.max(high) for _, high in layout.bounds({})), default=0.0)
    return next((b for b in (8, 16, 32, 64) if ((1 << (b - 1)) - 1) // n_sites >= largest), None)


def decoded_sum(total: Ring, layout: Layout, coded: Sequence[FixedPoint | WholeNumbers]) -> Reply:
    """The reply that a sum in the ring stands for; ``BadAnswer`` if sites within their bounds cannot have sent it."""
    arrays, start = [], 0
    for item, coding in zip(layout.fields, coded, strict=True):
        value = coding.decode(total[start : start + item.size].reshape(item.shape))
        if isinstance(coding, FixedPoint) and not coding.can_sum_to(value):
            most = f"more than {coding.n_sites} sites can send"
            raise BadAnswer(f"the sum's {item.name} holds {most}: a site did not keep to its bound.")
        if item.spec.nonnegative and (value < 0).any():
            raise BadAnswer(f"the sum's {item.name} is below 0: a site did not keep to its bound.")
        arrays.append(value)
        start += item.size
    return layout.reply(*arrays)


def codings(request: Request[Any], limits: Any, bits: int, n_sites: int) -> Sequence[FixedPoint | WholeNumbers]:
    """How each array of an answer is coded; ``ValueError`` where one has no bound."""
    layout = request.layout
    if request.ring is None:
        return [FixedPoint(bits, high, n_sites) for _, high in layout.bounds(limits)]
    if bits != request.ring:
        raise ValueError(f"a ring of {bits} bits for one of {request.ring}")
    return [WholeNumbers(bits)] * len(layout.fields)


@remembers(AskHello)
def keep_order(table: Table, memory: Memory, ask: AskHello) -> None:
    """Keep what the run is ordered to do."""
    memory["order"] = ask.order


@carries(AskHello)
def local_hello(exit_: Exit, memory: Memory, envelope: Envelope, ask: AskHello) -> SiteHello:
    """The site's own card and, where the run has an order, whether it holds the columns; signed for this run."""
    report = b""
    if ask.order:
        order = Order.from_bytes(ask.order)
        if order.method != envelope.method:
            raise MalformedMessage("the order is for another method")
        exit_.begin(envelope.run, ask.order)
        answer = exit_.evaluate(envelope, codec.encode_body(order.agreement(), {}).data)
        report = pack_report(answer.reply)
    blank = Hello(exit_.card(), exit_.verifies, report, b"")
    hello = blank._replace(signature=exit_.sign(blank.signed(envelope.run, ask.order))).to_bytes()
    if len(hello) != ask.size:
        raise MalformedMessage(f"first words have {len(hello)} bytes, not {ask.size}")
    return SiteHello(np.frombuffer(hello, np.uint8))


def pack_report(reply: Any) -> bytes:
    """What a site says of its columns, in a fixed number of bytes: those of the columns and eight more."""
    matches, others, allows, least, half = reply.arrays()
    limits = bytes([int(allows), int(least)]) + int(half).to_bytes(2, "big")
    return bytes(matches.astype(np.uint8)) + int(others).to_bytes(4, "big") + limits


def unpack_report(raw: bytes) -> ColumnReport:
    """The inverse of :func:`pack_report`."""
    if len(raw) < REPORT_BYTES:
        raise MalformedMessage("a report of columns is cut short")
    others, allows, least, half = int.from_bytes(raw[-8:-4], "big"), raw[-4], raw[-3], int.from_bytes(raw[-2:], "big")
    matches = np.frombuffer(raw[:-REPORT_BYTES], np.uint8).astype(np.int64)
    return ColumnReport(matches, *(np.array(number) for number in (others, allows, least, half)))


@remembers(Introduce)
def keep_keys(table: Table, memory: Memory, ask: Introduce) -> None:
    """Keep how the others began this run."""
    hellos = {name: Hello.from_bytes(raw) for name, raw in zip(ask.names, rows_of(ask.hellos), strict=True)}
    if len(hellos) != len(ask.names):
        raise MalformedMessage("a site is introduced twice")
    memory["masked_sums.hellos"] = hellos
    memory.pop("masked_sums.secrets", None)


@carries(Introduce)
def local_acquaintance(exit_: Exit, memory: Memory, envelope: Envelope, ask: Introduce) -> Parts:
    """Accept the sites whose cards the authority vouches for, and give each one's part of the common key."""
    hellos: dict[str, Hello] = memory["masked_sums.hellos"]
    try:
        exit_.meet(envelope.run, {name: hello.card for name, hello in hellos.items()})
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
        else _seal(exit_, memory, _beginning(envelope.run), exit_.name, name, "part").encrypt(bytes(12), part, None)
        for name in ask.names
    ]
    return Parts(_array_of(rows, SEALED_PART_BYTES))


def _beginning(run: bytes) -> Context:
    """The context of what is agreed on before the first sum."""
    return Context(run, 0, 0, bytes(8), bytes(16))


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
        opened = own
        if name != exit_.name:
            opened = _opened(_seal(exit_, memory, _beginning(envelope.run), name, exit_.name, "part"), parts[name])
        text += codec.site_tag(name) + opened
    memory["masked_sums.group"] = _extracted(text)
    return PublicSeed(np.frombuffer(public_seed(memory), np.uint8))


def public_seed(memory: Memory) -> bytes:
    """What all random choices of a run are drawn from: neither the server nor an analyst chooses it."""
    return _expanded(memory["masked_sums.group"], b"coterie/public seed")[:SEED_BYTES]


def seed_from(raw: bytes) -> int:
    """The public seed as a number below 2**31."""
    return int.from_bytes(raw, "big") >> 1


def _roster(exit_: Exit, memory: Memory, names: tuple[str, ...], digest: bytes) -> None:
    """Refuse rosters that are unknown, or not what the envelope says."""
    known = memory.get("masked_sums.hellos", {})
    if len(set(names)) != len(names) or exit_.name not in names or codec.roster_digest(names) != digest:
        raise MalformedMessage("the roster is not the one of the envelope")
    if not set(names) <= known.keys():
        raise MalformedMessage("a site of the roster was not introduced")


@carries(AskMasked)
def local_masked(exit_: Exit, memory: Memory, envelope: Envelope, ask: AskMasked) -> Masked:
    """The carried request's answer, coded and masked; shares of one's own mask go along, sealed."""
    _roster(exit_, memory, ask.roster, envelope.roster)
    exit_.join(envelope.run, ask.roster, envelope.request if ask.subject.of_half else b"")
    answer = exit_.evaluate(envelope, ask.body)
    layout = answer.request.layout
    if (ask.count, ask.n) != (layout.numbers, len(ask.roster)):
        raise MalformedMessage("the masked answer asked for has another size")
    try:
        coded = codings(answer.request, answer.limits, ask.bits, ask.n)
        parts = [coding.encode(value).ravel() for coding, value in zip(coded, answer.reply.arrays(), strict=True)]
    except ValueError as problem:
        raise BadAnswer(f"it cannot be masked: {problem}") from None
    context, total = Context.of(envelope), np.concatenate([*parts, np.zeros(0, np.uint64)])
    tag = None
    if ask.tag_bytes:  # the first of the roster adds the pad
        group, first = memory["masked_sums.group"], exit_.name == ask.roster[0]
        tag = sum_tag(group, context, total, ask.bits, is_signed=is_signed(coded), is_padded=first)
    if ask.n == 1:  # there is no mask to take off
        exit_.unmask(envelope.run, ask.roster)
        return Masked(add_streams(total, [], ask.bits), np.zeros((1, SEALED_BYTES), np.uint8), tag_array(tag))
    secret = secrets.token_bytes(SECRET_BYTES)
    seeds = [(own_seed(secret, context), False)]
    for peer in ask.roster:
        if peer != exit_.name:
            seeds.append((_common_seed(exit_, memory, context, peer), exit_.name > peer))
    if tag is not None:
        tag += sum((-1 if minus else 1) * tag_mask(seed) for seed, minus in seeds)
    shares = _shares(exit_, memory, context, secret, ask.roster)
    return Masked(add_streams(total, seeds, ask.bits), shares, tag_array(tag))


def sum_tag(group: bytes, context: Context, numbers: Ring, bits: int, *, is_signed: bool, is_padded: bool) -> int:
    """The tag of numbers in a ring; to that of a sum a pad is added, so that no number gives its factor away."""
    key = _expanded(group, context.info("tag"))
    pad = int.from_bytes(_expanded(key, b"coterie/pad")[:TAG_BYTES], "little") if is_padded else 0
    return (inner_product(numbers, key, bits, is_signed=is_signed) + pad) % TAGS


def is_signed(coded: Sequence[FixedPoint | WholeNumbers]) -> bool:
    """Whether numbers of the ring stand for signed integers."""
    return not any(isinstance(coding, WholeNumbers) for coding in coded)


def tag_mask(seed: bytes) -> int:
    """The mask of a tag from that of the numbers."""
    return int.from_bytes(_expanded(seed, b"coterie/tag mask")[:TAG_BYTES], "little")


def tag_array(tag: int | None) -> Bytes:
    """A tag as bytes; none where there is none."""
    return np.frombuffer(b"" if tag is None else (tag % TAGS).to_bytes(TAG_BYTES, "little"), np.uint8)


def _shares(exit_: Exit, memory: Memory, context: Context, secret: bytes, roster: tuple[str, ...]) -> Bytes:
    """By place in the roster, the share of one's own secret, sealed for the site there."""
    places = [i for i, peer in enumerate(roster, start=1) if peer != exit_.name]
    rows = [bytes(SEALED_BYTES)] * len(roster)
    for place, share in split(secret, places, threshold(len(roster))).items():
        cipher = _seal(exit_, memory, context, exit_.name, roster[place - 1])
        rows[place - 1] = cipher.encrypt(bytes(12), share, None)
    return _array_of(rows, SEALED_BYTES)


def rows_of(numbers: Bytes) -> list[bytes]:
    """Each row of an array of bytes."""
    raw, width = numbers.astype(np.uint8).tobytes(), numbers.shape[1]
    return [raw[i : i + width] for i in range(0, len(raw), width)]


def _array_of(rows: Sequence[bytes], width: int) -> Bytes:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), width)


@carries(Reveal)
def local_revealed(exit_: Exit, memory: Memory, envelope: Envelope, ask: Reveal) -> Revealed:
    """What unmasks the sum of an earlier round over its whole roster: once a round."""
    upload = exit_.answered(envelope.run, ask.round, ask.attempt)
    if upload is None:
        raise MalformedMessage("this site uploaded nothing in that round")
    context = Context.of(codec.read_envelope(upload)[1])
    _roster(exit_, memory, ask.roster, context.roster)
    exit_.unmask(envelope.run, ask.roster)
    shares = [
        bytes(SHARE_BYTES) if peer == exit_.name else _opened(_seal(exit_, memory, context, peer, exit_.name), sealed)
        for peer, sealed in zip(ask.roster, rows_of(ask.sealed), strict=True)
    ]
    if not exit_.once(envelope.run, f"reveal {ask.round} {ask.attempt}"):
        raise MalformedMessage("the masks of that round were revealed already")
    return Revealed(_array_of(shares, SHARE_BYTES))


def _opened(cipher: ChaCha20Poly1305, sealed: bytes) -> bytes:
    try:
        return cipher.decrypt(bytes(12), sealed, None)
    except InvalidTag:
        raise MalformedMessage("a sealed share was changed on the way") from None
