"""DPCA on parts that are all here: its steps, and how it comes near the principal subspace."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy import linalg
from threadpoolctl import threadpool_limits

from coterie.errors import InputError
from coterie.maths.dpca import loadings, next_copy, orthonormal, pulled, ring, start_copy
from tests.maths.dpca_twin import dpca


@pytest.fixture(autouse=True)
def _one_thread():
    with threadpool_limits(1):
        yield


def with_values(values, n_rows, widths, seed=0):
    """Parts of a table whose X X' has these eigenvalues, and its principal axes."""
    rng = np.random.default_rng(seed)
    u = np.linalg.qr(rng.normal(size=(sum(widths), len(values))))[0]
    v = np.linalg.qr(rng.normal(size=(n_rows, len(values))))[0]
    whole = (v * np.sqrt(values)) @ u.T
    return np.split(whole, np.cumsum(widths)[:-1], axis=1), u


def off(components, axes):
    """The paper's error |P - U U'|^2, P the projection on what the stacked components span: 2 |(I - U U') P|^2."""
    basis = np.linalg.qr(np.concatenate(components))[0]
    assert basis.shape == axes.shape
    return float(2 * np.linalg.norm(basis - axes @ (axes.T @ basis)) ** 2)


# ---------------------------------------------------------------- the steps


def test_neighbours_are_a_ring_with_the_site_itself_counted():
    assert ring(10, 3)[0] == (1, 9)
    assert ring(10, 5)[9] == (0, 1, 7, 8)
    assert ring(10, 10)[4] == (0, 1, 2, 3, 5, 6, 7, 8, 9)
    assert ring(2, 2) == ((1,), (0,))
    assert ring(3, 3) == ((1, 2), (0, 2), (0, 1))


@pytest.mark.parametrize(("n_sites", "neighbours"), [(2, 2), (3, 3), (7, 3), (7, 5), (8, 7), (10, 9), (10, 10)])
def test_neighbours_are_mutual_and_as_many_as_said(n_sites, neighbours):
    near = ring(n_sites, neighbours)
    assert {len(some) for some in near} == {neighbours - 1}
    assert all(j in near[i] and i != j for j, some in enumerate(near) for i in some)


@pytest.mark.parametrize(("n_sites", "neighbours"), [(10, 1), (10, 11), (10, 4), (3, 2), (1, 1), (1, 2), (5, 0)])
def test_neighbours_that_cannot_be(n_sites, neighbours):
    with pytest.raises(InputError, match="neighbours"):
        ring(n_sites, neighbours)


def test_the_start_is_orthonormal_and_drawn_from_the_seed():
    start = start_copy(20, 3, 5)
    np.testing.assert_allclose(start.T @ start, np.eye(3), atol=1e-14)
    assert start_copy(20, 3, 5).tobytes() == start.tobytes()
    assert np.abs(start_copy(20, 3, 6) - start).max() > 0.01
    for count in (0, 21):
        with pytest.raises(InputError, match="n_components"):
            start_copy(20, count, 5)


def test_a_copy_is_made_orthonormal_by_its_own_inverse_root():
    copy = np.random.default_rng(1).normal(size=(12, 3)) * [1.0, 5.0, 0.1]
    np.testing.assert_allclose(orthonormal(copy), copy @ linalg.inv(linalg.sqrtm(copy.T @ copy)), atol=1e-12)
    np.testing.assert_allclose(orthonormal(orthonormal(copy)), orthonormal(copy), atol=1e-14)


def test_components_and_copies_are_minima():
    """Of |X - Y B'|^2 over B; of half of it, <P, Y> and rho sum_i |Y - (Y_j + Y_i) / 2|^2 over Y."""
    rng = np.random.default_rng(2)
    rows, copies = rng.normal(size=(9, 4)), [rng.normal(size=(9, 2)) for _ in range(3)]
    multipliers, rho = [rng.normal(size=(9, 2)) for _ in range(3)], 0.7
    moved, pulls = pulled(multipliers, copies, ring(3, 3), rho)
    np.testing.assert_allclose(moved[0], multipliers[0] + rho * (2 * copies[0] - copies[1] - copies[2]), atol=1e-13)
    found = loadings(rows, copies[0])
    np.testing.assert_allclose(copies[0].T @ (rows - copies[0] @ found.T), 0, atol=1e-12)

    def augmented(y):
        near = sum(((y - (copies[0] + copies[i]) / 2) ** 2).sum() for i in (1, 2))
        return ((rows - y @ found.T) ** 2).sum() / 2 + (moved[0] * y).sum() + rho * near

    best = next_copy(rows, found, pulls[0], 2 * rho * 2)
    for _ in range(20):
        step = rng.normal(size=best.shape)
        step *= 1e-4 / np.linalg.norm(step)
        slope = (augmented(best + step) - augmented(best - step)) / 2e-4
        assert abs(slope) < 1e-8
        assert augmented(best + step) > augmented(best)


