"""Sites that are lost: the result is that of the same loss by other means, or the run stops and says who is gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coterie.engines.inprocess import Fault
from coterie.runtime.ledger import Exchange
from tests.faults.lives import DEADLINE, EVERY, Life, Setting, names_a_site, same
from tests.faults.methods import ALL, DEFAULT, QUICK, Method, told_residual
from tests.faults.rows import Row, Verdict, whole_run
from tests.faults.wires import Gone, Unreachable, Unreadable, Wire

Faults = Callable[[int], list[Fault]]
MOST_LOST = 2
"""Of five sites, where three are a quorum: a run that lost no more than these goes on."""
ONE, TWO, THREE = ("site-1",), ("site-1", "site-3"), ("site-1", "site-2", "site-3")


def for_good(at: int) -> frozenset[int]:
    return frozenset(range(at, at + 1000))


def all_of(sites: tuple[str, ...], kind: str, rounds: Callable[[int], frozenset[int]], **how: float) -> Faults:
    return lambda at: [Fault(name, kind, rounds(at), **how) for name in sites]  # type: ignore[arg-type]


def some(at: int) -> frozenset[int]:
    return frozenset({at, at + 1, at + 2})


LOSSES: dict[str, tuple[tuple[str, ...], Faults, Faults | type[Wire]]] = {
    "site killed": (ONE, all_of(ONE, "drop", for_good), Gone),
    "site stopped for good": (ONE, all_of(ONE, "delay", for_good, seconds=2 * DEADLINE), Unreachable),
    "two sites killed at once": (TWO, all_of(TWO, "drop", for_good), Unreachable),
    "three sites killed at once": (THREE, all_of(THREE, "drop", for_good), Gone),
    "garbage for good": (ONE, all_of(ONE, "corrupt", for_good), all_of(ONE, "drop", for_good)),
    "unreadable questions for good": (ONE, all_of(ONE, "drop", for_good), Unreadable),
    "site stopped, back": (ONE, all_of(ONE, "delay", some, seconds=2 * DEADLINE), all_of(ONE, "drop", some)),
    "answers lost, back": (ONE, all_of(ONE, "vanish", some), all_of(ONE, "drop", some)),
    "two sites stopped, back": (TWO, all_of(TWO, "delay", some, seconds=2 * DEADLINE), all_of(TWO, "drop", some)),
}


def sees(loss: str, setting: Setting, at: int) -> Verdict:
    """The same loss by two mechanisms: both survive with one result, or both stop and say who is missing."""
    sites, faults, other = LOSSES[loss]
    twin = Setting(setting.method, setting.folder / "twin", setting.terms)
    one = setting.live(setting.channel(faults(at)))
    if isinstance(other, type):
        two = twin.live(wire=lambda channel: other(channel, at, sites))
    else:
        two = twin.live(twin.channel(other(at)))
    for life, where in ((one, setting), (two, twin)):
        where.check_books(life)
    assert (one.stop is None) == (two.stop is None), f"{one.stop} / {two.stop}"
    if one.stop is not None:
        assert len(sites) > MOST_LOST, f"a quorum was left: {one.stop}"
        assert names_a_site(one.stop, sites), str(one.stop)
        assert names_a_site(two.stop, sites), str(two.stop)
        return "stopped"
    same(setting.method, one.fitted, two.fitted)
    answers_for_those_left(setting.method, one)
    return "survived"


def answers_for_those_left(method: Method, life: Life) -> None:
    """Eigenpairs are those of the rows of who was asked; clusters hold the rows of those who closed."""
    assert told_residual(life.fitted, method, life.exchanges) <= 1e-8
    clusters = getattr(life.fitted.result_, "clusters", None)
    if clusters is not None and method.sums == "plain":
        tables = method.tables()
        assert clusters.counts.sum() == sum(tables[name].n_rows for name in answered(life.exchanges[-1]))


def answered(exchange: Exchange) -> list[str]:
    return [name for name, count in exchange.sites.items() if count.outcome.is_heard]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("method", QUICK, ids=lambda method: method.title)
def test_a_loss_is_the_same_whatever_it_comes_from_or_stops_the_run_clearly(
    loss: str, method: Method, row: Row
) -> None:
    row.fill(loss, method, lambda *cell: sees(loss, *cell), share=(2 * list(LOSSES).index(loss), 18))


@pytest.mark.parametrize("loss", ["site killed", "two sites killed at once", "site stopped, back"])
@pytest.mark.parametrize("method", DEFAULT, ids=lambda method: method.title)
def test_sites_of_the_default_policy_go_on_without_those_that_are_lost(loss: str, method: Method, row: Row) -> None:
    """By the rules that sites have by default."""
    row.fill(f"{loss}, default", method, lambda *cell: sees(loss, *cell), share=(list(LOSSES).index(loss), 5))


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("method", ALL, ids=lambda method: method.title)
def test_a_loss_at_any_kind_of_question(loss: str, method: Method, row: Row) -> None:
    row.fill(f"{loss} (all)", method, lambda *cell: sees(loss, *cell))


# ---------------------------------------------------------------- where every site is needed


def stops(setting: Setting, at: int) -> Verdict:
    life = setting.live(setting.channel([Fault("site-1", "drop", for_good(at))]))
    setting.check_books(life)
    whole = whole_run(setting.method, setting.folder.parent)
    if life.stop is None:  # nothing more was needed of it: its last part was in the sum already
        same(setting.method, life.fitted, whole.fitted)
        assert whole.exchanges[-1].asked.endswith("Reveal")
        assert at == whole.exchanges[-1].round
        return "survived"
    assert "site-1" in str(life.stop)
    assert life.exchanges[-1].round in (at, at + 1, at + 2)
    return "stopped"


@pytest.mark.parametrize("method", QUICK, ids=lambda method: method.title)
def test_where_every_site_is_needed_one_killed_stops_the_run_at_once(method: Method, row: Row) -> None:
    row.fill("site killed, all are needed", method, stops, which=("middle",), terms=EVERY, share=(0, 5))
