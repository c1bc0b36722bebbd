"""The guard of Grams: how many rows there must be for each row of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from coterie.errors import Guarded
from coterie.messages.refusals import Refusal
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_part import answers
from coterie.protocols.methods import METHODS, Method
from coterie.secure.masked_sums import Masked
from coterie.sites.guards import Guards
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import Asker, MaskedAsker

from .guarded_sites import LIMITS, line, sites


@dataclass(frozen=True)
class Products(Reply, content="grams"):
    """Sums of products of columns."""

    gram: Floats = array("n", "n", bound="rows * box**2")


@dataclass(frozen=True)
class Multiply(Request[Products]):
    """What do the columns' products add up to?"""

    n: int


@answers(Multiply)
def local_products(table, memory, ask):
    total = np.zeros((ask.n, ask.n))
    for block in table.blocks():
        wide = np.resize(block.rows, (len(block.rows), ask.n))
        total += wide.T @ wide
    return Products(total)


@pytest.fixture
def grams(monkeypatch):
    monkeypatch.setitem(METHODS, "grams", Method("grams", "", (Multiply,), "", ""))


def grams_asker(path=None, **rules):
    policy = Policy(single_answers="averages", **rules)
    return Asker(Site("here", ArrayTable(line(100)), policy=policy, ledger=SiteLedger(path)), method="grams")


@pytest.mark.usefixtures("grams")
@pytest.mark.parametrize(("rows", "n", "is_held"), [(8, 12, False), (8, 13, True), (20, 5, False), (0, 200, False)])
def test_a_gram_needs_enough_rows_for_each_of_its_own(rows, n, is_held):
    found = grams_asker(gram_rows=rows).ask(Multiply(n))
    assert found is Refusal.GUARDED if is_held else isinstance(found, Products)


@pytest.mark.usefixtures("grams")
def test_the_grams_of_a_run_add_up_also_over_a_restart(tmp_path):
    made = grams_asker(tmp_path / "ledger.jsonl", gram_rows=8)
    assert isinstance(made.ask(Multiply(6)), Products)
    assert isinstance(made.ask(Multiply(6)), Products)
    made.restart()
    assert made.ask(Multiply(1)) is Refusal.GUARDED
    assert isinstance(Asker(made.site, method="grams", run=b"s" * 16).ask(Multiply(12)), Products)
    made.site.ledger.close()


@pytest.mark.usefixtures("grams")
@pytest.mark.parametrize(
    ("whose", "all_rows", "is_held"),
    [("own", 1e6, True), ("all", None, True), ("all", 99.0, True), ("all", 240.0, False)],
)
def test_whose_rows_count_for_a_masked_gram(whose, all_rows, is_held):
    made = MaskedAsker(sites(Policy(gram_rows=8, gram_rows_of=whose)), method="grams")
    limits = LIMITS | ({} if all_rows is None else {"all_rows": all_rows})
    kinds = {
        type(one) if isinstance(one, Reply) else one
        for one in made.upload(Multiply(30), "abcde", limits).found.values()
    }
    assert kinds == ({Refusal.GUARDED} if is_held else {Masked})


@pytest.mark.usefixtures("grams")
def test_rows_of_other_sites_do_not_count_for_a_gram_seen_by_itself():
    made = grams_asker(gram_rows=8, gram_rows_of="all")
    assert made.ask(Multiply(13), {"all_rows": 1e6, "rows": 100.0, "box": 200.0}) is Refusal.GUARDED


def test_the_same_gram_masked_again_is_charged_once_and_anew_where_rows_are_seen_otherwise():
    ledger = SiteLedger()
    guards = Guards(Policy(gram_rows=8, gram_rows_of="own"), ledger)

    def charge(roster, view):
        guards.charge(b"r" * 16, Multiply(6), 100, {}, roster, view)
        return len(ledger.notes(b"r" * 16, "grams"))

    assert [charge(b"all", b"v"), charge(b"all", b"v")] == [1, 1]
    assert charge(b"all", b"w") == 2
    with pytest.raises(Guarded):
        charge(b"few", b"v")
    with pytest.raises(Guarded):  # seen by itself, it counts every time
        charge(b"", b"v")
