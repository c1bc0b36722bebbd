"""Leading eigenpairs from products with a few vectors at a time."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.maths import spectra
from coterie.maths.spectra import leading_pairs


class Counted:
    """A symmetric matrix that counts how often it is multiplied."""

    def __init__(self, values, n, seed=0):
        turned = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, len(values))))[0]
        self.matrix, self.vectors, self.passes = (turned * values) @ turned.T, turned, 0

    def times(self, block):
        self.passes += 1
        return self.matrix @ block


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch):
    monkeypatch.setattr(spectra, "SMALL", 20)


def same_space(a, b, atol=1e-8):
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=atol)


def test_they_are_the_eigenpairs():
    values = 1000 * 0.8 ** np.arange(120.0)
    made = Counted(values, 400)
    found = leading_pairs(made.times, 400, 12, seed=0)
    np.testing.assert_allclose(found.values, values[:12], rtol=1e-9)
    same_space(found.vectors, made.vectors[:, :12])
    left = made.matrix @ found.vectors - found.vectors * found.values
    assert np.linalg.norm(left, axis=0).max() <= 1e-9 * values[0]
    assert made.passes <= 8


def test_a_slow_spectrum_takes_more_passes_and_never_more_than_the_most():
    values = np.r_[np.linspace(2, 1, 300)]
    made = Counted(values, 300)
    found = leading_pairs(made.times, 300, 5, seed=0)
    assert made.passes <= spectra.MOST_PASSES
    assert (found.values <= values[:5] + 1e-9).all()
    np.testing.assert_allclose(found.values, values[:5], rtol=0.02)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(5), atol=1e-10)


def test_an_eigenvalue_that_is_there_many_times_is_found_as_often():
    made = Counted(np.r_[np.full(7, 5.0), 1.0, 0.5], 200)
    found = leading_pairs(made.times, 200, 8, seed=1)
    np.testing.assert_allclose(found.values, [5] * 7 + [1], rtol=1e-10)


def test_of_a_matrix_of_low_rank_the_rest_is_zero():
    made = Counted(np.array([3.0, 2.0]), 150)
    found = leading_pairs(made.times, 150, 6, seed=0)
    np.testing.assert_allclose(found.values, [3, 2, 0, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(6), atol=1e-10)
    assert made.passes <= 4
    nothing = leading_pairs(np.zeros_like, 150, 3, seed=0)
    assert not nothing.values.any()


@pytest.mark.parametrize(("n", "count"), [(15, 4), (60, 40), (5, 9)])
def test_small_matrices_and_most_of_a_spectrum_are_solved_whole(n, count):
    made = Counted(np.arange(n, 0, -1.0), n)
    found = leading_pairs(made.times, n, count, seed=0)
    np.testing.assert_allclose(found.values, np.arange(n, 0, -1.0)[:count], rtol=1e-12)
    assert made.passes == 1


def test_the_same_seed_gives_the_same_pairs():
    made = Counted(0.5 ** np.arange(60.0), 200)
    one, two = (leading_pairs(made.times, 200, 5, seed=3) for _ in range(2))
    assert one.vectors.tobytes() == two.vectors.tobytes()
