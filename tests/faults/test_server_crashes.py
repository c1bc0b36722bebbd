"""The server is killed and starts again: the result is that of the run nobody killed, and no site computes twice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from coterie.engines.inprocess import Fault, InProcess
from coterie.runtime.journal import Journal, Record
from coterie.runtime.run import Progress
from tests.faults.lives import Life, Setting, same
from tests.faults.methods import ALL, QUICK, Method
from tests.faults.rows import Row, Verdict, whole_run
from tests.faults.wires import ANY, CrashAfter, CrashBefore, Killed, Wire

Kill = Callable[[Setting, int, InProcess], None]


def wired(kind: type[Wire]) -> Kill:
    def kill(setting: Setting, at: int, channel: InProcess) -> None:
        setting.live(channel, lambda opened: kind(opened, at))

    return kill


def while_watched(setting: Setting, at: int, channel: InProcess) -> None:
    """Once the exchange was counted, before the journal has it."""

    def watch(progress: Progress) -> None:
        if progress.exchange.round == at:
            raise Killed

    setting.live(channel, watch=watch)


def once_recorded(setting: Setting, at: int, channel: InProcess) -> None:
    """Once the journal has the exchange, before the algorithm goes on."""

    class Dying(Journal):
        def write(self, record: Record) -> None:
            super().write(record)
            if record.next_round > at:
                raise Killed

    setting.live(channel, journal=Dying)


def while_recording(setting: Setting, at: int, channel: InProcess) -> None:
    """With the record half written."""
    with pytest.raises(Killed):
        once_recorded(setting, at, channel)
    records = setting.folder / "journal" / "records.bin"
    records.write_bytes(records.read_bytes()[:-5])
    raise Killed


def twice(setting: Setting, at: int, channel: InProcess) -> None:
    """Killed, resumed, and killed again soon after."""
    with pytest.raises(Killed):
        wired(CrashAfter)(setting, at, channel)
    counted = count()

    def watch(progress: Progress) -> None:
        if next(counted) == 1:
            raise Killed

    setting.live(channel, watch=watch, resume=True)
    raise Killed  # it was over before that


KILLS: dict[str, Kill] = {
    "server killed before asking": wired(CrashBefore),
    "server killed when answered": wired(CrashAfter),
    "server killed once it counted": while_watched,
    "server killed once it recorded": once_recorded,
    "server killed while recording": while_recording,
    "server killed twice": twice,
}


def resumes(kill: str, setting: Setting, at: int, *, with_the_same_sites: bool = False) -> Verdict:
    channel = setting.channel()
    with pytest.raises(Killed):
        KILLS[kill](setting, at, channel)
    life = setting.live(channel if with_the_same_sites else None, resume=True)
    whole = whole_run(setting.method, setting.folder.parent)
    check(setting, life, whole)
    check(
        setting, setting.live(wire=lambda channel: CrashBefore(channel, ANY), resume=True), whole
    )  # all is recorded
    return "survived"


def check(setting: Setting, life: Life, whole: Life) -> None:
    if life.stop is not None:
        raise life.stop
    same(setting.method, life.fitted, whole.fitted)
    assert life.ledger.total("floats_up") == whole.ledger.total("floats_up")
    asked = [[e.asked for e in one.exchanges if e.phase == "algorithm"] for one in (life, whole)]
    assert asked[0] == asked[1]
    setting.check_books(life)


@pytest.mark.parametrize("kill", KILLS)
@pytest.mark.parametrize("method", QUICK, ids=lambda method: method.title)
def test_a_killed_server_resumes_to_the_same_result(kill: str, method: Method, row: Row) -> None:
    place = list(KILLS).index(kill)
    old = place % 2 == 1
    row.fill(
        f"{kill}, {'the same' if old else 'fresh'} sites",
        method,
        lambda *cell: resumes(kill, *cell, with_the_same_sites=old),
        share=(3 * place, 18),
        journaled=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kill", KILLS)
@pytest.mark.parametrize("method", ALL, ids=lambda method: method.title)
def test_a_server_killed_at_any_kind_of_question_resumes(kill: str, method: Method, row: Row) -> None:
    """Sites that went on running meanwhile and sites that did not, in turn."""

    def cell(setting: Setting, at: int) -> Verdict:
        return resumes(kill, setting, at, with_the_same_sites=bool((at + list(KILLS).index(kill)) % 2))

    row.fill(f"{kill} (all)", method, cell, journaled=True)


# ---------------------------------------------------------------- crashes among other faults


def loses_a_site_and_resumes(setting: Setting, at: int) -> Verdict:
    """A site is away for three rounds; five rounds later, when it may be back, the server is killed."""
    at = min(at, whole_run(setting.method, setting.folder.parent).exchanges[-1].round - 5)
    faults = [Fault("site-1", "drop", frozenset({at, at + 1, at + 2}))]
    twin = Setting(setting.method, setting.folder / "twin", setting.terms)
    whole = twin.live(twin.channel(faults))
    with pytest.raises(Killed):
        setting.live(setting.channel(faults), lambda channel: CrashAfter(channel, at + 5))
    check(setting, setting.live(setting.channel(faults), resume=True), whole)
    return "survived"


@pytest.mark.parametrize("method", QUICK, ids=lambda method: method.title)
def test_a_server_killed_after_a_site_was_lost_resumes_with_those_it_had(method: Method, row: Row) -> None:
    row.fill("site stopped, back, then server killed", method, loses_a_site_and_resumes, share=(1, 9), journaled=True)


def resumes_without_a_site(setting: Setting, at: int) -> Verdict:
    """The server and a site are killed at once; only the server comes back."""
    twin = Setting(setting.method, setting.folder / "twin", setting.terms)
    lost = [Fault("site-1", "drop", frozenset(range(at, at + 1000)))]
    whole = twin.live(twin.channel(lost))
    with pytest.raises(Killed):
        setting.live(None, lambda channel: CrashBefore(channel, at))
    life = setting.live(setting.channel(lost), resume=True)
    if whole.stop is not None:
        assert life.stop is not None
        assert "site-1" in str(life.stop)
        return "stopped"
    if life.stop is not None:
        raise life.stop
    same(setting.method, life.fitted, whole.fitted)
    setting.check_books(life)
    return "survived"


@pytest.mark.parametrize("method", [m for m in QUICK if not m.is_masked], ids=lambda method: method.title)
def test_a_server_killed_together_with_a_site_resumes_as_if_only_the_site_was(method: Method, row: Row) -> None:
    row.fill("server and a site killed", method, resumes_without_a_site, share=(2, 9), journaled=True)
