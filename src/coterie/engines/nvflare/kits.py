"""Start-up kits: certificates and addresses for a server, its sites and its analysts, with code forbidden to all.

NVFlare's own provisioning signs them; what it leaves open is then closed: no role may bring code or run shell
commands, a site loads one class and streams no log, and the server keeps its files in its own folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from coterie.engines.nvflare.register import Register
from coterie.engines.nvflare.tls import forget, opened_root
from coterie.errors import InputError
from coterie.files import private_folder
from coterie.messages.identity import Role, public_signing_key
from coterie.sites.identity_files import IdentityFiles

SITE_CLASS = "coterie.engines.nvflare.site_end.SiteEnd"
CENTER_CLASS = "coterie.deployment.conductor.Conductor"
_GATE = "coterie.engines.nvflare.gate"
_SETTINGS: dict[str, Any] = tomllib.loads(files("coterie.engines.nvflare").joinpath("kits.toml").read_text("utf-8"))
_SIGNING = ("nvflare.lighter.impl.cert.CertBuilder", "nvflare.lighter.impl.signature.SignatureBuilder")
_SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_HOST = re.compile(r"(?=.{1,253}$)([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?")
_ANALYST = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}")


@dataclass(frozen=True)
class Kit:
    """A start-up kit: where it lies, whose it is, and where its server listens."""

    folder: Path
    kind: str
    """``server``, ``site`` or ``analyst``."""
    name: str
    host: str
    port: int

    @property
    def startup(self) -> Path:
        return self.folder / "startup"

    def valid_until(self) -> datetime:
        """When the first of its certificates, its own and the authority's, ends."""
        from cryptography.x509 import load_pem_x509_certificate

        own = self.startup / ("server.crt" if self.kind == "server" else "client.crt")
        certificates = (load_pem_x509_certificate(path.read_bytes()) for path in (own, self.startup / "rootCA.pem"))
        return min(certificate.not_valid_after_utc for certificate in certificates)

    def check(self) -> None:
        """Say that a kit can no longer be used: nobody would take its certificate."""
        ended = self.valid_until()
        if ended < datetime.now(UTC):
            raise InputError(
                f"{self.folder}: its certificates ended on {ended:%Y-%m-%d}; whoever signed them renews them "
                "(docs/operations.md, Certificates)."
            )


def provision(
    out: Path,
    sites: Sequence[str],
    *,
    server: str = "localhost",
    port: int = 8002,
    analysts: Sequence[str] | None = None,
) -> dict[str, Kit]:
    """Make kits below ``out``: ``server``, ``sites/NAME``, ``analysts/NAME``; the signing key stays in ``authority``.

    Where the authority is there already, kits are added for sites and analysts that have none; no kit is changed.
    Where no analyst is named, a new folder has ``analyst@coterie.local``, and an old one those it had.
    """
    known = known_federation(out, server, port)
    register = Register(opened(out)) if known else None
    enrolled = register.enrolled() if register else {}
    if analysts is None:
        are_some = any(one.role == "analyst" for one in enrolled.values())
        analysts = known.get("analysts", [] if are_some else ["analyst@coterie.local"])
    _check_names(sites, server, port, analysts)
    for name in (*sites, *analysts):
        if name in enrolled:
            raise InputError(f"{name} made its keys itself; it gets a kit by its request (--sign).")
    everyone = {
        "sites": list(dict.fromkeys([*known.get("sites", []), *sites])),
        "analysts": list(dict.fromkeys([*known.get("analysts", []), *analysts])),
    }
    places: dict[str, tuple[Path, Role]] = {} if server in enrolled else {"server": (out / "server", "server")}
    places |= {name: (out / "sites" / name, "site") for name in everyone["sites"]}
    places |= {name: (out / "analysts" / name, "analyst") for name in everyone["analysts"]}
    authority = opened(out)
    register = register or Register(authority)
    with closed(authority), signed(authority, project(everyone["sites"], server, port, everyone["analysts"])) as made:
        if server in enrolled:
            forget(authority, server)
        for name, (target, role) in places.items():
            if not target.exists():
                _place(made / (server if name == "server" else name), target, role, name, register)
        write_json(authority / "coterie.json", {"server": server, "port": port, **everyone})
    return {name: read_kit(target) for name, (target, _) in places.items()}


