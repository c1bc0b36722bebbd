"""Kits that are not what they should be, and jobs that no `coterie run` submits."""

from __future__ import annotations

import datetime
import json
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from coterie.deployment.federation import Federation
from coterie.engines.nvflare.kits import Kit, read_kit
from coterie.engines.nvflare.session import Session, write_job
from coterie.errors import CoterieError

from .federations import Standing

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


def copied(kit: Kit, folder: Path) -> Path:
    """A kit of one's own to change."""
    for part in ("startup", "local"):
        shutil.copytree(kit.folder / part, folder / part)
    if (kit.folder / "comm_config.json").exists():
        shutil.copy2(kit.folder / "comm_config.json", folder)
    return folder


def re_signed(federation: Federation, kit: Path, ends: datetime.datetime) -> Kit:
    """The kit with its certificate made anew by the federation's authority, to another end."""
    state = json.loads((federation.folder / "authority/workspace/coterie/state/cert.json").read_text())
    root = x509.load_pem_x509_certificate(state["root_cert"].encode())
    key = serialization.load_pem_private_key(state["root_pri_key"].encode(), None)
    path = kit / "startup" / "client.crt"
    old = x509.load_pem_x509_certificate(path.read_bytes())
    made = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(root.subject)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 30 * DAY)
        .not_valid_after(ends)
    )
    for extension in old.extensions:
        made = made.add_extension(extension.value, extension.critical)
    path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return read_kit(kit)


def renamed(kit: Path, name: str) -> Kit:
    """A site's kit that says it is another's."""
    path = kit / "startup" / "fed_client.json"
    raw = json.loads(path.read_text())
    raw["client"] |= {key: name for key in ("fqsn", "identity", "auth_identity") if key in raw["client"]}
    path.write_text(json.dumps(raw))
    return read_kit(kit)


def disguised(kit: Path, other: Kit) -> Kit:
    """The kit with somebody else's certificate and key."""
    for file in ("client.crt", "client.key"):
        shutil.copy2(other.startup / file, kit / "startup" / file)
    return read_kit(kit)


def refuses(port: int, kit: Kit | None = None, folder: Path | None = None) -> bool:
    """Whether the port ends a TLS connection made with this kit's certificate, or with none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    startup = kit.startup if kit else folder
    if startup is not None:
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
    return ended(lambda plain: context.wrap_socket(plain), port)


def ended(speak: Callable[[socket.socket], Any], port: int) -> bool:
    """Whether a connection is ended, with nothing but an alert sent, rather than kept open."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        try:
            made = speak(plain)
            found = made.recv(4096)
        except (ssl.SSLError, ConnectionError):
            return True
        except TimeoutError:
            return False
        return found == b"" or found[0] == 0x15


def orders(standing: Standing) -> dict[str, Any]:
    """What a job for a short run says."""
    order = standing.order("federated-kmeans", {"n_clusters": 3, "max_rounds": 2})
    found: dict[str, Any] = msgspec.to_builtins(order)
    return found


def submitted(
    standing: Standing, folder: Path, change: Callable[[Path], None], told: dict[str, Any] | None = None
) -> tuple[str, str]:
    """How a changed job ends, and what the server says of it; ``REFUSED`` where it is not even taken."""
    job = write_job(folder / "job", "job", orders(standing) if told is None else told, least=1)
    change(job)
    with Session(standing.federation.analyst()) as session:
        try:
            number = str(session._ask("submit_job", str(job)))
        except CoterieError as problem:
            return "REFUSED", str(problem)
        began, status = time.monotonic(), ""
        while not status.startswith("FINISHED"):
            waited = time.monotonic() - began
            assert waited < 600, status
            if waited > 30:  # the server waits for sites that will not come
                session.abort(number)
            time.sleep(0.3)
            status = session.status(number)
        said = " ".join(session.problems(number))
        session.fetch(number, folder / "fetched")
        outcome = folder / "fetched" / "outcome.json"
        return status, said + (outcome.read_text() if outcome.exists() else "")


def changed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a JSON file in place."""
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))


def answers(standing: Standing) -> dict[str, int]:
    """How many answers left each site so far."""
    paths = {name: standing.federation.site(name).ledger_path for name in standing.names}
    return {
        name: sum(json.loads(line)["event"] == "answer" for line in path.read_text().splitlines())
        if path.exists()
        else 0
        for name, path in paths.items()
    }


class _Bold(Kit):
    """A kit whose holder goes on although its certificates have ended."""

    def check(self) -> None:
        """Nothing is wrong."""


def bold(kit: Kit) -> Kit:
    """The same kit in the hands of who does not look at its date: it is the server that has to."""
    return _Bold(kit.folder, kit.kind, kit.name, kit.host, kit.port)
