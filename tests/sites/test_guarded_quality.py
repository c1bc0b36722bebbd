"""What guards cost: Lloyd's algorithm with every site's guards on and sums masked, beside the same without."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import coterie
from coterie.estimators.kmeans import LloydKMeans
from coterie.maths.clustering import nearest
from coterie.sites.policy import Policy
from tests.federations import tables_of


def cost_ratio(rows, owners, k):
    tables = tables_of(rows, owners, 5)
    assert min(table.n_rows for table in tables.values()) >= 300
    plain = coterie.fit(LloydKMeans(k), tables, sums="plain", policy=Policy.simulation())
    guarded = coterie.fit(LloydKMeans(k), tables)
    costs = [float(nearest(rows, model.cluster_centers_)[1].sum()) for model in (guarded, plain)]
    assert guarded.inertia_ == pytest.approx(costs[0], rel=0.05)  # what guarded sites tell of it
    return costs[0] / costs[1]


@pytest.mark.parametrize("seed", range(3))
def test_digits_with_guards_stay_within_two_percent_of_central_lloyd(seed):
    rows = load_digits().data
    owners = np.random.default_rng(seed).permutation(np.arange(len(rows)) % 5)
    assert cost_ratio(rows, owners, 10) <= 1.02


@pytest.mark.data
@pytest.mark.slow
def test_mnist_with_guards_stays_within_two_percent_of_central_lloyd(data_folder):
    with np.load(data_folder / "mnist.npz") as file:
        rows = file["X"][:10_000].reshape(10_000, -1) / 255.0
    owners = np.random.default_rng(0).integers(0, 5, len(rows))
    assert cost_ratio(rows, owners, 10) <= 1.02