def known_federation(out: Path, server: str, port: int) -> dict[str, Any]:
    """What the authority in a folder has noted of its federation; nothing where there is none yet."""
    path = out / "authority" / "coterie.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if known and (known["server"], known["port"]) != (server, port):
        raise InputError(
            f"{out} holds kits for a server at {known['server']}:{known['port']}; sites are added with the same "
            "--server and --port, or a new folder is begun."
        )
    return known


def opened(out: Path) -> Path:
    """The authority's folder, which only its owner enters."""
    authority = out / "authority"
    private_folder(authority).chmod(0o700)
    return authority


@contextlib.contextmanager
def closed(folder: Path) -> Iterator[None]:
    """Whatever happens, the folder and everything in it are for their owner alone afterwards."""
    try:
        yield
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o700 if path.is_dir() or path.suffix == ".sh" else 0o600)


def read_kit(folder: Path) -> Kit:
    """What a kit is; anything else is one clear error."""
    for file, kind in (("fed_server.json", "server"), ("fed_client.json", "site"), ("fed_admin.json", "analyst")):
        path = folder / "startup" / file
        if path.is_file():
            raw = json.loads(path.read_text())
            if kind == "analyst":
                admin = raw["admin"]
                return Kit(folder.absolute(), kind, admin["username"], admin["host"], int(admin["port"]))
            host, _, port = raw["servers"][0]["service"]["target"].rpartition(":")
            name = host if kind == "server" else raw["client"]["fqsn"]
            return Kit(folder.absolute(), kind, name, host, int(port))
    raise InputError(f"{folder}: this is no start-up kit; `coterie install` or `coterie provision` makes one.")


def kit_of(folder: Path, kind: str) -> Kit:
    """The kit in a folder, if it is one of this kind."""
    kit = read_kit(folder)
    if kit.kind != kind:
        raise InputError(f"{folder} is the kit of {kit.kind} {kit.name}; give the kit of a {kind}.")
    return kit


def _check_names(sites: Sequence[str], server: str, port: int, analysts: Sequence[str]) -> None:
    if not sites:
        raise InputError("there is no site; --sites a,b,c names them.")
    twice = sorted({name for name in sites if list(sites).count(name) > 1})
    if twice:
        raise InputError(f"site {twice[0]!r} is named twice; every site has a name of its own.")
    for name in sites:
        check_name("site", name, server)
    check_address(server, port)
    for name in analysts:
        check_name("analyst", name)


def check_address(server: str, port: int) -> None:
    """Say so where a server cannot be there."""
    check_name("server", server)
    if not 1 <= port <= 65535:
        raise InputError(f"port {port}: it is 1 to 65535.")


def check_name(role: Role, name: str, server: str = "localhost") -> None:
    """Say so where somebody cannot be named like this."""
    if role == "site" and (not _SITE_NAME.fullmatch(name) or name in ("server", "localhost", server)):
        raise InputError(f"site {name!r}: a site's name has letters, digits, - and _, and is not the server's.")
    if role == "server" and not _HOST.fullmatch(name):
        raise InputError(f"server {name!r}: a host name that sites can look up is needed (center.example.org).")
    if role == "analyst" and not _ANALYST.fullmatch(name):
        raise InputError(f"analyst {name!r}: analysts are named as by e-mail (ana@university.example).")


