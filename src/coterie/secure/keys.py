"""Keys of a run: what two sites have in common, what each key binds, and how shares are sealed."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from coterie.errors import MalformedMessage
from coterie.messages import codec
from coterie.messages.codec import Envelope
from coterie.messages.site_api import Exit, Memory

Bytes = npt.NDArray[np.uint8]
KEY_BYTES = 32


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
        kept[peer] = extracted(secret)
    return kept[peer]


def extracted(secret: bytes) -> bytes:
    """HKDF's first step (RFC 5869, SHA-256, no salt), once a secret."""
    return hmac.digest(bytes(KEY_BYTES), secret, "sha256")


def expanded(extracted: bytes, info: bytes) -> bytes:
    """HKDF's second step, once a key: as long as the hash, so one block."""
    return hmac.digest(extracted, info + b"\x01", "sha256")


def common_seed(exit_: Exit, memory: Memory, context: Context, peer: str) -> bytes:
    """The key of this round's common mask with another site: the same at both ends."""
    return expanded(_common_secret(exit_, memory, peer), context.info("mask", *sorted((exit_.name, peer))))


def seal(
    exit_: Exit, memory: Memory, context: Context, giver: str, taker: str, what: str = "share"
) -> ChaCha20Poly1305:
    """The cipher for the one share that ``giver`` sends ``taker`` in this round; one of them is this site."""
    peer = taker if giver == exit_.name else giver
    return ChaCha20Poly1305(expanded(_common_secret(exit_, memory, peer), context.info(what, giver, taker)))


def own_seed(secret: bytes, context: Context) -> bytes:
    """The key of a site's own mask from its secret."""
    return expanded(extracted(secret), context.info("own"))


def rows_of(numbers: Bytes) -> list[bytes]:
    """Each row of an array of bytes."""
    raw, width = numbers.astype(np.uint8).tobytes(), numbers.shape[1]
    return [raw[i : i + width] for i in range(0, len(raw), width)]


def array_of(rows: Sequence[bytes], width: int) -> Bytes:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), width)


def opened(cipher: ChaCha20Poly1305, sealed: bytes) -> bytes:
    try:
        return cipher.decrypt(bytes(12), sealed, None)
    except InvalidTag:
        raise MalformedMessage("a sealed share was changed on the way") from None
