"""Masked sums after Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning".

A site adds to its numbers, coded as integers of a ring, one mask for every other site of the roster (with opposite
signs at the two ends, so that they cancel) and one of its own. All masks of a round are streams of keys used once:
they bind the run, the round, the attempt, the roster and the request. After the upload the survivors reveal, for that
round only,

- for every survivor their share of its own mask's secret (any ``threshold`` of them give it), or
- for every site that dropped out their common mask with it,

never both for one site. A site claimed to have dropped keeps its own mask, so a faked dropout yields nothing.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from coterie.errors import BadAnswer, MalformedMessage
from coterie.maths.masks import FixedPoint, Ring, add_in_ring, mask_stream
from coterie.messages import codec
from coterie.messages.codec import Envelope
from coterie.messages.schema import Integers, Layout, Nothing, Reply, Request, array
from coterie.messages.site_part import Exit, Memory, Table, carries, remembers
from coterie.secure.shamir import SHARE_BYTES, split

__all__ = [
    "AskKey",
    "AskMasked",
    "Context",
    "Introduce",
    "Masked",
    "PublicKey",
    "Reveal",
    "Revealed",
    "codings",
    "fewest_survivors",
    "mask_of",
    "own_mask",
    "threshold",
]

Bytes = npt.NDArray[np.uint8]

SEALED_BYTES = SHARE_BYTES + 16
KEY_BYTES = 32


def threshold(n_sites: int) -> int:
    """How many of the other sites' shares give a site's own mask: two thirds, at least one."""
    return max(1, 2 * n_sites // 3) if n_sites > 2 else n_sites - 1


def fewest_survivors(n_sites: int) -> int:
    """How many sites must have uploaded for the sum to be unmasked.

    With t the threshold, a server that tells some sites one story and others another gets the shares of a site's own
    mask from t others, its common masks from the remaining n-1-t and, from the site itself, at most n-u more. As long
    as u >= n-t+1 at least one common mask stays unknown.
    """
    t = threshold(n_sites)
    return max(t + 1, n_sites - t + 1) if n_sites > 1 else 1


# ---------------------------------------------------------------- messages


@dataclass(frozen=True)
class PublicKey(Reply, content="nothing"):
    """A site's public key."""

    key: Bytes = array(KEY_BYTES, dtype="uint8", is_counted=False)


@dataclass(frozen=True)
class AskKey(Request[PublicKey]):
    """What is your public key?"""


@dataclass(frozen=True)
class Introduce(Request[Nothing], remembered=True):
    """These are the sites and their public keys."""

    names: tuple[str, ...]
    keys: Bytes = array("n", KEY_BYTES, dtype="uint8")


@dataclass(frozen=True)
class Masked(Reply, content="sums"):
    """Masked numbers, and for every other site of the roster its sealed share of the secret of one's own mask."""

    numbers: Integers = array("count", dtype="uint{bits}")
    shares: Bytes = array("n", SEALED_BYTES, dtype="uint8", is_counted=False)


@dataclass(frozen=True)
class AskMasked(Request[Masked]):
    """Answer the request in ``body``, masked for this roster."""

    bits: int
    count: int
    n: int
    roster: tuple[str, ...]
    body: bytes


@dataclass(frozen=True)
class Revealed(Reply, content="nothing"):
    """By place in the roster: the share of a survivor's own mask, or the common mask with a site that dropped out."""

    shares: Bytes = array("n", SHARE_BYTES, dtype="uint8", is_counted=False)
    seeds: Bytes = array("n", KEY_BYTES, dtype="uint8", is_counted=False)


@dataclass(frozen=True)
class Reveal(Request[Revealed]):
    """Unmask the sum of an earlier round; the sealed shares are those the survivors sent for you."""

    n: int
    round: int
    attempt: int
    roster: tuple[str, ...]
    survived: Integers = array("n", dtype="uint1")
    sealed: Bytes = array("n", SEALED_BYTES, dtype="uint8")


# ---------------------------------------------------------------- keys


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
        tags = b"".join(map(codec.site_tag, names))
        numbers = self.round.to_bytes(4, "little") + self.attempt.to_bytes(2, "little")
        return b"coterie/" + purpose.encode() + b"/" + self.run + numbers + self.roster + self.request + tags


