"""Keys and certificates of connections: the root that signs them, in the authority's folder, and those it signs."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from coterie.errors import InputError
from coterie.messages.identity import VALID_DAYS

ROOT_DAYS = 10 * VALID_DAYS
"""How long the root is valid: certificates are renewed under it."""
_STATE = ("workspace", "coterie", "state", "cert.json")


class Root(NamedTuple):
    """The certificate that signs those of connections, and its key."""

    certificate: x509.Certificate
    key: RSAPrivateKey

    @property
    def days(self) -> int:
        return (self.certificate.not_valid_after_utc - self.certificate.not_valid_before_utc).days

    @property
    def name(self) -> str:
        return str(self.certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)

    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)


def opened_root(authority: Path, name: str) -> Root:
    """The root in an authority's folder, where NVFlare's provisioning finds it, too; made if there is none."""
    from nvflare.lighter.utils import Identity, generate_cert, generate_keys, serialize_pri_key

    path = authority.joinpath(*_STATE)
    if path.exists():
        state = json.loads(path.read_text())
        key = load_pem_private_key(state["root_pri_key"].encode(), None)
        assert isinstance(key, RSAPrivateKey)
        return Root(x509.load_pem_x509_certificate(state["root_cert"].encode()), key)
    key, public = generate_keys()
    made = Root(generate_cert(Identity(name), Identity(name), key, public, valid_days=ROOT_DAYS, ca=True), key)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_secret(
        path, json.dumps({"root_cert": made.pem().decode(), "root_pri_key": serialize_pri_key(key).decode()}).encode()
    )
    return made


def forget(authority: Path, name: str) -> None:
    """Remove a key and certificate that were made for somebody who has a key of their own."""
    path = authority.joinpath(*_STATE)
    state: dict[str, Any] = json.loads(path.read_text())
    if state.pop(name, None) is not None:
        write_secret(path, json.dumps(state).encode())


def made_key(authority: Path, name: str) -> bytes | None:
    """The public half of a key that was made for somebody in the authority's folder."""
    path = authority.joinpath(*_STATE)
    made = json.loads(path.read_text()).get(name) if path.exists() else None
    return public_bytes(x509.load_pem_x509_certificate(made["cert"].encode()).public_key()) if made else None


def certify(root: Root, participant: dict[str, Any], request: x509.CertificateSigningRequest) -> bytes:
    """The certificate of a participant whose key was made elsewhere, as PEM; of the request only the key counts."""
    from nvflare.lighter.utils import Identity, generate_cert

    ends = min(datetime.now(UTC) + timedelta(VALID_DAYS), root.certificate.not_valid_after_utc)
    if ends < datetime.now(UTC):
        raise InputError(f"the authority itself ended on {ends:%Y-%m-%d}; begin a new folder with --out.")
    name = participant["name"]
    made: x509.Certificate = generate_cert(
        Identity(name, participant["org"], participant.get("role")),
        Identity(root.name),
        root.key,
        request.public_key(),
        server_default_host=name if participant["type"] == "server" else None,
        not_valid_after=ends,
    )
    return made.public_bytes(Encoding.PEM)


def own_key(path: Path) -> RSAPrivateKey:
    """The private key in a file that only its owner reads, made as NVFlare makes them if there is none."""
    from nvflare.lighter.utils import generate_keys, serialize_pri_key

    if not path.exists():
        write_secret(path, serialize_pri_key(generate_keys()[0]))
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise InputError(f"{path}: this is no private key that can be used; choose a new folder.")
    return key


def public_bytes(key: Any) -> bytes:
    """A public key as bytes that can be compared."""
    raw: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return raw


def write_secret(path: Path, raw: bytes) -> None:
    """Write a file that only its owner reads, all of it or nothing."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(raw)
    temporary.replace(path)
