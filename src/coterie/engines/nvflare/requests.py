"""Requests: keys are made where they are used, and the authority gets their public halves to certify."""

from __future__ import annotations

from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from coterie.engines.nvflare.kits import check_name, read_kit
from coterie.engines.nvflare.tls import own_key, public_bytes
from coterie.errors import InputError
from coterie.files import read_from_others
from coterie.messages.identity import KEY_BYTES, Role, fingerprint, is_signed, public_signing_key, request_text, sign
from coterie.sites.identity_files import IdentityFiles

MAX_REQUEST_BYTES = 1 << 14
_ENDING = ".request"


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who asks for certificates, and for which keys."""

    role: Role
    name: str
    tls: str
    """A certificate signing request for the key of connections (PKCS#10, PEM)."""
    key: bytes = b""
    """The public signing key; a server has none."""
    signature: bytes = b""
    """By the signing key, over all of the above."""

    def csr(self) -> x509.CertificateSigningRequest:
        return x509.load_pem_x509_csr(self.tls.encode())

    def fingerprint(self) -> str:
        """The same for the same keys; the authority compares it with what their owner says."""
        return fingerprint(public_bytes(self.csr().public_key()) + self.key)


def enroll(folder: Path, role: Role, name: str) -> tuple[Path, Request]:
    """Make keys in a folder, keep those that are there, and write a request for their certificates."""
    from nvflare.lighter.utils import x509_name

    check_name(role, name)
    if len(name) > 64:
        raise InputError(f"{name!r}: a certificate has room for names of 64 characters.")
    path = folder / f"{name}{_ENDING}"
    earlier = _owner(folder)
    if earlier and earlier != (role, name):
        raise InputError(f"{folder} is the folder of {' '.join(earlier)}; choose another with --kit.")
    for place in (folder, folder / "startup"):
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o700)
    tls = own_key(tls_key(folder, role))
    csr = x509.CertificateSigningRequestBuilder().subject_name(x509_name(name, role=role)).sign(tls, SHA256())
    request = Request(role, name, csr.public_bytes(Encoding.PEM).decode())
    if role != "server":
        key = IdentityFiles(folder).key()
        public = public_signing_key(key)
        signature = sign(key, request_text(role, name, request.tls, public))
        request = Request(role, name, request.tls, public, signature)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(request)) + b"\n")
    return path, request


def _owner(folder: Path) -> tuple[str, str] | None:
    """The role and name that a folder has by its request or its kit."""
    if any(folder.glob(f"*{_ENDING}")):
        request = own_request(folder)
        return request.role, request.name
    if any(folder.glob("startup/fed_*.json")):
        kit = read_kit(folder)
        return kit.kind, kit.name
    return None


def own_request(folder: Path) -> Request:
    """The request that was made in a folder."""
    found = sorted(folder.glob(f"*{_ENDING}"))
    if len(found) != 1:
        raise InputError(f"{folder}: no request was made in this folder, or several; `coterie enroll` makes one.")
    return read_request(found[0])


def tls_key(folder: Path, role: Role) -> Path:
    """Where a kit has its private key of connections."""
    return folder / "startup" / ("server.key" if role == "server" else "client.key")


def read_request(file: Path) -> Request:
    """A request whose signatures are right; anything else is one clear error."""
    raw = read_from_others(file, MAX_REQUEST_BYTES)
    try:
        request = msgspec.json.decode(raw, type=Request)
        problem = _problem(request)
    except (msgspec.MsgspecError, UnsupportedAlgorithm, InvalidSignature, ValueError, TypeError):
        raise InputError(f"{file}: this is no request of `coterie enroll`.") from None
    if problem:
        raise InputError(f"{file}: {problem}.")
    check_name(request.role, request.name)
    return request


def _problem(request: Request) -> str:
    """What is wrong with a request, if anything."""
    from nvflare.lighter.utils import x509_name

    csr = request.csr()
    public = csr.public_key()
    if not isinstance(public, RSAPublicKey) or public.key_size < 2048:
        return "the key of connections is not of the kind that `coterie enroll` makes"
    if not csr.is_signature_valid or csr.subject != x509_name(request.name, role=request.role):
        return f"the request for a certificate of connections is not by {request.role} {request.name!r}"
    if request.role == "server":
        return "a server has no signing key" if request.key or request.signature else ""
    text = request_text(request.role, request.name, request.tls, request.key)
    if len(request.key) != KEY_BYTES or not is_signed(request.key, request.signature, text):
        return "it is not signed by the signing key in it"
    return ""
