"""Identity: an authority certifies signing keys, and a signing key certifies its owner's masking key."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from coterie.errors import Untrusted

Role = Literal["site", "analyst", "server"]

KEY_BYTES, SERIAL_BYTES, SIGNATURE_BYTES, TIME_BYTES = 32, 8, 64, 8
CERTIFICATE_BYTES = KEY_BYTES + SERIAL_BYTES + 2 * TIME_BYTES + SIGNATURE_BYTES
CARD_BYTES = CERTIFICATE_BYTES + KEY_BYTES + SIGNATURE_BYTES
VALID_DAYS = 360
"""How long a certificate is valid unless the authority says otherwise."""


class Certificate(NamedTuple):
    """The authority's word that a signing key belongs to a role and a name, which both ends know."""

    signing_key: bytes
    serial: bytes
    begins: int
    ends: int
    """Seconds since 1970."""
    signature: bytes = b""

    def to_bytes(self) -> bytes:
        return self.fields() + self.signature

    def fields(self) -> bytes:
        """Everything but the signature."""
        return self.signing_key + self.serial + _time(self.begins) + _time(self.ends)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Certificate:
        key, serial, begins, ends, signature = _parts(
            raw, KEY_BYTES, SERIAL_BYTES, TIME_BYTES, TIME_BYTES, SIGNATURE_BYTES
        )
        return cls(key, serial, int.from_bytes(begins, "big"), int.from_bytes(ends, "big"), signature)

    def signed(self, role: Role, name: str) -> bytes:
        """The bytes that the authority signs."""
        return _text("certificate", role, name) + self.fields()


class Revocations(NamedTuple):
    """Serial numbers of certificates that are valid no longer; a later list replaces an earlier one."""

    number: int
    serials: frozenset[bytes]
    signature: bytes = b""

    def signed(self) -> bytes:
        """The bytes that the authority signs."""
        return _text("revocations") + self.fields()

    def fields(self) -> bytes:
        """Everything but the signature."""
        return _time(self.number) + b"".join(sorted(self.serials))

    def to_bytes(self) -> bytes:
        return self.signature + self.fields()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Revocations:
        n_serials = max(0, len(raw) - SIGNATURE_BYTES - TIME_BYTES) // SERIAL_BYTES
        signature, number, *serials = _parts(raw, SIGNATURE_BYTES, TIME_BYTES, *[SERIAL_BYTES] * n_serials)
        return cls(int.from_bytes(number, "big"), frozenset(serials), signature)


class Card(NamedTuple):
    """A certificate, and a masking key signed by the certified signing key."""

    certificate: Certificate
    masking_key: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        return self.certificate.to_bytes() + self.masking_key + self.signature

    @classmethod
    def from_bytes(cls, raw: bytes) -> Card:
        certificate, key, signature = _parts(raw, CERTIFICATE_BYTES, KEY_BYTES, SIGNATURE_BYTES)
        return cls(Certificate.from_bytes(certificate), key, signature)


class Authority:
    """Signs certificates and revocations; whoever holds its key can name anyone."""

    def __init__(self, key: bytes | None = None) -> None:
        self.key = key or os.urandom(KEY_BYTES)
        self._signing = Ed25519PrivateKey.from_private_bytes(self.key)

    @property
    def public(self) -> bytes:
        """What everyone knows of it."""
        return self._signing.public_key().public_bytes_raw()

    def certify(self, role: Role, name: str, signing_key: bytes, *, days: float = VALID_DAYS) -> Certificate:
        """A certificate that is valid from now on."""
        now = int(time.time())
        blank = Certificate(signing_key, os.urandom(SERIAL_BYTES), now, now + int(days * 86400))
        return blank._replace(signature=self._signing.sign(blank.signed(role, name)))

    def revoke(self, serials: Collection[bytes], number: int) -> Revocations:
        """A signed list; ``number`` is higher than that of the list before."""
        blank = Revocations(number, frozenset(serials))
        return blank._replace(signature=self._signing.sign(blank.signed()))


