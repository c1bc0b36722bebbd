"""Sites that are there only from some round on: let in where that can be, left out where it cannot, and no harm."""

from __future__ import annotations

import pytest

from tests.faults.lives import EVERY, Life, Setting, same
from tests.faults.methods import DEFAULT, QUICK, Method
from tests.faults.rows import Row, Verdict, whole_run
from tests.faults.wires import CrashAfter, Joining, Killed

LATE = ("site-4",)
NEVER = 10_000


def went_well(setting: Setting, life: Life) -> Life:
    if life.stop is not None:
        raise life.stop
    setting.check_books(life)
    return life


def expected(setting: Setting, at: int) -> Life:
    """Masked, the run of the sites it began its sums with (verified, the run itself); plain, that of a server that is
    killed with the question before in flight, puts that to the same sites again, and then finds a site more."""
    whole = whole_run(setting.method, setting.folder.parent)
    summed = [e.round for e in whole.exchanges if e.seen == "masked" and not setting.method.policy.verifies]
    if at == 0 or (summed and at <= summed[0]):
        return whole
    other = Setting(setting.method, setting.folder / "other", setting.terms, journaled=True)
    if setting.method.is_masked:
        return went_well(other, other.live(wire=lambda channel: Joining(channel, NEVER, LATE)))
    with pytest.raises(Killed):
        other.live(wire=lambda channel: CrashAfter(Joining(channel, NEVER, LATE), at - 1))
    return went_well(other, other.live(resume=True))


def joins(setting: Setting, at: int) -> Verdict:
    life = went_well(setting, setting.live(wire=lambda channel: Joining(channel, at, LATE)))
    same(setting.method, life.fitted, expected(setting, at).fitted)
    return "survived"


@pytest.mark.parametrize("method", [*QUICK, *DEFAULT[3:]], ids=lambda method: method.title)
def test_a_site_that_joins_is_let_in_or_left_out_and_stops_nothing(method: Method, row: Row) -> None:
    row.fill("site joins", method, joins, terms=EVERY, share=(1, 12 if method.is_masked else 3))


def joins_meanwhile(setting: Setting, at: int) -> Verdict:
    with pytest.raises(Killed):
        setting.live(wire=lambda channel: CrashAfter(Joining(channel, NEVER, LATE), at))
    went_well(setting, setting.live(resume=True))
    return "survived"


@pytest.mark.parametrize("method", [m for m in QUICK if m.is_masked], ids=lambda method: method.title)
def test_a_site_that_joins_while_the_server_is_down_stops_nothing(method: Method, row: Row) -> None:
    row.fill(
        "site joins while the server is down", method, joins_meanwhile, terms=EVERY, share=(1, 12), journaled=True
    )
