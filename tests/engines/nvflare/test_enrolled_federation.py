"""Organisations that made their own keys run a job together, as with kits made in one place."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from coterie.deployment.federation import _free_port
from coterie.deployment.remote import Remote
from coterie.engines.nvflare import processes
from coterie.engines.nvflare.session import Session, Unreachable
from coterie.sites.identity_files import IdentityFiles
from coterie.sites.installed import Holdings, InstalledSite
from tests.orders import a_job

from .enrolled import ANA, Places
from .federations import dealt_rows

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("nvflare")]
SITES = ("north", "south", "west")


def await_sites(session: Session) -> None:
    ends = time.monotonic() + 90
    while time.monotonic() < ends:
        try:
            if set(session.sites()) >= set(SITES):
                return
        except Unreachable:
            pass
        time.sleep(0.3)
    pytest.fail("the sites did not connect")


def test_three_organisations_with_keys_of_their_own_get_a_result(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    places = Places(tmp_path, port=_free_port())
    server, analyst = places.join("server", "localhost"), places.join("analyst", ANA)
    sites = [places.join("site", name) for name in SITES]
    for name, path in dealt_rows(tmp_path, SITES, 300).items():
        table = InstalledSite(places.own(name)).tell(Holdings(str(path)))
    ana = IdentityFiles(analyst.folder).read("analyst", ANA)
    columns = [one.name for one in table.columns]
    order = a_job("lloyd", {"n_clusters": 3}, columns, analyst=ana, deadline=30.0)
    try:
        for kit in (server, *sites):
            processes.start(kit)
        with Session(analyst) as session:
            await_sites(session)
            Remote(session, tmp_path / "out", 2, 60.0, lambda _: None, lambda _: None).run(order, resume=False)
    finally:
        processes.stop([server, *sites])
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert len(result["centers"]) == 3
    assert sum(result["counts"]) == 300