def project(sites: Sequence[str], server: str, port: int, analysts: Sequence[str]) -> dict[str, Any]:
    """What NVFlare's provisioning is told."""
    participants = [
        {"name": server, "type": "server", "org": "center", "fed_learn_port": port},
        *[{"name": n, "type": "client", "org": n.replace("-", "_"), "connect_to": server} for n in sites],
        *[{"name": n, "type": "admin", "org": "center", "role": "lead", "connect_to": server} for n in analysts],
    ]
    return {**deepcopy(_SETTINGS["project"]), "participants": participants}


@contextlib.contextmanager
def signed(authority: Path, project: Mapping[str, Any], *, with_keys: bool = True) -> Iterator[Path]:
    """A folder with everybody's kits; without keys, there are no certificates either. It is removed afterwards."""
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    told, root = deepcopy(dict(project)), opened_root(authority, project["name"])
    told["builders"] = [one for one in told["builders"] if with_keys or one["path"] not in _SIGNING]
    for builder in told["builders"]:
        if builder["path"] == _SIGNING[0]:
            builder["args"] = {"root_valid_days": root.days}
    with contextlib.redirect_stdout(io.StringIO()):
        Provisioner(str(authority / "workspace"), prepare_builders(told)).provision(prepare_project(told))
    made = max((authority / "workspace" / str(told["name"])).glob("prod_*"), key=lambda path: path.name)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _place(source: Path, target: Path, role: Role, name: str, register: Register) -> None:
    """A kit with its keys, complete or not at all."""
    temporary = target.with_name(target.name + ".partial")
    shutil.rmtree(temporary, ignore_errors=True)
    copy_kit(source, temporary, role)
    if role != "server":
        identity = IdentityFiles(temporary)
        certificate = register.certify(role, name, public_signing_key(identity.key()))
        identity.write(register.authority, certificate, register.revoked())
    for path in (temporary, *temporary.rglob("*")):
        if path.is_dir() or path.suffix == ".key":
            path.chmod(0o700 if path.is_dir() else 0o600)
    temporary.replace(target)


def copy_kit(source: Path, target: Path, role: Role) -> None:
    """A kit as NVFlare makes it, with what it leaves open closed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, target)
    if role != "analyst":  # analysts load nothing
        _close(target, role)


def place_server(kit: Kit) -> None:
    """Let the server keep its files in its own folder, wherever that lies now: by default all federations of a
    machine share one."""
    path, store = kit.folder / "local" / "resources.json", kit.folder / "store"
    resources = json.loads(path.read_text())
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(store / "jobs")
    write_json(path, resources)


def _close(kit: Path, kind: str) -> None:
    """Take jobs in the one known shape only, load one class, and leave one component out."""
    loaded, unwanted = (CENTER_CLASS, "log_receiver") if kind == "server" else (SITE_CLASS, "site_log_streamer")
    forbidden = dict.fromkeys(_SETTINGS["forbidden"], "none")
    rights = {role: {**granted, **forbidden} for role, granted in _SETTINGS["rights"].items()}
    write_json(kit / "local" / "authorization.json", {"format_version": "1.0", "permissions": rights})
    write_json(kit / "comm_config.json", _SETTINGS["wiring"])
    resources: dict[str, Any] = json.loads((kit / "local" / "resources.json.default").read_text())
    resources["app_validator"] = {"path": f"{_GATE}.KnownFiles", "args": {}}
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [loaded]
    resources["components"] = [component for component in resources["components"] if component["id"] != unwanted]
    resources["components"].append({"id": "coterie_gate", "path": f"{_GATE}.Gate", "args": {}})
    if kind == "site":
        resources["allow_log_streaming"] = False
    else:
        resources["servers"][0] |= _SETTINGS["server"]
        scheduler = next(component for component in resources["components"] if component["id"] == "job_scheduler")
        scheduler["args"] |= _SETTINGS["scheduler"]
    write_json(kit / "local" / "resources.json", resources)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file of settings."""
    path.write_text(json.dumps(value, indent=2) + "\n")
