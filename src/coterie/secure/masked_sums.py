"""Masked sums after Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning".

A site adds to its numbers, coded as integers of a ring, one mask for every other site of the roster (with opposite
signs at the two ends, so that they cancel) and one of its own. All masks of a round are streams of keys used once:
they bind the run, the round, the attempt, the roster and the request. Where the whole roster has uploaded, sites
reveal for that round their shares of each other's own masks (any ``threshold`` of them give one). Where it has not,
nothing is revealed, and those left are asked again, masked for each other alone. Common masks are never revealed, so
the only sum that can be unmasked is the one over the roster that every site of it was asked about.
"""

from __future__ import annotations

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
from coterie.maths.masks import FixedPoint, Narrow, WholeNumbers, add_streams
from coterie.messages import codec
from coterie.messages.codec import Envelope
from coterie.messages.identity import CARD_BYTES, Card
from coterie.messages.schema import Nothing, Reply, Request, array
from coterie.messages.site_api import Exit, Memory, Table, carries, remembers
from coterie.secure.shamir import SECRET_BYTES, SHARE_BYTES, split

Bytes = npt.NDArray[np.uint8]

SEALED_BYTES = SHARE_BYTES + 16
KEY_BYTES = 32


def threshold(n_sites: int) -> int:
    """How many of the other sites' shares give a site's own mask: two thirds, and more than half of all."""
    return max(2 * n_sites // 3, n_sites // 2 + 1) if n_sites > 2 else n_sites - 1


class SiteCard(Reply, content="nothing"):
    """A site's card: its public keys, and the signatures that vouch for them."""

    card: Bytes = array(CARD_BYTES, dtype="uint8", is_counted=False)


class AskCard(Request[SiteCard], doing="exchanging public keys"):
    """What is your card?"""


class Introduce(Request[Nothing], remembered=True, doing="introducing the sites to each other"):
    """These are the sites and their cards."""

    names: tuple[str, ...]
    cards: Bytes = array("n", CARD_BYTES, dtype="uint8")


class Masked(Reply, content="sums"):
    """Masked numbers, and for every other site of the roster its sealed share of the secret of one's own mask."""

    numbers: Narrow = array("count", dtype="uint{bits}")
    shares: Bytes = array("n", SEALED_BYTES, dtype="uint8", is_counted=False)


class AskMasked(Request[Masked], doing="summing masked answers"):
    """Answer the request in ``body``, masked for this roster."""

    bits: int
    count: int
    n: int
    roster: tuple[str, ...]
    body: bytes

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
        secret = mine.exchange(X25519PublicKey.from_public_bytes(memory["masked_sums.cards"][peer].masking_key))
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


def _seal(exit_: Exit, memory: Memory, context: Context, giver: str, taker: str) -> ChaCha20Poly1305:
    """The cipher for the one share that ``giver`` sends ``taker`` in this round; one of them is this site."""
    peer = taker if giver == exit_.name else giver
    return ChaCha20Poly1305(_expanded(_common_secret(exit_, memory, peer), context.info("share", giver, taker)))


def own_seed(secret: bytes, context: Context) -> bytes:
    """The key of a site's own mask from its secret."""
    return _expanded(_extracted(secret), context.info("own"))


def codings(request: Request[Any], limits: Any, bits: int, n_sites: int) -> Sequence[FixedPoint | WholeNumbers]:
    """How each array of an answer is coded; ``ValueError`` where one has no bound."""
    layout = request.layout
    if request.ring is None:
        return [FixedPoint(bits, high, n_sites) for _, high in layout.bounds(limits)]
    if bits != request.ring:
        raise ValueError(f"a ring of {bits} bits for one of {request.ring}")
    return [WholeNumbers(bits)] * len(layout.fields)


@carries(AskCard)
def local_card(exit_: Exit, memory: Memory, envelope: Envelope, ask: AskCard) -> SiteCard:
    """The site's own card."""
    return SiteCard(np.frombuffer(exit_.card().to_bytes(), np.uint8))


@remembers(Introduce)
def keep_keys(table: Table, memory: Memory, ask: Introduce) -> None:
    """Keep the others' public keys for this run."""
    cards = {name: Card.from_bytes(raw) for name, raw in zip(ask.names, rows_of(ask.cards), strict=True)}
    if len(cards) != len(ask.names):
        raise MalformedMessage("a site is introduced twice")
    memory["masked_sums.cards"] = cards
    memory.pop("masked_sums.secrets", None)


@carries(Introduce)
def local_acquaintance(exit_: Exit, memory: Memory, envelope: Envelope, ask: Introduce) -> Nothing:
    """Accept the sites whose cards the authority vouches for."""
    try:
        exit_.meet(envelope.run, memory["masked_sums.cards"])
    except Untrusted:
        memory.pop("masked_sums.cards", None)
        raise
    return Nothing()


def _roster(exit_: Exit, memory: Memory, names: tuple[str, ...], digest: bytes) -> None:
    """Refuse rosters that are unknown, or not what the envelope says."""
    known = memory.get("masked_sums.cards", {})
    if len(set(names)) != len(names) or exit_.name not in names or codec.roster_digest(names) != digest:
        raise MalformedMessage("the roster is not the one of the envelope")
    if not set(names) <= known.keys():
        raise MalformedMessage("a site of the roster was not introduced")


@carries(AskMasked)
def local_masked(exit_: Exit, memory: Memory, envelope: Envelope, ask: AskMasked) -> Masked:
    """The carried request's answer, coded and masked; shares of one's own mask go along, sealed."""
    _roster(exit_, memory, ask.roster, envelope.roster)
    exit_.join(envelope.run, ask.roster)
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
    if ask.n == 1:  # there is no mask to take off
        exit_.unmask(envelope.run, ask.roster)
        return Masked(add_streams(total, [], ask.bits), np.zeros((1, SEALED_BYTES), np.uint8))
    secret = secrets.token_bytes(SECRET_BYTES)
    seeds = [(own_seed(secret, context), False)]
    for peer in ask.roster:
        if peer != exit_.name:
            seeds.append((_common_seed(exit_, memory, context, peer), exit_.name > peer))
    return Masked(add_streams(total, seeds, ask.bits), _shares(exit_, memory, context, secret, ask.roster))


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
