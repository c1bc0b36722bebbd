"""Kits without private keys, as one file: packed and signed by the authority, checked and unpacked by their owner."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from coterie.engines.nvflare.kits import Kit, read_kit
from coterie.engines.nvflare.requests import Request, own_request, tls_key
from coterie.engines.nvflare.tls import own_key, public_bytes
from coterie.errors import CoterieError, InputError, Untrusted
from coterie.files import read_from_others
from coterie.messages.identity import (
    Authority,
    Certificate,
    Revocations,
    Role,
    fingerprint,
    is_signed,
    kit_text,
    public_signing_key,
    sign,
)
from coterie.sites.identity_files import IdentityFiles, from_text

MAX_FILE_BYTES, MAX_ENTRIES, MAX_BYTES = 1 << 20, 64, 1 << 22
_SIGNATURE, _REVOKED = "signature", "startup/identity/revoked"
_KNOWN = re.compile(
    r"comm_config\.json|readme\.txt|(startup|local)/[A-Za-z0-9_][A-Za-z0-9_.]*|startup/identity/(authority|certificate|revoked)"
)
_OWN = re.compile(r".*\.key|local/coterie\.json")
"""What a kit from elsewhere never brings."""
_PROBLEMS = (CoterieError, UnsupportedAlgorithm, LookupError, AttributeError, TypeError, ValueError, OSError)


def pack(folder: Path, file: Path, role: Role, name: str, authority: Authority) -> None:
    """Write a kit as one file, with the authority's signature of all of it."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    entries = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    _check_names(file, entries)
    entries[_SIGNATURE] = sign(authority.key, kit_text(role, name, _digest(entries)))
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(file.name + ".partial")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, raw in sorted(entries.items()):
            archive.writestr(entry, raw)
    temporary.replace(file)


def install(file: Path, folder: Path) -> Kit:
    """Check a kit against the keys in its owner's folder, and unpack it there.

    On renewal ``startup`` is replaced; what the owner has in ``local`` stays.
    """
    request = own_request(folder)
    entries = _entries(file)
    _check_signed(file, entries, request, folder)
    partial = folder / "install.partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _keep_newest(entries, folder / _REVOKED)
        for entry, raw in entries.items():
            target = partial / entry
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.write_bytes(raw)
            target.chmod(0o600)
        _check_kit(partial, folder, request)
        for entry in entries:
            if entry.startswith("startup/") or not (folder / entry).exists():
                (folder / entry).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                (partial / entry).replace(folder / entry)
    except _PROBLEMS as problem:
        raise InputError(f"{file}: this kit cannot be used here: {str(problem).rstrip('.')}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return read_kit(folder)


def _entries(file: Path) -> dict[str, bytes]:
    """What is in the file: a few small regular files, at places where a kit has some."""
    raw = read_from_others(file, MAX_FILE_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            found = archive.infolist()
            if len(found) > MAX_ENTRIES or sum(entry.file_size for entry in found) > MAX_BYTES:
                raise InputError(f"{file}: this file unpacks to more than a kit has.")
            if not all(_is_regular(entry) for entry in found) or len({one.filename for one in found}) < len(found):
                raise InputError(f"{file}: a kit has regular files only, each once.")
            entries = {entry.filename: archive.read(entry) for entry in found}
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError, RuntimeError, OSError) as problem:
        raise InputError(f"{file}: this is no kit ({problem}).") from None
    except ValueError as problem:
        raise problem if isinstance(problem, InputError) else InputError(f"{file}: this is no kit.") from None
    _check_names(file, [entry for entry in entries if entry != _SIGNATURE])
    return entries


def _is_regular(entry: zipfile.ZipInfo) -> bool:
    mode = entry.external_attr >> 16
    is_packed_as_here = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    return is_packed_as_here and not entry.is_dir() and (not stat.S_IFMT(mode) or stat.S_ISREG(mode))


def _check_names(file: Path, entries: Any) -> None:
    for entry in entries:
        if not _KNOWN.fullmatch(entry) or _OWN.fullmatch(entry):
            raise InputError(f"{file}: a kit that is handed over has no file {entry!r}.")


def _check_signed(file: Path, entries: dict[str, bytes], request: Request, folder: Path) -> None:
    """Everything is as the authority packed it for this role and name, and the authority is not a new one."""
    try:
        signature, authority = entries.pop(_SIGNATURE), from_text(entries["startup/identity/authority"])
    except (KeyError, ValueError):
        raise InputError(f"{file}: this is no kit, or a part of it is missing.") from None
    if not is_signed(authority, signature, kit_text(request.role, request.name, _digest(entries))):
        raise InputError(
            f"{file}: the authority did not sign this kit for {request.role} {request.name}, or it was changed."
        )
    earlier = IdentityFiles(folder).authority()
    if earlier is not None and earlier != authority:
        raise InputError(
            f"{file}: this kit is by another authority ({fingerprint(authority)}) than the one installed here "
            f"({fingerprint(earlier)}); if that is right, remove startup/identity/authority and "
            "startup/identity/revoked first."
        )


def _check_kit(partial: Path, folder: Path, request: Request) -> None:
    """The certificates hold today, for the keys in the owner's folder."""
    kit = read_kit(partial)
    if (kit.kind, kit.name) != (request.role, request.name):
        raise Untrusted(f"it is for {kit.kind} {kit.name}, and the request here is by {request.role} {request.name}")
    kit.check()
    tls = tls_key(folder, request.role)
    root, own = (
        x509.load_pem_x509_certificate((partial / "startup" / name).read_bytes())
        for name in ("rootCA.pem", tls.with_suffix(".crt").name)
    )
    try:
        own.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError):
        raise Untrusted("its certificate is not signed by its authority") from None
    if public_bytes(own.public_key()) != public_bytes(own_key(tls).public_key()):
        raise Untrusted("its certificate is for another key than the one in this folder")
    trust = IdentityFiles(partial).trust()
    if request.role == "server":
        return
    certificate = Certificate.from_bytes(from_text((partial / "startup/identity/certificate").read_bytes()))
    trust.check(certificate, request.role, request.name)
    if certificate.signing_key != public_signing_key((folder / "startup/identity/key").read_bytes()):
        raise Untrusted("its certificate is for another signing key than the one in this folder")


def _keep_newest(entries: dict[str, bytes], installed: Path) -> None:
    """Keep the list of revoked certificates that is installed, unless the kit has a later one."""
    if not installed.exists():
        return
    own, given = installed.read_bytes(), entries.get(_REVOKED)
    if given is None or _number(given) < _number(own):
        entries[_REVOKED] = own


def _number(revoked: bytes) -> int:
    return Revocations.from_bytes(from_text(revoked)).number


def _digest(entries: Mapping[str, bytes]) -> bytes:
    """A digest of names and contents."""
    lines = sorted(f"{hashlib.sha256(raw).hexdigest()} {entry}\n" for entry, raw in entries.items())
    return hashlib.sha256("".join(lines).encode()).digest()
