"""Principal axes of few rows are the rows, turned; and axes seen in many ways are the squares of any direction."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.messages.refusals import Refusal
from coterie.protocols.edge_sites import SendCenters, SendScatter, SendSubspace, SendSummary, SumReducedCost
from coterie.sites.policy import Policy
from tests.attacks.asker import OFF, ON, Asker

ROWS = np.random.default_rng(4).normal(size=(60, 6))
NO_MAP = (0, (), np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 0)))


def onto(*columns, shift=None):
    """Rows less a point, as these combinations of columns."""
    return (0, (), np.zeros(0, np.int64), np.zeros(0) if shift is None else shift, np.array(columns, float).T)


@pytest.mark.parametrize(("policy", "is_told"), [(OFF, True), (ON, False)], ids=["off", "on"])
def test_axes_of_a_single_row_are_the_row(policy, is_told):
    made = Asker.of(ROWS[:1], policy, method="federated-pca")
    reply = made.ask(SendSubspace(*NO_MAP, 1, 6, 1.0))
    assert (
        not isinstance(reply, Refusal) and np.abs(np.abs(reply.rows_of_axes[0]) - np.abs(ROWS[0])).max() < 1e-9
    ) == is_told


@pytest.mark.parametrize(("policy", "is_told"), [(OFF, True), (ON, False)], ids=["off", "on"])
def test_axes_give_all_distances_within_few_rows(policy, is_told):
    """Twenty rows of twelve columns: the Gram of columns has all the axes there are, too many for so few rows."""
    rows = np.random.default_rng(1).normal(size=(20, 12))
    reply = Asker.of(rows, policy, method="federated-pca").ask(SendSubspace(*NO_MAP, 12, 12, 1.0))
    told = not isinstance(reply, Refusal) and np.allclose(reply.rows_of_axes.T @ reply.rows_of_axes, rows.T @ rows)
    assert told == is_told


@pytest.mark.parametrize(("policy", "n_answers"), [(OFF, 9), (ON, 2)], ids=["off", "on"])
@pytest.mark.parametrize("request_", [SendSubspace, SendScatter])
def test_squares_about_many_points_are_answered_for_two(policy, n_answers, request_):
    """Squares of one column about a point that moves would locate its rows."""
    made = Asker.of(ROWS, policy, method="federated-pca")
    asks = [request_(*onto([1, 0, 0, 0, 0, 0], shift=np.full(6, 0.1 * i)), 1, 1, 1.0) for i in range(9)]
    assert sum(not isinstance(made.ask(ask), Refusal) for ask in asks) == n_answers


@pytest.mark.parametrize(("policy", "n_answers"), [(OFF, 5), (ON, 1)], ids=["off", "on"])
@pytest.mark.parametrize("what", ["seeds", "directions"])
def test_the_cost_of_ones_own_solution_is_told_once(policy, n_answers, what):
    """Along one direction after the other the costs of one cluster are the products of all columns."""
    made = Asker.of(ROWS, policy, method="edge-kmeans")
    seeds = [SumReducedCost(seed, *NO_MAP[1:], 2, 6, 1.0) for seed in range(5)]
    directions = [SumReducedCost(*onto(np.eye(6)[i]), 1, 1, 1.0) for i in range(5)]
    replies = [made.ask(ask) for ask in (seeds if what == "seeds" else directions)]
    assert sum(not isinstance(reply, Refusal) for reply in replies) == n_answers


def test_centers_seen_in_many_ways_never_stand_for_few_rows():
    made = Asker.of(ROWS, ON, method="edge-kmeans")
    for seed in range(6):
        axis = np.random.default_rng(seed).normal(size=6)
        reply = made.ask(SendCenters(*onto(axis), 30, 1, 1, 1000, 1.0))
        if not isinstance(reply, Refusal):
            assert all(count == 0 or count >= 5 for count in reply.counts)


@pytest.mark.parametrize("policy", [Policy(min_roster=1), ON], ids=["default", "averages"])
def test_summaries_hold_rows_and_are_refused(policy):
    made = Asker.of(ROWS, policy, method="jl+fss")
    assert made.ask(SendSummary(*NO_MAP, 10, 2, 6, 0, 0, 6, "", 0, 1.0)) in (
        Refusal.ROWS_FORBIDDEN,
        Refusal.SINGLE_ANSWER_FORBIDDEN,
    )
    shown = Asker.of(ROWS, OFF, method="jl+fss").ask(SendSummary(*NO_MAP, 10, 2, 6, 0, 0, 6, "", 0, 1.0))
    assert all((np.abs(ROWS - point).max(axis=1) == 0).any() for point in shown.points)  # rows as they are
