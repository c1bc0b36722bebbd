"""A sum over one row is that row: a center put on an outlying row, all the others subtracted, the cost around it."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.messages.refusals import Refusal
from coterie.methods.kmeans.federated import Train
from coterie.methods.shared.lloyd import Assign, Close
from coterie.methods.shared.starts import Split, Summarise
from tests.attacks.asker import OFF, ON, ROW, Asker, nearest_row, sum_columns

D = 3
ROWS = np.random.default_rng(1).normal(size=(60, D))
ROWS[17] = [40.0, -30.0, 25.0]
NEAR = ROWS[17] + [1.0, -2.0, 1.5]
"""Where the attacker thinks that someone might be."""


def means(counts, sums):
    """The mean of every cell that has any rows."""
    return [total / count for count, total in zip(counts, sums, strict=True) if count > 0]


def center_on_it(made):
    """One center for everybody, one near the row."""
    found = made.ask(Assign(np.array([np.zeros(D), NEAR])))
    return means(found.counts, found.sums)


def trained_on_it(made):
    """The same by federated k-means."""
    found = made.ask(Train(1, 0, 1.0, 0, 0, np.array([np.zeros(D), NEAR])))
    return means(found.sizes, found.weighted)


def cut_around_it(made):
    """The same by a cut between the row and everybody."""
    found = made.ask(Split(2, np.array([0]), np.array([0]), np.array([20.0]), np.zeros(D), np.zeros((0, D))))
    return means(found.counts, found.sums)


def local_center_on_it(made):
    """The site puts the center there itself, being asked for enough of them."""
    found = made.ask(Summarise(20, D, 1000, 0))
    return means(found.counts, found.counts[:, None] * found.centers)


def all_others_subtracted(made):
    """The row's own cell is not even looked at: all rows, less those of every other cell."""
    whole, cells = made.ask(sum_columns(D)), made.ask(Assign(np.array([np.zeros(D), NEAR, -NEAR])))
    return [whole.sums - cells.sums[0] - cells.sums[2]]


def all_others_subtracted_at_once(made):
    """The same within one kind of question: one cell for all, then one for all but the row."""
    whole, cells = made.ask(Assign(np.zeros((1, D)))), made.ask(Assign(np.array([np.zeros(D), NEAR])))
    return [whole.sums[0] - cells.sums[0]]


def cost_around_it(made, ask=Assign):
    """At d + 2 places of the center near it only the row's own distance changes: |x|^2 - 2 <x, c> + |c|^2."""
    places, costs = NEAR + np.vstack([np.zeros(D), np.eye(D), -np.ones(D)]), []
    for place in places:
        found = made.ask(ask(np.array([np.zeros(D), place])))
        if not isinstance(found, Refusal):
            costs.append(float(found.cost) - place @ place)
    asked = np.column_stack([np.ones(len(costs)), -2 * places[: len(costs)]])
    return [np.linalg.lstsq(asked, np.array(costs), rcond=None)[0][1:]]


def closing_cost_around_it(made):
    """The same with the question that closes a run."""
    return cost_around_it(made, Close)


ATTACKS = [
    center_on_it,
    trained_on_it,
    cut_around_it,
    local_center_on_it,
    all_others_subtracted,
    all_others_subtracted_at_once,
    cost_around_it,
    closing_cost_around_it,
]


def best(attack, policy):
    """How near the best of an attack's guesses comes to any row."""
    method = "federated-kmeans" if attack is trained_on_it else "lloyd"
    guesses = attack(Asker.of(ROWS, policy, method=method))
    return min((nearest_row(guess, ROWS) for guess in guesses), default=np.inf)


@pytest.mark.parametrize("attack", ATTACKS)
def test_without_a_guard_the_row_is_recovered(attack):
    assert best(attack, OFF) < ROW


@pytest.mark.parametrize("attack", ATTACKS)
def test_with_the_guard_no_guess_is_a_row(attack):
    assert best(attack, ON) > 1000 * ROW


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize(("policy", "is_told"), [(OFF, True), (ON, False)], ids=["off", "on"])
def test_a_row_among_a_few_that_the_attacker_knows_is_as_safe_as_one_alone(n, policy, is_told):
    friends = NEAR + np.random.default_rng(2).normal(size=(n - 1, D))
    rows = np.concatenate([ROWS, friends])
    made = Asker.of(rows, policy)
    whole, cells = made.ask(sum_columns(D)), made.ask(Assign(np.array([np.zeros(D), NEAR])))
    guesses = [cells.sums[1] - friends.sum(0), whole.sums - cells.sums[0] - friends.sum(0)]
    assert (min(nearest_row(guess, ROWS) for guess in guesses) < ROW) == is_told
