"""The kernel matrix of a joined table from eigenpairs of its parts'."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.errors import InputError
from coterie.maths import factors, spectra
from coterie.maths.factors import (
    Joined,
    found_for,
    kernel_pairs,
    pairs_left_out,
    rank_for,
    scaled_distances,
    sin_theta,
    symmetric_times,
)
from coterie.maths.kernels import Kernel
from coterie.maths.spectra import Ritz

ROWS = np.random.default_rng(3).normal(size=(80, 12))
GAMMA = 0.05


def exact(kernel, rows=ROWS):
    return rows @ rows.T if kernel == "linear" else Kernel("rbf", GAMMA).between(rows, rows)


def parts(kernel, rank, n_parts, rows=ROWS):
    return tuple(kernel_pairs(kernel, GAMMA, part, rank, seed=0) for part in np.array_split(rows, n_parts, axis=1))


def whole(joined):
    return joined.tile(slice(None), slice(None))


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
    monkeypatch.setattr(spectra, "SMALL", 10)
    monkeypatch.setattr(factors, "WRITTEN", 10)
    monkeypatch.setattr(factors, "TILE", 9)
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
@pytest.mark.parametrize("written", [10, 1000])
def test_a_parts_pairs_are_the_eigenpairs_of_its_kernel_matrix(kernel, written, monkeypatch):
    monkeypatch.setattr(spectra, "SMALL", 10)
    monkeypatch.setattr(factors, "SMALL", 10)
    monkeypatch.setattr(factors, "WRITTEN", written)
    monkeypatch.setattr(factors, "TILE", 9)
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


# ---------------------------------------------------------------- as many pairs as it takes


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("small", [10, 1000])
@pytest.mark.parametrize("share", [30.0, 3.0, 0.3, 1e-3])
def test_a_rank_is_the_fewest_pairs_that_leave_no_more_than_a_share(kernel, small, share, monkeypatch):
    monkeypatch.setattr(spectra, "SMALL", small)
    monkeypatch.setattr(factors, "SMALL", small)
    rows = ROWS[:, :5]
    values = np.maximum(np.sort(np.linalg.eigvalsh(exact(kernel, rows)))[::-1], 0)
    rests = [np.sqrt((values[d:] ** 2).sum()) for d in range(1, 81)]
    fewest = 1 + next(d for d, rest in enumerate(rests) if rest <= share)
    pairs, rank, left = rank_for(kernel, GAMMA, rows, share, most=80, seed=0)
    assert rank == fewest
    assert left <= share
    np.testing.assert_allclose(left, rests[rank - 1], atol=1e-6)
    assert len(pairs.values) == found_for(80, rank)


def test_a_rank_stops_at_the_most_there_may_be():
    pairs, rank, left = rank_for("rbf", GAMMA, ROWS, 1e-9, most=7, seed=0)
    assert rank == 7
    np.testing.assert_allclose(left, np.linalg.norm(exact("rbf") - (pairs.vectors[:, :7] * pairs.values[:7])
                                                    @ pairs.vectors[:, :7].T), rtol=1e-8)  # fmt: skip


def test_what_some_eigenvalues_leave_out_is_bounded_without_the_others():
    values = np.array([9.0, 4.0, 2.0, 1.0, 0.5])
    true = [np.sqrt((values[d:] ** 2).sum()) for d in range(1, 6)]
    np.testing.assert_allclose(pairs_left_out(values, 1e9, 5), true, atol=1e-12)
    some = pairs_left_out(values[:3], float((values**2).sum()), 5)
    assert (some >= np.array(true[:3]) - 1e-12).all()
    np.testing.assert_allclose(some, true[:3], rtol=1e-6)
    loose = pairs_left_out(values[:3], 1e9, 5)  # only the next value is of use: sqrt(n - D) lambda_(D+1)
    np.testing.assert_allclose(loose[:2], [np.sqrt(4) * 4, np.sqrt(3) * 2])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("rank", [1, 3, 10, 80])
def test_the_bound_from_what_was_sent_holds(kernel, rank):
    joined = Joined(kernel, parts(kernel, rank, 4))
    away = np.linalg.norm(exact(kernel) - whole(joined))
    assert away <= joined.error_bound() + 1e-9
    if rank == 80:
        assert joined.error_bound() == 0
    if rank == 1 and kernel == "rbf":
        assert away > 0.05 * joined.error_bound()


def test_a_symmetric_product_is_the_product(monkeypatch):
    monkeypatch.setattr(factors, "TILE", 7)
    matrix, block = exact("rbf"), np.random.default_rng(0).normal(size=(80, 3))
    seen = []

    def tile(rows, columns):
        seen.append((rows.start, columns.start))
        return matrix[rows, columns]

    np.testing.assert_allclose(symmetric_times(tile, 80, block), matrix @ block, atol=1e-12)
    assert len(seen) == 12 * 13 // 2


def test_distances_are_exact_far_from_the_origin():
    one, other = ROWS[:5] + 1e6, ROWS + 1e6
    true = GAMMA * ((one[:, None] - other) ** 2).sum(-1)
    np.testing.assert_allclose(scaled_distances(one, other, GAMMA), true, atol=1e-12)


def test_angles_between_spaces():
    turn = np.random.default_rng(2).normal(size=(3, 3))
    assert sin_theta(ROWS[:, :3], ROWS[:, :3] @ turn) < 1e-12
    np.testing.assert_allclose(sin_theta(np.eye(4)[:, :2], np.eye(4)[:, 2:]), np.sqrt(2))
    angle = 1e-9
    tilted = np.array([[np.cos(angle)], [np.sin(angle)]])
    np.testing.assert_allclose(sin_theta(np.array([[1.0], [0.0]]), tilted), angle, rtol=1e-6)
    with pytest.raises(InputError, match="arrays of one shape"):
        sin_theta(np.eye(3), np.eye(4))
