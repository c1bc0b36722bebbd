"""Eigenpairs from products with vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg

from coterie.maths.spectra import Krylov, Ritz, eigenpairs_above, full_matrix, inverse_root, triangle


def lanczos(matrix, threshold, at_least=1, seed=0):
    basis = Krylov(len(matrix), np.random.default_rng(seed))
    while not basis.has_converged(threshold, at_least):
        basis.extend(matrix @ basis.newest)
    return basis


def with_spectrum(values, seed=0):
    turned, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))
    matrix = turned * np.asarray(values, float) @ turned.T
    return (matrix + matrix.T) / 2


def assert_pairs(matrix, found, expected):
    np.testing.assert_allclose(found.values, expected, atol=1e-8 * max(1, max(expected, default=1)))
    residual = matrix @ found.vectors - found.vectors * found.values
    assert np.abs(residual).max(initial=0) <= 1e-8 * max(1.0, np.abs(matrix).max())
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(len(expected)), atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_an_eigenvalue_that_is_there_twice_is_found_twice(seed):
    matrix = np.diag([10.0, 10.0, 5.0, *[0.0] * 9])
    assert_pairs(matrix, lanczos(matrix, 1.0, seed=seed).ritz().above(1.0), [10, 10, 5])
    turned = with_spectrum([10.0, 10.0, 5.0, *[0.0] * 9], seed)
    assert_pairs(turned, lanczos(turned, 1.0, seed=seed).ritz().above(1.0), [10, 10, 5])


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9, 1e-13])
def test_nearly_equal_eigenvalues_give_no_ghosts(gap):
    values = [10, 10 - gap, 10 - 2 * gap, 5, 5 - gap, *np.linspace(1, 0, 40)]
    matrix = with_spectrum(values)
    found = lanczos(matrix, 2.0).ritz().above(2.0)
    assert len(found.values) <= 5
    residual = matrix @ found.vectors - found.vectors * found.values
    assert np.abs(residual).max() <= 1e-8
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(len(found.values)), atol=1e-10)
    if gap >= 1e-6:
        np.testing.assert_allclose(found.values, values[:5], atol=1e-7)


@pytest.mark.parametrize("matrix", [np.array([[3.0]]), np.zeros((1, 1)), np.zeros((7, 7)), np.eye(5)])
def test_small_empty_and_identical_matrices_end(matrix):
    basis = lanczos(matrix, 0.5)
    assert basis.n_products <= len(matrix)
    assert len(basis.ritz().above(0.5).values) == int((np.diag(matrix) > 0.5).sum())


@given(st.integers(2, 30), st.integers(0, 10_000), st.floats(0.01, 0.9))
def test_it_finds_what_a_full_decomposition_finds(size, seed, share):
    rows = np.random.default_rng(seed).normal(size=(size + 3, size)) * np.geomspace(1, 1e-3, size)
    matrix = rows.T @ rows
    exact = eigenpairs_above(matrix)
    threshold = share * exact.values[0]
    if np.abs(exact.values - threshold).min() < 1e-6 * exact.values[0]:
        return
    found = lanczos(matrix, threshold).ritz().above(threshold)
    assert_pairs(matrix, found, exact.above(threshold).values)


def test_the_first_few_converge_whatever_the_threshold():
    matrix = with_spectrum(np.geomspace(100, 1e-4, 60))
    basis = lanczos(matrix, np.inf, at_least=12)
    np.testing.assert_allclose(basis.ritz().values[:12], np.geomspace(100, 1e-4, 60)[:12], rtol=1e-8)
    assert 12 < basis.n_products < 60


def test_a_triangle_is_its_matrix():
    matrix = with_spectrum(np.arange(6.0))
    np.testing.assert_array_equal(full_matrix(triangle(matrix), 6), matrix)
    assert triangle(matrix).shape == (21,)


def test_the_inverse_root_of_a_matrix_without_full_rank_has_fewer_columns():
    matrix = with_spectrum([4.0, 2.0, 1.0, 1e-15, 0.0])
    root = inverse_root(matrix)
    assert root.shape == (5, 3)
    np.testing.assert_allclose(root.T @ matrix @ root, np.eye(3), atol=1e-10)


@pytest.mark.parametrize("seed", range(12))
def test_a_matrix_of_low_rank_does_not_take_as_many_products_as_it_has_rows(seed):
    """Every fresh direction after the breakdown is of the null space: one of them is enough."""
    factor = np.random.default_rng(seed).normal(size=(200, 8))
    found = lanczos(factor @ factor.T, 1.0, seed=seed)
    assert found.n_products <= 12
    assert_pairs(factor @ factor.T, found.ritz().above(1.0), np.linalg.eigvalsh(factor.T @ factor)[::-1])


def test_a_root_has_the_same_signs_whatever_signs_the_eigenvectors_came_with(monkeypatch):
    matrix = with_spectrum([5.0, 3.0, 2.0, 1.0])
    found = inverse_root(matrix)
    original = linalg.eigh

    def turned(given):
        values, vectors = original(given)
        return values, vectors * [1, -1, -1, 1]

    monkeypatch.setattr(linalg, "eigh", turned)
    np.testing.assert_array_equal(inverse_root(matrix), found)


def test_the_sign_of_a_vector_with_two_largest_entries_is_not_a_matter_of_rounding():
    for hair in (-1e-12, 0.0, 1e-12):
        for sign in (-1, 1):
            pairs = Ritz(np.ones(1), sign * np.array([[0.1], [0.5], [-0.5 + hair]]))
            np.testing.assert_allclose(pairs.signed().vectors[:, 0], [0.1, 0.5, -0.5], atol=1e-11)
