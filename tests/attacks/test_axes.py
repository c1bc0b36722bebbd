"""Principal axes of few rows are the rows, turned."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.messages.refusals import Refusal
from coterie.methods.edge.sites import SendCenters, SendSubspace, SendSummary
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


def test_centers_seen_in_many_ways_never_stand_for_few_rows():
    made = Asker.of(ROWS, ON, method="edge-kmeans")
    for seed in range(6):
        axis = np.random.default_rng(seed).normal(size=6)
        reply = made.ask(SendCenters(*onto(axis), 30, 1, 1000, 1.0))
        if not isinstance(reply, Refusal):
            assert all(count == 0 or count >= 5 for count in reply.counts)


@pytest.mark.parametrize("policy", [Policy(verification="off", min_roster=1), ON], ids=["default", "averages"])
def test_summaries_hold_rows_and_are_refused(policy):
    made = Asker.of(ROWS, policy, method="jl+fss")
    assert made.ask(SendSummary(*NO_MAP, 10, 2, 6, 0, 0, 6, "", 0, 1.0)) in (
        Refusal.ROWS_FORBIDDEN,
        Refusal.SINGLE_ANSWER_FORBIDDEN,
    )
    shown = Asker.of(ROWS, OFF, method="jl+fss").ask(SendSummary(*NO_MAP, 10, 2, 6, 0, 0, 6, "", 0, 1.0))
    assert all((np.abs(ROWS - point).max(axis=1) == 0).any() for point in shown.points)  # rows as they are
