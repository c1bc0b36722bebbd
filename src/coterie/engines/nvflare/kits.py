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
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from coterie.errors import InputError
from coterie.files import private_folder
from coterie.messages.identity import Authority
from coterie.sites.installed import InstalledSite
from coterie.sites.ledger import kept_secret

SITE_CLASS = "coterie.engines.nvflare.site_end.SiteEnd"
CENTER_CLASS = "coterie.deployment.conductor.Conductor"
_GATE = "coterie.engines.nvflare.gate"
_SETTINGS: dict[str, Any] = tomllib.loads(files("coterie.engines.nvflare").joinpath("kits.toml").read_text("utf-8"))
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
                f"{self.folder}: its certificates ended on {ended:%Y-%m-%d}; whoever made it makes new kits "
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
    authority = out / "authority"
    kept = authority / "coterie.json"
    known: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    if analysts is None:
        analysts = known.get("analysts", ["analyst@coterie.local"])
    _check_names(sites, server, port, analysts)
    if known and (known["server"], known["port"]) != (server, port):
        raise InputError(
            f"{out} holds kits for a server at {known['server']}:{known['port']}; sites are added with the same "
            "--server and --port, or a new folder is begun."
        )
    everyone = {
        "sites": list(dict.fromkeys([*known.get("sites", []), *sites])),
        "analysts": list(dict.fromkeys([*known.get("analysts", []), *analysts])),
    }
    private_folder(authority).chmod(0o700)
    signed = _signed(authority, _project(everyone["sites"], server, port, everyone["analysts"]))
    places = {"server": (out / "server", "server")}
    places |= {name: (out / "sites" / name, "site") for name in everyone["sites"]}
    places |= {name: (out / "analysts" / name, "analyst") for name in everyone["analysts"]}
    names = Authority(kept_secret(authority / "coterie.key"))
    for name, (target, kind) in places.items():
        if not target.exists():
            _place(signed / (server if name == "server" else name), target, kind)
            if kind == "site":
                InstalledSite(target).certify(names, name)
    _write(kept, {"server": server, "port": port, **everyone})
    shutil.rmtree(signed, ignore_errors=True)  # kits that nobody was given
    for path in authority.rglob("*"):  # NVFlare's keys, too
        path.chmod(0o700 if path.is_dir() else 0o600)
    return {name: read_kit(target) for name, (target, _) in places.items()}


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
    raise InputError(f"{folder}: this is no start-up kit; `coterie provision` makes them.")


def _check_names(sites: Sequence[str], server: str, port: int, analysts: Sequence[str]) -> None:
    if not sites:
        raise InputError("there is no site; --sites a,b,c names them.")
    twice = sorted({name for name in sites if list(sites).count(name) > 1})
    if twice:
        raise InputError(f"site {twice[0]!r} is named twice; every site has a name of its own.")
    for name in sites:
        if not _SITE_NAME.fullmatch(name) or name in ("server", "localhost", server):
            raise InputError(f"site {name!r}: a site's name has letters, digits, - and _, and is not the server's.")
    if not _HOST.fullmatch(server):
        raise InputError(f"server {server!r}: a host name that sites can look up is needed (center.example.org).")
    if not 1 <= port <= 65535:
        raise InputError(f"port {port}: it is 1 to 65535.")
    for name in analysts:
        if not _ANALYST.fullmatch(name):
            raise InputError(f"analyst {name!r}: analysts are named as by e-mail (ana@university.example).")


def _project(sites: Sequence[str], server: str, port: int, analysts: Sequence[str]) -> dict[str, Any]:
    participants = [
        {"name": server, "type": "server", "org": "center", "fed_learn_port": port},
        *[{"name": n, "type": "client", "org": n.replace("-", "_"), "connect_to": server} for n in sites],
        *[{"name": n, "type": "admin", "org": "center", "role": "lead", "connect_to": server} for n in analysts],
    ]
    return {**deepcopy(_SETTINGS["project"]), "participants": participants}


def _signed(authority: Path, project: Mapping[str, Any]) -> Path:
    """The folder with everybody's kits, signed by the authority's key."""
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    with contextlib.redirect_stdout(io.StringIO()):
        prepared = prepare_project(dict(project))
        Provisioner(str(authority / "workspace"), prepare_builders(dict(project))).provision(prepared)
    return max((authority / "workspace" / str(project["name"])).glob("prod_*"), key=lambda path: path.name)


def _place(source: Path, target: Path, kind: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = source.with_name(target.name + ".partial")  # where nobody else looks
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary)
    temporary.chmod(0o700)
    if kind != "analyst":  # analysts load nothing
        _close(temporary, kind)
    for key in temporary.rglob("*.key"):
        key.chmod(0o600)
    temporary.replace(target)


def place_server(kit: Kit) -> None:
    """Let the server keep its files in its own folder, wherever that lies now: by default all federations of a
    machine share one."""
    path, store = kit.folder / "local" / "resources.json", kit.folder / "store"
    resources = json.loads(path.read_text())
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(store / "jobs")
    _write(path, resources)


def _close(kit: Path, kind: str) -> None:
    """Take jobs in the one known shape only, load one class, and leave one component out."""
    loaded, unwanted = (CENTER_CLASS, "log_receiver") if kind == "server" else (SITE_CLASS, "site_log_streamer")
    forbidden = dict.fromkeys(_SETTINGS["forbidden"], "none")
    rights = {role: {**granted, **forbidden} for role, granted in _SETTINGS["rights"].items()}
    _write(kit / "local" / "authorization.json", {"format_version": "1.0", "permissions": rights})
    _write(kit / "comm_config.json", _SETTINGS["wiring"])
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
    _write(kit / "local" / "resources.json", resources)


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
