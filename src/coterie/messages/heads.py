"""Heads of sites' ledgers, signed by their sites: what others remember, so that a ledger cannot be cut unnoticed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from coterie.errors import Untrusted
from coterie.messages.identity import SIGNATURE_BYTES, is_signed

_FIELDS = struct.Struct(">16sIQ32s")
HEAD_BYTES = _FIELDS.size + SIGNATURE_BYTES
_PURPOSE = b"coterie/ledger head/"


class Head(NamedTuple):
    """A ledger had so many lines, and the last one this hash; the site's signing key says so."""

    ledger: bytes
    """Sixteen random bytes, made with the ledger and again when a break in it is acknowledged."""
    breaks: int
    """How many breaks of the ledger the data officer has acknowledged."""
    lines: int
    hash: bytes
    signature: bytes = b""

    def fields(self) -> bytes:
        """Everything but the signature."""
        return _FIELDS.pack(*self[:4])

    def signed(self) -> bytes:
        """The bytes that the site signs."""
        return _PURPOSE + self.fields()

    def to_bytes(self) -> bytes:
        return self.fields() + self.signature

    @classmethod
    def from_bytes(cls, raw: bytes) -> Head:
        if len(raw) != HEAD_BYTES:
            raise Untrusted(f"the head of a ledger has {len(raw)} bytes, not {HEAD_BYTES}")
        return cls._make((*_FIELDS.unpack(raw[: _FIELDS.size]), raw[_FIELDS.size :]))

    def is_signed_by(self, key: bytes) -> bool:
        """Whether the owner of a public signing key said so."""
        return is_signed(key, self.signature, self.signed())

    def follows(self, other: Head) -> bool:
        """Whether this is a later state than another head of the same site: of the same ledger, or since a break."""
        if self.breaks != other.breaks:
            return self.breaks > other.breaks
        return self.ledger == other.ledger and self.lines > other.lines


WITNESSES = 8
"""How many others are asked at most what they remember of a site's ledger."""


def witnessed_by(names: Sequence[str], own: str) -> list[str]:
    """The sites whose heads a site is asked for: those that follow it in a list."""
    place = names.index(own) if own in names else 0
    return [*names[place + 1 :], *names[:place]][:WITNESSES]
