"""One federation for all tests of a process; nothing of it is left afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.deployment.federation import Federation
from coterie.engines.nvflare import processes
from coterie.engines.nvflare.handover import install
from coterie.sites.installed import Holdings

from .cuts import Relay, led_through
from .enrolled import ANA, Places
from .federations import SITES, Standing, dealt_rows


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Five sites with rows of digits, a server and an analyst, up for all tests."""
    pytest.importorskip("nvflare")
    if "PYTEST_XDIST_WORKER" in os.environ:  # their group keeps them in one of the processes
        try:
            (tmp_path_factory.getbasetemp().parent / "the-federation").touch(exist_ok=False)
        except FileExistsError:
            pytest.fail("two processes run tests of the federation: does pytest-xdist heed its groups?")
    folder: Path = tmp_path_factory.mktemp("federation")
    rows = dealt_rows(folder, SITES)
    made = Standing(Federation(folder / "all"), folder)
    made.federation.up({name: Holdings(str(path)) for name, path in rows.items()})
    yield made
    made.federation.down()
    assert not [kit.name for kit in made.federation.kits() if processes.find_running(kit)]


@pytest.fixture(scope="module")
def relay(standing: Standing) -> Iterator[Relay]:
    """The last site finds its server through a relay, until these tests are over."""
    kit = standing.federation.kit("site-5")
    made = Relay(kit.port)
    processes.stop([kit])
    with led_through(made, kit.folder):
        processes.start(kit)
        yield made
        processes.stop([kit])
    made.close()
    processes.start(kit)


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """A server, a site and an analyst that enrolled, and the kits that they got."""
    pytest.importorskip("nvflare")
    places = Places(tmp_path_factory.mktemp("places"), "center.example.org", 9000)
    asked = [places.ask("server", "center.example.org"), places.ask("site", "north"), places.ask("analyst", ANA)]
    for answer, name in zip(places.sign(*asked), places.roles, strict=True):
        install(answer, places.own(name))
    return places


@pytest.fixture
def places(joined: Places, tmp_path: Path) -> Places:
    """The same, to be changed."""
    shutil.copytree(joined.folder, tmp_path / "all")
    return Places(tmp_path / "all", joined.server, joined.port, dict(joined.roles))
