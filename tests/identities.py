"""Identities of sites that tests make by hand, the same every time."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coterie.messages.identity import Authority, Certificate, Identity, Role, Trust, public_signing_key
from coterie.sites.identity_files import IdentityFiles

AUTHORITY = Authority(bytes(range(100, 132)))


def identity(
    name: str, authority: Authority = AUTHORITY, *, ends: int = 1 << 40, serial: bytes = bytes(8), role: Role = "site"
) -> Identity:
    """An identity with a key made from its name."""
    key = hashlib.sha256(name.encode()).digest()
    blank = Certificate(public_signing_key(key), serial, 0, ends)
    signature = Ed25519PrivateKey.from_private_bytes(authority.key).sign(blank.signed(role, name))
    return Identity(name, key, blank._replace(signature=signature), Trust(authority.public))


def certify(kit: Path, name: str, authority: Authority = AUTHORITY) -> None:
    """Make a signing key in a site's kit, and certify it."""
    files = IdentityFiles(kit)
    files.write(authority, authority.certify("site", name, public_signing_key(files.key())))
