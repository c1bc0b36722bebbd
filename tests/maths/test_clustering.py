"""Decisions of linear k-means that rounding must not take."""

from __future__ import annotations

import numpy as np

from coterie.maths.clustering import var_part_centers
from tests.federations import blobs


def test_rows_at_the_mean_of_a_column_fall_on_one_side_in_whatever_order_sums_are_taken():
    rng = np.random.default_rng(0)
    for seed in range(20):
        rows = blobs(200, 3, 3, seed=seed)
        filled = rng.random(rows.shape) < 0.2
        rows = np.where(filled, np.ma.array(rows, mask=filled).mean(axis=0), rows)
        found = [var_part_centers(rows[order], np.ones(200), 4) for order in map(rng.permutation, [200] * 5)]
        for other in found[1:]:
            np.testing.assert_allclose(other, found[0], rtol=1e-9)