@pytest.mark.parametrize("neighbours", [3, 5, 6])
def test_inner_steps_without_end_reach_the_common_minimum_at_every_site(neighbours):
    parts, _ = with_values([90.0, 60.0, 30.0, 10.0], 20, [3, 4, 1, 5, 2, 6])
    start = start_copy(20, 2, 3)
    components = [part.T @ start for part in parts]
    target = sum(part @ b for part, b in zip(parts, components, strict=True))
    common = target @ np.linalg.inv(sum(b.T @ b for b in components))
    found = dpca(parts, 2, neighbours=neighbours, n_iter=1, inner=1500, rho=0.5, seed=3).history[0]
    for copy in found:
        np.testing.assert_allclose(copy, orthonormal(common), atol=1e-10)


# ---------------------------------------------------------------- the whole


@pytest.mark.parametrize("widths", [[6, 7, 5], [1, 12, 3], [9, 9]])
def test_it_ends_in_the_leading_singular_subspace(widths):
    parts, _ = with_values([400.0, 300.0, 20.0, 10.0, 5.0], 15, widths, seed=4)
    left, _, axes = np.linalg.svd(np.concatenate(parts, axis=1), full_matrices=False)
    found = dpca(parts, 2, neighbours=len(widths), n_iter=150, seed=0)
    assert off(found.components, axes[:2].T) < 1e-20
    for copy in found.history[-1]:
        np.testing.assert_allclose(copy @ copy.T, left[:, :2] @ left[:, :2].T, atol=1e-10)


@cache
def paper_errors(beta, neighbours, n_iter=40):
    """The mean error by outer step on three of the paper's tables: M = 1000, T = 100, J = 10, D = 1."""
    found = []
    for seed in range(3):
        parts, axes = with_values([5000.0, 5000.0 / beta, *[50.0] * 48], 100, [100] * 10, seed)
        history = dpca(parts, 1, neighbours=neighbours, n_iter=n_iter, seed=seed).history
        by_step = [[part.T @ copy for part, copy in zip(parts, copies, strict=True)] for copies in history]
        found.append([off(components, axes[:, :1]) for components in by_step])
    return np.mean(found, axis=0)


@pytest.mark.parametrize("beta", [100, 2])
@pytest.mark.parametrize("neighbours", [3, 5, 10])
def test_the_error_falls_with_every_outer_step(beta, neighbours):
    errors = paper_errors(beta, neighbours)
    assert (np.diff(errors[errors > 1e-25]) < 0).all()
    assert errors[-1] < errors[19] / 3  # with multipliers begun afresh in every outer step it no longer falls


@pytest.mark.parametrize("beta", [100, 2])
def test_more_neighbours_are_faster(beta):
    three, five, ten = (paper_errors(beta, n) for n in (3, 5, 10))
    for step in (9, 14, 19):
        assert ten[step] < five[step] / 3
        assert five[step] < three[step] / 3


@pytest.mark.parametrize("neighbours", [3, 5, 10])
def test_a_larger_gap_is_faster(neighbours):
    large, small = (paper_errors(beta, neighbours) for beta in (100, 2))
    assert (large[:15] < small[:15] / 3).all()


def test_ten_components_of_the_papers_tables_are_not_determined():
    """Figure 4's caption has D = 10: eigenvalues after the second are all 50, so any eight of their axes will do."""
    parts, axes = with_values([5000.0, 2500.0, *[50.0] * 48], 100, [100] * 10)
    whole = np.concatenate(parts, axis=1)
    first = np.linalg.svd(whole, full_matrices=False)[2][:10].T
    again = np.linalg.svd(whole[np.random.default_rng(0).permutation(100)], full_matrices=False)[2][:10].T
    for exact in (first, again):  # both exact, both far from the axes the table was made of
        np.testing.assert_allclose(
            whole.T @ (whole @ exact), exact * (exact * (whole.T @ (whole @ exact))).sum(0), atol=1e-8
        )
        assert off([exact], axes[:, :10]) > 5
    assert off([exact[:, :2]], axes[:, :2]) < 1e-20
