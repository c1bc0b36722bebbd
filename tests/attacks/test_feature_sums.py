"""Sums of many features of few rows are those rows: a run that embeds rows in many columns, and sums them by cell."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import least_squares

from coterie.maths.features import draw_features
from coterie.maths.kernels import Kernel
from coterie.messages.refusals import Refusal
from coterie.methods.kernel.baselines import MapFeatures
from coterie.methods.kernel.dspgd.sites import Advance, BeginKernel
from coterie.methods.shared.lloyd import Assign
from tests.attacks.asker import OFF, ON, ROW, TAU, Asker

D, WIDE, KERNEL = 2, 200, Kernel("rbf", 0.1)
ROWS = np.random.default_rng(3).normal(size=(60, D)) * 0.7
GROUP = np.random.default_rng(4).normal(size=(TAU, D)) * 0.3 + 9.0
"""Five rows far from the others: a cell of their own, as large as the guard asks for."""
ALL = np.concatenate([ROWS, GROUP])


def features(rows, step=0):
    return draw_features(KERNEL, WIDE, D, 7, step)(rows) / np.sqrt(WIDE)


def cell_of_features(made):
    """One center at the group's features as the attacker guesses them, one at everybody else's."""
    made.ask(MapFeatures("rbf", 0.1, 3, 1.0, WIDE, "phase", 7))
    guess = np.array([features(np.zeros((1, D)))[0], features(np.full((1, D), 9.0))[0]])
    return made.ask(Assign(guess))


def cell_of_components(made):
    """The same through DSPGD, whose server chooses how features become components."""
    made.ask(BeginKernel("rbf", 0.1, 3, 1.0, WIDE, "phase", 7, "float64"))
    told = made.ask(Advance(1, 1.0, True, np.zeros(WIDE), np.eye(WIDE), np.ones(WIDE)))
    if isinstance(told, Refusal):
        return told
    guess = np.array([features(np.zeros((1, D)), 1)[0], features(np.full((1, D), 9.0), 1)[0]])
    return made.ask(Assign(guess))


def rows_behind(sums, step):
    """Five rows whose features add up to these sums, by least squares from around the guess."""
    best = None
    for start in np.random.default_rng(5).normal(size=(8, TAU, D)) * 0.5 + 9.0:
        fit = least_squares(
            lambda x: features(x.reshape(TAU, D), step).sum(0) - sums,
            start.ravel(),
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
        )
        best = fit if best is None or fit.cost < best.cost else best
    return best.x.reshape(TAU, D)


def n_found(reply, step):
    if isinstance(reply, Refusal):
        return 0
    found = rows_behind(reply.sums[1], step)
    return sum(np.abs(found - row).max(axis=1).min() < ROW for row in GROUP)


ATTACKS = [(cell_of_features, "rfk", 0), (cell_of_components, "dspgd", 1)]


@pytest.mark.parametrize(("attack", "method", "step"), ATTACKS)
def test_without_a_guard_all_rows_of_the_cell_are_found(attack, method, step):
    assert n_found(attack(Asker.of(ALL, OFF, method=method)), step) == TAU


@pytest.mark.parametrize(("attack", "method", "step"), ATTACKS)
def test_with_the_guard_none_is_found(attack, method, step):
    assert n_found(attack(Asker.of(ALL, ON, method=method)), step) == 0
