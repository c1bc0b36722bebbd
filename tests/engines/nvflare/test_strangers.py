"""Who has no valid kit of this federation cannot join it, read of it or submit to it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.engines.nvflare import processes
from coterie.engines.nvflare.kits import provision, read_kit
from coterie.engines.nvflare.session import Session, Unreachable
from coterie.errors import InputError

from .strangers import DAY, NOW, bold, changed, copied, disguised, ended, re_signed, refuses, renamed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("nvflare"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets that NVFlare leaves open
]

JOINING = 12.0
"""Seconds a site is given to join; those of the federation need about six."""


@pytest.fixture(scope="module")
def foreign(standing, tmp_path_factory):
    """Kits for the same server, the same names and one more, by another authority."""
    server = standing.federation.kit("server")
    names = [*standing.names, "site-9"]
    return provision(tmp_path_factory.mktemp("foreign"), names, server=server.host, port=server.port)


def _heard(standing) -> dict[str, float]:
    with Session(standing.federation.analyst()) as session:
        return session.sites()


def _await(standing, names, since: float) -> None:
    ends = time.monotonic() + 300
    while not all(_heard(standing).get(name, 0) > since for name in names):
        assert time.monotonic() < ends, names
        time.sleep(0.5)


@pytest.fixture(scope="module")
def joined(standing, foreign, tmp_path_factory):
    """How long after strangers began to try each site was heard of; one with a new certificate joins at last."""
    federation, folder = standing.federation, tmp_path_factory.mktemp("strangers")
    kits = {name: federation.kit(name) for name in ("site-3", "site-4", "site-5")}
    processes.stop([kits["site-4"], kits["site-5"]])
    since = time.time()
    strangers = {
        "foreign": foreign["site-9"],
        "expired": bold(re_signed(federation, copied(kits["site-5"], folder / "expired"), NOW - DAY)),
        "liar": renamed(copied(kits["site-3"], folder / "liar"), "site-4"),
        "analyst": renamed(
            disguised(copied(kits["site-3"], folder / "analyst"), federation.analyst()).folder, "site-8"
        ),
    }
    renewed = re_signed(federation, copied(kits["site-5"], folder / "renewed"), NOW + DAY)
    try:
        for kit in strangers.values():
            processes.start(kit)
        time.sleep(JOINING)
        heard = {name: when - since for name, when in _heard(standing).items()}
        processes.stop(strangers.values())
        again = time.time()
        processes.start(kits["site-4"])
        processes.start(renewed)
        _await(standing, ["site-4", "site-5"], again)
        yield heard
    finally:
        processes.stop([*strangers.values(), renewed])
        back = time.time()
        with contextlib.suppress(Exception):
            processes.start(kits["site-4"])  # where it is not up yet
        processes.start(kits["site-5"])
        _await(standing, ["site-5"], back)


def test_no_kit_gets_nothing_from_the_server_s_port(standing, foreign, tmp_path):
    port = standing.federation.kit("server").port
    assert ended(lambda plain: (plain.sendall(b"GET / HTTP/1.0\r\n\r\n"), plain)[1], port)
    assert ended(lambda plain: (plain.sendall(bytes(64)), plain)[1], port)
    assert refuses(port)
    assert refuses(port, foreign["site-1"])
    assert not refuses(port, standing.federation.kit("site-1"))


def test_the_port_speaks_tls_with_who_has_a_kit(standing):
    server, analyst = standing.federation.kit("server"), standing.federation.analyst()
    context = ssl.create_default_context(cafile=analyst.startup / "rootCA.pem")
    context.load_cert_chain(analyst.startup / "client.crt", analyst.startup / "client.key")
    with (
        socket.create_connection((server.host, server.port)) as plain,
        context.wrap_socket(plain, server_hostname=server.host) as made,
    ):
        assert made.version() in ("TLSv1.2", "TLSv1.3")


def test_the_port_speaks_no_tls_of_before(standing):
    analyst = standing.federation.analyst()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(analyst.startup / "client.crt", analyst.startup / "client.key")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    assert ended(lambda plain: context.wrap_socket(plain), standing.federation.kit("server").port)


def test_a_site_of_another_authority_never_joins(joined):
    assert "site-9" not in joined
    assert joined["site-1"] > 0


def test_a_site_with_an_expired_certificate_does_not_join_until_it_has_a_new_one(joined):
    assert joined.get("site-5", -1) < 0


def test_a_genuine_kit_that_claims_another_site_s_name_does_not_join(joined):
    assert joined.get("site-4", -1) < 0


def test_an_analyst_s_certificate_does_not_make_a_site(joined):
    assert set(joined) <= {f"site-{i}" for i in range(1, 6)}


def _session(kit) -> list[str]:
    with Session(kit) as session:
        session.connect(5.0)
        return sorted(session.sites())


def test_an_analyst_of_another_authority_cannot_connect(foreign, standing):
    with pytest.raises(Unreachable):
        _session(foreign["analyst@coterie.local"])
    assert _session(standing.federation.analyst())


def test_an_analyst_with_an_expired_certificate_cannot_connect_until_it_is_renewed(standing, tmp_path):
    analyst = standing.federation.analyst()
    with pytest.raises(Unreachable):
        _session(bold(re_signed(standing.federation, copied(analyst, tmp_path / "expired"), NOW - DAY)))
    assert _session(re_signed(standing.federation, copied(analyst, tmp_path / "renewed"), NOW + DAY))


def test_a_site_s_certificate_does_not_make_an_analyst(standing, tmp_path):
    kit = disguised(copied(standing.federation.analyst(), tmp_path / "kit"), standing.federation.kit("site-1"))
    with pytest.raises(Unreachable):
        _session(kit)
    with Session(replace(kit, name="site-1")) as session:  # under its own name it is heard, and may do nothing
        for what in ("get_connected_client_list", "get_system_info", "list_jobs"):
            with pytest.raises(InputError, match="not authorized"):
                session._ask(what)
        with pytest.raises(InputError, match="not authorized"):
            session.submit({}, name="job", least=1)


def test_a_site_does_not_answer_another_site(standing, tmp_path, monkeypatch):
    """The rogue is site-1 for a while; the server passes its messages on."""
    genuine = standing.federation.kit("site-1")
    rogue = read_kit(copied(genuine, tmp_path / "rogue"))
    component = {"id": "rogue", "path": f"{__package__}.rogue.Rogue", "args": {}}
    changed(rogue.folder / "local/resources.json", lambda raw: raw["components"].append(component))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path.cwd())]))
    processes.stop([genuine])
    try:
        processes.start(rogue)
        ends = time.monotonic() + 300
        while not (rogue.folder / "told.json").exists():
            assert time.monotonic() < ends, (rogue.folder / processes.OUTPUT).read_text()[-3000:]
            time.sleep(0.3)
    finally:
        processes.stop([rogue])
        since = time.time()
        processes.start(genuine)
        _await(standing, ["site-1"], since)
    told = json.loads((rogue.folder / "told.json").read_text())
    assert set(told.values()) == {"None"}
    log = (standing.federation.kit("site-2").folder / "log.txt").read_text()
    assert log.count("a message from site-1 was refused") >= len(told)
