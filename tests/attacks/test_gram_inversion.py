"""The products of a few rows' random features give the rows: nothing else lies on the known curve of features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.optimize import least_squares

from coterie.messages.refusals import Refusal
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_part import answers
from coterie.protocols.methods import METHODS, Method
from coterie.secure.masked_sums import Masked
from coterie.sites.policy import Policy
from coterie.sites.site import Site
from coterie.sites.tables import ArrayTable
from tests.attacks.asker import ROW, Asker, MaskedAsker

D, WIDE = 5, 200
RNG = np.random.default_rng(4)
OMEGA, PHASES = RNG.normal(size=(D, WIDE)) * np.sqrt(0.2), RNG.uniform(0, 2 * np.pi, WIDE)


@dataclass(frozen=True)
class Gram(Reply, content="grams"):
    """W^T W of a site's features."""

    products: Floats = array("wide", "wide", bound="rows")


@dataclass(frozen=True)
class AskGram(Request[Gram]):
    """What do the products of your rows' features add up to?"""

    wide: int


def features(rows):
    """Random Fourier features: cos(Omega x + b)."""
    return np.sqrt(2 / WIDE) * np.cos(rows @ OMEGA + PHASES)


@answers(AskGram)
def local_gram(table, memory, ask):
    total = np.zeros((ask.wide, ask.wide))
    for block in table.blocks():
        total += features(block.rows).T @ features(block.rows)
    return Gram(total)


@pytest.fixture(autouse=True)
def _trial(monkeypatch):
    monkeypatch.setitem(METHODS, "grams", Method("grams", "", (AskGram,), "", ""))


def inverted(products, n_starts=1500, seed=5):
    """Points whose features lie in the span of the rows' features: least squares from many random starts."""
    values, vectors = np.linalg.eigh(products)
    n = int((values > 1e-10 * values[-1]).sum())
    outside = np.sqrt(2 / WIDE) * vectors[:, : WIDE - n].T  # what lies outside the span must vanish

    def distance(x):
        return outside @ np.cos(x @ OMEGA + PHASES)

    def slope(x):
        return -(outside * np.sin(x @ OMEGA + PHASES)) @ OMEGA.T

    found = []
    for start in 1.5 * np.random.default_rng(seed).normal(size=(n_starts, D)):
        guess = least_squares(distance, start, slope, method="lm", max_nfev=100)
        if guess.cost < 1e-18 and all(np.abs(guess.x - other).max() > 100 * ROW for other in found):
            found.append(guess.x)
        if len(found) == n:
            break
    return np.reshape(found, (-1, D))


def n_recovered(rows, policy):
    """How many rows the attack recovers from what the site sends."""
    reply = Asker.of(rows, policy, method="grams").ask(AskGram(WIDE))
    if isinstance(reply, Refusal):
        assert reply is Refusal.GUARDED
        return 0
    guesses = inverted(reply.products)
    return sum(bool((np.abs(guesses - row).max(axis=1) < ROW).any()) for row in rows)


@pytest.mark.parametrize(("n", "fewest"), [(1, 1), (5, 5), (20, 15)])
def test_without_a_guard_a_gram_of_few_rows_is_those_rows(n, fewest):
    rows = np.random.default_rng(n).normal(size=(n, D))
    assert n_recovered(rows, Policy.simulation()) >= fewest


@pytest.mark.parametrize("n", [1, 5, 20])
@pytest.mark.parametrize("whose", ["own", "all"])
def test_with_the_guard_no_row_is_recovered(n, whose):
    rows = np.random.default_rng(n).normal(size=(n, D))
    policy = Policy(single_answers="averages", gram_rows=8, gram_rows_of=whose)
    assert n_recovered(rows, policy) == 0


@pytest.mark.parametrize(
    ("whose", "all_rows", "is_held"),
    [("own", 1e9, True), ("all", None, True), ("all", 8 * WIDE - 1.0, True), ("all", 8.0 * WIDE, False)],
)
def test_in_a_masked_sum_all_sites_rows_count_only_where_the_policy_says_so(whose, all_rows, is_held):
    """The number of all sites' rows is the server's word for it: a site that does not trust it counts its own."""
    policy = Policy(gram_rows=8, gram_rows_of=whose)
    rng = np.random.default_rng(6)
    sites = {name: Site(name, ArrayTable(rng.normal(size=(20, D))), policy=policy) for name in "abcd"}
    limits = {"rows": 1000.0, "box": 10.0} | ({} if all_rows is None else {"all_rows": all_rows})
    found = MaskedAsker(sites, method="grams").upload(AskGram(WIDE), "abcd", limits).found
    assert {one if isinstance(one, Refusal) else type(one) for one in found.values()} == {
        Refusal.GUARDED if is_held else Masked
    }
