"""Sites that are really stuck, in threads of their own: the run waits until the deadline and no longer."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from coterie.engines.inprocess import Fault, InProcess
from coterie.runtime.outcomes import OutcomeKind
from coterie.sites.site import Site
from tests.faults.lives import EVERY, Setting, same
from tests.faults.methods import QUICK, Method
from tests.faults.rows import Row, Verdict
from tests.faults.wires import TABLES, Wire

SHORT = 0.2
"""Seconds a wire waits for sites that are stuck. For the others it waits long: a slow machine makes nobody late."""


class Stuck(Site):
    """A site whose answers to some rounds wait for a door to open; inside, it holds whatever a site holds."""

    def __init__(self, site: Site, rounds: Collection[int], door: threading.Event) -> None:
        own = {"ledger": site.ledger, "identity": site.peers.identity, "seed": site._seed}
        super().__init__(site.name, TABLES[site], policy=site.policy, **own)
        TABLES[self] = TABLES[site]
        self.rounds, self.door = rounds, door
        self.has_woken = threading.Event()
        """Whether it has answered a question that waited for the door."""

    def answer(self, frame: bytes) -> bytes:
        found = super().answer(frame)
        if self.door.is_set():
            self.has_woken.set()
        return found

    def _stored(self, envelope):  # type: ignore[no-untyped-def]
        if envelope.round in self.rounds:
            self.door.wait()
        return super()._stored(envelope)


class Doors(Wire):
    """Opens the door once a later round than those in which sites are stuck is carried; None keeps it shut.

    Sites that are stuck are asked first, and keep their threads while the others answer.
    """

    def __init__(self, inner: InProcess, opens: int | None = None) -> None:
        super().__init__(inner, -1)
        self._stuck = {name: site for name, site in inner.members.items() if isinstance(site, Stuck)}
        self._opens = opens

    def carry(self, number, payloads, timeout):
        if self._opens is not None and number >= self._opens:
            for site in self._stuck.values():
                site.door.set()
        stuck = {n for n, site in self._stuck.items() if number >= min(site.rounds) and not site.door.is_set()}
        late = self.inner.exchange({n: data for n, data in payloads.items() if n in stuck}, SHORT)
        found = self.inner.exchange({n: data for n, data in payloads.items() if n not in stuck}, timeout)
        return {name: late[name] if name in late else found[name] for name in payloads}


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
        life = setting.live(stuck(setting, sites, rounds, door), lambda channel: Doors(channel, opens))
    finally:
        door.set()
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
    row.fill("really stuck, back", method, stuck_and_back, share=(3, 18))


@pytest.mark.slow
@pytest.mark.parametrize("cell", [stuck_for_good, two_stuck_for_good, stuck_and_back])
@pytest.mark.parametrize("method", QUICK, ids=lambda method: method.title)
def test_a_site_stuck_at_any_kind_of_question(cell, method: Method, row: Row) -> None:
    name = cell.__name__.replace("_", " ")
    row.fill(f"really {name} (all)", method, cell, which=("first",), share=(0, 2))


@pytest.mark.parametrize("cell", [stuck_for_good, two_stuck_for_good])
@pytest.mark.parametrize("place", [0, 2])
def test_sites_stuck_for_good_hold_up_nobody_else(cell, place: int, row: Row) -> None:
    """Asked again and again while they are stuck: threads they hold are nobody else's."""
    method = QUICK[place]
    row.fill(f"really {cell.__name__.replace('_', ' ')}", method, cell, which=("first",), share=(2, 7))


def test_a_stuck_site_that_wakes_up_writes_nothing_into_the_book_of_the_one_that_took_its_place(
    tmp_path: Path,
) -> None:
    """In one process: the run is over for the site that is stuck, and its owner starts it again."""
    setting = Setting(QUICK[2], tmp_path, EVERY, journaled=True)
    door = threading.Event()
    channel = stuck(setting, ["site-1"], range(4, 1000), door)
    sleeper = channel.members["site-1"]
    ended = setting.live(channel, Doors)
    assert ended.stop is not None
    assert ended.stop.outcomes["site-1"].kind is OutcomeKind.LATE
    life = setting.live(resume=True, watch=lambda progress: door.set() if progress.exchange.round == 6 else None)
    assert sleeper.has_woken.wait(60)
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
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=300, check=True, text=True)
    assert done.stdout.strip() == "{'a': 'late', 'b': 'late'}"
