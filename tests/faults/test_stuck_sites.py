"""Sites that are really stuck, in threads of their own: the run waits until the deadline and no longer."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from coterie.engines.inprocess import Fault, InProcess
from coterie.runtime.terms import Terms
from coterie.sites.site import Site
from tests.faults.lives import Setting, same
from tests.faults.methods import QUICK, Method
from tests.faults.rows import Row, Verdict
from tests.faults.wires import Wire

SHORT = Terms(deadline=0.5, quorum=0.6)
LONGEST = 20.0
"""Seconds after which a stuck site gives up being stuck, should a test fail."""


class Stuck(Site):
    """A site whose answers to some rounds wait for a door to open; inside, it holds whatever a site holds."""

    def __init__(self, site: Site, rounds: Collection[int], door: threading.Event) -> None:
        super().__init__(site.name, site.table, policy=site.policy, ledger=site.ledger)
        self._rounds, self._door = rounds, door

    def _stored(self, envelope):  # type: ignore[no-untyped-def]
        if envelope.round in self._rounds:
            self._door.wait(LONGEST)
        return super()._stored(envelope)


class Doors(Wire):
    """Opens the door once a later round than those in which sites are stuck is carried; None keeps it shut."""

    def __init__(self, inner: InProcess, door: threading.Event, opens: int | None) -> None:
        super().__init__(inner, -1)
        self._door, self._opens = door, opens

    def carry(self, number, payloads, timeout):
        if self._opens is not None and number >= self._opens:
            self._door.set()
        return self.inner.exchange(payloads, timeout)


def stuck(setting: Setting, sites: Collection[str], rounds: Collection[int], door: threading.Event) -> InProcess:
    channel = setting.channel()
    for name in sites:
        channel.members[name] = Stuck(channel.members[name], rounds, door)
    return channel


def loses(sites: tuple[str, ...], setting: Setting, at: int, rounds: frozenset[int], opens: int | None) -> Verdict:
    """As a schedule has it that loses the questions of the same rounds."""
    twin = Setting(setting.method, setting.folder / "twin", setting.terms)
    expected = twin.live(twin.channel([Fault(name, "drop", rounds) for name in sites]))
    door = threading.Event()
    try:
        life = setting.live(stuck(setting, sites, rounds, door), lambda channel: Doors(channel, door, opens))
    finally:
        door.set()
    assert life.slowest <= SHORT.deadline + 1.0
    assert (life.stop is None) == (expected.stop is None), f"{life.stop} / {expected.stop}"
    if life.stop is not None:
        raise life.stop  # a quorum was left
    same(setting.method, life.fitted, expected.fitted)
    return "survived"


def stuck_for_good(setting: Setting, at: int) -> Verdict:
    return loses(("site-1",), setting, at, frozenset(range(at, at + 1000)), None)


def two_stuck_for_good(setting: Setting, at: int) -> Verdict:
    return loses(("site-1", "site-3"), setting, at, frozenset(range(at, at + 1000)), None)


def stuck_and_back(setting: Setting, at: int) -> Verdict:
    return loses(("site-1",), setting, at, frozenset({at}), at + 1)


@pytest.mark.parametrize("method", QUICK, ids=lambda method: method.title)
def test_a_stuck_site_costs_a_deadline_and_nothing_else(method: Method, row: Row) -> None:
    row.fill("really stuck, back", method, stuck_and_back, share=(3, 18), terms=SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [stuck_for_good, two_stuck_for_good, stuck_and_back])
@pytest.mark.parametrize("method", QUICK, ids=lambda method: method.title)
def test_a_site_stuck_at_any_kind_of_question(cell, method: Method, row: Row) -> None:
    name = cell.__name__.replace("_", " ")
    row.fill(f"really {name} (all)", method, cell, which=("first",), share=(0, 2), terms=SHORT)


@pytest.mark.parametrize("cell", [stuck_for_good, two_stuck_for_good])
@pytest.mark.parametrize("place", [0, 2])
def test_sites_stuck_for_good_hold_up_nobody_else(cell, place: int, row: Row) -> None:
    """Asked again and again while they are stuck: threads they hold are nobody else's."""
    method = QUICK[place]
    row.fill(f"really {cell.__name__.replace('_', ' ')}", method, cell, which=("first",), share=(2, 7), terms=SHORT)


def test_a_stuck_site_that_wakes_up_writes_nothing_into_the_book_of_the_one_that_took_its_place(
    tmp_path: Path,
) -> None:
    """In one process: the run is over for the site that is stuck, and its owner starts it again."""
    setting = Setting(QUICK[2], tmp_path, SHORT, journaled=True)
    door = threading.Event()
    channel = stuck(setting, ["site-1"], range(4, 1000), door)
    ended = Setting(QUICK[2], tmp_path, Terms(deadline=0.3, quorum=1.0), journaled=True).live(channel)
    assert ended.stop is not None
    life = Setting(QUICK[2], tmp_path, Terms(deadline=30.0, quorum=1.0), journaled=True).live(
        resume=True, watch=lambda progress: door.set() if progress.exchange.round == 6 else None
    )
    time.sleep(0.3)
    assert life.fitted is not None
    setting.check_books(life)


def test_a_process_ends_while_a_site_is_stuck() -> None:
    program = textwrap.dedent(
        """
        import threading
        from coterie.engines.inprocess import InProcess
        from coterie.sites.site import Site
        from coterie.sites.tables import ArrayTable
        class Stuck(Site):
            def answer(self, frame):
                threading.Event().wait()
        with InProcess([Stuck("a", ArrayTable([[1.0]])), Stuck("b", ArrayTable([[1.0]]))]) as channel:
            print({name: found.status for name, found in channel.exchange({"a": b"", "b": b""}, 0.2).items()})
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20, check=True, text=True)
    assert done.stdout.strip() == "{'a': 'late', 'b': 'late'}"