def _derived(secret: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)


def _common_secret(exit_: Exit, memory: Memory, peer: str) -> bytes:
    """The Diffie-Hellman secret with another site, computed once a run."""
    kept: dict[str, bytes] = memory.setdefault("masked_sums.secrets", {})
    if peer not in kept:
        mine = X25519PrivateKey.from_private_bytes(exit_.masking_key)
        kept[peer] = mine.exchange(X25519PublicKey.from_public_bytes(memory["masked_sums.keys"][peer]))
    return kept[peer]


def _common_seed(exit_: Exit, memory: Memory, context: Context, peer: str) -> bytes:
    """The key of this round's common mask with another site: the same at both ends."""
    return _derived(_common_secret(exit_, memory, peer), context.info("mask", *sorted((exit_.name, peer))))


def _seal(exit_: Exit, memory: Memory, context: Context, giver: str, taker: str) -> ChaCha20Poly1305:
    """The cipher for the one share that ``giver`` sends ``taker`` in this round; one of them is this site."""
    peer = taker if giver == exit_.name else giver
    key = _derived(_common_secret(exit_, memory, peer), context.info("share", giver, taker))
    return ChaCha20Poly1305(key)


def mask_of(seed: bytes, count: int, bits: int) -> Ring:
    """The common mask a seed stands for."""
    return mask_stream(seed, count, bits)


def own_mask(secret: bytes, context: Context, count: int, bits: int) -> Ring:
    """A site's own mask from its secret."""
    return mask_stream(_derived(secret, context.info("own")), count, bits)


def codings(layout: Layout, limits: Any, bits: int, n_sites: int) -> list[FixedPoint]:
    """How each array of an answer is coded; ``ValueError`` where one has no bound."""
    return [FixedPoint(bits, high, n_sites) for _, high in layout.bounds(limits)]


# ---------------------------------------------------------------- the site's part


@carries(AskKey)
def local_public_key(exit_: Exit, memory: Memory, envelope: Envelope, ask: AskKey) -> PublicKey:
    """The public half of the site's key."""
    return PublicKey(np.frombuffer(_public(exit_), np.uint8))


def _public(exit_: Exit) -> bytes:
    return X25519PrivateKey.from_private_bytes(exit_.masking_key).public_key().public_bytes_raw()


@remembers(Introduce)
def keep_keys(table: Table, memory: Memory, ask: Introduce) -> None:
    """Keep the others' public keys for this run."""
    keys = {name: bytes(key.astype(np.uint8)) for name, key in zip(ask.names, ask.keys, strict=True)}
    if len(keys) != len(ask.names):
        raise MalformedMessage("a site is introduced twice")
    memory["masked_sums.keys"] = keys
    memory.pop("masked_sums.secrets", None)


@carries(Introduce)
def local_acquaintance(exit_: Exit, memory: Memory, envelope: Envelope, ask: Introduce) -> Nothing:
    """Check one's own key and those the site's owner pinned."""
    keys = memory["masked_sums.keys"]
    trusted = {**(keys if exit_.peers is None else exit_.peers), exit_.name: _public(exit_)}
    wrong = [name for name, key in keys.items() if trusted.get(name) != key]
    if wrong:
        memory.pop("masked_sums.keys", None)
        raise MalformedMessage(f"the key of {wrong[0]} is not the one known here")
    return Nothing()


def _roster(exit_: Exit, memory: Memory, names: tuple[str, ...], digest: bytes) -> None:
    """Refuse rosters that are too small, unknown, or not what the envelope says."""
    known = memory.get("masked_sums.keys", {})
    if len(set(names)) != len(names) or exit_.name not in names or codec.roster_digest(names) != digest:
        raise MalformedMessage("the roster is not the one of the envelope")
    if len(names) < exit_.min_roster:
        raise MalformedMessage(f"a roster of {len(names)} sites; this site wants at least {exit_.min_roster}")
    if not set(names) <= known.keys():
        raise MalformedMessage("a site of the roster was not introduced")


