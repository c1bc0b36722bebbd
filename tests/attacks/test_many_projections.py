"""Squares of rows projected ever differently are the products of all columns: how every two of them go together."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.messages.refusals import Refusal
from coterie.methods.kernel.landmarks.summed import SumProjected, UseProjection, projection_of
from tests.attacks.asker import OFF, ON, Asker

ROWS = np.random.default_rng(4).normal(size=(60, 3)) @ np.array([[1, 0.5, 0], [0, 1, -0.7], [0, 0, 1]])


def products_by_projections(made, n_seeds):
    """What can be known of the sums of products of two columns, from squares of projected columns."""
    seen, found = [], []
    for seed in range(n_seeds):
        made.ask(UseProjection(seed, 2, False))
        reply = made.ask(SumProjected(2, 3.0, 0))
        if not isinstance(reply, Refusal):
            w = projection_of(3, 2, seed)
            seen += [[1.0, 2 * a * b, 2 * a * c, 2 * b * c] for a, b, c in (np.sqrt(2) * w).T]
            found += list(2 * reply.squares)  # of signs alone: the trace, and every product twice
    return np.linalg.lstsq(np.array(seen), np.array(found), rcond=None)[0][1:]


@pytest.mark.parametrize(("policy", "is_told"), [(OFF, True), (ON, False)], ids=["off", "on"])
def test_products_of_columns_by_many_projections(policy, is_told):
    gram = ROWS.T @ ROWS
    guess = products_by_projections(Asker.of(ROWS, policy, method="landmarks"), 20)
    assert (np.abs(guess - [gram[0, 1], gram[0, 2], gram[1, 2]]).max() < 1e-6) == is_told
