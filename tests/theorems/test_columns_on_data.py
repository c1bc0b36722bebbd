"""Kernel PCA of columns at several sites, on data: how near it comes, and what it holds at once."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA
from threadpoolctl import threadpool_limits

from coterie import VerticalKernelPCA
from coterie_studies.datasets import mnist


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_mnist_in_seven_blocks_of_columns(data_folder, seed):
    """sin-theta to the exact top ten on 1,000 rows: below .05 at rank 20, below .005 at rank 100."""
    rows = mnist().rows
    rows = rows[np.random.default_rng(seed).choice(len(rows), 1000, replace=False)].astype(np.float64)
    columns = [list(own) for own in np.array_split(np.arange(784), 7)]
    with threadpool_limits(1):
        for rank, most in ((20, 0.05), (100, 0.005)):
            model = VerticalKernelPCA(10, local_rank=rank, random_state=seed).fit(rows, columns=columns)
            exact = KernelPCA(10, kernel="rbf", gamma=model.gamma_).fit(rows)
            assert model.sin_theta(exact) < most


def test_ranks_found_for_a_tolerance_differ_where_columns_do():
    """The margins of digits are nearly empty: their site needs fewer pairs than the one in the middle."""
    rows = load_digits().data[:600]
    columns = {"margin": [*range(16), *range(48, 64)], "middle": list(range(16, 48)), "corner": [0]}
    columns["margin"].remove(0)
    with threadpool_limits(1):
        model = VerticalKernelPCA(5, tolerance=0.01, random_state=0).fit(rows, columns=columns)
        exact = KernelPCA(5, kernel="rbf", gamma=model.gamma_).fit(rows)
        fixed = VerticalKernelPCA(5, local_rank=max(model.local_ranks_.values()), random_state=0).fit(
            rows, columns=columns
        )
    assert model.local_ranks_["corner"] == 1  # a constant column
    assert len(set(model.local_ranks_.values())) == 3
    assert model.sin_theta(exact) < 0.1
    assert model.ledger_.total("floats_up") < 0.8 * fixed.ledger_.total("floats_up")
    assert model.sin_theta(exact) < 3 * fixed.sin_theta(exact)


SCRIPT = """
import resource
from benchmarks.columns import LARGE, fitted, rows_of
found = fitted(rows_of(LARGE))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, found.embedding_.shape)
"""


@pytest.mark.slow
def test_twenty_thousand_rows_without_a_matrix_of_all_pairs():
    """T = 20,000, J = 10, rank 50, 20 components; all pairs alone would be 3.2 GB."""
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    peak, shape = found.stdout.split(maxsplit=1)
    assert float(peak) < 2.5
    assert shape.strip() == "(20000, 20)"
