"""What an authority does with requests: it makes kits without private keys, and it revokes certificates."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.engines.nvflare import tls
from coterie.engines.nvflare.handover import pack
from coterie.engines.nvflare.kits import (
    check_address,
    check_name,
    closed,
    copy_kit,
    known_federation,
    opened,
    project,
    signed,
    write_json,
)
from coterie.engines.nvflare.register import Register
from coterie.engines.nvflare.requests import Request, read_request
from coterie.errors import InputError
from coterie.sites.identity_files import IdentityFiles, as_text

_MADE_HERE = {"site": "sites", "analyst": "analysts"}


def sign(out: Path, files: Sequence[Path], *, server: str, port: int) -> dict[Path, Request]:
    """Make a kit without private keys for every request: ``server.kit``, ``sites/NAME.kit``, ``analysts/NAME.kit``.

    Gives the files, each with its request.
    """
    requests = [read_request(file) for file in files]
    known = known_federation(out, server, port)
    check_address(server, port)
    for request in requests:
        _check_request(out, request, server)
    names = [request.name for request in requests]
    if len(set(names)) < len(names):
        raise InputError("two requests are by the same name; sign one of them.")
    authority = opened(out)
    register = Register(authority)
    for request in requests:
        _check_keys(register, request)
    by_role = {role: [one.name for one in requests if one.role == role] for role in _MADE_HERE}
    plan = project(by_role["site"], server, port, by_role["analyst"])
    participants = {one["name"]: one for one in plan["participants"]}
    kits = {}
    with closed(authority), signed(authority, plan, with_keys=False) as made:
        root = tls.opened_root(authority, plan["name"])
        for request in requests:
            tls.forget(authority, request.name)
            kits[_make(out, made, request, participants[request.name], root, register)] = request
        kept = {key: [one for one in known[key] if one not in names] for key in _MADE_HERE.values() if key in known}
        write_json(authority / "coterie.json", {"server": server, "port": port, **kept})
    return kits


def _check_request(out: Path, request: Request, server: str) -> None:
    check_name(request.role, request.name, server)
    if request.role == "server" and request.name != server:
        raise InputError(f"the request is by server {request.name}, and the server here is {server} (--server).")
    if tls.public_bytes(request.csr().public_key()) == tls.made_key(out / "authority", request.name):
        raise InputError(f"the request of {request.name} is for a key made here; it runs `coterie enroll` elsewhere.")
    target = place(out, request)
    if target.exists():
        raise InputError(f"{request.name} has a kit with a private key made here, {target}; remove it first.")


def place(out: Path, request: Request) -> Path:
    """Where a kit of this role and name lies that has its keys in it."""
    return out / "server" if request.role == "server" else out / _MADE_HERE[request.role] / request.name


def _check_keys(register: Register, request: Request) -> None:
    """A name belongs to the keys it first came with, until its certificates are revoked."""
    earlier = register.enrolled().get(request.name)
    if earlier is not None and (earlier.role, earlier.keys) != (request.role, request.fingerprint()):
        remedy = "a server with a new key needs a new authority" if earlier.role == "server" else "revoke them first"
        raise InputError(
            f"{request.name} has certificates for other keys; {remedy} (docs/operations.md, Certificates)."
        )


def _make(
    out: Path, made: Path, request: Request, participant: dict[str, Any], root: tls.Root, register: Register
) -> Path:
    """The kit of a request, as one file."""
    target = place(out, request)
    target = target.with_name(target.name + ".kit")
    with tempfile.TemporaryDirectory(dir=made) as temporary:
        kit = Path(temporary) / "kit"
        copy_kit(made / request.name, kit, request.role)
        own = "server.crt" if request.role == "server" else "client.crt"
        (kit / "startup" / own).write_bytes(tls.certify(root, participant, request.csr()))
        (kit / "startup" / "rootCA.pem").write_bytes(root.pem())
        certificate = None
        if request.role == "server":
            register.note_server(request.name, request.fingerprint())
        else:
            certificate = register.certify(request.role, request.name, request.key, request.fingerprint())
        IdentityFiles(kit).write(register.authority, certificate, register.revoked())
        pack(kit, target, request.role, request.name, register.authority)
    return target


def revoke(out: Path, names: Sequence[str]) -> Path:
    """Revoke every certificate of these names; the file with the signed list, which is handed to all sites."""
    authority = out / "authority"
    if not (authority / "coterie.key").exists():
        raise InputError(f"{out} holds no authority; give the folder that `coterie provision` wrote.")
    register = Register(authority)
    with closed(authority):
        for name in names:
            revoked = register.revoke(name)
    path = out / "revoked"
    path.write_text(as_text(revoked.to_bytes()))
    return path