@carries(AskMasked)
def local_masked(exit_: Exit, memory: Memory, envelope: Envelope, ask: AskMasked) -> Masked:
    """The carried request's answer, coded and masked; shares of one's own mask go along, sealed."""
    _roster(exit_, memory, ask.roster, envelope.roster)
    found = exit_.evaluate(envelope.run, envelope.method, ask.body)
    layout = found.request.layout
    if (ask.count, ask.n) != (layout.numbers, len(ask.roster)):
        raise MalformedMessage("the masked answer asked for has another size")
    try:
        coded = codings(layout, found.limits, ask.bits, ask.n)
        parts = [coding.encode(value).ravel() for coding, value in zip(coded, found.reply.arrays(), strict=True)]
    except ValueError as problem:
        raise BadAnswer(f"it cannot be masked: {problem}") from None
    context, total = Context.of(envelope), np.concatenate([*parts, np.zeros(0, np.uint64)])
    shares = np.zeros((ask.n, SEALED_BYTES), np.uint8)
    if ask.n > 1:
        secret = secrets.token_bytes(16)
        total = add_in_ring(total, own_mask(secret, context, ask.count, ask.bits), ask.bits)
        for peer in ask.roster:
            if peer != exit_.name:
                mask = mask_of(_common_seed(exit_, memory, context, peer), ask.count, ask.bits)
                total = add_in_ring(total, mask, ask.bits, minus=exit_.name > peer)
        _share(exit_, memory, context, secret, ask.roster, shares)
    return Masked(total if ask.bits == 64 else total.astype(np.int64), shares)


def _share(exit_: Exit, memory: Memory, context: Context, secret: bytes, roster: tuple[str, ...], out: Bytes) -> None:
    places = [i + 1 for i, peer in enumerate(roster) if peer != exit_.name]
    for place, share in split(secret, places, threshold(len(roster))).items():
        cipher = _seal(exit_, memory, context, exit_.name, roster[place - 1])
        out[place - 1] = np.frombuffer(cipher.encrypt(bytes(12), share, None), np.uint8)


@carries(Reveal)
def local_revealed(exit_: Exit, memory: Memory, envelope: Envelope, ask: Reveal) -> Revealed:
    """What unmasks the sum of an earlier round: once a round, one kind for each site."""
    context = _upload_context(exit_, envelope, ask)
    _roster(exit_, memory, ask.roster, context.roster)
    survived = [bool(x) for x in ask.survived]
    if ask.n != len(ask.roster) or not survived[ask.roster.index(exit_.name)]:
        raise MalformedMessage("who did not upload has nothing to reveal")
    if sum(survived) < fewest_survivors(ask.n):
        raise MalformedMessage(f"{sum(survived)} survivors of {ask.n} are too few to unmask")
    if not exit_.once(envelope.run, f"reveal {ask.round} {ask.attempt}"):
        raise MalformedMessage("the masks of that round were revealed already")
    shares, seeds = np.zeros((ask.n, SHARE_BYTES), np.uint8), np.zeros((ask.n, KEY_BYTES), np.uint8)
    for i, peer in enumerate(ask.roster):
        if peer == exit_.name:
            continue
        if survived[i]:
            sealed = bytes(ask.sealed[i].astype(np.uint8))
            try:
                opened = _seal(exit_, memory, context, peer, exit_.name).decrypt(bytes(12), sealed, None)
            except InvalidTag:
                raise MalformedMessage("a sealed share was changed on the way") from None
            shares[i] = np.frombuffer(opened, np.uint8)
        else:
            seeds[i] = np.frombuffer(_common_seed(exit_, memory, context, peer), np.uint8)
    return Revealed(shares, seeds)


def _upload_context(exit_: Exit, envelope: Envelope, ask: Reveal) -> Context:
    """The context of this site's own upload in that round; without one there is nothing to reveal."""
    frame = exit_.answered(envelope.run, ask.round, ask.attempt)
    if frame is None:
        raise MalformedMessage("this site uploaded nothing in that round")
    return Context.of(codec.read_envelope(frame)[1])
