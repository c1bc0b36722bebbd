"""The kernel matrix of a joined table from eigenpairs of its parts'."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.errors import InputError
from coterie.maths import block_krylov, factors
from coterie.maths.factors import Joined, kernel_pairs
from coterie.maths.kernels import Kernel
from coterie.maths.spectra import Ritz

ROWS = np.random.default_rng(3).normal(size=(80, 12))
GAMMA = 0.05


def exact(kernel, rows=ROWS):
    return rows @ rows.T if kernel == "linear" else Kernel("rbf", GAMMA).between(rows, rows)


def parts(kernel, rank, n_parts, rows=ROWS):
    return tuple(kernel_pairs(kernel, GAMMA, part, rank, seed=0) for part in np.array_split(rows, n_parts, axis=1))


def whole(joined):
    return joined.rows(0, joined.size)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("n_parts", [1, 2, 4, 12])
def test_with_all_pairs_it_is_the_joined_tables_own(kernel, n_parts):
    """Equations (4) to (8): a sum, or a product entry by entry."""
    joined = Joined(kernel, parts(kernel, 80, n_parts))
    np.testing.assert_allclose(whole(joined), exact(kernel), atol=1e-10)


def test_a_linear_one_needs_as_many_pairs_as_columns():
    np.testing.assert_allclose(whole(Joined("linear", parts("linear", 3, 4))), exact("linear"), atol=1e-10)
    assert np.abs(whole(Joined("linear", parts("linear", 2, 4))) - exact("linear")).max() > 0.1


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("rank", [1, 2, 5, 20])
def test_what_is_left_out_is_positive_and_within_lemma_2(kernel, rank):
    """K - K_hat is positive semidefinite: each part's is, so are sums and Hadamard products of such; its norm is at
    most J sqrt(T) times the largest eigenvalue left out (sqrt(T - D) for sums)."""
    joined = Joined(kernel, parts(kernel, rank, 4))
    left = exact(kernel) - whole(joined)
    assert np.linalg.eigvalsh(left).min() >= -1e-9
    next_values = [
        np.sort(np.linalg.eigvalsh(exact(kernel, part)))[::-1][rank] for part in np.array_split(ROWS, 4, axis=1)
    ]
    rows = 80 - rank if kernel == "linear" else 80
    bound = 4 * np.sqrt(rows) * max(next_values)
    assert np.linalg.norm(left) <= bound + 1e-9
    if rank <= 2:
        assert np.linalg.norm(left) > 0.01 * bound


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("center", [False, True])
def test_leading_pairs_are_those_of_the_matrix_written_down(kernel, center, monkeypatch):
    monkeypatch.setattr(block_krylov, "SMALL", 10)
    monkeypatch.setattr(factors, "BLOCK_ENTRIES", 700)  # nine rows of it at a time
    joined = Joined(kernel, parts(kernel, 6, 3))
    matrix = whole(joined)
    if center:
        off = np.eye(80) - 1 / 80
        matrix = off @ matrix @ off
    values = np.sort(np.linalg.eigvalsh(matrix))[::-1]
    found = joined.leading(4, center=center, seed=0)
    np.testing.assert_allclose(found.values, values[:4], rtol=1e-9)
    np.testing.assert_allclose(matrix @ found.vectors, found.vectors * found.values, atol=1e-8 * values[0])
    np.testing.assert_allclose(joined.means, whole(joined).mean(1), rtol=1e-10)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_parts_pairs_are_the_eigenpairs_of_its_kernel_matrix(kernel, monkeypatch):
    monkeypatch.setattr(block_krylov, "SMALL", 10)
    monkeypatch.setattr(factors, "BLOCK_ENTRIES", 700)
    for rows in (ROWS[:, :3], np.random.default_rng(1).normal(size=(80, 200))):
        values = np.sort(np.linalg.eigvalsh(exact(kernel, rows)))[::-1]
        found = kernel_pairs(kernel, GAMMA, rows, 5, seed=0)
        np.testing.assert_allclose(found.values, values[:5], rtol=1e-8, atol=1e-8 * values[0])
        np.testing.assert_allclose(
            exact(kernel, rows) @ found.vectors, found.vectors * found.values, atol=1e-7 * values[0]
        )


def test_fewer_columns_than_pairs_fill_up_with_zeros():
    found = kernel_pairs("linear", GAMMA, ROWS[:, :2], 5, seed=0)
    assert found.vectors.shape == (80, 5)
    np.testing.assert_allclose(found.values[2:], 0)
    constant = kernel_pairs("linear", GAMMA, np.zeros((80, 1)), 2, seed=0)
    assert not constant.values.any()
    assert np.isfinite(constant.vectors).all()


def test_what_cannot_be_joined_is_an_error():
    with pytest.raises(InputError, match="'rbf' or 'linear'"):
        Joined("laplacian", parts("rbf", 3, 2))
    with pytest.raises(InputError, match="same rows"):
        Joined("rbf", (Ritz(np.ones(1), np.ones((3, 1))), Ritz(np.ones(1), np.ones((4, 1)))))
