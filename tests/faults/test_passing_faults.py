"""Faults that pass change nothing: the result is that of the run without them, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coterie.engines.inprocess import Fault, InProcess
from tests.faults import wires
from tests.faults.lives import DEADLINE, Setting, same
from tests.faults.methods import ALL, NAMES, QUICK, Method
from tests.faults.rows import Row, Verdict, whole_run
from tests.faults.wires import Wire

SCHEDULED: dict[str, Callable[[int], list[Fault]]] = {
    "question lost, once": lambda at: [Fault("site-1", "drop", frozenset({at}), times=1)],
    "answer lost, once": lambda at: [Fault("site-1", "vanish", frozenset({at}), times=1)],
    "answer damaged, twice": lambda at: [Fault("site-1", "corrupt", frozenset({at}), times=2)],
    "question arrives twice": lambda at: [Fault("site-1", "duplicate", frozenset({at, at + 1}))],
    "older question arrives again": lambda at: [Fault("site-1", "replay", frozenset({at, at + 1}))],
    "slow, within the deadline": lambda at: [Fault("site-1", "delay", frozenset({at, at + 1}), seconds=DEADLINE / 2)],
    "two sites at once": lambda at: [
        Fault("site-1", "vanish", frozenset({at}), times=1),
        Fault("site-3", "corrupt", frozenset({at}), times=2),
    ],
    "everything, at every site": lambda at: [
        Fault(name, kind, frozenset({at}), times=1)
        for name in NAMES
        for kind in ("duplicate", "replay", "vanish", "corrupt")
    ],
}
WIRED: dict[str, tuple[type[Wire], tuple[str, ...]]] = {
    "random bytes as the answer, twice": (wires.NoiseBack, ("site-1",)),
    "question damaged, twice": (wires.DamagedThere, ("site-1",)),
    "random bytes as the question, twice": (wires.NoiseThere, ("site-1",)),
    "no bytes as the answer, twice": (wires.NothingBack, ("site-1", "site-2")),
    "site killed before the question, back": (wires.Restarted, ("site-1",)),
    "all sites killed before the question, back": (wires.Restarted, NAMES),
    "site killed with its answer, back": (wires.DiedSending, ("site-1", "site-2")),
}
FAULTS = [*SCHEDULED, *WIRED]


def survives(fault: str, setting: Setting, at: int) -> Verdict:
    def wire(channel: InProcess) -> InProcess | Wire:
        return WIRED[fault][0](channel, at, WIRED[fault][1]) if fault in WIRED else channel

    life = setting.live(setting.channel(SCHEDULED[fault](at) if fault in SCHEDULED else ()), wire)
    if life.stop is not None:
        raise life.stop
    whole = whole_run(setting.method, setting.folder.parent)
    same(setting.method, life.fitted, whole.fitted)
    assert [(e.round, e.asked) for e in life.exchanges] == [(e.round, e.asked) for e in whole.exchanges]
    assert life.ledger.total("floats_up") == whole.ledger.total("floats_up")
    setting.check_books(life)
    return "survived"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", QUICK, ids=lambda method: method.title)
def test_a_fault_that_passes_changes_nothing(fault: str, method: Method, row: Row) -> None:
    row.fill(fault, method, lambda *cell: survives(fault, *cell), share=(FAULTS.index(fault), 15))


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", ALL, ids=lambda method: method.title)
def test_a_fault_that_passes_changes_nothing_at_any_kind_of_question(fault: str, method: Method, row: Row) -> None:
    row.fill(f"{fault} (all)", method, lambda *cell: survives(fault, *cell))