@dataclass(frozen=True)
class Trust:
    """What anyone needs to check others: the authority's public key, and what it revoked."""

    authority: bytes
    revoked: Revocations = field(default_factory=lambda: Revocations(0, frozenset()))

    def __post_init__(self) -> None:
        if self.revoked.number and not is_signed(self.authority, self.revoked.signature, self.revoked.signed()):
            raise Untrusted("the list of revoked certificates is not signed by this federation's authority")

    def check(self, certificate: Certificate, role: Role, name: str, *, now: float | None = None) -> None:
        """``Untrusted`` unless the authority certified this key for this role and name, and it holds today."""
        today = time.time() if now is None else now
        if not is_signed(self.authority, certificate.signature, certificate.signed(role, name)):
            raise Untrusted(f"the certificate of {role} {name} is not signed by this federation's authority")
        if not certificate.begins - CLOCKS_DIFFER <= today <= certificate.ends:
            raise Untrusted(f"the certificate of {role} {name} is not valid today")
        if certificate.serial in self.revoked.serials:
            raise Untrusted(f"the certificate of {role} {name} was revoked")

    def check_card(self, card: Card, name: str) -> None:
        """The same of a site's card, whose masking key the site signed."""
        self.check(card.certificate, "site", name)
        if not is_signed(card.certificate.signing_key, card.signature, _masking(name, card.masking_key)):
            raise Untrusted(f"the masking key of {name} is not signed by its signing key")


CLOCKS_DIFFER = 3600.0
"""Seconds by which the clocks of two organisations may differ."""


@dataclass(frozen=True)
class Identity:
    """What a site or an analyst signs with, how it is certified, and whom it trusts to certify others."""

    name: str
    key: bytes = field(repr=False)
    """The signing key, which never leaves."""
    certificate: Certificate
    trust: Trust

    @classmethod
    def certified_by(cls, authority: Authority, name: str, key: bytes, role: Role = "site") -> Identity:
        """The identity of a site, or of an analyst, whose authority is at hand."""
        return cls(name, key, authority.certify(role, name, public_signing_key(key)), Trust(authority.public))

    def card(self, masking_key: bytes) -> Card:
        """The card of a site with this private masking key."""
        public = public_masking_key(masking_key)
        return Card(self.certificate, public, self.sign(_masking(self.name, public)))

    def sign(self, data: bytes) -> bytes:
        return sign(self.key, data)


def sign(key: bytes, data: bytes) -> bytes:
    """The signature by a private signing key."""
    return Ed25519PrivateKey.from_private_bytes(key).sign(data)


def check_signed(card: Card, name: str, signature: bytes, data: bytes) -> None:
    """``Untrusted`` unless the site of this card signed the data."""
    if not is_signed(card.certificate.signing_key, signature, data):
        raise Untrusted(f"what {name} is said to have said is not signed by it")


def public_signing_key(key: bytes) -> bytes:
    """The public half of a signing key."""
    return Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def public_masking_key(key: bytes) -> bytes:
    """The public half of a masking key."""
    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


@lru_cache(maxsize=4096)  # sites of one process check the same cards
def is_signed(key: bytes, signature: bytes, data: bytes) -> bool:
    """Whether the owner of a public key signed these bytes."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def fingerprint(data: bytes) -> str:
    """The SHA-256 of a public key, in groups of four that two people can compare by telephone."""
    text = hashlib.sha256(data).hexdigest()
    return " ".join(text[i : i + 4] for i in range(0, len(text), 4))


def request_text(role: Role, name: str, tls: str, key: bytes) -> bytes:
    """What the owner of a signing key signs, to ask for certificates of it and of a TLS key."""
    return _text("request", role, name, tls) + key


def kit_text(role: Role, name: str, digest: bytes) -> bytes:
    """What the authority signs of a kit that it hands over."""
    return _text("kit", role, name) + digest


def order_text(analyst: str, order: bytes) -> bytes:
    """What an analyst signs of an order."""
    return _text("order", analyst) + hashlib.sha256(order).digest()


def _masking(name: str, key: bytes) -> bytes:
    return _text("masking key", name) + key


def _text(purpose: str, *words: str) -> bytes:
    """What a signature is for, so that none can be used for something else; every word with its length."""
    parts = [word.encode() for word in ("coterie", purpose, *words)]
    return b"".join(len(part).to_bytes(2, "big") + part for part in parts)


def _time(seconds: int) -> bytes:
    return seconds.to_bytes(TIME_BYTES, "big")


def _parts(raw: bytes, *sizes: int) -> list[bytes]:
    """Bytes cut into parts; ``Untrusted`` unless they are exactly as long as all parts."""
    if len(raw) != sum(sizes):
        raise Untrusted("a certificate or card has another size than this version of coterie knows")
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [raw[end - size : end] for end, size in zip(ends, sizes, strict=True)]
