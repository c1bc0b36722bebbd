"""The products of a few rows' random features give the rows: nothing else lies on the known curve of features."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import least_squares

from coterie.messages.refusals import Refusal
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import answers
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.sites.policy import Policy
from tests.attacks.asker import ON, ROW, Asker

D, WIDE = 5, 200
RNG = np.random.default_rng(4)
OMEGA, PHASES = RNG.normal(size=(D, WIDE)) * np.sqrt(0.2), RNG.uniform(0, 2 * np.pi, WIDE)


class Gram(Reply, content="grams"):
    """W^T W of a site's features."""

    products: Floats = array("wide", "wide", bound="rows")


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
        total += (block.counts[:, None] * features(block.rows)).T @ features(block.rows)
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
        return 0
    guesses = inverted(reply.products)
    return sum(bool((np.abs(guesses - row).max(axis=1) < ROW).any()) for row in rows)


@pytest.mark.parametrize(("n", "fewest"), [(1, 1), (5, 5), (20, 15)])
def test_over_rows_a_gram_of_few_rows_is_those_rows(n, fewest):
    rows = np.random.default_rng(n).normal(size=(n, D))
    assert n_recovered(rows, Policy.simulation()) >= fewest


@pytest.mark.parametrize("n", [1, 5, 20])
def test_over_groups_no_row_is_recovered(n):
    rows = np.random.default_rng(n).normal(size=(n, D))
    assert n_recovered(rows, ON) == 0
